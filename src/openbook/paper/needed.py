"""How many samples a curriculum needs, seed by seed, and how many times as many as another, with an interval."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from openbook.base.intervals import mean_interval
from openbook.paper.experiment import Rows

WIDEST = 4  # a line between sizes that are further apart than this many times is no measurement


@dataclass(frozen=True)
class Need:
    """Samples that a curve of accuracies by size needs: more than `above`, and `enough` do.

    `above` is None for a curve that starts over the threshold, and `enough` for one that never gets there.
    """

    above: float | None
    enough: float | None
    between: float | None  # where a straight line over the logarithm of sizes passes, if it has both ends

    @property
    def width(self) -> float:
        """How many times the one is the other: what a number in between can be off by."""
        return math.inf if self.above is None or self.enough is None else self.enough / self.above


UNKNOWN = Need(None, None, None)


def needed(accuracies: Mapping[float, float], threshold: float) -> Need:
    """Where a curve of accuracies by size first passes the threshold."""
    before: tuple[float, float] | None = None
    for size, accuracy in sorted(accuracies.items()):
        if accuracy >= threshold:
            if before is None:
                return Need(None, size, None)
            share = (threshold - before[1]) / (accuracy - before[1])
            return Need(before[0], size, math.exp(math.log(before[0]) + share * math.log(size / before[0])))
        before = (size, accuracy)
    return Need(before[0] if before else None, None, None)


@dataclass(frozen=True)
class Times:
    """How many times as many one curve needs as another on one seed: more than `above`, and less than `below`.

    `between` is where straight lines over the logarithm of sizes pass, if both curves have both ends.
    """

    above: float | None
    below: float | None
    between: float | None

    @classmethod
    def of(cls, slow: Need, fast: Need) -> Times:
        pairs = ((slow.above, fast.enough), (slow.enough, fast.above), (slow.between, fast.between))
        return cls(*(None if a is None or b is None else a / b for a, b in pairs))

    def __str__(self) -> str:
        if self.above is not None and self.below is not None:
            return f"{self.above:.1f} to {self.below:.1f}"
        if self.above is not None:
            return f"more than {self.above:.1f}"
        return "its sizes do not tell" if self.below is None else f"less than {self.below:.1f}"


@dataclass(frozen=True)
class Ratio:
    """How many times as many samples one curve needs as another, for each seed that either of them has.

    `least` and `most` are what the sizes say of every seed; a verdict rests on them. `mean`, with `low` and `high` that
    bound it (95 %, Student's t over the logarithms), is geometric and of points between sizes. It is given only where
    every seed has sizes on both sides of the threshold, near and equally far apart: else seeds would differ by what was
    tried. How far apart sizes are is not in its interval.
    """

    seeds: dict[int, Times]
    mean: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def least(self) -> float | None:
        bounds = [times.above for times in self.seeds.values() if times.above is not None]
        return min(bounds) if bounds and len(bounds) == len(self.seeds) else None

    @property
    def most(self) -> float | None:
        bounds = [times.below for times in self.seeds.values() if times.below is not None]
        return max(bounds) if bounds and len(bounds) == len(self.seeds) else None

    def __str__(self) -> str:
        count = "one seed" if len(self.seeds) == 1 else f"{len(self.seeds)} seeds"
        if self.mean is not None and self.least is not None and self.most is not None:
            interval = "" if self.low is None or self.high is None else f" ({self.low:.1f} to {self.high:.1f})"
            return f"{self.mean:.1f}{interval}, {count}; by sizes {self.least:.1f} to {self.most:.1f}"
        by_seed = {seed: str(times) for seed, times in sorted(self.seeds.items())}
        if len(set(by_seed.values())) == 1:
            return f"{next(iter(by_seed.values()))}, {count}"
        return "; ".join(f"seed {seed}: {words}" for seed, words in by_seed.items()) or "its sizes do not tell"


def ratio(rows: Rows, slow: str, fast: str, threshold: float) -> Ratio:
    """Samples that `slow` needs against those that `fast` needs. A seed that only one of them has is not left out."""
    needs = {name: _needs_by_seed(rows, name, threshold) for name in (slow, fast)}
    pairs = {
        seed: (needs[slow].get(seed, UNKNOWN), needs[fast].get(seed, UNKNOWN))
        for seed in {**needs[slow], **needs[fast]}
    }
    seeds = {seed: Times.of(*pair) for seed, pair in pairs.items()}
    values = [math.log(times.between) for times in seeds.values() if times.between]
    if not seeds or len(values) < len(seeds) or not all(map(_alike, zip(*pairs.values(), strict=True))):
        return Ratio(seeds)
    mean, *interval = mean_interval(values)
    low, high = (math.exp(bound) if len(seeds) > 1 else None for bound in interval)
    return Ratio(seeds, math.exp(mean), low, high)


def _alike(needs: tuple[Need, ...]) -> bool:
    """Whether lines are drawn over gaps that are equally wide and not too wide."""
    widths = [need.width for need in needs]
    return max(widths) <= WIDEST and max(widths) / min(widths) < 1.01


def _needs_by_seed(rows: Rows, name: str, threshold: float) -> dict[int, Need]:
    curves: dict[int, dict[float, float]] = {}
    for row in rows:
        if row["curve"] == name:
            curves.setdefault(row["seed"], {})[row["samples"]] = row["accuracy"]
    return {seed: needed(accuracies, threshold) for seed, accuracies in curves.items()}
