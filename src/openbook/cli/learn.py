"""`openbook learn` and `openbook prepare`: train a model as configured and leave a run behind."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from rich.table import Table

from openbook.base.console import emit_json, err, out, progress
from openbook.base.errors import InputError

Settings = Annotated[list[str], Parameter(name=["--set", "-s"], negative="")]

EXIT_NOT_CAPABLE = 1  # a student that cannot read is saved, but not called a reader


def learn(
    *,
    config: Path | None = None,
    data: Path | None = None,
    model: str | None = None,
    curriculum: str | None = None,
    samples: int | None = None,
    epochs: int | None = None,
    learning_rate: float | None = None,
    depth: int | None = None,
    chars: int | None = None,
    seed: int | None = None,
    out_folder: Annotated[Path, Parameter(name=["--out", "-o"])] = Path("runs/learn"),
    set_: Settings = [],  # noqa: B006 - cyclopts shows the default
    skip_bad: bool = False,
    resume: bool = False,
    allow_changes: bool = False,
    force: bool = False,
    dry_run: bool = False,
    settings: Annotated[bool, Parameter(negative="")] = False,
    json: bool = False,
) -> int:
    """Teach a model with the book open, closing it as training goes on.

    The loss is on the completion alone; the book is in the context until the curriculum takes it away. Leaves a run
    (config, versions, metrics, weights, hashes) in the folder `--out`.

    Your own data, a small model made from scratch:

        openbook learn --data facts.jsonl --epochs 60 --out runs/facts

    The paper's task, from a model that can read the book (this one comes with openbook; see `openbook prepare`):

        openbook learn --model student-3-8 --samples 4000 --curriculum anneal

    Parameters
    ----------
    config
        YAML file, or the name of a shipped config; flags and --set go over it.
    data
        JSONL file (or saved Hugging Face dataset) with prompt, completion and privileged_context; without it, the task.
    model
        Folder, run, shipped reader or Hugging Face name to start from; without it, a small Llama is made.
    curriculum
        no-context, fixed:0.2, anneal, no-dropout, wrong-context or patient.
    samples
        Examples to train on; all of the data, or 10,000 of the task, by default.
    epochs
        Times every example is seen.
    learning_rate
        Peak learning rate (under Muon of all but the matrices, which have training.matrix_learning_rate).
    depth
        Levels of the task; a student's own, if it starts from one.
    chars
        Characters in each of the task's alphabets, likewise.
    seed
        Seed of everything random; --set task.codebook and task.seed can keep the codebook and the strings.
    out_folder
        Folder of the run.
    set_
        Any other setting as key=value, for instance --set training.batch_size=32; --settings lists them.
    skip_bad
        Leave out records that cannot be read, and count them.
    resume
        Go on with an unfinished run in the folder, bit for bit; its settings need not be said again.
    allow_changes
        Go on even if data, settings or tokenizer have changed since.
    force
        Replace an earlier run in the folder.
    dry_run
        Print the plan (steps, tokens, parameters, memory) and stop.
    settings
        List all settings, for --set and config files, as they are with what else is said, and stop.
    json
        One JSON object on standard output.
    """
    flags: dict[str, Any] = {
        "data": data,
        "model.path": model,
        "curriculum": curriculum,
        "samples": samples,
        "training.epochs": epochs,
        "training.learning_rate": learning_rate,
        "task.depth": depth,
        "task.chars": chars,
        "seed": seed,
        "skip_bad": skip_bad or None,
    }
    asked = Asked(config, set_, flags, out_folder, force, resume, allow_changes)
    return _run(asked, {}, dry_run, settings, json)


def prepare(
    *,
    config: Path | None = None,
    method: Literal["reading", "chain-of-thought"] | None = None,
    model: str | None = None,
    depth: int | None = None,
    chars: int | None = None,
    samples: int | None = None,
    learning_rate: float | None = None,
    seed: int | None = None,
    out_folder: Annotated[Path, Parameter(name=["--out", "-o"])] = Path("runs/prepare"),
    set_: Settings = [],  # noqa: B006
    resume: bool = False,
    allow_changes: bool = False,
    force: bool = False,
    dry_run: bool = False,
    settings: Annotated[bool, Parameter(negative="")] = False,
    json: bool = False,
) -> int:
    """Teach a model to read: translation with a fresh random codebook in every example.

    By default a small student is made and taught from nothing in a minute or two: one level first, then more, until it
    reads silently. With `--method chain-of-thought` (and for any other model) it is done as in the paper: the chain of
    thought is explicit at first; from 10 % to 60 % of training its words are replaced by thinking tokens, first to
    last. What comes out is the model that `openbook learn` starts from.

        openbook prepare --depth 3 --chars 8 --out runs/prepare

    Parameters
    ----------
    config
        YAML file, or the name of a shipped config; flags and --set go over it.
    method
        reading (the default, makes a student) or chain-of-thought (for any model; the default with --model or
        --config).
    model
        Folder, run or Hugging Face name to start from; without it, a small Llama is made.
    depth
        Levels of the task.
    chars
        Characters in each alphabet.
    samples
        Codebooks to train on, one example each (chain-of-thought only; reading ends when it is mastered).
    learning_rate
        Peak learning rate (chain-of-thought only).
    seed
        Seed of everything random.
    out_folder
        Folder of the run.
    set_
        Any other setting as key=value; --settings lists them.
    resume
        Go on with an unfinished run in the folder, bit for bit; its settings need not be said again.
    allow_changes
        Go on even if data, settings or tokenizer have changed since.
    force
        Replace an earlier run in the folder.
    dry_run
        Print the plan and stop.
    settings
        List all settings, for --set and config files, as they are with what else is said, and stop.
    json
        One JSON object on standard output.
    """
    flags = {
        "model.path": model,
        "task.depth": depth,
        "task.chars": chars,
        "samples": samples,
        "training.learning_rate": learning_rate,
        "seed": seed,
    }
    from openbook.training.resolve import STAGE_ONE

    if resume:
        method = _method_of(out_folder, method)
    method = method or ("reading" if model is None and config is None else "chain-of-thought")
    if method == "reading":
        _check_course(flags, set_, config)
    asked = Asked(config, set_, flags, out_folder, force, resume, allow_changes)
    return _run(asked, STAGE_ONE[method], dry_run, settings, json)


@dataclass(frozen=True)
class Asked:
    """What the flags of a command ask for."""

    file: Path | None
    settings: list[str]
    flags: dict[str, Any]
    folder: Path
    force: bool
    resume: bool
    allow_changes: bool


def _run(asked: Asked, stage: dict[str, Any], dry_run: bool, settings: bool, json: bool) -> int:
    """Show the settings or the plan, or carry out the run; `stage` lies below all that is asked for."""
    from openbook.api import config_for
    from openbook.api import learn as start_run
    from openbook.training.folder import RunFolder, StartMode

    StartMode(asked.force, asked.resume, asked.allow_changes)  # refuse what contradicts itself first
    base = RunFolder(asked.folder).read("config.json") if asked.resume else stage  # what is not given is as it was
    config = config_for(file=asked.file, settings=asked.settings, base=base, **asked.flags)
    if config.reading is not None and base.get("reading") is None:
        raise InputError(
            "`reading` is the course of `openbook prepare --method reading`, which makes a student from nothing: leave "
            "it out here, or run that"
        )
    if settings:
        return _list_settings(config, json)
    if dry_run:
        return _show_course(config, json) if config.reading is not None else _show_plan(config, json)
    start = {"force": asked.force, "resume": asked.resume, "allow_changes": asked.allow_changes}
    from openbook.training.processes import is_first

    if not is_first():  # one process speaks for all
        start_run(config=config, out=asked.folder, **start)  # type: ignore[arg-type]
        return 0
    run = start_run(config=config, out=asked.folder, bar=progress, report=_report, **start)  # type: ignore[arg-type]
    result = {**run.result, "run": str(asked.folder)}
    emit_json(result) if json else _show_result(result)
    return 0 if result.get("capable", True) else EXIT_NOT_CAPABLE


def _list_settings(config: Any, json: bool) -> int:
    from json import dumps

    from openbook.curriculum import PRESETS
    from openbook.training.settings import listed

    found = listed(type(config), config)
    if json:
        emit_json({"settings": found})
        return 0
    table = Table("setting", "value", "meaning", box=None, header_style="bold", pad_edge=False)
    for one in found:
        value = one["value"] if isinstance(one["value"], str) else dumps(one["value"]).replace("null", "")
        table.add_row(one["key"], value, "; ".join(filter(None, [", ".join(one["words"]), one["meaning"]])))
    out.print(table)
    out.print(f"--curriculum sets all of curriculum.*: {', '.join(PRESETS)}", style="dim")
    return 0


def _method_of(folder: Path, asked: str | None) -> Literal["reading", "chain-of-thought"]:
    """How a run that is to go on was begun."""
    from openbook.training.folder import RunFolder

    begun: Literal["reading", "chain-of-thought"] = (
        "chain-of-thought" if RunFolder(folder).read("config.json").get("reading") is None else "reading"
    )
    if asked not in (None, begun):
        raise InputError(f"{folder} was begun with --method {begun}, so it cannot go on with {asked}")
    return begun


def _check_course(flags: dict[str, Any], settings: list[str], file: Path | None) -> None:
    """Refuse what a reading course would not look at."""
    from openbook.training.settings import read_yaml

    told = [key for key, value in flags.items() if value is not None]
    told += [setting.partition("=")[0].strip() for setting in settings]
    told += read_yaml(file) if file is not None else []
    if idle := [key for key in told if key.split(".")[0] in ("model", "samples", "training")]:
        raise InputError(
            "reading makes its own student, has rates of its own (under `reading`) and ends when it can read: leave "
            f"out {', '.join(idle)}, or ask for --method chain-of-thought"
        )


def _show_course(config: Any, json: bool) -> int:
    """The plan of a reading course: its stages. How many steps they take is not known beforehand."""
    from openbook.student.course import stages
    from openbook.task.formats import format_named
    from openbook.task.inputs import check_lengths

    check_lengths(*config.task.lengths)
    format_named(config.task.text, config.task.depth, config.task.chars).check()
    course = [vars(stage) for stage in stages(config.task.depth, config.task.lengths, config.reading)]
    if json:
        emit_json({"stages": course, "most_steps": config.reading.most_steps})
        return 0
    table = Table("stage", "levels", "unused rules", "lengths", "pages missing", box=None, header_style="bold")
    for number, stage in enumerate(course, 1):
        lengths = "{} to {}".format(*stage["lengths"])
        missing = f"{config.reading.missing:.0%} of examples" if stage["missing"] else ""
        table.add_row(str(number), str(stage["levels"]), f"{stage['others']:.0%}", lengths, missing)
    out.print(table)
    out.print(f"a stage ends when it is mastered; at most {config.reading.most_steps:,} steps in all", style="dim")
    return 0


def _show_plan(config: Any, json: bool) -> int:
    """The plan of a training: steps, tokens, memory, and when the book closes."""
    from openbook.training.estimate import estimate

    plan = estimate(config)
    if json:
        emit_json(plan)
        return 0
    table = Table("what", "how much", box=None, header_style="bold")
    for name in ("examples", "positions", "steps", "tokens_per_example", "targets_per_example", "tokens", "parameters"):
        table.add_row(name.replace("_", " "), f"{plan[name]:,}")
    for name, size in plan["memory"].items():
        table.add_row(f"memory: {name.replace('_', ' ')}", f"{size / 2**30:,.3f} GiB")
    out.print(table)
    out.print(f"tokens are {plan['tokens_are']}; memory is an estimate, not a measurement", style="dim")
    if plan["pieces_that_do_not_fit"] or plan["prompts_cut"]:
        out.print(
            f"{plan['pieces_that_do_not_fit']:g} pieces of an example do not fit into the window of {plan['window']} "
            f"tokens and are left out; {plan['prompts_cut']:.0%} of the prompts are cut at their start",
            style="yellow",
        )
    schedule = Table("progress", "closed", "examples without book", "silent thoughts", box=None, header_style="bold")
    for point in plan["schedule"]:
        schedule.add_row(*(f"{point[name]:.0%}" for name in ("progress", "closed", "without_book", "silent")))
    out.print(schedule)
    return 0


def _report(line: str) -> None:
    err.print(line, markup=False)


def _show_result(result: dict[str, Any]) -> None:
    table = Table("book", "accuracy", "95 % interval", "chance", "exact match", box=None, header_style="bold")
    for row in result["exam"]:
        table.add_row(
            "closed" if row["open"] == 0 else "open",
            f"{row['accuracy']:.3f}",
            f"{row['low']:.3f} to {row['high']:.3f}",
            f"{row['chance']:.3f}",
            f"{row['exact_match']:.3f}",
        )
    out.print(table)
    if result.get("skipped"):
        out.print(f"{result['skipped']:,} records could not be read and were left out", style="yellow")
    if result.get("advice"):
        out.print(result["advice"], style="yellow", markup=False)
    if "capable" in result:
        verdict = "[green]ICL-capable[/]" if result["capable"] else "[bold red]not ICL-capable[/]"
        out.print(f"{verdict}: open-book accuracy on fresh codebooks against a threshold of {result['threshold']:g}")
    out.print(
        f"{result['samples']:,} examples, {result['steps']:,} steps, {result['seconds']:.1f} s; run: {result['run']}",
        markup=False,
    )
