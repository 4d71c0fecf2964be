"""Writing a dataset to a file so that nothing is lost: streaming, resumable, and never half-written in place.

Records go to `NAME.partial`, beside the target, with their description in `NAME.partial.json`. A run that was killed
continues after its last complete record, and because sample i is a pure function of the description the file ends
byte-identical to an unbroken one. Only a complete file takes the target's name.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from openbook.base.errors import InputError, MachineError
from openbook.base.files import differences, write_json
from openbook.task.dataset import DatasetSpec
from openbook.task.encoder import RecordEncoder


@dataclass(frozen=True)
class Written:
    """What a finished run leaves."""

    records: int
    bytes: int
    resumed_at: int  # records that an earlier, killed run had already written


def partial_path(path: Path) -> Path:
    return path.with_name(path.name + ".partial")


def state_path(path: Path) -> Path:
    return path.with_name(path.name + ".partial.json")


def write_dataset(
    spec: DatasetSpec, path: Path, force: bool = False, advance: Callable[[int], None] = lambda records: None
) -> Written:
    """Write the dataset, or what is missing of it. `advance` hears of every batch of records written."""
    path = check_target(path, force)
    partial, state = partial_path(path), state_path(path)
    try:
        with _open_locked(partial) as file:
            try:
                _check_state(spec, file, partial, state, force)
                encoder = RecordEncoder(spec)
                done = resumed_at = _complete_records(encoder, file, partial)
                advance(done)
                for count, lines in encoder.chunks(done):
                    file.write(lines)
                    done += count
                    advance(count)
                file.flush()
                os.fsync(file.fileno())
                size = file.tell()
                partial.replace(path)
                state.unlink(missing_ok=True)
                return Written(done, size, resumed_at)
            finally:
                if os.fstat(file.fileno()).st_size == 0:  # nothing to come back to
                    partial.unlink(missing_ok=True)
                    state.unlink(missing_ok=True)
    except OSError as error:
        advice = "choose a place that can be written to"
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            advice = "make room and run the same command again, it continues where it stopped"
        raise MachineError(f"{partial}: {error.strerror or error}: {advice}") from error


def check_target(path: Path, force: bool) -> Path:
    """Refuse a target that cannot or must not be replaced, before anything is made; the file that a link points at."""
    try:
        path = path.resolve()
        mode = path.stat().st_mode
    except FileNotFoundError:
        if not path.parent.is_dir():
            raise MachineError(f"{path}: the folder {path.parent} does not exist: make it first") from None
        return path
    except (OSError, RuntimeError) as error:  # before Python 3.13 links in a circle are a RuntimeError
        raise MachineError(f"{path}: {getattr(error, 'strerror', error)}: choose another place") from None
    if not stat.S_ISREG(mode):
        raise InputError(f"{path} is not a file that can be replaced: choose another name")
    if not force:
        raise InputError(f"{path} exists already: choose another name, or replace it with --force")
    return path


def _open_locked(partial: Path) -> BinaryIO:
    """Open the partial file, or make it, and keep other runs out of it until it is closed."""
    file = partial.open("a+b")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if partial.stat().st_ino == os.fstat(file.fileno()).st_ino:  # a run that has just finished renames the file
            return file
    except (BlockingIOError, FileNotFoundError):
        pass
    file.close()
    raise InputError(f"{partial}: another run is writing this file: wait for it, or stop it")


def _check_state(spec: DatasetSpec, file: BinaryIO, partial: Path, state: Path, force: bool) -> None:
    """Make sure that what is in the file belongs to this dataset, and that its description is beside it."""
    description = spec.describe()
    try:
        before = json.loads(state.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        before = None
    if before == description:
        return
    if file.seek(0, os.SEEK_END) and not force:
        reason = f"its description {state.name} is missing or damaged"
        if isinstance(before, dict):
            reason = "; ".join(differences(before, description))
        raise InputError(
            f"{partial} belongs to another dataset ({reason}): ask for that one again to finish it, delete it, "
            "or start over with --force"
        )
    file.truncate(0)
    write_json(state, description)


def _complete_records(encoder: RecordEncoder, file: BinaryIO, partial: Path) -> int:
    """Cut the partial file after its last complete record, and leave the file there; how many records it has."""
    spec = encoder.spec
    file.seek(0)
    records, end, last = 0, 0, b""
    for line in file:
        if line.endswith(b"\n"):
            records, end, last = records + 1, end + len(line), line
    if records > spec.samples or (records and last != encoder.lines(spec.start + records - 1, 1)):
        raise InputError(f"{partial} is damaged: delete it and run the same command again")
    file.seek(end)
    file.truncate()
    return records
