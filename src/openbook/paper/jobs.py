"""What is done for a reproduction: readers and models are made, and rows are measured."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from openbook.base.errors import InputError
from openbook.comparison.sweep import finished_as, start_or_resume
from openbook.paper.experiment import Json, Rows, Scale, TaughtModel, Unit
from openbook.paper.models import Models, as_made, label, reader_flags, reading_seconds, teaching_seconds
from openbook.paper.results import read_unit, write_unit
from openbook.training.config import RunConfig
from openbook.training.folder import RunFolder

Report = Callable[[float, str], None]  # share done, what is being done


@dataclass(frozen=True)
class TrainJob:
    """Teach a model to read, or a reader a codebook: an ordinary run."""

    key: str
    weight: float
    needs: tuple[str, ...]
    description: str
    config: RunConfig
    folder: Path
    words: tuple[str, ...]  # of the command that does the same, without --out

    def __str__(self) -> str:
        return self.description

    @property
    def command(self) -> str:
        return shlex.join([*self.words, "--out", str(self.folder)])

    def done(self) -> bool:
        """Whether it is there, and a reader can read. One that was made with other settings is refused."""
        run = RunFolder(self.folder)
        return finished_as(run, as_made(run, self.config)) and run.read("result.json").get("capable", True)

    def perform(self, report: Report) -> None:
        """Start the run, or go on with it."""

        @contextmanager
        def bar(description: str, total: int) -> Iterator[Callable[..., None]]:
            done = 0.0

            def advance(amount: float = 1, note: str | None = None) -> None:
                nonlocal done
                done += amount
                report(min(1.0, done / max(1, total)), description)

            yield advance

        result = start_or_resume(self.config, self.folder, bar)
        if not result.get("capable", True):
            raise InputError(
                f"{self.folder} cannot read: its accuracy with the book open is {result['accuracy']['open_book']:.3f}. "
                f"Make one with another seed (`{shlex.join(self.words)} --seed 1 --out FOLDER`) and name it with "
                "--reader"
            )


def reader_job(models: Models, name: str) -> TrainJob:
    """Teach a model to read."""
    return TrainJob(
        f"reader {name}",
        reading_seconds(name),
        (),
        f"teach {name} to read",
        models.reader_config(name),
        models.folder / name,
        ("openbook", "prepare", *reader_flags(name)),
    )


def teach_job(models: Models, model: TaughtModel) -> TrainJob:
    """Teach a reader, or a model that cannot read, a codebook."""
    place, readers = models.place(model), [model.reader] if model.reader else []
    words = ["--config", model.base] if model.base else []
    words += [word for name in readers for word in ("--model", str(models.reader(name)))]
    words += [word for key, value in model.settings.items() for word in ("--set", f"{key}={value}")]
    return TrainJob(
        f"teach {place.name}",
        teaching_seconds(model),
        tuple(f"reader {name}" for name in readers if models.reader_at_hand(name) is None),
        f"teach: {label(model)}{_details([model])}",
        models.config(model),
        place,
        ("openbook", "learn", *words),
    )


@dataclass(frozen=True)
class RowsJob:
    """Measure the rows of a unit and keep them."""

    models: Models
    experiment: str
    scale: Scale
    unit: Unit
    path: Path
    measure: Callable[[Json, Models], Rows]
    needs: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.experiment}: {self.path.stem.rpartition('-')[0]}{_details(self.unit.learned)}"

    @property
    def key(self) -> str:
        return f"{self.experiment} {self.path.stem}"

    @property
    def weight(self) -> float:
        return self.unit.seconds

    def done(self) -> bool:
        return self.path.exists() and not isinstance(read_unit(self.path), str)

    def perform(self, report: Report) -> None:
        started, cpu = time.perf_counter(), time.process_time()
        rows = self.measure(self.unit.config, self.models)
        places = [self.models.place(model) for model in self.unit.learned]
        record = {
            "experiment": self.experiment,
            "scale": self.scale,
            "config": self.unit.to_json(),
            "models": [place.name for place in places],
            # the commits that taught them: the one that measures may be a later one
            "taught_at": [RunFolder(place).read("environment.json")["git"] for place in places],
            "readers": {name: self.models.identity(name) for name in self.unit.readers},
            "budget_seconds": self.unit.seconds,
            "seconds": round(time.perf_counter() - started, 2),
            "cpu_seconds": round(time.process_time() - cpu, 2),
            "rows": rows,
        }
        write_unit(self.path, record)


PlannedJob = TrainJob | RowsJob


def _details(models: Sequence[TaughtModel]) -> str:
    """What a label leaves out and tells one run from the next: its config, a wrong book, how it is trained."""
    settings = {name: value for model in models for name, value in model.settings.items()}
    words = sorted({model.base for model in models if model.base})
    words += ["wrong book"] if settings.get("curriculum.wrong") else []
    words += [f"{name.partition('.')[2]} {value}" for name, value in settings.items() if name.startswith("training.")]
    return f" ({', '.join(words)})" if words else ""
