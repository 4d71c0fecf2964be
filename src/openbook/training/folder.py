"""The folder of a run: what was done, with what, and what came of it.

    config.json       every setting, defaults included
    environment.json  versions, machine and git state
    data.json         what was trained on, with its fingerprint
    metrics.jsonl     one line for every logged step
    checkpoints/      where an unfinished run can go on
    model/            weights (safetensors), config and tokenizer
    adapter/          low-rank adapters by themselves, if the run trained some; in model/ they are merged
    result.json       the numbers at the end
    manifest.json     SHA-256 of every other file, written last: a run without it did not finish

Files are written aside, synced and renamed, so a reader sees the old file or the new one and never half of one.
"""

from __future__ import annotations

import json
import os
import shutil
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openbook.base.environment import environment
from openbook.base.errors import InputError, MachineError
from openbook.base.files import LOCK, differences, file_hash, locked, remove, sync, write_json, written_aside

MANIFEST = "manifest.json"
CHANGES = "changes.json"  # what changed when the run went on with other settings or data
ERROR = "error.json"  # why a run of a sweep failed
CHECKPOINTS = "checkpoints"
MARKS = ("environment.json", "data.json", "config.json")  # in the order of writing; a folder with all three is a run
RESULTS = ("metrics.jsonl", "model", "adapter", "runs", "result.json")  # trackers write to runs/
PARTS = frozenset({*MARKS, *RESULTS, ERROR, MANIFEST, CHANGES, LOCK, CHECKPOINTS})  # all that a run may contain


@dataclass(frozen=True)
class StartMode:
    """How a run starts: in a new folder, in place of an earlier run, or where an unfinished one stopped."""

    force: bool = False
    resume: bool = False
    allow_changes: bool = False

    def __post_init__(self) -> None:
        if self.resume and self.force:
            raise InputError("--resume goes on with a run and --force replaces it: give one of them")
        if self.allow_changes and not self.resume:
            raise InputError("--allow-changes only matters when a run goes on: give --resume with it")


AFRESH = StartMode()


