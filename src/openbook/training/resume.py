"""A training that can be stopped at any moment and goes on bit for bit.

What is trained on is a pure function of (seed, position), so a checkpoint needs no state of the data: it holds the
step, the weights, the optimiser, the schedule, torch's generator and the counters of the log.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

from openbook.base.errors import MachineError
from openbook.training import checkpoint
from openbook.training.batches import Steps
from openbook.training.processes import are_several
from openbook.training.train import ContextEnhancedTrainer

CHECKPOINTS_DURING_TRAINING = 10


class ResumableTrainer(ContextEnhancedTrainer):
    """Saves checkpoints into `folder` and can start from one of them."""

    def __init__(
        self,
        *arguments: Any,
        folder: Path,
        every: int | None = None,
        start: checkpoint.Found | None = None,
        log_size: Callable[[], int] = lambda: 0,  # bytes of the run's log that belong to what is saved
        **options: Any,
    ) -> None:
        self.folder, self.start, self.log_size = folder, start, log_size
        super().__init__(*arguments, **options)
        self.total_steps = -(-self.plan.total // self.step_size)
        self.args.max_steps = self.total_steps  # the schedule spans the whole run, whatever is left of it
        self.every = every if every is not None else max(1, self.total_steps // CHECKPOINTS_DURING_TRAINING)
        if start is not None:
            checkpoint.load_weights(start, self.model)
        self.add_callback(_Saver(self))

    @property
    def first_step(self) -> int:
        return self.start.step if self.start is not None else 0

    def train(self, *arguments: Any, **options: Any) -> Any:
        """Train what is left; nothing, if the checkpoint is of the last step."""
        if self.first_step >= self.total_steps:
            return None
        try:
            return super().train(*arguments, **options)
        except (RuntimeError, ConnectionError, EOFError) as error:
            if (lost := _lost_helper(error, self.args.dataloader_num_workers)) is None:
                raise
            raise MachineError(f"{lost}. What is saved is intact: go on with --resume") from error

    def stop_requested(self) -> bool:
        """Whether this process or any other of the run was told to stop, so that all of them stop at the same step."""
        if self.args.world_size == 1:
            return bool(_received)
        told = torch.tensor(float(bool(_received)), device=self.args.device)
        if self.accelerator.reduce(told, "sum") > 0 and not _received:
            _received.append(int(signal.SIGTERM))
        return bool(_received)

    def _steps(self) -> Steps:
        whole = super()._steps()
        return Steps(whole.total, whole.batch_size, whole.process, whole.processes, self.first_step)

    def _init_training_state(self, *arguments: Any, **options: Any) -> tuple[int, int]:
        result = super()._init_training_state(*arguments, **options)
        self.state.global_step = self.first_step
        return result

    def _prepare_for_training(self, *arguments: Any, **options: Any) -> Any:
        result = super()._prepare_for_training(*arguments, **options)
        if self.start is not None:
            checkpoint.load_optimizer(self.start, self.optimizer, self.lr_scheduler)
        return result

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """Called by the trainer after a step has been logged, so that the log up to here is part of the checkpoint."""
        # dropout draws, and losses add up, in every process by itself
        states = {name: self._from_all(state) for name, state in checkpoint.generator_states().items()}
        losses = self._from_all(self._tr_loss.detach().double())
        if self.is_world_process_zero():
            counters = {
                "loss_since_log": losses.tolist(),
                "loss_total": float(self._total_loss_scalar),
                "last_logged": self._globalstep_last_logged,
            }
            extra = {"counters": counters, "log": self.log_size()}
            step, inner = self.state.global_step, self._inner(model)
            checkpoint.save(self.folder, step, inner, self.optimizer, self.lr_scheduler, extra, states)
        self.accelerator.wait_for_everyone()

    def _from_all(self, state: torch.Tensor) -> torch.Tensor:
        """Every process's state, one row each."""
        return self.accelerator.gather(state[None].to(self.args.device)).cpu()

    def restore_counters(self) -> None:
        """The last things to be put back, when the trainer has made its own anew."""
        if self.start is None:
            return
        counters = checkpoint.read_state(self.start)["counters"]
        losses = counters["loss_since_log"]
        self._tr_loss = torch.tensor(losses[self.args.process_index % len(losses)], device=self.args.device)
        self._total_loss_scalar = counters["loss_total"]
        self._globalstep_last_logged = counters["last_logged"]
        checkpoint.load_generators(self.start, self.args.process_index)


class _Saver(TrainerCallback):
    """Asks for a checkpoint every so many steps, at the last step, and when the run is told to stop."""

    def __init__(self, trainer: ResumableTrainer) -> None:
        self.trainer = trainer

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.trainer.restore_counters()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        step, every = state.global_step, self.trainer.every
        if self.trainer.stop_requested():
            control.should_save = control.should_training_stop = True
        elif every and (step % every == 0 or step == self.trainer.total_steps):
            control.should_save = True


def _lost_helper(error: Exception, workers: int = 0) -> str | None:
    """What has gone, if the error is torch's word for a data worker or another process of the run that has died.

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


_received: list[int] = []  # signals that ask to stop


@contextmanager
def stopping_at_signals() -> Iterator[Callable[[], int | None]]:
    """Within, SIGTERM and Ctrl-C end training after the current step; yields a function that tells which one came.

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
        yield lambda: _received[0] if _received else None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        _received.clear()
