"""What is probed: a model with the examples to probe it on, from a run's folder or from any checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from openbook.base.errors import InputError, nearest
from openbook.book.shelf import NONE, Shelf
from openbook.book.source import Source
from openbook.curriculum import Curriculum, Opened, SamplingPlan
from openbook.task.source import Translations
from openbook.training.batches import Item, items
from openbook.training.config import RunConfig, TaskConfig
from openbook.training.encode import Encoder
from openbook.training.exam import condition
from openbook.training.folder import RunFolder
from openbook.training.models import load_placed, window_of
from openbook.training.settings import validated
from openbook.training.shipped import located
from openbook.training.sources import EXAM_START, encoder_for, recorded_date, recorded_source, records_of, task_source

SHOWN = Curriculum(candidates="needed", others=0.25)  # of the task, for a checkpoint that no run says more about


@dataclass(frozen=True)
class Subject:
    """A model to be probed, and numbered examples that it was not trained on."""

    name: str
    model: Any
    encoder: Encoder
    source: Source
    curriculum: Curriculum
    seed: int = 0
    trained_on: int | None = None  # examples, if a run says so

    @property
    def translations(self) -> Translations:
        if not isinstance(self.source, Translations):
            raise InputError(f"{self.name} is not about the translation task: this probe needs rules and their images")
        return self.source

    @property
    def sections(self) -> list[str]:
        """Names of the book's sections; where examples name them differently, their numbers."""
        if isinstance(self.source, Translations):
            return [f"level {level + 1}" for level in range(self.source.depth)]
        step = max(1, len(self.source) // 32)
        seen = [[s.name for s in self.source.example(i).sections] for i in range(0, len(self.source), step)]
        count = max(map(len, seen))
        return [
            names.pop()
            if len(names := {own[k] for own in seen if k < len(own)}) == 1 and "" not in names
            else f"{k + 1}"
            for k in range(count)
        ]

    def numbers_of(self, sections: Sequence[str] | None) -> list[int]:
        """Numbers of sections that were asked for by name or number; all of them, if none was."""
        known = self.sections
        if not known:
            raise InputError(f"the examples of {self.name} have no book: there is no section to probe")
        if not sections:
            return list(range(len(known)))
        found = []
        for section in sections:
            if section in known:
                found.append(known.index(section))
            elif section.isdigit() and 1 <= int(section) <= len(known):
                found.append(int(section) - 1)
            else:
                hint = nearest(section, known)
                raise InputError(f"there is no section '{section}': there are {', '.join(known)}{hint}")
        return found

    def shelf(self, samples: int) -> tuple[SamplingPlan, Shelf, Opened]:
        """The first examples with the whole book open, as the run's curriculum shows it."""
        if samples < 1:
            raise InputError(f"{samples} samples: probe with at least one")
        samples = min(samples, len(self.source))
        plan = SamplingPlan(self.source, condition(self.curriculum, 1.0), seed=self.seed, samples=samples)
        return plan, *plan.at(np.arange(samples))

    def encoded(
        self, plan: SamplingPlan, shelf: Shelf, opened: Opened, rows: NDArray[np.int64] | None = None
    ) -> list[Item]:
        """Token rows of examples on a shelf; only some of them, if `rows` says which."""
        positions = np.arange(len(shelf))
        rows_of = items(self.encoder.encode(shelf, opened, plan.namer(positions)), positions.tolist())
        return rows_of if rows is None else [rows_of[row] for row in rows.tolist()]

    def dropped(self, section: int, samples: int) -> list[Item]:
        """Examples with one section taken out of the book and all others open.

        Only examples that had something of it: in the others nothing is dropped, so they could not tell models apart.
        """
        plan, shelf, opened = self.shelf(samples)
        there = section < opened.slots.shape[1]  # a section that only later examples have is not on this shelf
        had = (opened.slots[:, section] != NONE).any(-1) if there else np.zeros(len(shelf), bool)
        if not had.any():
            raise InputError(f"nothing is dropped: no example shows a piece of section '{self.sections[section]}'")
        slots = opened.slots.copy()
        slots[:, section] = NONE
        return self.encoded(plan, shelf, replace(opened, slots=slots), np.flatnonzero(had))


def is_run(path: str | Path) -> bool:
    """Whether a path or a reader's name is a run's, with a config that says what was trained on."""
    folder = located(path)
    return (folder / "config.json").is_file() and (folder / "model").is_dir()


def open_subject(
    path: str | Path,
    data: Path | None = None,
    task: TaskConfig | None = None,
    lengths: tuple[int, int] | None = None,
    seed: int | None = None,
) -> Subject:
    """A run's model on the run's own exam, or any checkpoint on the given data or task.

    Exams of the task are on strings drawn apart from those of training. `lengths` asks for strings of other lengths.
    """
    if data is not None and task is not None:
        raise InputError("both data and a task are given: probe on one of them")
    name, path = str(path), located(path)
    if is_run(path):
        run = RunFolder(path)
        config = validated(RunConfig, run.read("config.json"))
        if damage := run.damage():
            raise InputError(f"{path} cannot be used: {'; '.join(damage[:3])}")
        if data is None and task is None:
            task = config.task
    elif data is None and task is None:
        what = "is not the folder of a run" if Path(path).exists() else "is no folder here, or not one of a run"
        raise InputError(f"{name} {what}, so say what to probe it on: data, or a task")
    else:
        shown = {"curriculum": SHOWN} if task is not None else {"curriculum": Curriculum(order="given")}
        config = RunConfig(**({"task": task} if task is not None else {"data": data}), **shown)
    source: Source
    if data is not None:
        source = records_of(config, data)
    elif task is not None:
        if lengths is not None:
            task = task.model_copy(update={"lengths": lengths})
        source = task_source(task, 2**31, EXAM_START)  # as many as a probe asks for
    else:
        source = recorded_source(Path(path), config)
    model, tokenizer = load_placed(name, config.model.dtype)
    window = config.training.max_length or window_of(model)
    encoder = encoder_for(config, tokenizer, source, window, recorded_date(Path(path)) if is_run(path) else None)
    trained_on = config.samples if is_run(path) and config.reading is None else None
    return Subject(name, model, encoder, source, config.curriculum, config.seed if seed is None else seed, trained_on)
