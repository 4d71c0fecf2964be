"""Files that are never half of themselves: written aside, synced, renamed, hashed and locked."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from openbook.base.errors import InputError

LOCK = "lock"  # the name of a folder's lock file


@contextmanager
def written_aside(path: Path) -> Iterator[Path]:
    """A path to write to; on success it is synced and takes the place of `path`, on failure it is removed."""
    aside = path.with_name(f".{path.name}.writing")
    remove(aside)  # what a killed process left
    try:
        yield aside
        sync(aside)
        if path.is_dir():
            shutil.rmtree(path)
        aside.replace(path)
        _fsync(path.parent)  # the new name alone: files beside it may be half written by other processes
    finally:
        remove(aside)


def remove(path: Path) -> None:
    """Remove a file or a folder, whether or not it is there."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Wait until a file, or a folder and the files in it, are safe on the disk."""
    if path.is_dir():
        for child in path.iterdir():
            if child.is_file():
                sync(child)
    _fsync(path)


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_file(path: Path, content: str | bytes) -> None:
    with written_aside(path) as aside:
        aside.write_bytes(content.encode() if isinstance(content, str) else content)


def write_json(path: Path, data: Any) -> None:
    write_file(path, json.dumps(data, indent=1, ensure_ascii=False) + "\n")


def file_hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def differences(before: Any, now: Any, key: str = "") -> list[str]:
    """Where two JSON values differ, as `key was a, is b`."""
    if isinstance(before, dict) and isinstance(now, dict):
        keys = [*before, *(k for k in now if k not in before)]
        return [line for k in keys for line in differences(before.get(k), now.get(k), f"{key}.{k}" if key else str(k))]
    return [] if before == now else [f"{key} was {before!r}, is {now!r}"]


_held: set[int] = set()  # open files of the locks that this process holds


def _let_go() -> None:
    """In a forked child: a worker that outlives a killed run must not keep the run's lock."""
    for descriptor in _held:
        os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_let_go)


@contextmanager
def locked(folder: Path, wait: bool = False) -> Iterator[None]:
    """Keep other writers out of a folder; the lock is the system's, so a killed process leaves none behind.

    If another process holds the lock, this one is refused, or if told to, it waits.
    """
    descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    _held.add(descriptor)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError:
            raise InputError(f"another process is writing to {folder}: wait for it, or name another folder") from None
        yield
    finally:
        if descriptor in _held:
            _held.remove(descriptor)
            os.close(descriptor)
