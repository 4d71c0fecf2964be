"""`openbook learn` and `openbook prepare`: train a model as configured and leave a run behind."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from openbook.base.console import emit_json, err, out, print_cells, print_table, progress
from openbook.base.errors import InputError
from openbook.cli.output import RATES, show_retention

EXIT_NOT_CAPABLE = 1  # a student that cannot read is saved, but not called a reader

Method = Literal["reading", "chain-of-thought"]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class RunFlags:
    """What `learn` and `prepare` have in common.

    Parameters
    ----------
    config
        YAML file, or the name of a shipped config; flags and --set go over it.
    model
        Model to start from: a folder, a run, a GGUF file, a shipped reader, smollm2-135m (the default for your own
        data), or a name on the Hugging Face hub; `scratch` (the default for the task) makes a small one from nothing.
    samples
        Number of examples to train on; all of your data, or 10,000 of the task, by default.
    learning_rate
        Peak learning rate (with Muon, that of everything but the matrices).
    depth
        Number of levels of the task; a student has its own.
    chars
        Number of characters in each alphabet of the task; a student has its own.
    seed
        Seed of everything random.
    out_folder
        Folder of the run; runs/learn or runs/prepare by default.
    set_
        Any other setting as key=value, for instance --set training.batch_size=32; --settings lists them.
    resume
        Continue the unfinished run in the folder, bit for bit; its settings need not be given again.
    allow_changes
        Continue even if data, settings or tokenizer have changed since.
    force
        Replace an earlier run in the folder.
    dry_run
        Print the plan (steps, tokens, parameters, memory) and stop.
    settings
        List all settings with the values they would have, and stop.
    json
        Print one JSON object on standard output.
    """

    config: Path | None = None
    model: str | None = None
    samples: int | None = None
    learning_rate: float | None = None
    depth: int | None = None
    chars: int | None = None
    seed: int | None = None
    out_folder: Annotated[Path | None, Parameter(name=["--out", "-o"])] = None
    set_: Annotated[list[str], Parameter(name=["--set", "-s"], negative="")] = field(default_factory=list)
    resume: bool = False
    allow_changes: bool = False
    force: bool = False
    dry_run: bool = False
    settings: Annotated[bool, Parameter(negative="")] = False
    json: bool = False

    def keys(self) -> dict[str, Any]:
        """The settings that these flags stand for."""
        return {
            "model.path": self.model,
            "samples": self.samples,
            "training.learning_rate": self.learning_rate,
            "task.depth": self.depth,
            "task.chars": self.chars,
            "seed": self.seed,
        }


def learn(
    *,
    data: Path | None = None,
    curriculum: str | None = None,
    epochs: int | None = None,
    skip_bad: bool = False,
    flags: RunFlags = RunFlags(),  # noqa: B008 - it is frozen
) -> int:
    """Teach a model with the book open, closing it as training goes on.

    The loss is on the completion alone; the book is in the context until the curriculum takes it away. Leaves a run
    (config, versions, metrics, weights, hashes) in the folder `--out`.

    Your own data, with SmolLM2-135M, which is downloaded once (93 MB, Apache-2.0):

        openbook learn --data facts.jsonl --out runs/facts

    The paper's task, from a model that can read the book (this one comes with openbook; see `openbook prepare`):

        openbook learn --model student-3-8 --samples 4000 --curriculum anneal

    Parameters
    ----------
    data
        JSONL file (or saved Hugging Face dataset) with prompt, completion and privileged_context; without it, the task.
    curriculum
        How the book is closed: no-context, fixed:0.2, anneal, no-dropout, wrong-context or patient.
    epochs
        Number of times every example is seen.
    skip_bad
        Leave out records that cannot be read, and count them.
    """
    own = {"data": data, "curriculum": curriculum, "training.epochs": epochs, "skip_bad": skip_bad or None}
    return _run(flags, own, {}, flags.out_folder or Path("runs/learn"))


def prepare(
    *,
    method: Method | None = None,
    flags: RunFlags = RunFlags(),  # noqa: B008
) -> int:
    """Teach a model to read: translation with a fresh random codebook in every example.

    By default a small student is made and taught from nothing in a minute or two: one level first, then more, until it
    reads silently. With `--method chain-of-thought` (and for any other model) it is done as in the paper: the chain of
    thought is explicit at first; from 10 % to 60 % of training its words are replaced by thinking tokens, first to
    last. What comes out is the model that `openbook learn` starts from.

        openbook prepare --depth 3 --chars 8 --out runs/prepare

    Parameters
    ----------
    method
        reading (the default, makes a student) or chain-of-thought (for any model; the default with --model or
        --config).
    """
    from openbook.training.resolve import STAGE_ONE

    folder = flags.out_folder or Path("runs/prepare")
    if flags.resume:
        method = _method_of(folder, method)
    method = method or ("reading" if flags.model is None and flags.config is None else "chain-of-thought")
    if method == "reading":
        _check_course(flags)
    return _run(flags, {}, STAGE_ONE[method], folder)


def _run(flags: RunFlags, own: dict[str, Any], stage: dict[str, Any], folder: Path) -> int:
    """Show the settings or the plan, or carry out the run; `stage` lies below all that the flags say."""
    from openbook.api import config_for
    from openbook.api import learn as start_run
    from openbook.training.folder import RunFolder, StartMode

    start = StartMode(flags.force, flags.resume, flags.allow_changes)
    base = RunFolder(folder).read("config.json") if flags.resume else stage  # what is not given is as it was
    config = config_for(file=flags.config, settings=flags.set_, base=base, **flags.keys(), **own)
    if config.reading is not None and base.get("reading") is None:
        raise InputError(
            "`reading` is the course of `openbook prepare --method reading`, which makes a student from nothing: leave "
            "it out here, or run that"
        )
    if flags.settings:
        return _list_settings(config, flags.json)
    if flags.dry_run:
        return _show_course(config, flags.json) if config.reading is not None else _show_plan(config, flags.json)
    from openbook.training.processes import is_first

    if not is_first():  # one process speaks for all
        start_run(config=config, out=folder, **vars(start))
        return 0
    run = start_run(config=config, out=folder, bar=progress, report=_report, **vars(start))
    emit_json(run.result) if flags.json else _show_result(run.result)
    return 0 if run.result.get("capable", True) else EXIT_NOT_CAPABLE


def _list_settings(config: Any, json: bool) -> int:
    from json import dumps

    from openbook.curriculum import PRESETS
    from openbook.training.settings import listed

    settings = listed(type(config), config)
    if json:
        emit_json({"settings": settings})
        return 0
    for setting in settings:
        if not isinstance(setting["value"], str):
            setting["value"] = dumps(setting["value"]).replace("null", "")
        setting["meaning"] = "; ".join(filter(None, [", ".join(setting["words"]), setting["meaning"]]))
    caption = f"--curriculum sets all of curriculum.*: {', '.join(PRESETS)}"
    print_table(settings, {"setting": "{key}", "value": "{value}", "meaning": "{meaning}"}, caption)
    return 0


def _method_of(folder: Path, asked: Method | None) -> Method:
    """The method of an unfinished run."""
    from openbook.training.folder import RunFolder

    course = RunFolder(folder).read("config.json").get("reading")
    method: Method = "chain-of-thought" if course is None else "reading"
    if asked not in (None, method):
        raise InputError(f"{folder} was started with --method {method}, so it cannot continue with {asked}")
    return method


def _check_course(flags: RunFlags) -> None:
    """Refuse settings that a reading course does not use."""
    from openbook.training.settings import read_yaml

    given = [key for key, value in flags.keys().items() if value is not None]
    given += [setting.partition("=")[0].strip() for setting in flags.set_]
    given += read_yaml(flags.config) if flags.config is not None else []
    if unused := [key for key in given if key.split(".")[0] in ("model", "samples", "training")]:
        raise InputError(
            "reading makes its own student, has rates of its own (under `reading`) and ends when it can read: leave "
            f"out {', '.join(unused)}, or ask for --method chain-of-thought"
        )


def _show_course(config: Any, json: bool) -> int:
    """The plan of a reading course: its stages. How many steps they take is not known beforehand."""
    from openbook.student.course import stages
    from openbook.task.formats import FORMATS
    from openbook.task.inputs import check_lengths

    check_lengths(*config.task.lengths)
    FORMATS[config.task.text](config.task.depth, config.task.chars).check()
    course = [vars(stage) for stage in stages(config.task.depth, config.task.lengths, config.reading)]
    if json:
        emit_json({"stages": course, "most_steps": config.reading.most_steps})
        return 0
    missing = f"{config.reading.missing:.0%} of examples"
    print_table(
        [stage | {"number": number} for number, stage in enumerate(course, 1)],
        {
            "stage": "{number}",
            "levels": "{levels}",
            "unused rules": "{others:.0%}",
            "lengths": "{lengths[0]} to {lengths[1]}",
            "pages missing": lambda stage: missing if stage["missing"] else "",
        },
        f"a stage ends when it is mastered; at most {config.reading.most_steps:,} steps in all",
    )
    return 0


def _show_plan(config: Any, json: bool) -> int:
    """The plan of a training: steps, tokens, memory, and when the book closes."""
    from openbook.training.estimate import estimate

    plan = estimate(config)
    if json:
        emit_json(plan)
        return 0
    counts = ("examples", "positions", "steps", "tokens_per_example", "targets_per_example", "tokens", "parameters")
    amounts = {name: f"{plan[name]:,}" for name in counts}
    amounts |= {f"memory: {name}": f"{size / 2**30:,.3f} GiB" for name, size in plan["memory"].items()}
    caption = f"tokens are {plan['tokens_are']}; memory is an estimate, not a measurement"
    print_cells(["what", "how much"], [[name.replace("_", " "), much] for name, much in amounts.items()], caption)
    if plan["pieces_that_do_not_fit"] or plan["prompts_cut"]:
        out.print(
            f"{plan['pieces_that_do_not_fit']:g} pieces of an example do not fit into the window of {plan['window']} "
            f"tokens and are left out; {plan['prompts_cut']:.0%} of the prompts are cut at their start",
            style="yellow",
        )
    columns = {"progress": "{progress:.0%}", "closed": "{closed:.0%}"}
    columns |= {"examples without book": "{without_book:.0%}", "silent thoughts": "{silent:.0%}"}
    print_table(plan["schedule"], columns)
    return 0


def _report(line: str) -> None:
    err.print(line, markup=False)


def _show_result(result: dict[str, Any]) -> None:
    print_table(result["exam"], {"book": lambda row: "closed" if row["open"] == 0 else "open", **RATES})
    if result.get("skipped"):
        out.print(f"{result['skipped']:,} records could not be read and were left out", style="yellow")
    if result.get("retention"):
        show_retention(result["retention"])
    if result.get("advice"):
        out.print(result["advice"], style="yellow", markup=False)
    if "capable" in result:
        verdict = "[green]ICL-capable[/]" if result["capable"] else "[bold red]not ICL-capable[/]"
        out.print(f"{verdict}: open-book accuracy on fresh codebooks against a threshold of {result['threshold']:g}")
    out.print(
        f"{result['samples']:,} examples, {result['steps']:,} steps, {result['seconds']:.1f} s; run: {result['run']}",
        markup=False,
    )
