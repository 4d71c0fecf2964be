"""What a run trains on and is examined on, as its config says, and how that is recorded."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from openbook.base.errors import InputError
from openbook.book.jsonl import ListSource, load_source
from openbook.book.shelf import Bank
from openbook.book.source import Source
from openbook.curriculum import SamplingPlan
from openbook.task.inputs import halves
from openbook.task.phrasebook import Codebook
from openbook.task.source import Translations
from openbook.training.config import RunConfig, TaskConfig
from openbook.training.encode import Encoder
from openbook.training.folder import RunFolder

TASK_SAMPLES = 10_000  # examples of the task to train on by default
EXAMS = 10  # during training, by default
EXAM_SHARE = 0.1  # of the work of a training, for the exams during it
LEAST = 8  # examples of an exam during training, however short it is
EXAM_START = 10**9  # exam inputs of the task are numbered from here, where training never comes


def task_source(task: TaskConfig, count: int, start: int = 0, bank: Bank | None = None) -> Translations:
    """Examples of the task as configured, `count` of them from number `start`.

    Codebook 0 of a seed is *the* codebook, which is learned and audited, so fresh ones are those from 1 on.
    """
    codebook = None
    if task.codebook != "fresh":
        if isinstance(task.codebook, str) and not Path(task.codebook).is_file():
            raise InputError(
                f"task.codebook is '{task.codebook}', which is none of these: a seed, a codebook file, 'fresh'"
            )
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
            raise InputError(f"task.held_out is level {task.held_out}, but there are {task.depth}: name one of those")
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


def exam_size_during(config: RunConfig, positions: int) -> int | None:
    """Examples of an exam during training; None for as many as in the exam at the end.

    An exam reads each example twice, closed and open, and training goes forward and back: three times the work. So an
    example of an exam costs two thirds of a position, and a tenth of the training pays for this many.
    """
    if config.exam.during is not None or config.task is not None or config.exam.every is not None:
        return config.exam.during
    return max(LEAST, round(EXAM_SHARE * positions * 3 / 2 / EXAMS))


def encoder_for(
    config: RunConfig, tokenizer: Any, source: Source, window: int | None, today: str | None = None
) -> Encoder:
    """`today` is the date that a chat template inserts; the current date by default."""
    return Encoder(tokenizer, source.bank, window, config.think, config.chat, config.training.loss, today)


def plan_for(config: RunConfig, source: Source) -> SamplingPlan:
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
    """What is trained on and how it is cut into tokens, by fingerprint: the data.json of a run.

    With the exam's data where that is a file of its own, and what a chat template puts around an example. A template
    that inserts the date would write something else tomorrow, so the record has the date.
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
    if source.skipped:
        record |= {"skipped": len(source.skipped), "skipped_because": list(source.skipped[:20])}
    return record


def recorded_date(folder: Path) -> str | None:
    """The date that a chat template inserted when a run started, if it recorded one."""
    data = RunFolder(folder).read("data.json") if (folder / "data.json").exists() else {}
    return data.get("chat", {}).get("today")


def recorded_source(folder: Path, config: RunConfig) -> Source:
    """The records that a run was examined on, if they are still what they were."""
    path = config.exam.data or config.data
    assert path is not None
    recorded = RunFolder(folder).read("data.json")
    expected = recorded["exam"] if config.exam.data else recorded["fingerprint"]
    try:
        source = records_of(config, path)
    except InputError as error:
        raise InputError(f"{error} ({folder} was examined on it; name another file with --data)") from None
    if expected != source.fingerprint:
        used = "examined on in training" if config.exam.data else "trained on"
        raise InputError(
            f"{path} is not what {folder} was {used}, it was changed since; to examine on it all the same, name it "
            "with --data"
        )
    return source
