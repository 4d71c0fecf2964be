"""Carry experiments out: what is missing, in worker processes, each unit kept as soon as it is there.

`plan` names every job (make a reader, teach a model, measure rows) with what it needs; `carry_out` does those that are
not done. A unit is known by its config and the weights of its reader, so the same call again does nothing, and an
interrupted one goes on: trainings from their checkpoints, everything else from the next unit.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from openbook.base.errors import InputError
from openbook.base.jobs import Event
from openbook.base.jobs import carry_out as work
from openbook.paper import select
from openbook.paper.experiment import SCALES, Experiment, Scale, Unit
from openbook.paper.models import Models, label, reader_seconds, seconds_of
from openbook.paper.results import Found, collect, is_done, unit_name, unit_path, write_unit
from openbook.report.claims import Claim
from openbook.training.folder import RunFolder
from openbook.training.shipped import located


@dataclass(frozen=True)
class ReaderJob:
    """Teach a model to read."""

    key: str
    name: str
    models: Models
    weight: float
    needs: tuple[str, ...] = ()

    def done(self) -> bool:
        return self.models.reads(self.name)

    def perform(self, report: Callable[[float, str], None]) -> None:
        self.models.make_reader(self.name, report)


@dataclass(frozen=True)
class TeachJob:
    """Teach a reader a codebook."""

    key: str
    spec: dict[str, Any]
    models: Models
    weight: float
    needs: tuple[str, ...] = ()

    def done(self) -> bool:
        return self.models.taught(self.spec)

    def perform(self, report: Callable[[float, str], None]) -> None:
        self.models.teach(self.spec, report)


@dataclass(frozen=True)
class RowsJob:
    """Measure the rows of a unit and keep them."""

    key: str
    experiment: str
    scale: str
    unit: Unit
    path: Path
    models: Models
    needs: tuple[str, ...] = ()

    @property
    def weight(self) -> float:
        return self.unit.seconds

    def done(self) -> bool:
        return is_done(self.path)

    def perform(self, report: Callable[[float, str], None]) -> None:
        (experiment,) = select([self.experiment])
        started, cpu = time.perf_counter(), time.process_time()
        rows = experiment.run(self.unit.config, self.models)
        write_unit(
            self.path,
            {
                "experiment": self.experiment,
                "scale": self.scale,
                "config": self.unit.config,
                "models": [self.models.place(spec).name for spec in self.unit.learned],
                "taught_at": [self.models.taught_at(spec) for spec in self.unit.learned],
                "readers": {name: self.models.identity(name) for name in self.unit.readers},
                "budget_seconds": self.unit.seconds,
                "seconds": round(time.perf_counter() - started, 2),
                "cpu_seconds": round(time.process_time() - cpu, 2),
                "rows": rows,
            },
        )


Job = ReaderJob | TeachJob | RowsJob


@dataclass(frozen=True)
class Plan:
    """Everything that a call asks for."""

    experiments: list[Experiment]
    scale: Scale
    out: Path
    models: Models
    jobs: list[Job]

    def missing(self, again: bool = False) -> list[Job]:
        """What is left to do, or with `again` all rows. A model whose rows are all there is not made again."""
        wanted = [job for job in self.jobs if isinstance(job, RowsJob) and (again or not job.done())]
        needed = {key for job in wanted for key in job.needs}
        taught = [job for job in self.jobs if isinstance(job, TeachJob) and job.key in needed and not job.done()]
        needed |= {key for job in taught for key in job.needs}
        readers = [job for job in self.jobs if isinstance(job, ReaderJob) and job.key in needed and not job.done()]
        return [*readers, *taught, *wanted]

    def found(self, experiment: Experiment) -> Found:
        names = [job.path.stem for job in self._rows(experiment)]
        return collect(self.out, experiment.name, names)

    def _rows(self, experiment: Experiment) -> list[RowsJob]:
        return [job for job in self.jobs if isinstance(job, RowsJob) and job.experiment == experiment.name]

    def units(self, experiment: Experiment) -> int:
        return len(self._rows(experiment))

    def claims(self) -> list[Claim]:
        return [claim for one in self.experiments for claim in claims_of(one, self.found(one), self.units(one))]


def with_neighbours(planned: Plan) -> Plan:
    """The same with all other experiments of the scale that have rows in the folder, so that they stay on its page."""
    mine = {one.name for one in planned.experiments}
    others = [one.name for one in select() if one.name not in mine and one.configs(planned.scale)]
    if not others:
        return planned
    try:  # rows of a given reader are found by it
        beside = plan(others, planned.scale, planned.out, planned.models.given)
    except InputError:  # none of the others starts from it
        beside = plan(others, planned.scale, planned.out)
    kept = {one.name for one in beside.experiments if beside.found(one).units}
    rows = [job for job in beside.jobs if isinstance(job, RowsJob) and job.experiment in kept]
    return replace(planned, experiments=select(sorted(mine | kept)), jobs=[*planned.jobs, *rows])


def claims_of(experiment: Experiment, found: Found, wanted: int) -> list[Claim]:
    """An experiment's claims on what was found of it; while units are missing nothing is called true or false."""
    claims = [replace(claim, experiment=experiment.name) for claim in experiment.claims(found.rows)]
    if len(found.units) >= wanted:
        return claims
    so_far = {"so far": f"{len(found.units)} of {wanted} units"}
    return [replace(claim, verdict="unclear", numbers={**claim.numbers, **so_far}) for claim in claims]


