"""Worker processes: one thread each, one job at a time, and nothing left behind.

Workers are spawned (a forked torch may hang) and told their jobs through a pipe. They take no notice of Ctrl-C; the
parent asks them to stop with SIGTERM, on which a training saves itself and anything else just ends. When the parent
is gone the pipe is closed, and a worker ends with its current job.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Literal, Protocol

from openbook.base.errors import InputError, StoppedError

ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
PATIENCE = 60.0  # seconds for a training to save itself


class Work(Protocol):
    """Something to be done in a worker. `key` names it, `needs` are the keys of what must be done before."""

    @property
    def key(self) -> str: ...

    @property
    def needs(self) -> tuple[str, ...]: ...

    @property
    def weight(self) -> float: ...

    def perform(self, report: Callable[[float, str], None]) -> None: ...


@dataclass(frozen=True)
class Event:
    """What a worker said of a job."""

    kind: Literal["begun", "at", "done", "failed", "skipped"]
    key: str
    share: float = 0.0
    note: str = ""


@dataclass
class _Worker:
    process: Any
    connection: Connection
    job: Work | None = None


@dataclass
class _Queue:
    """Jobs that wait, the ones on the longest chain first."""

    waiting: dict[str, Work]
    done: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)

    def chain(self, job: Work) -> float:
        after = [other for other in self.waiting.values() if job.key in other.needs]
        return job.weight + max((self.chain(other) for other in after), default=0.0)

    def next(self) -> Work | None:
        ready = [job for job in self.waiting.values() if not self._unmet(job)]
        best = max(ready, key=self.chain, default=None)
        if best is not None:
            del self.waiting[best.key]
        return best

    def _unmet(self, job: Work) -> list[str]:
        return [key for key in job.needs if key not in self.done]

    def hopeless(self) -> list[str]:
        """Jobs that wait for something that failed, or for such a job; they are taken out."""
        lost: list[str] = []
        while found := [job.key for job in self.waiting.values() if any(key in self.failed for key in job.needs)]:
            for key in found:
                del self.waiting[key]
            self.failed.update(found)
            lost += found
        return lost


def carry_out(jobs: Sequence[Work], processes: int, log: Path) -> Iterator[Event]:
    """Do all jobs, as many at a time as there are processes, telling what happens. Needs not in `jobs` count as met."""
    if processes < 1:
        raise InputError(f"{processes} processes: use at least 1")
    known = {job.key for job in jobs}
    queue = _Queue({job.key: job for job in jobs})
    queue.done |= {key for job in jobs for key in job.needs if key not in known}
    with _workers(min(processes, len(jobs)), log) as workers:
        while queue.waiting or any(worker.job for worker in workers):
            for worker in workers:
                if worker.job is None and (job := queue.next()) is not None:
                    worker.job = job
                    worker.connection.send(job)
                    yield Event("begun", job.key)
            busy = {worker.connection: worker for worker in workers if worker.job is not None}
            for connection in wait(list(busy)):
                worker = busy[connection]  # type: ignore[index]
                assert worker.job is not None
                event = _hear(worker)
                if event.kind != "at":
                    (queue.done if event.kind == "done" else queue.failed).add(event.key)
                    worker.job = None
                yield event
                yield from (Event("skipped", key, note="needs what failed") for key in queue.hopeless())


def _hear(worker: _Worker) -> Event:
    assert worker.job is not None
    key = worker.job.key
    try:
        kind, share, note = worker.connection.recv()
        return Event(kind, key, share, note)
    except (EOFError, ConnectionError):
        worker.process.join()
        code = worker.process.exitcode
        if code == 0:  # it was told to stop and has saved; so were we, whatever became of our own signal
            raise KeyboardInterrupt from None
        raise InputError(
            f"a worker ended with exit code {code} during {key}: what is done is kept, start again"
        ) from None


@contextmanager
def _workers(count: int, log: Path) -> Iterator[list[_Worker]]:
    context = multiprocessing.get_context("spawn")
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ.update(ONE_THREAD)  # what is spawned inherits it, and reads it before torch is there
    workers = []
    try:
        for _ in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(target=_work, args=(theirs, str(log)), daemon=True)
            process.start()
            theirs.close()
            workers.append(_Worker(process, ours))
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
    finished = False
    try:
        yield workers
        finished = True
    finally:
        for worker in workers:
            if finished:
                worker.connection.close()
            elif worker.process.is_alive():
                worker.process.terminate()
        for worker in workers:
            worker.process.join(PATIENCE)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()


def _work(connection: Connection, log: str) -> None:
    """A worker's life. Standard output and error go to the log: the terminal belongs to the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(file, 1)
    os.dup2(file, 2)

    def say(kind: str, share: float = 0.0, note: str = "") -> None:
        connection.send((kind, share, note))

    while True:
        try:
            job: Work = connection.recv()
        except EOFError:
            return
        try:
            job.perform(lambda share, note: say("at", share, note))
            say("done", 1.0)
        except StoppedError:
            return  # saved; whoever asked for it knows
        except InputError as error:
            say("failed", note=str(error))
        except BrokenPipeError:
            return
        except Exception as error:  # one failure is told and stops nothing else
            traceback.print_exc()
            say("failed", note=f"{type(error).__name__}: {error}")
