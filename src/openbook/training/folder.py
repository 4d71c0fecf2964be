"""What a run leaves on disk: a folder that says what was done, with what, and what came out.

    config.json       every setting, defaults included
    environment.json  versions, machine and git state
    data.json         what was trained on, with its fingerprint
    metrics.jsonl     one line for every logged step
    checkpoints/      where an unfinished run can go on
    model/            weights (safetensors), config and tokenizer
    adapter/          low-rank adapters by themselves, if the run trained some; in model/ they are merged
    result.json       the figures at the end
    manifest.json     SHA-256 of every other file, written last: a run without it did not finish

Files are written aside, synced and renamed, so a reader sees the old one or the new one and never half of one.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openbook.base.environment import environment
from openbook.base.errors import InputError, MachineError
from openbook.base.files import LOCK, differences, file_hash, locked, remove, sync, write_json, written_aside

MANIFEST = "manifest.json"
CHANGES = "changes.json"  # of a run that went on with other settings or data
ERROR = "error.json"  # of a run of a sweep that failed
CHECKPOINTS = "checkpoints"
MARKS = ("environment.json", "data.json", "config.json")  # in the order of writing; a folder with all three is a run
PARTS = frozenset(
    {
        *MARKS,
        "metrics.jsonl",
        "model",
        "adapter",
        "runs",
        "result.json",
        ERROR,
        MANIFEST,
        CHANGES,
        LOCK,
        CHECKPOINTS,
    }
)  # what a run may hold; trackers write to runs/


def _tracked(path: Path) -> bool:
    """Whether a tracker (TensorBoard's, in runs/) has written this."""
    return path.is_dir() or path.name.startswith("events.out.")


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
            raise InputError("--allow-changes is about going on with a run: give --resume with it")


AFRESH = StartMode()


class RunFolder:
    """A run's folder."""

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
            write_json(run.folder / "environment.json", environment())
            write_json(run.folder / "data.json", data)
            write_json(run.folder / "config.json", config)  # the last: with it, the folder is a run
        return run

    def check_free(self, force: bool = False) -> None:
        """Refuse a folder that a run must not be started in; `force` allows one that holds a run and nothing else.

        A model's folder has a config.json too, so more than that is asked for before anything is removed.
        """
        if not self.folder.exists() or self._barely_begun():
            self.check_writable()
            return
        if not self.folder.is_dir():
            raise InputError(f"{self.folder} is a file: name another folder with --out")
        if not all((self.folder / name).exists() for name in MARKS):
            raise InputError(f"{self.folder} is not empty and not a run: name another folder with --out")
        if not force and not self.finished:
            raise InputError(
                f"{self.folder} holds a run already, which did not finish: go on with --resume, name another folder "
                "with --out, or replace it with --force"
            )
        if not force:
            raise InputError(f"{self.folder} holds a run already: name another folder with --out, or pass --force")
        foreign = sorted(self._names() - PARTS)
        foreign += [f"runs/{path.name}" for path in sorted((self.folder / "runs").rglob("*")) if not _tracked(path)]
        if foreign:
            raise InputError(
                f"{self.folder} is not replaced, because it holds more than a run ({', '.join(foreign[:3])}): "
                "move that away, or name another folder with --out"
            )
        self.check_writable()

    def _barely_begun(self) -> bool:
        """Whether the folder is empty, or all it holds was left by a start that was killed before there was a run."""
        if not self.folder.is_dir():
            return False
        names = self._names()
        return not names or names in [{LOCK, *MARKS[:written]} for written in range(len(MARKS))]

    def _names(self) -> set[str]:
        """What the folder holds, without what a killed process left half written."""
        names = {path.name for path in self.folder.iterdir()}
        return {name for name in names if not (name.startswith(".") and name.endswith(".writing"))}

    def check_writable(self) -> None:
        """Say that nothing can be written here before hours of work are to be written here.

        What is asked is the folder itself or, where there is none yet, the nearest one above it. A finished run is not
        written to again.
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
        """Take up an unfinished run again; refuses, naming the differences, when it is not the same run any more.

        `recorded` is the run's own config as it is read now, if not as it was written.
        """
        run = cls(folder)
        before = run.read("config.json") if recorded is None else recorded
        changes = [
            f"{name}: {difference}"
            for name, earlier, now in (("config", before, config), ("data", run.read("data.json"), data))
            for difference in differences(earlier, now)
        ]
        if changes and not allow_changes:
            raise InputError(
                f"{run.folder} cannot go on, because it would not be the same run: {'; '.join(changes)} "
                "(pass --allow-changes to go on all the same)"
            )
        if changes and not run.finished:  # the record says what goes on from here, and what it was before
            with run.lock():
                earlier = run.read(CHANGES) if (run.folder / CHANGES).exists() else []
                write_json(run.folder / CHANGES, [*earlier, {"lines_logged": len(run.metrics()), "changes": changes}])
                write_json(run.folder / "config.json", config)
                write_json(run.folder / "data.json", data)
        return run

    @property
    def finished(self) -> bool:
        return (self.folder / MANIFEST).exists()

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other writers out of the folder."""
        with locked(self.folder):
            yield

    def log(self, **metrics: Any) -> None:
        """Add a line to the metrics."""
        with (self.folder / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(metrics, allow_nan=False) + "\n")

    def log_size(self) -> int:
        """Bytes of the log that are safe on the disk."""
        path = self.folder / "metrics.jsonl"
        if not path.exists():
            return 0
        sync(path)
        return path.stat().st_size

    def cut_log(self, size: int) -> None:
        """Forget what was logged after a checkpoint; it will be logged again."""
        path = self.folder / "metrics.jsonl"
        if path.exists():
            with path.open("r+b") as file:
                file.truncate(min(size, path.stat().st_size))  # more would add zeros

    def metrics(self) -> list[dict[str, Any]]:
        """The lines of the log; one that a killed process left unfinished is passed over."""
        path = self.folder / "metrics.jsonl"
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]

    @property
    def model_folder(self) -> Path:
        return self.folder / "model"

    def save_model(self, model: Any, tokenizer: Any) -> None:
        """Save weights and tokenizer; adapters are saved by themselves, and merged into the model they change."""
        if hasattr(model, "merge_and_unload"):
            with written_aside(self.folder / "adapter") as aside:
                model.save_pretrained(aside, safe_serialization=True)
            model = model.merge_and_unload()
        with written_aside(self.model_folder) as aside:
            model.save_pretrained(aside, safe_serialization=True)
            tokenizer.save_pretrained(aside)

    def drop_checkpoints(self) -> None:
        shutil.rmtree(self.checkpoints, ignore_errors=True)

    def finish(self, result: dict[str, Any]) -> None:
        """Write the result and, last of all, the manifest."""
        write_json(self.folder / "result.json", result)
        files = sorted(path for path in self.folder.rglob("*") if path.is_file() and self._belongs(path))
        write_json(self.folder / MANIFEST, {str(p.relative_to(self.folder)): file_hash(p) for p in files})

    def _belongs(self, path: Path) -> bool:
        """Whether a file is part of the record: locks, checkpoints, failures and what a killed process left are not."""
        first = path.relative_to(self.folder).parts[0]
        return first not in (MANIFEST, LOCK, CHECKPOINTS, ERROR) and not first.endswith(".writing")

    @property
    def checkpoints(self) -> Path:
        return self.folder / CHECKPOINTS

    def read(self, name: str) -> Any:
        path = self.folder / name
        if not path.exists():
            raise InputError(f"{self.folder} has no {name}: it is not a run, or the run did not get that far")
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise InputError(f"{path} is damaged: not JSON ({error})") from None
        if not isinstance(found, list if name == CHANGES else dict):
            raise InputError(f"{path} is damaged: it is not what a run writes there")
        return found

    def damage(self) -> list[str]:
        """What is wrong with the folder: nothing for a finished run whose files are as they were written."""
        if not (self.folder / MANIFEST).exists():
            return ["the run did not finish: there is no manifest"]
        problems = []
        for name, expected in self.read(MANIFEST).items():
            path = self.folder / name
            if not path.exists():
                problems.append(f"{name} is missing")
            elif file_hash(path) != expected:
                problems.append(f"{name} was changed after the run")
        return problems
