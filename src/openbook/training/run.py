"""One run from config to record. `carry_out` names every stage in order; read it first."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from openbook.base.console import Bar, no_bar
from openbook.base.errors import InputError, StoppedError
from openbook.book.jsonl import ListSource, load_source
from openbook.book.shelf import Bank, Source
from openbook.curriculum import SamplingPlan
from openbook.task.formats import STUDENT_TEXTS
from openbook.task.inputs import halves
from openbook.task.phrasebook import Codebook
from openbook.task.source import Translations
from openbook.training import checkpoint
from openbook.training.checks import check_kept, check_moments, check_targets, seen_in_training, warnings_of
from openbook.training.config import RunConfig, TaskConfig
from openbook.training.encode import Encoder
from openbook.training.exam import Row, examine
from openbook.training.folder import RunFolder
from openbook.training.models import check_window, freeze, load_or_make, load_placed, window_of
from openbook.training.outcome import advice
from openbook.training.processes import Onlooker, check_world_size, is_first, wait_for_all
from openbook.training.resume import ResumableTrainer, stopping_at_signals
from openbook.training.settings import validated
from openbook.training.shipped import located
from openbook.training.train import Reporter, optimizer_of, training_arguments

TASK_SAMPLES = 10_000  # of the task, if nothing else is said
EXAM_START = 10**9  # exam inputs of the task are numbered from here, where training never comes
EXAMS_DURING_TRAINING = 10


def task_source(task: TaskConfig, count: int, start: int = 0, bank: Bank | None = None) -> Translations:
    """Examples of the task as configured, `count` of them from number `start`.

    Codebook 0 of a seed is *the* codebook, which is learned and audited, so fresh ones are those from 1 on.
    """
    codebook = None
    if task.codebook != "fresh":
        if isinstance(task.codebook, str) and not Path(task.codebook).is_file():
            raise InputError(f"task.codebook is '{task.codebook}', which is no seed, no codebook file and not 'fresh'")
        seeded = isinstance(task.codebook, int)
        codebook = (
            Codebook.sample(task.depth, task.chars, int(task.codebook)) if seeded else Codebook.load(str(task.codebook))
        )
        if (codebook.depth, codebook.chars) != (task.depth, task.chars):
            raise InputError(
                f"{task.codebook} is a codebook of MLT({codebook.depth}, {codebook.chars}), but the task is "
                f"MLT({task.depth}, {task.chars})"
            )
    only = None
    if task.held_out is not None:
        if task.held_out > task.depth:
            raise InputError(f"task.held_out is level {task.held_out}, but there are {task.depth}")
        only = (task.held_out - 1, halves(task.chars, task.held_out - 1, task.seed)[0])
    first = max(start, 1) if codebook is None else start
    inputs = (task.lengths, task.seed, task.text, task.chain, first, only)
    return Translations(task.depth, task.chars, count, codebook, *inputs, bank=bank or Bank())


def sources_of(config: RunConfig) -> tuple[Source, Source]:
    """What is trained on and what is examined. The task is examined on strings drawn apart from those of training."""
    if config.task is not None:
        training = task_source(config.task, config.samples or TASK_SAMPLES)
        return training, task_source(config.task, config.exam.samples, EXAM_START, training.bank)
    assert config.data is not None
    data = records_of(config, config.data)
    return data, (records_of(config, config.exam.data) if config.exam.data else data)


def records_of(config: RunConfig, path: Path | str) -> ListSource:
    """The records of a file or a saved dataset, read as the config says."""
    return load_source(path, config.skip_bad, think=config.think)


def exam_size(config: RunConfig) -> int:
    """Examples of an exam; of records that are trained on, no more than those that are."""
    if config.task is not None or config.exam.data is not None or config.samples is None:
        return config.exam.samples
    return min(config.exam.samples, config.samples)


def encoder_of(
    config: RunConfig, tokenizer: Any, source: Source, window: int | None, today: str | None = None
) -> Encoder:
    """`today`: the date that a chat template tells, if not that of now."""
    return Encoder(tokenizer, source.bank, window, config.think, config.chat, config.training.loss, today)


def told_date(folder: Path) -> str | None:
    """The date that a run's chat template told when it was begun, if the record has one."""
    data = RunFolder(folder).read("data.json") if (folder / "data.json").exists() else {}
    return data.get("chat", {}).get("today")


def plan_of(config: RunConfig, source: Source) -> SamplingPlan:
    return SamplingPlan(
        source,
        config.curriculum,
        seed=config.seed,
        epochs=config.training.epochs,
        shuffle=bool(config.training.shuffle),
        samples=config.samples,
    )


