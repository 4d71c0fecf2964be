"""Run experiments: do what is missing in worker processes, keep each unit as soon as it is there, and judge the rows.

`plan_reproduction` names every job (make a reader, teach a model, measure rows) with the jobs that it needs, and
`complete` does those that are missing. A unit is known by its config and the weights of its reader, so that the same
call again does nothing, and an interrupted one goes on: trainings from their checkpoints, all else from the next unit.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from openbook.base.console import plain
from openbook.base.errors import InputError, nearest
from openbook.base.jobs import Event, Job, run_jobs
from openbook.paper import EXPERIMENTS, select
from openbook.paper.experiment import SCALES, Experiment, Json, Scale
from openbook.paper.jobs import PlannedJob, RowsJob, reader_job, teach_job
from openbook.paper.models import Models, name_of
from openbook.paper.results import Results, read_results, unit_path
from openbook.paper.study import load_study
from openbook.report.claims import Claim
from openbook.training.folder import RunFolder
from openbook.training.shipped import located, shipped_readers


@dataclass(frozen=True)
class Reproduction:
    """Experiments at a scale, and all jobs that their rows need; a job comes after those that it needs."""

    experiments: list[Experiment]
    scale: Scale
    out: Path
    models: Models
    jobs: list[PlannedJob]

    def missing(self, again: bool = False) -> list[PlannedJob]:
        """The jobs that are not done, or with `again` all rows. A model is made only for rows that are missing."""
        missing: list[PlannedJob] = []
        needed: set[str] = set()
        for job in reversed(self.jobs):
            asked = again or not job.done() if isinstance(job, RowsJob) else job.key in needed and not job.done()
            if asked:
                missing.append(job)
                needed.update(job.needs)
        return missing[::-1]

    def row_jobs(self, experiment: Experiment) -> list[RowsJob]:
        """One for each unit of the experiment."""
        return [job for job in self.jobs if isinstance(job, RowsJob) and job.experiment == experiment.name]

    def results(self, experiment: Experiment) -> Results:
        return read_results(job.path for job in self.row_jobs(experiment))

    def command(self, experiment: Experiment) -> str:
        """The command that makes the rows of an experiment; a reader that was given is named by what made it."""
        command = experiment.command(self.scale)
        given = self.models.given
        names = {name for job in self.row_jobs(experiment) for name in job.unit.readers}
        if given is None or (name := name_of(given)) not in names:
            return command
        if given in shipped_readers().values():
            return f"{command} --reader {given.name}"
        return f"{command} --reader READER; READER: {self.models.made_by(name)}"

    def claims(self) -> list[Claim]:
        return [claim for experiment in self.experiments for claim in self.claims_of(experiment)]

    def claims_of(self, experiment: Experiment) -> list[Claim]:
        """Claims of the rows that are there; while units are missing, none is called true or false."""
        results, units = self.results(experiment), len(self.row_jobs(experiment))
        claims = [replace(claim, experiment=experiment.name) for claim in experiment.claims(results.rows)]
        if len(results.units) >= units:
            return claims
        so_far = {"so far": f"{len(results.units)} of {units} units"}
        return [replace(claim, verdict="unclear", numbers={**claim.numbers, **so_far}) for claim in claims]


def plan_reproduction(
    names: Sequence[str],
    scale: Scale,
    out: Path,
    reader: Path | None = None,
    studies: Sequence[Experiment] = (),
) -> Reproduction:
    """All jobs of the named experiments and of studies, or of all experiments if none is given.

    `reader` is used instead of the shipped one.
    """
    if scale not in SCALES:
        raise InputError(f"there is no scale '{scale}' ({', '.join(SCALES)}){nearest(scale, SCALES)}")
    asked = [*(select(names) if names else []), *studies]
    experiments = asked or [experiment for experiment in select() if experiment.units(scale)]
    for experiment in experiments:
        if experiment.study and experiment.name in EXPERIMENTS:
            raise InputError(f"{experiment.study}: '{experiment.name}' is an experiment of the paper: rename the study")
        if not experiment.units(scale):
            others = ", ".join(other for other in SCALES if experiment.units(other))
            raise InputError(f"{experiment.name} has nothing at scale {scale}: use --scale {others}")
    units = [(experiment, unit) for experiment in experiments for unit in experiment.units(scale)]
    if reader is not None:
        reader = located(reader)
        _check_reader(reader, {name for _, unit in units for name in unit.readers})
    models = Models(out / "models", reader)
    jobs: dict[str, PlannedJob] = {}
    for experiment, unit in units:
        made = [reader_job(models, name) for name in unit.readers if models.reader_at_hand(name) is None]
        made += [teach_job(models, model) for model in unit.learned]
        for job in made:
            jobs.setdefault(job.key, job)
        identity = [*map(models.identity, unit.readers), *map(models.meaning, unit.learned)]
        path = unit_path(out, experiment, unit, identity)
        rows = RowsJob(models, experiment.name, scale, unit, path, experiment.run, tuple(job.key for job in made))
        jobs[rows.key] = rows
    return Reproduction(experiments, scale, out, models, list(jobs.values()))


def _check_reader(reader: Path, wanted: set[str]) -> None:
    """Refuse a reader that no experiment starts from."""
    name = name_of(reader)
    if name is None:
        raise InputError(f"{reader} is not a student that `openbook prepare` made: give the folder of its run")
    if name not in wanted:
        wanted_names = ", ".join(sorted(wanted)) or "no student"
        raise InputError(f"{reader} is a {name}, but these experiments start from {wanted_names}")


def with_neighbours(planned: Reproduction) -> Reproduction:
    """The same with all other experiments of the scale that have rows in the folder, so that they stay on its page."""
    names = {experiment.name for experiment in planned.experiments}
    others = [each.name for each in select() if each.name not in names and each.units(planned.scale)]
    if not others:
        return planned
    try:  # rows of a given reader are stored under its name
        beside = plan_reproduction(others, planned.scale, planned.out, planned.models.given)
    except InputError:  # none of the others starts from it
        beside = plan_reproduction(others, planned.scale, planned.out)
    kept = {each.name for each in beside.experiments if beside.results(each).units}
    in_order = [each for each in select() if each.name in names | kept]
    studies = [each for each in planned.experiments if each.study]
    rows = [job for job in beside.jobs if isinstance(job, RowsJob) and job.experiment in kept]
    return replace(planned, experiments=[*in_order, *studies], jobs=[*planned.jobs, *rows])


@dataclass
class JobProgress:
    """How much of the jobs is done, weighed by their expected seconds, and the time left."""

    jobs: Sequence[Job]
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
        """At the speed so far; by the expected seconds as long as little is done."""
        passed = time.perf_counter() - self.started
        pace = passed / self.done if self.done > 0.05 * self.total else 1.0 / self.processes
        return (self.total - self.done) * pace

    def update(self, event: Event) -> None:
        if event.kind in ("started", "progress"):
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


def run_missing(jobs: Sequence[Job], processes: int, out: Path) -> Iterator[tuple[Event, JobProgress]]:
    """Do jobs, and tell after each event how far they have come."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "models").mkdir(exist_ok=True)
    progress = JobProgress(jobs, min(processes, max(1, len(jobs))))
    with RunFolder(out).lock():  # two calls would do the same units twice
        for event in run_jobs(jobs, processes, out / "workers.log"):
            progress.update(event)
            yield event, progress


