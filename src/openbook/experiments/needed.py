"""How many samples a curriculum needs, seed by seed, and how many times as many as another, with an interval."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from openbook.experiments.experiment import Rows
from openbook.intervals import mean_interval


def needed(found: Mapping[float, float], threshold: float) -> float | None:
    """Where a curve of accuracies by size first passes the threshold, on straight lines over the logarithm of sizes.

    None if it never does. A curve that starts above it gives its first size, which is then an upper bound.
    """
    before: tuple[float, float] | None = None
    for size, accuracy in sorted(found.items()):
        if accuracy >= threshold:
            if before is None:
                return float(size)
            share = (threshold - before[1]) / (accuracy - before[1])
            return math.exp(math.log(before[0]) + share * math.log(size / before[0]))
        before = (size, accuracy)
    return None


@dataclass(frozen=True)
class Ratio:
    """How many times as many samples one curve needs: one number for each seed that has both, and their mean.

    `low` and `high` bound the geometric mean over seeds (95 %, Student's t over the logarithms). Where a seed of the
    slow curve never arrives, there is only `at_least`, the smallest of the numbers: what a seed needs or, of those that
    were given the most and did not arrive, that, against the most that the fast one needs. `of` seeds were tried.
    """

    seeds: dict[int, float]
    mean: float | None
    low: float | None
    high: float | None
    at_least: float | None
    of: int

    def __str__(self) -> str:
        if self.mean is None:
            return f"more than {self.at_least:.1f}, {len(self.seeds)} of {self.of} seeds"
        if self.low is None or self.high is None:
            return f"{self.mean:.1f}, one seed"
        return f"{self.mean:.1f} ({self.low:.1f} to {self.high:.1f}), {len(self.seeds)} seeds"


def ratio(rows: Rows, slow: str, fast: str, threshold: float) -> Ratio | None:
    """Samples that `slow` needs against those that `fast` needs; None if a seed of `fast` never arrives.

    Leaving such a seed out would make the ratio one of its successes.
    """
    curves = {name: _by_seed(rows, name) for name in (slow, fast)}
    quick = {seed: passed for seed, found in curves[fast].items() if (passed := needed(found, threshold)) is not None}
    if not quick or len(quick) < len(curves[fast]) or not curves[slow]:
        return None
    tried = {seed: needed(found, threshold) for seed, found in curves[slow].items()}
    seeds = {seed: passed / quick[seed] for seed, passed in tried.items() if passed is not None and seed in quick}
    if any(passed is None for passed in tried.values()):
        given = {seed: max(found) for seed, found in curves[slow].items() if tried[seed] is None}
        most, slowest = max(given.values()), max(quick.values())
        seeds |= {seed: samples / slowest for seed, samples in given.items() if samples == most}
        return Ratio(seeds, None, None, None, min(seeds.values()), len(tried))
    if not seeds:
        return None
    mean, low, high = mean_interval([math.log(value) for value in seeds.values()])
    several = len(seeds) > 1
    bounds = {"low": math.exp(low) if several else None, "high": math.exp(high) if several else None}
    return Ratio(seeds, math.exp(mean), **bounds, at_least=None, of=len(tried))


def _by_seed(rows: Rows, name: str) -> dict[int, dict[float, float]]:
    found: dict[int, dict[float, float]] = {}
    for row in rows:
        if row["curve"] == name:
            found.setdefault(row["seed"], {})[row["samples"]] = row["accuracy"]
    return found