def data_record(
    source: Source, tokenizer: Any, exam_source: Source | None = None, encoder: Encoder | None = None
) -> dict[str, Any]:
    """What is trained on and how it is cut into tokens, by fingerprint.

    With what it is examined on where that is a file of its own, and what a chat template puts around an example. One
    that tells the date would write something else tomorrow, so the record has the date.
    """
    vocabulary = json.dumps(sorted(tokenizer.get_vocab().items()), ensure_ascii=False).encode()
    record: dict[str, Any] = {
        "examples": len(source),
        "fingerprint": source.fingerprint,
        "tokenizer": hashlib.sha256(vocabulary).hexdigest(),
    }
    if exam_source is not None:
        record["exam"] = exam_source.fingerprint
    if encoder is not None and encoder.chat:
        record["chat"] = asdict(encoder.frame) | ({"today": encoder.today} if encoder.dated else {})
    skipped = getattr(source, "skipped", [])
    if skipped:
        record |= {"skipped": len(skipped), "skipped_because": skipped[:20]}
    return record


@dataclass(frozen=True)
class Accuracy:
    """Closed-book and open-book accuracy of a model."""

    closed_book: float
    open_book: float


def accuracy_of(rows: list[Row]) -> Accuracy:
    return Accuracy(
        closed_book=next(row.accuracy for row in rows if row.open == 0 and row.book == "right"),
        open_book=next(row.accuracy for row in rows if row.open == 1 and row.book == "right"),
    )


