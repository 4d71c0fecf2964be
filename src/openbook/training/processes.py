"""Several processes train one run: `torchrun -m openbook.cli learn ...`. Only the first of them writes or prints."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from openbook.base.errors import InputError
from openbook.training.folder import RunFolder

# Environment variables in which launchers announce how many processes they have started.
ANNOUNCED = ("WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE")


def is_first() -> bool:
    """Whether this process is the one that writes. It is the only one, unless torchrun started more."""
    return int(os.environ.get("RANK", "0")) == 0


def are_several() -> bool:
    """Whether torchrun started more than one process."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def announced() -> tuple[str, int]:
    """The largest number of processes that a launcher announces, behind the name of the variable."""
    values = {name: os.environ.get(name, "") for name in ANNOUNCED}
    numbers = {name: int(value) for name, value in values.items() if value.isdecimal()}
    return max(numbers.items(), key=lambda item: item[1], default=("", 1))


def check_world_size(connected: int) -> None:
    """Refuse to train alone when a launcher has started several processes: each would do the whole run.

    `srun -n 4 openbook learn ...` is such a case: four tasks, none of which knows how to find the others.
    """
    name, number = announced()
    if connected < number:
        raise InputError(
            f"{name} announces {number} processes, but this one found {connected}: they would not train together. "
            f"Start them with `torchrun --nproc-per-node {number} -m openbook.cli learn ...`, or unset {name} to train "
            "alone"
        )


def check_alone(what: str) -> None:
    """Refuse to start several processes for work that only one can do."""
    name, number = announced()
    if number > 1:
        raise InputError(f"{what} runs in one process, but {name} announces {number}: start it without a launcher")


def wait_for_all() -> None:
    """Wait until every process has come this far."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.barrier()


def lost_process(error: Exception, workers: int = 0) -> str | None:
    """Which process has died, if that is what the error means; None for any other error.

    A worker that dies while its batch is fetched breaks the connection, and torch may pass that on as it is.
    """
    first = next(iter(str(error).strip().splitlines()), type(error).__name__)
    cut_off = workers > 0 and isinstance(error, ConnectionError | EOFError)
    if cut_off or "DataLoader worker" in first:
        return f"a process that prepares batches has died ({first.strip(' .')}), often for want of memory"
    if are_several() and any(
        word in str(error).lower() for word in ("gloo", "nccl", "closed by peer", "reset by peer")
    ):
        return f"another process of this run has died ({first.strip(' .')})"
    return None


class Onlooker(RunFolder):
    """The run's folder as the other processes see it: they read what the first one wrote, and write nothing."""

    def lock(self) -> AbstractContextManager[None]:
        return nullcontext()

    def log(self, **metrics: Any) -> None: ...

    def cut_log(self, size: int) -> None: ...

    def save_model(self, model: Any, tokenizer: Any) -> None: ...

    def drop_checkpoints(self) -> None: ...

    def finish(self, result: dict[str, Any]) -> None: ...
