"""Kill a training at random moments and resume it, over and over: does it always end with the bits of an unbroken run?

    python benchmarks/soak.py --minutes 30 --seed 0

Three tiny trainings take turns: `learn` with random dropout, `learn` with two workers that prepare batches, and
`prepare`. Each is begun in a fresh folder and gets SIGKILL after a random time, is resumed, killed again, and so on
until it gets through; then weights, optimiser, generator, schedule and metrics are compared with those of a run that
nobody touched. A child tells through shared memory what it is doing, so that kills can be counted by what they hit.
`--json` gives one object; the exit code is 1 if a single run ended otherwise.
"""

from __future__ import annotations

import argparse
import mmap
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

from _rows import Row
from openbook.base.console import emit_json, err, out
from openbook.student import prepare
from openbook.training import checkpoint
from openbook.training.config import RunConfig
from openbook.training.folder import RunFolder, StartMode
from openbook.training.resolve import resolve
from openbook.training.run import execute
from openbook.training.trainer import CELTrainer

PHASES = ("startup", "training", "writing a checkpoint", "exam, saving the model")
LONGEST = 1.5  # times the time of the unbroken run, the longest that a child lives before it is killed
EARLY = 0.25  # share of the kills that are aimed at the beginning, which is short
_TRAINING: dict[str, Any] = {
    "epochs": 3,
    "batch_size": 8,
    "micro_batch_size": 3,
    "learning_rate": 0.01,
    "log_every": 3,
    "checkpoint_every": 2,
    "keep_checkpoints": True,
}
_LEARN: dict[str, Any] = {
    "task": {"depth": 1, "chars": 3, "lengths": [4, 8]},
    "model": {"hidden_size": 16, "layers": 1, "heads": 1, "lora": {"rank": 2, "dropout": 0.3}},
    "samples": 101,
    "training": _TRAINING,
    "exam": {"samples": 4, "every": 5},
}
_PREPARE: dict[str, Any] = {
    "task": {"depth": 1, "chars": 2, "lengths": [4, 8], "codebook": "fresh", "text": "composite"},
    "reading": {"batch_size": 8, "most_steps": 60, "width": 16, "heads": 1, "head": 16, "mlp": 16},
    "exam": {"samples": 4},
}


@dataclass(frozen=True)
class Training:
    """One of the trainings that take turns."""

    name: str
    config: RunConfig


TRAININGS = [
    Training("learn", resolve(_LEARN)),
    Training("learn, 2 workers", resolve({**_LEARN, "training": {**_TRAINING, "workers": 2}})),
    Training("prepare", resolve(_PREPARE)),
]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0, help="of the moments at which runs are killed")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        found = soak(Path(folder), options.minutes, options.seed)
    rows = found.pop("rows")
    emit_json({"rows": rows, **found}) if options.json else out.print(found)
    return 0 if found["different"] == 0 else 1


def soak(folder: Path, minutes: float, seed: int) -> dict[str, Any]:
    """Kill and resume for so many minutes; counts of what was hit and of how the runs ended."""
    draw = random.Random(seed)
    phase = mmap.mmap(-1, 1)  # shared with the children
    _announce(phase)
    whole: dict[str, tuple[Path, float]] = {}
    for training in TRAININGS:
        place, started = folder / "unbroken" / training.name, time.monotonic()
        assert _wait(_begin(training, place, phase)) == 0, f"{training.name} does not run even if nobody touches it"
        whole[training.name] = place, time.monotonic() - started
    kills: Counter[str] = Counter()
    by_training: Counter[str] = Counter()
    runs, resumes, different = 0, 0, []
    end = time.monotonic() + 60 * minutes
    while time.monotonic() < end:
        training = TRAININGS[runs % len(TRAININGS)]
        unbroken, seconds = whole[training.name]
        place = folder / "killed"
        shutil.rmtree(place, ignore_errors=True)
        hits = 0
        while True:
            child = _begin(training, place, phase)
            early = draw.random() < EARLY
            code = _wait(child, draw.uniform(0, seconds * (0.15 if early else LONGEST)))
            if code is not None:
                break
            os.kill(child, signal.SIGKILL)
            _wait(child)
            kills[PHASES[phase[0]]] += 1
            by_training[training.name] += 1
            hits += 1
        runs += 1
        resumes += hits
        difference = f"exit code {code}" if code else _difference(unbroken, place)
        if difference:
            different.append({"run": runs, "training": training.name, "kills": hits, "difference": difference})
            err.print(different[-1])
    same = 100 * (runs - len(different)) / runs
    return {
        "rows": [
            Row("runs with the bits of an unbroken one", same, "%", goal=100.0).to_json(),
            Row("kills", kills.total(), "kills").to_json(),
        ],
        "minutes": minutes,
        "seed": seed,
        "runs": runs,
        "kills": kills.total(),
        "kills_by_phase": {name: kills[name] for name in PHASES},
        "kills_by_training": dict(by_training),
        "identical": runs - len(different),
        "different": len(different),
        "differences": different,
    }


def _announce(phase: mmap.mmap) -> None:
    """Have the code of training tell where it is; the children inherit this."""

    def during(number: int, work: Callable[..., Any], then: int) -> Callable[..., Any]:
        def told(*arguments: Any, **options: Any) -> Any:
            phase[0] = number
            result = work(*arguments, **options)
            phase[0] = then
            return result

        return told

    checkpoint.save = during(2, checkpoint.save, 1)
    CELTrainer.train = during(1, CELTrainer.train, 3)  # type: ignore[method-assign]
    prepare.Lesson.take_step = during(1, prepare.Lesson.take_step, 3)  # type: ignore[method-assign]
    prepare.CHECKPOINT_EVERY = 3


def _begin(training: Training, folder: Path, phase: mmap.mmap) -> int:
    """A child that begins the run, or takes it up where it was killed."""
    phase[0] = 0
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        execute(training.config, folder, StartMode(resume=(folder / "config.json").exists()))
        code = 0
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
    finally:
        os._exit(code)


def _wait(child: int, seconds: float = float("inf")) -> int | None:
    """How a child ended; None if it has not, after so many seconds."""
    end = time.monotonic() + seconds
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > end:
            return None
        time.sleep(0.001)


def _difference(a: Path, b: Path) -> str | None:
    """The first file in which two runs differ."""
    names = ["metrics.jsonl", "model/model.safetensors"]
    names += [str(p.relative_to(a)) for p in sorted(a.glob("checkpoints/step-*/*"))]
    for name in names:
        if not (b / name).exists() or (a / name).read_bytes() != (b / name).read_bytes():
            return name
    return "; ".join(RunFolder(b).damage()) or None


if __name__ == "__main__":
    sys.exit(main())