@dataclass(frozen=True)
class Outcome:
    """What a call of `complete` did and found."""

    scale: Scale
    out: Path
    page: Path
    claims: list[Claim]
    units: dict[str, int]  # finished, by experiment
    jobs: int
    done_now: int
    failed: dict[str, str]
    seconds: float
    published: list[Path]
    not_published: list[str]

    def to_json(self) -> Json:
        record: Json = json.loads(json.dumps(plain(asdict(self)), default=str))  # paths become strings
        return record


def complete(
    planned: Reproduction,
    processes: int | None = None,
    again: bool = False,
    publish_to: Path | None = None,
    on_event: Callable[[Event, JobProgress], None] = lambda event, progress: None,
) -> Outcome:
    """Do what is missing, write the page, and judge; `again` measures all rows anew."""
    from openbook.paper.page import publish, write_page

    missing = planned.missing(again)
    _check_gpu(planned.scale, missing)
    if publish_to is not None:
        RunFolder(publish_to).check_writable()
    started, failed = time.perf_counter(), dict[str, str]()
    if missing:
        for event, progress in run_missing(missing, processes or cores(), planned.out):
            failed = progress.failed
            on_event(event, progress)
    page = write_page(with_neighbours(planned), failed)
    published, left = publish(planned, publish_to, failed) if publish_to is not None else ([], [])
    return Outcome(
        scale=planned.scale,
        out=planned.out,
        page=page,
        claims=planned.claims(),
        units={experiment.name: len(planned.results(experiment).units) for experiment in planned.experiments},
        jobs=len(planned.jobs),
        done_now=len(missing),
        failed=failed,
        seconds=round(time.perf_counter() - started, 1),
        published=published,
        not_published=left,
    )


def reproduce(
    names: Sequence[str],
    scale: Scale,
    out: Path,
    reader: Path | None = None,
    studies: Sequence[Path] = (),
    **options: Any,
) -> Outcome:
    """Plan the named experiments and the studies in files, and do what is missing; options are those of `complete`."""
    return complete(plan_reproduction(names, scale, out, reader, load_studies(studies)), **options)


def load_studies(files: Sequence[Path]) -> list[Experiment]:
    """The experiments that study files describe."""
    return [load_study(Path(file)) for file in files]


def _check_gpu(scale: Scale, jobs: Sequence[Job]) -> None:
    if scale == "paper" and any(not isinstance(job, RowsJob) for job in jobs):
        import torch

        if not torch.cuda.is_available():
            raise InputError(
                "the paper's scale trains Llama-3.2-3B, and there is no GPU here: use --dry-run to see the commands, "
                "or --scale laptop or overnight, which run on this machine"
            )