def plan(names: Sequence[str], scale: Scale, out: Path, reader: Path | None = None) -> Plan:
    """All jobs of the named experiments at a scale; `reader` is used instead of the shipped one."""
    experiments = [one for one in select(names) if names or one.configs(scale)]
    for one in experiments:
        if not one.configs(scale):
            others = ", ".join(other for other in SCALES if one.configs(other))
            raise InputError(f"{one.name} has nothing at scale {scale} (it has at: {others})")
    reader = None if reader is None else located(reader)
    models = Models(out / "models", reader)
    if reader is not None:
        from openbook.paper.models import name_of

        if name_of(reader) is None:
            raise InputError(f"{reader} is not a student that `openbook prepare` left: give its run's folder")
        wanted = {name for one in experiments for unit in one.configs(scale) for name in unit.readers}
        if name_of(reader) not in wanted:
            named = ", ".join(sorted(wanted)) or "no student"
            raise InputError(f"{reader} is a {name_of(reader)}, but these experiments start from {named}")
    jobs: dict[str, Job] = {}
    for experiment in experiments:
        for unit in experiment.configs(scale):
            needs = []
            for name in unit.readers:
                if models.reader_at_hand(name) is None:
                    needs.append(f"reader {name}")
                    jobs.setdefault(needs[-1], ReaderJob(needs[-1], name, models, reader_seconds(name)))
            for spec in unit.learned:
                key = f"teach {models.place(spec).name}"
                reader_key = f"reader {spec['reader']}"
                jobs.setdefault(
                    key, TeachJob(key, spec, models, seconds_of(spec), (reader_key,) if reader_key in jobs else ())
                )
                needs.append(key)
            identity = [*map(models.identity, unit.readers), *map(models.meaning, unit.learned)]
            path = unit_path(out, experiment.name, unit_name(unit, experiment.version, identity))
            key = f"{experiment.name} {path.stem}"
            jobs[key] = RowsJob(key, experiment.name, scale, unit, path, models, tuple(dict.fromkeys(needs)))
    return Plan(experiments, scale, out, models, list(jobs.values()))


@dataclass
class Going:
    """How far a call has come: shares of jobs, weighed by their stated time, and the time left."""

    jobs: list[Job]
    processes: int
    started: float = field(default_factory=time.perf_counter)
    shares: dict[str, float] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    running: dict[str, str] = field(default_factory=dict)

    @property
    def total(self) -> float:
        return sum(job.weight for job in self.jobs)

    @property
    def done(self) -> float:
        return sum(job.weight * self.shares.get(job.key, 0.0) for job in self.jobs)

    @property
    def seconds_left(self) -> float:
        """At the speed so far; by the stated times while there is too little to go by."""
        passed = time.perf_counter() - self.started
        pace = passed / self.done if self.done > 0.05 * self.total else 1.0 / self.processes
        return (self.total - self.done) * pace

    def hear(self, event: Event) -> None:
        if event.kind == "begun":
            self.running[event.key] = ""
        elif event.kind == "at":
            self.shares[event.key] = max(self.shares.get(event.key, 0.0), 0.98 * event.share)
            self.running[event.key] = event.note
        else:
            self.shares[event.key] = 1.0
            self.running.pop(event.key, None)
            if event.kind != "done":
                self.failed[event.key] = event.note


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def carry_out(jobs: list[Job], processes: int, out: Path) -> Iterator[tuple[Event, Going]]:
    """Do the jobs, telling after each event how far it has come."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "models").mkdir(exist_ok=True)
    going = Going(jobs, min(processes, max(1, len(jobs))))
    with RunFolder(out).lock():  # two calls would do the same units twice
        for event in work(jobs, processes, out / "workers.log"):
            going.hear(event)
            yield event, going


def describe(job: Job) -> str:
    """A job in words."""
    if isinstance(job, ReaderJob):
        return f"teach {job.name} to read"
    if isinstance(job, TeachJob):
        return f"teach: {label(job.spec)}{_aside([job.spec])}"
    return f"{job.experiment}: {job.path.stem.rpartition('-')[0]}{_aside(job.unit.learned)}"


def _aside(specs: Sequence[dict[str, Any]]) -> str:
    """What a label does not say and one run is told from the next by: its config, a wrong book, how it is trained."""
    told = {name: value for spec in specs for name, value in spec["settings"].items()}
    words = sorted({str(spec["base"]) for spec in specs if "base" in spec})
    words += ["wrong book"] if told.get("curriculum.wrong") else []
    words += [f"{name.partition('.')[2]} {value}" for name, value in told.items() if name.startswith("training.")]
    return f" ({', '.join(words)})" if words else ""