class RunFolder:
    """A run's folder: created or opened here, written to, and checked."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)

    @classmethod
    def create(cls, folder: Path | str, config: dict[str, Any], data: dict[str, Any], force: bool = False) -> RunFolder:
        """Start a run in a folder that is new or empty; `force` removes an earlier run there, and nothing else."""
        run = cls(folder)
        run.check_free(force)
        run.folder.mkdir(parents=True, exist_ok=True)
        with run.lock():  # not while somebody writes to it
            for path in run.folder.iterdir():
                if path.name != LOCK:
                    remove(path)
            for name, record in zip(MARKS, (environment(), data, config), strict=True):
                write_json(run.folder / name, record)
        return run

    def check_free(self, force: bool = False) -> None:
        """Refuse a folder that a run must not be started in; `force` allows one that holds a run and nothing else.

        The folder of a model has a config.json too, so a run is recognised by all of `MARKS`.
        """
        if self.folder.exists() and not self._barely_begun():
            if not self.folder.is_dir():
                raise InputError(f"{self.folder} is a file: name another folder with --out")
            if not all((self.folder / name).exists() for name in MARKS):
                raise InputError(f"{self.folder} is not empty and not a run: name another folder with --out")
            if not force:
                state = "already:" if self.finished else "already, which did not finish: go on with --resume,"
                raise InputError(
                    f"{self.folder} holds a run {state} name another folder with --out, or replace it with --force"
                )
            foreign = sorted(self._names() - PARTS)
            for path in sorted((self.folder / "runs").rglob("*")):
                if not path.is_dir() and not path.name.startswith("events.out."):  # not what TensorBoard writes
                    foreign.append(f"runs/{path.name}")
            if foreign:
                raise InputError(
                    f"{self.folder} is not replaced, because it holds more than a run ({', '.join(foreign[:3])}): "
                    "move that away, or name another folder with --out"
                )
        self.check_writable()

    def _barely_begun(self) -> bool:
        """Whether the folder is empty, or has no more than a start that was killed early leaves behind."""
        starts = [set(), *({LOCK, *MARKS[:written]} for written in range(len(MARKS)))]
        return self.folder.is_dir() and self._names() in starts

    def _names(self) -> set[str]:
        """The names of what is in the folder, without what a killed process left half written."""
        names = {path.name for path in self.folder.iterdir()}
        return {name for name in names if not (name.startswith(".") and name.endswith(".writing"))}

    def check_writable(self) -> None:
        """Refuse a folder that nothing can be written to, before there are hours of work to write.

        If the folder does not exist yet, the nearest one above it is checked. A finished run is not written to again.
        """
        if self.finished:
            return
        absolute = self.folder.absolute()
        there = next(path for path in (absolute, *absolute.parents) if path.exists())
        if there.is_dir() and not os.access(there, os.W_OK | os.X_OK):
            read_only = os.statvfs(there).f_flag & os.ST_RDONLY
            reason = "its file system is read-only" if read_only else "permission denied"
            raise MachineError(
                f"cannot write to {there}: {reason}. Name another folder with --out, or make it writable"
            )

    @classmethod
    def resume(
        cls,
        folder: Path | str,
        config: dict[str, Any],
        data: dict[str, Any],
        allow_changes: bool = False,
        recorded: dict[str, Any] | None = None,
    ) -> RunFolder:
        """Open an unfinished run to go on with it; if config or data have changed, refuse and name the differences.

        `recorded` is the run's own config as it is read today, if that differs from what was written.
        """
        run = cls(folder)
        before = run.read("config.json") if recorded is None else recorded
        changes = [f"config: {line}" for line in differences(before, config)]
        changes += [f"data: {line}" for line in differences(run.read("data.json"), data)]
        if changes and not allow_changes:
            raise InputError(
                f"{run.folder} cannot go on, because it would not be the same run: {'; '.join(changes)} "
                "(pass --allow-changes to go on all the same)"
            )
        if changes and not run.finished:
            with run.lock():
                earlier = run.read(CHANGES) if (run.folder / CHANGES).exists() else []
                write_json(run.folder / CHANGES, [*earlier, {"lines_logged": len(run.metrics()), "changes": changes}])
                write_json(run.folder / "config.json", config)
                write_json(run.folder / "data.json", data)
        return run

    @property
    def finished(self) -> bool:
        """Whether the run came to its end."""
        return (self.folder / MANIFEST).exists()

    def lock(self) -> AbstractContextManager[None]:
        """Keeps other writers out of the folder."""
        return locked(self.folder)

    @property
    def log_file(self) -> Path:
        """The file of the metrics."""
        return self.folder / "metrics.jsonl"

    def log(self, **metrics: Any) -> None:
        """Add a line to the metrics."""
        with self.log_file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(metrics, allow_nan=False) + "\n")

    def log_size(self) -> int:
        """The size of the log in bytes, all of which are safe on the disk."""
        if not self.log_file.exists():
            return 0
        sync(self.log_file)
        return self.log_file.stat().st_size

    def cut_log(self, size: int) -> None:
        """Remove what was logged after a checkpoint; it will be logged again."""
        if self.log_file.exists():
            os.truncate(self.log_file, min(size, self.log_file.stat().st_size))  # more would add zeros

    def metrics(self) -> list[dict[str, Any]]:
        """The lines of the log, without one that a killed process left unfinished."""
        text = self.log_file.read_text(encoding="utf-8") if self.log_file.exists() else ""
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]

    @property
    def model_folder(self) -> Path:
        """The folder of the model."""
        return self.folder / "model"

    def save_model(self, model: Any, tokenizer: Any) -> None:
        """Save weights and tokenizer; adapters are saved alone as well, before they are merged into the model."""
        if hasattr(model, "merge_and_unload"):
            with written_aside(self.folder / "adapter") as aside:
                model.save_pretrained(aside, safe_serialization=True)
            model = model.merge_and_unload()
        with written_aside(self.model_folder) as aside:
            model.save_pretrained(aside, safe_serialization=True)
            tokenizer.save_pretrained(aside)

    def drop_checkpoints(self) -> None:
        """Remove all checkpoints."""
        shutil.rmtree(self.checkpoints, ignore_errors=True)

    def finish(self, result: dict[str, Any]) -> None:
        """Write the result and, last of all, the manifest."""
        write_json(self.folder / "result.json", result)
        hashes = {}
        for path in sorted(self.folder.rglob("*")):
            first = path.relative_to(self.folder).parts[0]
            passing = first in (MANIFEST, LOCK, CHECKPOINTS, ERROR) or first.endswith(".writing")
            if path.is_file() and not passing:
                hashes[str(path.relative_to(self.folder))] = file_hash(path)
        write_json(self.folder / MANIFEST, hashes)

    @property
    def checkpoints(self) -> Path:
        """The folder of the checkpoints."""
        return self.folder / CHECKPOINTS

    def read(self, name: str) -> Any:
        """The content of one of the JSON files."""
        path = self.folder / name
        if not path.exists():
            raise InputError(f"{self.folder} has no {name}: it is not a run, or the run did not get that far")
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise InputError(f"{path} is damaged: not JSON ({error})") from None
        if not isinstance(content, list if name == CHANGES else dict):
            raise InputError(f"{path} is damaged: it is not what a run writes there")
        return content

    def damage(self) -> list[str]:
        """What is wrong with the folder: nothing for a finished run whose files are as they were written."""
        if not self.finished:
            return ["the run did not finish: there is no manifest"]
        problems = []
        for name, expected in self.read(MANIFEST).items():
            path = self.folder / name
            if not path.exists():
                problems.append(f"{name} is missing")
            elif file_hash(path) != expected:
                problems.append(f"{name} was changed after the run")
        return problems
