"""Several processes, one run: `torchrun -m openbook.cli learn ...`. Only the first of them writes and speaks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from openbook.records import Run


def is_first() -> bool:
    """Whether this process is the one that writes; the only one there is, unless torchrun started more."""
    return int(os.environ.get("RANK", "0")) == 0


def are_several() -> bool:
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def wait_for_all() -> None:
    """Go on when every process has come this far."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.barrier()


class Onlooker(Run):
    """The run as the other processes see it: they read what the first one wrote, and write nothing."""

    @contextmanager
    def lock(self) -> Iterator[None]:
        yield

    def log(self, **metrics: Any) -> None: ...

    def cut_log(self, size: int) -> None: ...

    def save_model(self, model: Any, tokenizer: Any) -> None: ...

    def drop_checkpoints(self) -> None: ...

    def finish(self, result: dict[str, Any]) -> None: ...
