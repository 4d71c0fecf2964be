"""Runs that are killed, stopped and looked at from outside: what the tests of faults share."""

from __future__ import annotations

import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from openbook.base.errors import StoppedError
from openbook.training.config import RunConfig
from openbook.training.folder import RunFolder, StartMode
from openbook.training.resolve import resolve
from openbook.training.run import execute
from openbook.training.trainer import CELTrainer

STEPS = 23  # 3 epochs of 61 examples in steps of 8: the last step is not full, and no epoch ends with a step
SETTINGS: dict[str, Any] = {
    "task": {"depth": 1, "chars": 3, "lengths": [4, 8]},
    "model": {"hidden_size": 16, "layers": 1, "heads": 1, "lora": {"rank": 2, "dropout": 0.3}},  # dropout: random
    "samples": 61,
    "training": {
        "epochs": 3,
        "batch_size": 8,
        "micro_batch_size": 3,
        "learning_rate": 0.01,
        "log_every": 3,
        "checkpoint_every": 4,
        "keep_checkpoints": True,
    },
    "exam": {"samples": 4, "every": 5, "batch_size": 4},
}


def config(**training: Any) -> RunConfig:
    return resolve({**SETTINGS, "training": {**SETTINGS["training"], **training}})


def run(
    config: RunConfig,
    folder: Path,
    *,
    force: bool = False,
    resume: bool = False,
    allow_changes: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """Carry out a run, started in this way."""
    return execute(config, folder, StartMode(force, resume, allow_changes), **options)


def in_a_child(work: Callable[[], None]) -> int:
    """Do something in a process of its own; returns how it ended, as the shell would tell."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except StoppedError as error:
            code = error.code
        except Exception:  # it would be lost with the child
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


class _At(TrainerCallback):
    """Sends this process a signal in the middle of a step."""

    def __init__(self, step: int, number: int) -> None:
        self.step, self.number = step, number

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == self.step:
            os.kill(os.getpid(), self.number)


@contextmanager
def signalled(step: int, number: int = signal.SIGKILL) -> Iterator[None]:
    """Within (a child), training gets a signal at this step."""
    made = CELTrainer.__init__

    def with_signal(self: Any, *arguments: Any, **options: Any) -> None:
        made(self, *arguments, **options)
        self.add_callback(_At(step, number))

    CELTrainer.__init__ = with_signal  # type: ignore[method-assign]
    yield


def killed(folder: Path, step: int, going: bool = False, **training: Any) -> int:
    def work() -> None:
        with signalled(step):
            run(config(**training), folder, resume=going)

    return in_a_child(work)


def same(a: Path, b: Path) -> None:
    """Weights, optimiser, generator, schedule and metrics are equal, bit for bit."""
    last = f"checkpoints/step-{STEPS:08d}"
    names = ("model/model.safetensors", f"{last}/model.safetensors", f"{last}/optimizer.safetensors")
    for name in (*names, f"{last}/state.json", "metrics.jsonl"):
        assert (a / name).read_bytes() == (b / name).read_bytes(), name
    assert not RunFolder(b).damage()


def processes(work: Callable[[int], None], count: int = 2) -> list[int]:
    """Do something in several processes that train together, as `torchrun` would start them; returns how each ended.

    They are forked, because a launch with all its imports takes longer than the training that is tested.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    children = []
    for rank in range(count):
        child = os.fork()
        if child == 0:
            os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
            os.environ |= {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count)}
            os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            code = 1
            try:
                _forget_the_single_process()
                work(rank)
                code = 0
            except StoppedError as error:
                code = error.code
            finally:
                os._exit(code)
        children.append(child)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def _forget_the_single_process() -> None:
    """accelerate remembers for good that the process it was first asked in is alone."""
    from accelerate.state import AcceleratorState, GradientState, PartialState

    for state in (AcceleratorState, GradientState, PartialState):
        state._reset_state()
