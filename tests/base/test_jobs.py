"""Worker processes: order, needs, failures, and nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from openbook.base.errors import InputError, StoppedError
from openbook.base.jobs import run_jobs


@dataclass(frozen=True)
class Note:
    """A job that writes its name, its thread setting and its process into a file."""

    key: str
    folder: Path
    needs: tuple[str, ...] = ()
    weight: float = 1.0
    trouble: str = ""
    seconds: float = 0.0

    def perform(self, report: Callable[[float, str], None]) -> None:
        report(0.5, "half")
        time.sleep(self.seconds)
        if self.trouble == "input":
            raise InputError("cannot be done")
        if self.trouble == "crash":
            raise RuntimeError("broken")
        if self.trouble == "die":
            os._exit(7)
        if self.trouble == "stop":
            raise StoppedError("saved", signal.SIGINT)
        print("said on standard output")
        (self.folder / self.key).write_text(f"{os.environ['OMP_NUM_THREADS']} {os.getpid()}")


def test_needs_come_first_and_one_thread_each(tmp_path: Path) -> None:
    jobs = [Note("b", tmp_path, ("a",)), Note("a", tmp_path, ("elsewhere",)), Note("c", tmp_path)]
    events = list(run_jobs(jobs, 2, tmp_path / "log"))
    order = [event.key for event in events if event.kind == "started"]
    assert order.index("a") < order.index("b")
    assert order[0] == "a"  # the longest chain first
    assert {event.key for event in events if event.kind == "done"} == {"a", "b", "c"}
    assert all((tmp_path / key).read_text().split()[0] == "1" for key in "abc")
    assert "said on standard output" in (tmp_path / "log").read_text()


def test_a_worker_that_was_told_to_stop_ends_all_as_an_interruption(tmp_path: Path) -> None:
    """The signal went to the whole group, and may be seen there before it is seen here."""
    with pytest.raises(KeyboardInterrupt):
        list(run_jobs([Note("a", tmp_path, trouble="stop"), Note("b", tmp_path)], 1, tmp_path / "log"))


def test_a_failure_is_told_and_stops_only_what_needs_it(tmp_path: Path) -> None:
    jobs = [
        Note("bad", tmp_path, trouble="input"),
        Note("crash", tmp_path, trouble="crash"),
        Note("after", tmp_path, ("bad",)),
        Note("later", tmp_path, ("after",)),
        Note("fine", tmp_path),
    ]
    events = {
        event.key: event for event in run_jobs(jobs, 2, tmp_path / "log") if event.kind not in ("started", "progress")
    }
    assert events["bad"].kind == "failed" and events["bad"].note == "cannot be done"
    assert events["crash"].kind == "failed" and "RuntimeError: broken" in events["crash"].note
    assert events["after"].kind == events["later"].kind == "skipped"
    assert events["fine"].kind == "done"
    assert "Traceback" in (tmp_path / "log").read_text()


def test_a_worker_that_dies_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"exit code 7 during worse"):
        list(run_jobs([Note("worse", tmp_path, trouble="die")], 1, tmp_path / "log"))


def test_no_worker_outlives_an_interrupted_parent(tmp_path: Path) -> None:
    """The caller leaves in the middle, as at Ctrl-C: the workers are gone when it returns."""
    pids = []
    with pytest.raises(KeyboardInterrupt):
        for event in run_jobs([Note("first", tmp_path), Note("slow", tmp_path, seconds=60)], 2, tmp_path / "log"):
            if event.kind == "done":
                pids.append(int((tmp_path / "first").read_text().split()[1]))
                raise KeyboardInterrupt
    assert pids
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)
    assert not (tmp_path / "slow").exists()


def test_a_worker_ends_when_its_parent_was_killed(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from tests.base.test_jobs import Note; "
        "from openbook.base.jobs import run_jobs\n"
        "if __name__ == '__main__':\n"
        f"    folder = Path({str(tmp_path)!r})\n"
        "    for event in run_jobs([Note('one', folder), Note('two', folder, seconds=0.5)], 2, folder / 'log'): pass\n"
    )
    script = tmp_path / "main.py"
    script.write_text(code)
    root = Path(__file__).parents[2]
    process = subprocess.Popen(
        [sys.executable, str(script)], env={**os.environ, "PYTHONPATH": os.pathsep.join([str(root), *sys.path])}
    )
    deadline = time.monotonic() + 60
    while not (tmp_path / "one").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    pid = int((tmp_path / "one").read_text().split()[1])
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    pytest.fail("the worker is still there")


def test_no_process_at_all_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="at least 1"):
        list(run_jobs([Note("a", tmp_path)], 0, tmp_path / "log"))
