"""Signals that ask a run to stop: what is being done is finished or given up, saved, and gone on with later."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_received: list[int] = []  # signals that ask to stop


def stop_signal() -> int | None:
    """The signal that asked to stop, if one did."""
    return _received[0] if _received else None


def request_stop() -> None:
    """Take note that another process of the run was asked to stop."""
    if not _received:
        _received.append(int(signal.SIGTERM))


@contextmanager
def stopping_at_signals() -> Iterator[Callable[[], int | None]]:
    """Within, SIGTERM and Ctrl-C are noted and nothing more; yields `stop_signal`.

    A second signal of the same kind acts as usual, for those who cannot wait.
    """
    _received.clear()
    before: dict[int, Any] = {}

    def note(number: int, _: Any) -> None:
        _received.append(number)
        signal.signal(number, before[number])

    for number in (int(signal.SIGTERM), int(signal.SIGINT)):
        try:
            before[number] = signal.signal(number, note)
        except ValueError:  # not the main thread: signals stay as they are
            break
    try:
        yield stop_signal
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        _received.clear()
