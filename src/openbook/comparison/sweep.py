"""Sweeps: a grid of runs from one YAML file, on this machine or on a SLURM cluster.

    config: tiny-mlt-stage2      # a config file or a shipped one; may be left out
    settings:                    # these lie over the config in every run
      samples: 2000
    grid:                        # every combination is one run
      curriculum: [anneal, no-context]
      seed: [0, 1, 2]

Every run is an ordinary run in a folder of its own. The same sweep, started again, skips the runs that are finished,
resumes those that were interrupted, and tries those that failed once more. One failure does not stop the rest.
Both executors go through submitit: a local sweep is a process for each run, with as many threads as it can have.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from openbook.base.console import Bar, no_bar
from openbook.base.errors import InputError
from openbook.base.files import differences, write_json
from openbook.training.config import RunConfig, Strict
from openbook.training.folder import ERROR, MARKS, RunFolder, StartMode
from openbook.training.resolve import resolve
from openbook.training.settings import make_room, over, read_yaml, set_key, validated


class SweepConfig(Strict):
    """The YAML file."""

    config: str | None = None
    settings: dict[str, Any] = Field(default_factory=dict)
    grid: dict[str, list[Any]]


@dataclass(frozen=True)
class Member:
    """One run of a sweep."""

    name: str
    values: dict[str, Any]  # of the settings in the grid
    config: RunConfig
    folder: Path


def members(sweep: SweepConfig, folder: Path) -> list[Member]:
    """All runs of a sweep; each config is checked before the first run starts."""
    empty = [key for key, values in sweep.grid.items() if not values]
    if not sweep.grid or empty:
        raise InputError(f"grid{'.' + empty[0] if empty else ''} is empty: list the values to try")
    base = read_yaml(sweep.config) if sweep.config is not None else {}
    base = over(base, {key: value for key, value in sweep.settings.items() if "." not in key})
    dotted = {key: value for key, value in sweep.settings.items() if "." in key}
    result = []
    for combination in itertools.product(*sweep.grid.values()):
        values = dict(zip(sweep.grid, combination, strict=True))
        settings = dict(base)
        make_room(settings, {**dotted, **values})
        for key, value in {**dotted, **values}.items():
            set_key(settings, key, value)
        name = ",".join(f"{key.rpartition('.')[2]}={_file_name(value)}" for key, value in values.items())
        try:
            config = resolve(settings)
        except InputError as error:
            raise InputError(f"{name}: {error}") from None
        result.append(Member(name, values, config, folder / name))
    if len({member.name for member in result}) < len(result):
        raise InputError(
            "two runs of the grid would have the same folder: remove values that are given twice or look alike"
        )
    return result


def _file_name(value: Any) -> str:
    """A value as part of a folder's name."""
    text = value.get("preset", json.dumps(value)) if isinstance(value, dict) else str(value)
    return re.sub(r"[^\w.:+-]+", "-", text)[:60]


def start_or_resume(config: RunConfig, folder: Path, bar: Bar = no_bar) -> dict[str, Any]:
    """Train the run that a config describes, or resume it if it is in the folder; returns its result."""
    from openbook.training.run import execute

    return execute(config, folder, StartMode(resume=all((folder / name).exists() for name in MARKS)), bar=bar)


def train_member(settings: dict[str, Any], folder: Path, threads: int) -> None:
    """Start or resume one run, in a process of its own; a failure is written down beside it."""
    import torch

    if threads:
        torch.set_num_threads(threads)
    (folder / ERROR).unlink(missing_ok=True)
    try:
        start_or_resume(validated(RunConfig, settings), folder)
    except Exception as error:  # the table names it, and the other runs go on
        _write_error(folder, f"{type(error).__name__}: {error}")
        raise


def _write_error(folder: Path, error: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / ERROR, {"error": error})


def status(member: Member) -> dict[str, Any]:
    """A run as a row of the sweep's table."""
    row: dict[str, Any] = {"name": member.name, **member.values, "run": str(member.folder)}
    run = RunFolder(member.folder)
    if run.finished:
        result = run.read("result.json")
        kept = {name: result[name] for name in ("steps", "samples", "seconds", "chance") if name in result}
        return {**row, "status": "done", **result["accuracy"], **kept}
    if (member.folder / ERROR).exists():
        return {**row, "status": "failed", **run.read(ERROR)}
    return {**row, "status": "unfinished" if member.folder.exists() else "missing"}


def changed_settings(run: RunFolder, config: RunConfig) -> list[str]:
    """How the settings of a run differ from a config."""
    made_with = validated(RunConfig, run.read("config.json"))
    return differences(made_with.model_dump(mode="json"), config.model_dump(mode="json"))


def finished_as(run: RunFolder, config: RunConfig) -> bool:
    """Whether a run is finished. One with other settings is refused: it would be taken for what was asked."""
    if run.finished and (changes := changed_settings(run, config)):
        raise InputError(
            f"{run.folder} is finished, but with other settings: {'; '.join(changes[:4])}. Name another folder with "
            "--out, or remove it"
        )
    return run.finished


def run_sweep(
    sweep: SweepConfig,
    folder: Path,
    executor: Literal["local", "slurm"] = "local",
    jobs: int = 1,
    options: dict[str, Any] | None = None,
    on_end: Callable[[dict[str, Any]], None] = lambda row: None,
) -> list[dict[str, Any]]:
    """Train what is missing, `jobs` runs at a time, and return the table; `on_end` gets the row of each run."""
    if jobs < 1:
        raise InputError(f"--jobs is {jobs}: use at least 1")
    planned = members(sweep, folder)
    done = [member for member in planned if finished_as(RunFolder(member.folder), member.config)]
    folder.mkdir(parents=True, exist_ok=True)
    with RunFolder(folder).lock():  # two calls would train the same runs
        write_json(folder / "sweep.json", sweep.model_dump(mode="json"))
        launcher = _launcher(folder, executor, options or {})
        threads = max(1, (os.cpu_count() or 1) // jobs) if executor == "local" else 0
        for member in done:
            on_end(status(member))
        _train_all(launcher, [member for member in planned if member not in done], jobs, threads, on_end)
        rows = [status(member) for member in planned]
        write_json(folder / "table.json", rows)
    return rows


def _launcher(folder: Path, executor: Literal["local", "slurm"], options: dict[str, Any]) -> Any:
    import submitit

    try:
        launcher = submitit.AutoExecutor(folder=folder / "jobs", cluster=executor)
        launcher.update_parameters(**{"timeout_min": 60 * 24 * 3, **options})
    except (RuntimeError, NameError, TypeError, ValueError) as error:
        raise InputError(f"{executor} cannot be used: {error}") from None
    return launcher


def _train_all(
    launcher: Any, waiting: list[Member], jobs: int, threads: int, on_end: Callable[[dict[str, Any]], None]
) -> None:
    running: list[tuple[Member, Any]] = []
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                member = waiting.pop(0)
                settings = member.config.model_dump(mode="json")
                running.append((member, launcher.submit(train_member, settings, member.folder, threads)))
            for member, job in [pair for pair in running if pair[1].done()]:
                running.remove((member, job))
                if status(member)["status"] not in ("done", "failed"):
                    _write_error(member.folder, f"the job ended without a message; see {job.paths.stderr}")
                on_end(status(member))
            time.sleep(0.2)
    finally:
        for _, job in running:  # interrupted: a run is asked to stop, and has about a second to save itself
            job.cancel()
