"""Sweeps: a grid of runs from one YAML file, on this machine or on a SLURM cluster.

    config: tiny-mlt-stage2      # a config file or a shipped one; may be left out
    settings:                    # over the config, for every run
      samples: 2000
    grid:                        # every combination is one run
      curriculum: [anneal, no-context]
      seed: [0, 1, 2]

Every run is an ordinary run in a folder of its own, so a sweep that is given again skips what is finished, takes up
what was interrupted, and tries once more what failed. One failure does not stop the rest.
"""

from __future__ import annotations

import copy
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

from openbook.base.errors import InputError
from openbook.base.files import differences, write_json
from openbook.training.config import RunConfig, Strict
from openbook.training.folder import ERROR, RunFolder
from openbook.training.settings import make_room, over, read_yaml, set_key, validated


class SweepConfig(Strict):
    """What the YAML file says."""

    config: str | None = None
    settings: dict[str, Any] = Field(default_factory=dict)
    grid: dict[str, list[Any]]


@dataclass(frozen=True)
class Member:
    """One run of a sweep."""

    name: str
    values: dict[str, Any]  # its place in the grid
    config: RunConfig
    folder: Path


def members(sweep: SweepConfig, folder: Path) -> list[Member]:
    """All runs of a sweep, each checked before any is begun."""
    empty = [key for key, values in sweep.grid.items() if not values]
    if not sweep.grid or empty:
        raise InputError(f"grid{'.' + empty[0] if empty else ''} is empty: name the values to try")
    base = read_yaml(sweep.config) if sweep.config is not None else {}
    base = over(base, {key: value for key, value in sweep.settings.items() if "." not in key})
    dotted = {key: value for key, value in sweep.settings.items() if "." in key}
    result = []
    for combination in itertools.product(*sweep.grid.values()):
        values = dict(zip(sweep.grid, combination, strict=True))
        settings = copy.deepcopy(base)
        make_room(settings, {**dotted, **values})
        for key, value in {**dotted, **values}.items():
            set_key(settings, key, value)
        name = ",".join(f"{key.rpartition('.')[2]}={_plain(value)}" for key, value in values.items())
        try:
            config = validated(RunConfig, settings)
        except InputError as error:
            raise InputError(f"{name}: {error}") from None
        result.append(Member(name, values, config, folder / name))
    if len({member.name for member in result}) < len(result):
        raise InputError("two runs of the grid have the same name: their values differ too little to be folders")
    return result


def _plain(value: Any) -> str:
    """A value as part of a folder's name."""
    text = value.get("preset", json.dumps(value)) if isinstance(value, dict) else str(value)
    return re.sub(r"[^\w.:+-]+", "-", text)[:60]


def carry_out_member(settings: dict[str, Any], folder: str, threads: int) -> None:
    """What a job does: one run, begun or taken up again; a failure is written down beside it."""
    import torch

    if threads:
        torch.set_num_threads(threads)
    config, path = validated(RunConfig, settings), Path(folder)
    if config.reading is not None:
        from openbook.student.prepare import carry_out_reading as carry_out
    else:
        from openbook.training.run import carry_out
    (path / ERROR).unlink(missing_ok=True)
    try:
        carry_out(config, path, resume=(path / "config.json").exists())
    except Exception as error:  # whatever it was, it is told in the table, and the other runs go on
        path.mkdir(parents=True, exist_ok=True)
        write_json(path / ERROR, {"error": f"{type(error).__name__}: {error}"})
        raise


def status(member: Member) -> dict[str, Any]:
    """A row of the sweep's table."""
    row: dict[str, Any] = {"name": member.name, **member.values, "run": str(member.folder)}
    run = RunFolder(member.folder)
    if not run.finished and (member.folder / ERROR).exists():
        return {**row, "status": "failed", **json.loads((member.folder / ERROR).read_text(encoding="utf-8"))}
    if not run.finished:
        return {**row, "status": "unfinished" if member.folder.exists() else "missing"}
    result = run.read("result.json")
    kept = {name: result[name] for name in ("steps", "samples", "seconds", "chance") if name in result}
    return {**row, "status": "done", **result["accuracy"], **kept}


def _check_same(member: Member) -> None:
    """Refuse a finished run that was told something else: its row would be taken for one of this sweep."""
    if not RunFolder(member.folder).finished:
        return
    found = validated(RunConfig, RunFolder(member.folder).read("config.json"))
    changes = differences(found.model_dump(mode="json"), member.config.model_dump(mode="json"))
    if changes:
        raise InputError(
            f"{member.folder} is finished, but with other settings: {'; '.join(changes[:4])}. Name another folder with "
            "--out, or remove it"
        )


def run_sweep(
    sweep: SweepConfig,
    folder: Path,
    executor: Literal["local", "slurm"] = "local",
    jobs: int = 1,
    options: dict[str, Any] | None = None,
    told: Callable[[dict[str, Any]], None] = lambda row: None,
) -> list[dict[str, Any]]:
    """Carry out what is not done yet, `jobs` at a time; `told` hears of every run that ends. Returns the table."""
    if jobs < 1:
        raise InputError(f"--jobs is {jobs}: run at least one at a time")
    everything = members(sweep, folder)
    for member in everything:
        _check_same(member)
    folder.mkdir(parents=True, exist_ok=True)
    with RunFolder(folder).lock():  # two calls would get in each other's way
        return _carried_out(sweep, everything, folder, executor, jobs, options or {}, told)


def _carried_out(
    sweep: SweepConfig,
    everything: list[Member],
    folder: Path,
    executor: Literal["local", "slurm"],
    jobs: int,
    options: dict[str, Any],
    told: Callable[[dict[str, Any]], None],
) -> list[dict[str, Any]]:
    import submitit

    write_json(folder / "sweep.json", sweep.model_dump(mode="json"))
    try:
        launcher = submitit.AutoExecutor(folder=folder / "jobs", cluster=executor)
        launcher.update_parameters(**{"timeout_min": 60 * 24 * 3, **options})
    except (RuntimeError, NameError, TypeError, ValueError) as error:
        raise InputError(f"{executor} cannot be used: {error}") from None
    threads = max(1, (os.cpu_count() or 1) // jobs) if executor == "local" else 0
    waiting = [member for member in everything if status(member)["status"] != "done"]
    for member in everything:
        if member not in waiting:
            told(status(member))
    running: list[tuple[Member, Any]] = []
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                member = waiting.pop(0)
                settings = member.config.model_dump(mode="json")
                running.append((member, launcher.submit(carry_out_member, settings, str(member.folder), threads)))
            for member, job in [pair for pair in running if pair[1].done()]:
                running.remove((member, job))
                if not (member.folder / ERROR).exists() and not RunFolder(member.folder).finished:
                    member.folder.mkdir(parents=True, exist_ok=True)
                    write_json(
                        member.folder / ERROR, {"error": f"the job ended without a word; see {job.paths.stderr}"}
                    )
                told(status(member))
            time.sleep(0.2)
    finally:
        for _, job in running:  # interrupted: a run is told to stop, and has about a second to save itself
            job.cancel()
    rows = [status(member) for member in everything]
    write_json(folder / "table.json", rows)
    return rows
