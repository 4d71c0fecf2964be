"""Opens a finished run again, to examine it, to look inside it or to ask it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from openbook.base.errors import InputError
from openbook.book.load import load
from openbook.book.source import Source
from openbook.task.formats import FORMATS
from openbook.training.config import RunConfig
from openbook.training.encode import Encoder
from openbook.training.folder import RunFolder
from openbook.training.models import load_placed, window_of
from openbook.training.settings import validated
from openbook.training.shipped import located
from openbook.training.sources import EXAM_START, encoder_for, recorded_date, recorded_source, task_source


class Reopened(NamedTuple):
    """A finished run: its config, its model, and what it is examined on."""

    config: RunConfig
    model: Any
    encoder: Encoder
    source: Source


def finished_config(folder: Path) -> RunConfig:
    """The recorded config of a run that has finished and is as it was left."""
    run = RunFolder(folder)
    settings = run.read("config.json")
    if "architectures" in settings:
        raise InputError(f"{folder} is a model and not a run: name the folder that `openbook learn` has left")
    config = validated(RunConfig, settings)
    if not run.finished:
        command = "learn" if config.reading is None else "prepare"
        raise InputError(f"{folder} did not finish: go on with `openbook {command} --resume --out {folder}`")
    if damage := run.damage():
        raise InputError(f"{folder} cannot be used: {'; '.join(damage[:3])}")
    return config


def reopen(
    folder: Path,
    data: Any = None,
    samples: int | None = None,
    lengths: tuple[int, int] | None = None,
    codebook: int | str | None = None,
) -> Reopened:
    """A finished run with its own exam, or with other data, or with other lengths or another codebook of its task.

    `data` is a path or whatever else `openbook.load` takes.
    """
    config, source = examined_on(folder, data, samples, lengths, codebook)
    folder = located(folder)
    model, tokenizer = load_placed(str(folder), config.model.dtype)
    window = config.training.max_length or window_of(model)
    encoder = encoder_for(config, tokenizer, source, window, recorded_date(folder))
    return Reopened(config, model, encoder, source)


def examined_on(
    folder: Path,
    data: Any = None,
    samples: int | None = None,
    lengths: tuple[int, int] | None = None,
    codebook: int | str | None = None,
) -> tuple[RunConfig, Source]:
    """The config of a finished run and what it is examined on, without its model. See `reopen`."""
    folder = located(folder)
    config = finished_config(folder)
    changes = {"lengths": lengths, "codebook": codebook}
    if changes := {name: value for name, value in changes.items() if value is not None}:
        if data is not None or config.task is None:
            what = " and ".join({"lengths": "other lengths", "codebook": "another codebook"}[name] for name in changes)
            raise InputError(f"only the strings of the task have {what}; this exam is on records of a file")
        config = validated(RunConfig, config.model_dump() | {"task": config.task.model_dump() | changes})
    if data is not None and config.task is not None and FORMATS[config.task.text].complete:
        raise InputError(f"{folder} is a student, whose words are those of its task: it cannot be examined on {data}")
    if data is not None:
        return config, load(data, skip_bad=config.skip_bad, think=config.think)
    if config.task is not None:
        return config, task_source(config.task, samples or config.exam.samples, EXAM_START)
    return config, recorded_source(folder, config)
