"""What is done for a reproduction: readers and models are made, and rows are measured."""

from __future__ import annotations

import shlex
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openbook.paper.experiment import Rows, Scale, TaughtModel, Unit
from openbook.paper.models import Models, label, reader_flags
from openbook.paper.results import is_done, write_unit

Report = Callable[[float, str], None]


@dataclass(frozen=True)
class PlannedJob:
    """Something to be done for a reproduction, with the jobs that it needs."""

    key: str
    weight: float
    needs: tuple[str, ...]
    models: Models

    @abstractmethod
    def done(self) -> bool:
        """Whether it is done already."""

    @abstractmethod
    def perform(self, report: Report) -> None:
        """Do it, or go on with it."""


@dataclass(frozen=True)
class ReaderJob(PlannedJob):
    """Teach a model to read."""

    name: str

    def __str__(self) -> str:
        return f"teach {self.name} to read"

    def done(self) -> bool:
        return self.models.reads(self.name)

    def perform(self, report: Report) -> None:
        self.models.make_reader(self.name, report)

    def command(self) -> str:
        return shlex.join(
            ["openbook", "prepare", *reader_flags(self.name), "--out", str(self.models.folder / self.name)]
        )


@dataclass(frozen=True)
class TeachJob(PlannedJob):
    """Teach a reader a codebook."""

    model: TaughtModel

    def __str__(self) -> str:
        return f"teach: {label(self.model)}{_details([self.model])}"

    def done(self) -> bool:
        return self.models.taught(self.model)

    def perform(self, report: Report) -> None:
        self.models.teach(self.model, report)

    def command(self) -> str:
        model, words = self.model, ["openbook", "learn"]
        words += ["--config", model.base] if model.base else []
        words += ["--model", str(self.models.reader(model.reader))] if model.reader else []
        words += [word for key, value in model.settings.items() for word in ("--set", f"{key}={value}")]
        return shlex.join([*words, "--out", str(self.models.place(model))])


@dataclass(frozen=True)
class RowsJob(PlannedJob):
    """Measure the rows of a unit and keep them."""

    experiment: str
    scale: Scale
    unit: Unit
    path: Path
    measure: Callable[[dict[str, Any], Models], Rows]

    def __str__(self) -> str:
        return f"{self.experiment}: {self.path.stem.rpartition('-')[0]}{_details(self.unit.learned)}"

    def done(self) -> bool:
        return is_done(self.path)

    def perform(self, report: Report) -> None:
        started, cpu = time.perf_counter(), time.process_time()
        rows = self.measure(self.unit.config, self.models)
        record = {
            "experiment": self.experiment,
            "scale": self.scale,
            "config": self.unit.to_json(),
            "models": [self.models.place(model).name for model in self.unit.learned],
            "taught_at": [self.models.taught_at(model) for model in self.unit.learned],
            "readers": {name: self.models.identity(name) for name in self.unit.readers},
            "budget_seconds": self.unit.seconds,
            "seconds": round(time.perf_counter() - started, 2),
            "cpu_seconds": round(time.process_time() - cpu, 2),
            "rows": rows,
        }
        write_unit(self.path, record)


def _details(models: Sequence[TaughtModel]) -> str:
    """What a label leaves out and tells one run from the next: its config, a wrong book, how it is trained."""
    settings = {name: value for model in models for name, value in model.settings.items()}
    words = sorted({model.base for model in models if model.base})
    words += ["wrong book"] if settings.get("curriculum.wrong") else []
    words += [f"{name.partition('.')[2]} {value}" for name, value in settings.items() if name.startswith("training.")]
    return f" ({', '.join(words)})" if words else ""
