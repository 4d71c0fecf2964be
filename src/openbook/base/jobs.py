"""Worker processes: one thread each, one job at a time, and none left behind.

Workers are spawned (a forked torch may hang) and get their jobs through a pipe. They ignore Ctrl-C; the parent asks
them to stop with SIGTERM, on which a training saves its state and anything else just ends. When the parent is gone, the
pipe is closed, and a worker ends with its current job.
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
from openbook.base.registry import load_known_plugins

ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
PATIENCE = 60.0  # seconds that a training has to save its state


class Job(Protocol):
    """Something to be done in a worker, to which it is sent by pickle."""

    @property
    def key(self) -> str: ...

    @property
    def needs(self) -> tuple[str, ...]:
        """The keys of the jobs that must be done before."""

    @property
    def weight(self) -> float:
        """Expected seconds. Of the jobs that are ready, the one on the longest chain starts first."""

    def perform(self, report: Callable[[float, str], None]) -> None:
        """Do it; `report` takes the share that is done and what is being done."""


@dataclass(frozen=True)
class Event:
    """What happened to a job."""

    kind: Literal["started", "progress", "done", "failed", "skipped"]
    key: str
    share: float = 0.0
    note: str = ""


@dataclass
class _Worker:
    process: Any
    connection: Connection
    job: Job | None = None


@dataclass
class _Queue:
    """The jobs that wait for a worker or for other jobs."""

    waiting: dict[str, Job]
    done: set[str]
    failed: set[str] = field(default_factory=set)

    def chain(self, job: Job) -> float:
        """Expected seconds until a job and all that need it are done."""
        after = [other for other in self.waiting.values() if job.key in other.needs]
        return job.weight + max((self.chain(other) for other in after), default=0.0)

    def take(self) -> Job | None:
        """Take the next job out of the queue, if one is ready."""
        ready = [job for job in self.waiting.values() if self.done.issuperset(job.needs)]
        best = max(ready, key=self.chain, default=None)
        return None if best is None else self.waiting.pop(best.key)

    def take_hopeless(self) -> list[str]:
        """Take out the jobs that need one that failed, directly or through others; returns their keys."""
        hopeless: list[str] = []
        while keys := [job.key for job in self.waiting.values() if not self.failed.isdisjoint(job.needs)]:
            for key in keys:
                del self.waiting[key]
            self.failed.update(keys)
            hopeless += keys
        return hopeless


def run_jobs(jobs: Sequence[Job], processes: int, log: Path) -> Iterator[Event]:
    """Do all jobs, as many at a time as there are processes. Needs that are not among `jobs` count as met."""
    if processes < 1:
        raise InputError(f"{processes} processes: use at least 1")
    keys = {job.key for job in jobs}
    queue = _Queue({job.key: job for job in jobs}, done={need for job in jobs for need in job.needs} - keys)
    with _workers(min(processes, len(jobs)), log) as workers:
        while queue.waiting or any(worker.job for worker in workers):
            for worker in workers:
                if worker.job is None and (job := queue.take()) is not None:
                    worker.job = job
                    worker.connection.send(job)
                    yield Event("started", job.key)
            busy = {worker.connection: worker for worker in workers if worker.job is not None}
            for connection in wait(list(busy)):
                worker = busy[connection]  # type: ignore[index]
                event = _receive(worker)
                if event.kind != "progress":
                    (queue.done if event.kind == "done" else queue.failed).add(event.key)
                    worker.job = None
                yield event
                yield from (Event("skipped", key, note="needs a job that failed") for key in queue.take_hopeless())


def _receive(worker: _Worker) -> Event:
    assert worker.job is not None
    try:
        kind, share, note = worker.connection.recv()
        return Event(kind, worker.job.key, share, note)
    except (EOFError, ConnectionError):
        worker.process.join()
        code = worker.process.exitcode
        if code == 0:  # it was asked to stop and has saved its state; so were we, even if our own signal is yet to come
            raise KeyboardInterrupt from None
        raise InputError(
            f"a worker ended with exit code {code} during {worker.job.key}: finished jobs are kept, run the command "
            "again"
        ) from None


@contextmanager
def _workers(count: int, log: Path) -> Iterator[list[_Worker]]:
    workers = _start(count, log)
    try:
        yield workers
        for worker in workers:
            worker.connection.close()
    except BaseException:
        for worker in workers:
            worker.process.terminate()
        raise
    finally:
        for worker in workers:
            worker.process.join(PATIENCE)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()


def _start(count: int, log: Path) -> list[_Worker]:
    context = multiprocessing.get_context("spawn")
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ.update(ONE_THREAD)  # a spawned process inherits it, and reads it before torch is imported
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
    return workers


def _work(connection: Connection, log: str) -> None:
    """The main loop of a worker. Standard output and error go to the log: the terminal belongs to the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(file, 1)
    os.dup2(file, 2)
    load_known_plugins()
    while True:
        try:
            job: Job = connection.recv()
        except EOFError:
            return
        try:
            job.perform(lambda share, note: connection.send(("progress", share, note)))
            connection.send(("done", 1.0, ""))
        except StoppedError:
            return  # its state is saved, and the parent knows why
        except InputError as error:
            connection.send(("failed", 0.0, str(error)))
        except BrokenPipeError:
            return
        except Exception as error:  # a failure is reported and stops no other job
            traceback.print_exc()
            connection.send(("failed", 0.0, f"{type(error).__name__}: {error}"))
