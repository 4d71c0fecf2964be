"""Errors that are the user's to mend. The command line prints them without a traceback.

`InputError` (exit code 2): what was asked for cannot be done. `OSError` (exit code 1): the machine refused; where the
remedy is known it is a `MachineError`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """Something a user gave is wrong: says what, where, and what to do about it."""


class MachineError(OSError):
    """The machine refused (a full disk, a missing permission): says what, where, and what to do about it."""


class StoppedError(Exception):
    """A signal ended the work after it was saved. `code` is the exit code that shells expect."""

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message)
        self.code = 128 + number


def nearest(word: str, known: Iterable[str]) -> str:
    """`"; did you mean 'x'?"` for the closest known word, or nothing when none is close."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"; did you mean '{close[0]}'?" if close else ""
