"""Long runs: does memory stay flat over 10,000 steps, and what does a checkpoint cost?

`memory`: how much more is resident after the last step of an `openbook learn` (with exams, log and checkpoints) than
after the first 1,000; the model is tiny, so that a leak of a few hundred bytes a step would show.
`checkpoint`: the wall time of saving (synced to the disk, hashed, renamed), the same in training steps of that run, and
the share of the time that ten of them take in 1,000 steps; for the tiny model and for one of 12 million weights.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

from _rows import Row, main
from openbook.training import checkpoint
from openbook.training.resolve import resolve
from openbook.training.run import execute
from openbook.training.trainer import CELTrainer

STEPS = 10_000
WARM = 1_000  # steps after which caches and allocators have settled
PER_RUN = 10  # checkpoints in a run, if nothing else is said
SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"model": {"hidden_size": 16, "layers": 1, "heads": 1}, "steps": STEPS},
    "12M weights": {"model": {"hidden_size": 320, "layers": 12, "heads": 5}, "steps": 40},
}


class _Watch(TrainerCallback):
    """Resident memory now and then, and the time that training takes without its checkpoints."""

    def __init__(self) -> None:
        self.resident: dict[int, float] = {}

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step % 500 == 0:
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            self.resident[state.global_step] = pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def measure() -> Iterator[Row]:
    torch.set_num_threads(1)
    for name, size in SIZES.items():
        watch, saves, seconds, parameters = _run(size["model"], size["steps"])
        if watch.resident:
            before, after = watch.resident[WARM], watch.resident[STEPS]
            curve = {str(step): round(value, 1) for step, value in watch.resident.items()}
            yield Row(
                "memory",
                after - before,
                "MiB",
                goal=5.0,
                better="less",
                extra={"resident_mib": curve, "steps": STEPS},
                at=f"step {WARM:,} to {STEPS:,}",
            )
        step = (seconds - sum(saves)) / size["steps"]
        one = statistics.median(saves)
        extra = {"parameters": parameters, "steps": size["steps"], "saves": len(saves), "ms_per_step": 1e3 * step}
        yield Row("checkpoint", 1e3 * one, "ms", extra=extra, at=name)
        yield Row("checkpoint", one / step, "steps", extra=extra, at=name)
        share = PER_RUN * one / (PER_RUN * one + 1000 * step)
        yield Row("ten in 1,000 steps", 100 * share, "%", extra=extra, at=name)


def _run(model: dict[str, Any], steps: int) -> tuple[_Watch, list[float], float, int]:
    """A run of so many steps: what was watched, the time of every save, of all of training, and the model's size."""
    watch, saves, trained = _Watch(), [], [0.0]
    save, train, made = checkpoint.save, CELTrainer.train, CELTrainer.__init__
    weights = [0]

    def timed_save(*arguments: Any, **options: Any) -> Path:
        started = time.perf_counter()
        path = save(*arguments, **options)
        saves.append(time.perf_counter() - started)
        return path

    def timed_train(self: Any, **options: Any) -> Any:
        weights[0] = sum(weight.numel() for weight in self.model.parameters())
        started = time.perf_counter()
        result = train(self, **options)
        trained[0] = time.perf_counter() - started
        return result

    def with_watch(self: Any, *arguments: Any, **options: Any) -> None:
        made(self, *arguments, **options)
        self.add_callback(watch)

    settings = {
        "task": {"depth": 1, "chars": 3, "lengths": [4, 8]},
        "model": model,
        "samples": 4 * steps,
        "training": {"batch_size": 4, "micro_batch_size": 4, "log_every": 100},
        "exam": {"samples": 8},
    }
    checkpoint.save = timed_save
    CELTrainer.train = timed_train  # type: ignore[method-assign]
    CELTrainer.__init__ = with_watch  # type: ignore[method-assign]
    try:
        with tempfile.TemporaryDirectory(prefix="endurance-") as folder:
            execute(resolve(settings), Path(folder) / "run")
    finally:
        checkpoint.save = save
        CELTrainer.train = train  # type: ignore[method-assign]
        CELTrainer.__init__ = made  # type: ignore[method-assign]
    return watch, saves, trained[0], weights[0]


if __name__ == "__main__":
    main("Long runs: memory and checkpoints", measure)
