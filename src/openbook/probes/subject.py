"""The subject of a probe: a model and numbered examples, from the folder of a run or from any checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from openbook.base.errors import InputError, nearest
from openbook.book.shelf import NONE, Shelf
from openbook.book.source import Source
from openbook.curriculum import Curriculum, Opened, SamplingPlan
from openbook.task.source import Translations, as_translations
from openbook.training.batches import Collator, Item, items, pad_id_of
from openbook.training.config import RunConfig, TaskConfig
from openbook.training.encode import Encoder
from openbook.training.exam import condition
from openbook.training.models import load_placed, window_of
from openbook.training.reopen import finished_config
from openbook.training.shipped import located
from openbook.training.sources import EXAM_START, encoder_for, recorded_date, recorded_source, records_of, task_source

SHOWN = Curriculum(candidates="needed", others=0.25)  # which rules a checkpoint is shown that is no run
TASK_EXAMPLES = 2**31  # a probe takes as many of them as it is asked for

Advance = Callable[..., None]


def no_progress(*_: Any, **__: Any) -> None:
    """No progress bar."""


@dataclass(frozen=True)
class Subject:
    """A model to be probed, and numbered examples that it was not trained on."""

    name: str
    model: Any
    encoder: Encoder
    source: Source
    curriculum: Curriculum
    seed: int = 0
    trained_on: int | None = None  # number of training examples, if the record of a run has it

    @property
    def translations(self) -> Translations:
        return translations_of(self.source, self.name)

    @property
    def sections(self) -> list[str]:
        """Names of the sections of the book; the number of one that examples name differently or not at all."""
        books = self.source.section_names(np.arange(0, len(self.source), max(1, len(self.source) // 32)))
        named = [{book[k] for book in books if k < len(book)} for k in range(max(map(len, books)))]
        return [names.pop() if len(names) == 1 and "" not in names else f"{k + 1}" for k, names in enumerate(named)]

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def section_numbers(self, asked: Sequence[str] | None) -> list[int]:
        """The sections that were asked for by name or by number, counted from 0; all of them if none was asked for."""
        names = self.sections
        if not names:
            raise InputError(f"the examples of {self.name} have no book, so there is no section to probe")
        numbered = {str(number + 1): number for number in range(len(names))}
        places = numbered | {name: number for number, name in enumerate(names)}
        for section in asked or []:
            if section not in places:
                hint = nearest(section, names)
                raise InputError(f"there is no section '{section}': there are {', '.join(names)}{hint}")
        return [places[section] for section in asked] if asked else list(range(len(names)))

    def shelf(self, samples: int, share: float = 1.0) -> tuple[SamplingPlan, Shelf, Opened]:
        """The first examples with this share of the book open, as the curriculum of the run shows it."""
        if samples < 1:
            raise InputError(f"{samples} samples: probe with at least one")
        samples = min(samples, len(self.source))
        plan = SamplingPlan(self.source, condition(self.curriculum, share), seed=self.seed, samples=samples)
        return plan, *plan.at(np.arange(samples))

    def encoded(self, plan: SamplingPlan, shelf: Shelf, opened: Opened) -> list[Item]:
        """The tokens of the examples on a shelf."""
        positions = np.arange(len(shelf))
        return items(self.encoder.encode(shelf, opened, plan.namer(positions)), positions.tolist())

    def dropped(self, section: int, samples: int) -> list[Item]:
        """Examples with one section taken out of the book and all others open.

        Examples that had nothing of that section are left out: they are the same for all models, whatever these know.
        """
        plan, shelf, opened = self.shelf(samples)
        there = section < opened.slots.shape[1]  # a section that only later examples have is not on this shelf
        had = (opened.slots[:, section] != NONE).any(-1) if there else np.zeros(len(shelf), bool)
        if not had.any():
            raise InputError(f"nothing is dropped: no example shows a piece of section '{self.sections[section]}'")
        slots = opened.slots.copy()
        slots[:, section] = NONE
        rows = self.encoded(plan, shelf, replace(opened, slots=slots))
        return [rows[number] for number in np.flatnonzero(had)]

    def batch(self, rows: Sequence[Item]) -> dict[str, Tensor]:
        """Examples as one batch, padded on the right, on the device of the model."""
        padded = Collator(pad_id_of(self.encoder.tokenizer), len(rows)).pad(rows)
        return {name: tensor.to(self.device) for name, tensor in padded.items()}


def open_subject(
    path: str | Path, data: Path | None = None, task: TaskConfig | None = None, seed: int | None = None
) -> Subject:
    """A run's model on the run's own exam, or any checkpoint on the given data or task.

    Exams of the task are on strings drawn apart from those of training.
    """
    return _loaded(path, *_examples(path, data, task), seed)


def open_even(
    path: str | Path, length: int | None = None, task: TaskConfig | None = None, seed: int | None = None
) -> Subject:
    """The same on translations of one length (the longest of the task, by default).

    Places of different examples can then be averaged.
    """
    config, source = _examples(path, None, task)
    translations = translations_of(source, str(path))
    length = translations.lengths[1] if length is None else length
    return _loaded(path, config, replace(translations, lengths=(length, length)), seed)


def open_base(path: str | Path, subject: Subject) -> Subject:
    """Another model on the examples of a subject that was trained from it; both must have the same tokenizer."""
    own = str(subject.model.dtype).removeprefix("torch.")  # a checkpoint is loaded as the run was that began with it
    model, tokenizer = load_placed(str(path), finished_config(located(path)).model.dtype if is_run(path) else own)
    check_tokenizers(tokenizer, subject.encoder.tokenizer)
    return replace(subject, name=str(path), model=model)


def check_tokenizers(one: Any, other: Any) -> None:
    if one.get_vocab() != other.get_vocab():
        raise InputError(
            f"the checkpoints have different tokenizers, of {len(one.get_vocab())} and {len(other.get_vocab())} words: "
            "stitch a model with the one that it was trained from"
        )


def is_run(path: str | Path) -> bool:
    """Whether a path or a reader's name is a run's, with a config that says what it was trained on."""
    folder = located(path)
    return (folder / "config.json").is_file() and (folder / "model").is_dir()


def _examples(path: str | Path, data: Path | None, task: TaskConfig | None) -> tuple[RunConfig, Source]:
    """The config of a run, or one for a checkpoint that has none, and the examples to probe it on."""
    if data is not None and task is not None:
        raise InputError("both data and a task are given: probe on one of them")
    if is_run(path):
        config = finished_config(located(path))
        task = config.task if data is None and task is None else task
    elif data is None and task is None:
        what = "is not the folder of a run" if Path(path).exists() else "is no folder here, or not one of a run"
        raise InputError(f"{path} {what}, so say what to probe it on: data, or a task")
    else:
        config = RunConfig(data=data, task=task, curriculum=SHOWN if data is None else Curriculum(order="given"))
    if data is not None:
        return config, records_of(config, data)
    if task is not None:
        return config, task_source(task, TASK_EXAMPLES, EXAM_START)
    return config, recorded_source(located(path), config)


def _loaded(path: str | Path, config: RunConfig, source: Source, seed: int | None) -> Subject:
    model, tokenizer = load_placed(str(path), config.model.dtype)
    window = config.training.max_length or window_of(model)
    today = recorded_date(located(path)) if is_run(path) else None
    trained_on = config.samples if is_run(path) and config.reading is None else None
    encoder = encoder_for(config, tokenizer, source, window, today)
    return Subject(
        str(path), model, encoder, source, config.curriculum, config.seed if seed is None else seed, trained_on
    )


def translations_of(source: Source, name: str) -> Translations:
    """The source as translations, whose rules have images that can be changed."""
    if (translations := as_translations(source)) is None:
        raise InputError(f"{name} is not about the translation task: this probe needs rules and their images")
    return translations
