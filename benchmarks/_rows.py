"""What every benchmark shares: measure CPU time, show rows as a table, or emit them with `--json`.

A benchmark is a file `benchmarks/NAME.py` that ends with

    if __name__ == "__main__":
        main("What is measured", measure)

where `measure()` yields rows. Value and baseline of a row are measured in the same run on the same core, so the ratio
means something on a busy machine too.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from rich.table import Table

from openbook.base.console import emit_json, err, out


@dataclass(frozen=True)
class Row:
    """One measured number. `ratio` is how many times better than the baseline it is, whichever way is better."""

    name: str
    value: float
    unit: str  # "samples/s", "ms/step", "MB", ...
    baseline: float | None = None  # the same quantity for the straightforward way
    goal: float | None = None
    goal_of: Literal["value", "ratio"] = "value"
    better: Literal["more", "less"] = "more"
    extra: dict[str, Any] = field(default_factory=dict)  # sizes and settings for the JSON, e.g. {"chars": 8}
    at: str = ""  # the same in a word or two for the table, e.g. "n=8"

    @property
    def label(self) -> str:
        return f"{self.name}, {self.at}" if self.at else self.name

    @property
    def ratio(self) -> float | None:
        if self.baseline is None:
            return None
        return self.value / self.baseline if self.better == "more" else self.baseline / self.value

    @property
    def reached(self) -> bool | None:
        """Whether the goal is met; None without a goal. A ratio must always be at least its goal."""
        measured = self.value if self.goal_of == "value" else self.ratio
        if self.goal is None or measured is None:
            return None
        return measured >= self.goal if self.better == "more" or self.goal_of == "ratio" else measured <= self.goal

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "value": self.value,
            "unit": self.unit,
            "baseline": self.baseline,
            "ratio": self.ratio,
            "goal": self.goal,
            "goal_of": self.goal_of,
            "better": self.better,
            "reached": self.reached,
            **self.extra,
        }


def cpu_seconds(work: Callable[[], object], at_least: float = 0.5, repeats: int = 3) -> float:
    """CPU seconds of one call: the best of a few repeats, each repeated until it can be timed well.

    CPU time leaves out what other processes take; the best repeat leaves out caches that were cold.
    """
    best = float("inf")
    for _ in range(repeats):
        calls = 0
        start = time.process_time()
        while (spent := time.process_time() - start) < at_least / repeats or not calls:
            work()
            calls += 1
        best = min(best, spent / calls)
    return best


def in_turns(sides: dict[str, Callable[[], object]], rounds: int = 3) -> dict[str, float]:
    """CPU seconds of each side, the median of rounds in which all take their turn."""
    spent: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, side in sides.items():
            start = time.process_time()
            side()
            spent[name].append(time.process_time() - start)
    return {name: statistics.median(seconds) for name, seconds in spent.items()}


def warm_allocator() -> None:
    """Bring memory allocation to the state of a process that has run for a while.

    At first glibc returns every large array to the system and pays for fresh pages at the next; once an array of some
    megabytes was freed, it keeps them. Without this, rows depend on which arrays happened to come before.
    """
    np.empty(1 << 24, dtype=np.uint8)


def main(title: str, measure: Callable[[], Iterable[Row]]) -> None:
    """Measure and report: a table, or one JSON object with `--json`."""
    parser = argparse.ArgumentParser(description=title)
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    arguments = parser.parse_args()
    warm_allocator()
    rows = []
    for row in measure():
        rows.append(row)
        against = "" if row.ratio is None else f", {_number(row.ratio)}× as good as the baseline"
        err.print(f"[dim]{row.label}: {_number(row.value)} {row.unit}{against}[/dim]")
    if arguments.json:
        emit_json({"title": title, "rows": [row.to_json() for row in rows]})
    else:
        out.print(_table(title, rows))


def _table(title: str, rows: list[Row]) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("name", no_wrap=True)
    for column in ("value", "baseline", "ratio", "goal"):
        table.add_column(column, justify="right")
    table.add_column("unit")
    for row in rows:
        mark = {None: "", True: " [green]✓[/green]", False: " [red]✗[/red]"}[row.reached]
        goal = "" if row.goal is None else _number(row.goal) + ("×" if row.goal_of == "ratio" else "") + mark
        ratio = "" if row.ratio is None else f"{_number(row.ratio)}×"
        baseline = "" if row.baseline is None else _number(row.baseline)
        table.add_row(row.label, _number(row.value), baseline, ratio, goal, row.unit)
    return table


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