def carry_out(
    config: RunConfig,
    folder: Path,
    force: bool = False,
    resume: bool = False,
    allow_changes: bool = False,
    bar: Bar = no_bar,
    say: Callable[[str], None] = lambda line: None,
    today: str | None = None,
) -> dict[str, Any]:
    """Train as configured and leave a run in `folder`; returns the result (the keys of `openbook learn --json`).

    `today` is the date that a chat template tells, if not that of now.
    """
    if is_first():
        RunFolder(folder).check_writable() if resume else RunFolder(folder).check_free(force)
    if not resume:
        check_kept(config, folder)
    config.check_start()
    source, exam_source = sources_of(config)
    plan = plan_of(config, source)
    steps = -(-plan.total // config.training.step_size)
    arguments = training_arguments(config.training, folder, config.seed, steps)
    check_world_size(arguments.world_size)
    model, tokenizer = load_or_make(config.model, source, config.seed, config.think)
    freeze(model, config.training.freeze)
    check_window(model, config.training.max_length)
    window = config.training.max_length or window_of(model)
    encoder = encoder_of(config, tokenizer, source, window, told_date(folder) if resume else today)
    same_bank = exam_source.bank is source.bank
    exam_encoder = encoder if same_bank else encoder_of(config, tokenizer, exam_source, window, encoder.today)
    fit = check_targets(source, encoder, config.curriculum, plan.size, bar)
    own_exam = exam_source if config.exam.data else None  # strings of the task are all alike
    exam_fit = None
    if own_exam is not None:
        exam_fit = check_targets(own_exam, exam_encoder, config.curriculum, exam_size(config), bar, learned=False)
    warnings = warnings_of(config, source, fit, exam_fit, window, seen_in_training(source, exam_source))
    for line in warnings:
        say(line)
    settings = config.model_dump(mode="json")
    data = data_record(source, tokenizer, own_exam, encoder)
    if resume and allow_changes and (found := checkpoint.newest(RunFolder(folder).checkpoints)):
        checkpoint.check_fits(found, model)
        check_moments(config, validated(RunConfig, RunFolder(folder).read("config.json")))
    if not is_first():
        wait_for_all()  # until the folder is there
        run: RunFolder = Onlooker(folder)
    else:
        run = (
            taken_up(folder, settings, data, allow_changes)
            if resume
            else RunFolder.create(folder, settings, data, force)
        )
        wait_for_all()
    if run.finished:
        say(f"{folder} is finished already")
        return {"run": str(folder), **run.read("result.json")}

    def sit(shares: tuple[float, ...]) -> list[Row]:
        return examine(
            model,
            exam_encoder,
            exam_source,
            config.curriculum,
            shares,
            wrong=False,
            samples=exam_size(config),
            seed=config.seed,
            batch_size=config.exam.batch_size,
        )

    with run.lock(), stopping_at_signals() as stopped:
        start = where_to_start(run, say, arguments.world_size, allow_changes) if resume else None
        if start is not None:
            checkpoint.check_fits(start, model)  # what the run began with may have been made anew since
        every = config.exam.every or max(1, steps // EXAMS_DURING_TRAINING)
        started, busy = time.perf_counter(), time.process_time()
        with bar("training", steps) as advance:
            trainer = ResumableTrainer(
                model,
                plan,
                encoder,
                arguments,
                batch_size=config.training.step_size,
                micro_batch_size=min(config.training.micro_batch_size, config.training.step_size),
                callbacks=[Reporter(run.log, advance, lambda: vars(accuracy_of(sit((0.0, 1.0)))), every)],
                folder=run.checkpoints,
                every=config.training.checkpoint_every,
                start=start,
                log_size=run.log_size,
                optimizers=(optimizer_of(config.training, model), None),
            )
            advance(trainer.first_step)
            trainer.train()
        seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - busy
        number = stopped()
        if number is not None and trainer.state.global_step < steps:
            raise StoppedError(
                f"stopped at step {trainer.state.global_step} of {steps}, which is saved; go on with --resume", number
            )
        rows = sit((0.0, 1.0))
        run.save_model(model, tokenizer)
        accuracy, chance = accuracy_of(rows), rows[0].chance
        by_heart = not isinstance(source, Translations) or source.codebook is not None  # fresh ones are only read
        result = {
            "steps": steps,
            "samples": plan.size,
            "positions": plan.total,
            "accuracy": vars(accuracy),
            "exam": [row.as_dict() for row in rows],
            "chance": chance,
            "advice": advice(**vars(accuracy), chance=chance, course=run.metrics(), curriculum=config.curriculum)
            if by_heart
            else None,
            "seconds": round(seconds, 2),
            "cpu_seconds": round(cpu_seconds, 2),
            "resumed_from": trainer.first_step,  # seconds are of what came after it
            "curriculum": settings["curriculum"],
            "skipped": len(getattr(source, "skipped", [])),
            "warnings": warnings,
        }
        run.finish(result)
        if not config.training.keep_checkpoints:
            run.drop_checkpoints()  # not before: until then they are all there is
    return {"run": str(folder), **result}


def taken_up(folder: Path, settings: dict[str, Any], data: dict[str, Any], allow_changes: bool) -> RunFolder:
    """An unfinished run, to go on with; what an earlier version wrote is read as it was meant."""
    recorded = validated(RunConfig, RunFolder(folder).read("config.json")).model_dump(mode="json")
    return RunFolder.resume(folder, settings, data, allow_changes, recorded)


def where_to_start(
    run: RunFolder, say: Callable[[str], None], processes: int = 1, allow_changes: bool = False
) -> checkpoint.Found | None:
    """The newest whole checkpoint, with the log cut back to it; what was passed over is said.

    Another number of processes would train on the same positions, but add gradients up in another order.
    """
    found = checkpoint.newest(run.checkpoints)
    never_finished = [f"{name}: never finished" for name in checkpoint.unfinished(run.checkpoints)]
    for line in [*never_finished, *(found.passed_over if found else [])]:
        say(f"passed over: {line}")
    if found and (before := checkpoint.processes_of(found)) != processes and not allow_changes:
        raise InputError(
            f"{run.folder} cannot go on bit for bit: processes was {before}, is {processes} "
            "(pass --allow-changes to go on all the same)"
        )
    run.cut_log(checkpoint.read_state(found)["log"] if found else 0)
    say(f"going on from step {found.step}" if found else "no checkpoint yet: starting from the beginning")
    return found


def recorded_source(folder: Path, config: RunConfig) -> Source:
    """The records that a run is examined on, if they are still what they were."""
    path = config.exam.data or config.data
    assert path is not None
    recorded = RunFolder(folder).read("data.json")
    known = recorded.get("exam") if config.exam.data else recorded["fingerprint"]  # earlier versions recorded no exam
    try:
        source = records_of(config, path)
    except InputError as error:
        raise InputError(f"{error} ({folder} was examined on it; name another file with --data)") from None
    if known not in (None, source.fingerprint):
        done = "examined on in training" if config.exam.data else "trained on"
        raise InputError(
            f"{path} is not what {folder} was {done}, it was changed since; to examine on it all the same, name it "
            "with --data"
        )
    return source


def reopen(
    folder: Path,
    data: Path | None = None,
    samples: int | None = None,
    lengths: tuple[int, int] | None = None,
    codebook: int | str | None = None,
) -> tuple[RunConfig, Any, Encoder, Source]:
    """A finished run's config, model, encoder and exam source, to examine or probe it.

    It may have other data, or the task other lengths or another codebook.
    """
    folder = located(folder)
    run = RunFolder(folder)
    settings = run.read("config.json")
    if isinstance(settings, dict) and "architectures" in settings:
        raise InputError(f"{folder} is a model and not a run: name the folder that `openbook learn` has left")
    config = validated(RunConfig, settings)
    if not run.finished:
        command = "learn" if config.reading is None else "prepare"
        raise InputError(f"{folder} did not finish: go on with `openbook {command} --resume --out {folder}`")
    if damage := run.damage():
        raise InputError(f"{folder} cannot be used: {'; '.join(damage[:3])}")
    asked = {"lengths": lengths, "codebook": codebook}
    if others := {name: value for name, value in asked.items() if value is not None}:
        if data is not None or config.task is None:
            what = " and ".join({"lengths": "other lengths", "codebook": "another codebook"}[name] for name in others)
            raise InputError(f"only the strings of the task have {what}; this exam is on records of a file")
        config = validated(RunConfig, config.model_dump() | {"task": config.task.model_dump() | others})
    if data is not None and config.task is not None and config.task.text in STUDENT_TEXTS:
        raise InputError(f"{folder} is a student, whose words are those of its task: it cannot be examined on {data}")
    if data is not None:
        exam_source: Source = records_of(config, data)
    elif config.task is not None:
        exam_source = task_source(config.task, samples or config.exam.samples, EXAM_START)
    else:
        exam_source = recorded_source(folder, config)
    model, tokenizer = load_placed(str(folder), config.model.dtype)
    window = config.training.max_length or window_of(model)
    return config, model, encoder_of(config, tokenizer, exam_source, window, told_date(folder)), exam_source
