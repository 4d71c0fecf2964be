"""Tasks of EleutherAI's lm-evaluation-harness, sat by a run's model: what it can still do beside its book."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from typing import Any

from openbook.base.errors import InputError
from openbook.base.intervals import Z95


def harness() -> Any:
    """The package lm_eval, which is an extra."""
    try:
        import lm_eval
        import lm_eval.models.huggingface
    except ImportError:
        raise InputError("--tasks needs the extra: pip install 'openbook[lm-eval]'") from None
    return lm_eval


def task_rows(model: Any, tokenizer: Any, tasks: Sequence[str], batch_size: int) -> list[dict[str, Any]]:
    """A row for every metric of every task, with a 95 % interval where the harness gives a standard error."""
    package = harness()
    with contextlib.redirect_stdout(sys.stderr):  # standard output is that of --json
        student = package.models.huggingface.HFLM(pretrained=model, tokenizer=tokenizer, batch_size=batch_size)
        try:
            found = package.simple_evaluate(model=student, tasks=list(tasks), log_samples=False)
        except (KeyError, ValueError) as error:  # what it says of a task that it does not know
            raise InputError(
                f"lm-eval cannot set {', '.join(tasks)}: {error} (`lm-eval ls tasks` lists them)"
            ) from None
    sizes = found.get("n-samples", {})
    return [
        _row(task, key, value, metrics, sizes.get(task, {}).get("effective"))
        for task, metrics in found["results"].items()
        for key, value in metrics.items()
        if isinstance(value, int | float) and "," in key and "_stderr" not in key
    ]


def _row(task: str, key: str, value: float, metrics: dict[str, Any], samples: int | None) -> dict[str, Any]:
    metric, _, filtered = key.partition(",")
    spread = metrics.get(f"{metric}_stderr,{filtered}")
    half = Z95 * spread if isinstance(spread, int | float) else None
    low, high = (None, None) if half is None else (value - half, value + half)
    return {"task": task, "metric": metric, "filter": filtered, "value": value, "low": low, "high": high} | {
        "samples": samples
    }
