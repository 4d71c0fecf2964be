"""How many samples a curriculum needs, seed by seed, and how many times as many as another, with an interval."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from openbook.base.intervals import mean_interval
from openbook.paper.drawing import grouped, where
from openbook.paper.experiment import Rows

WIDEST = 4  # a line between sizes that are further apart than this many times is no measurement


@dataclass(frozen=True)
class Need:
    """Samples that a curve of accuracies by size needs, or how many times as many as another's: bounds and a point.

    More than `above`, which is None for a curve that starts over the threshold. `enough` do: None for one that never
    gets there. `between` is where straight lines over the logarithm of sizes pass, if curves have both ends.
    """

    above: float | None = None
    enough: float | None = None
    between: float | None = None

    @property
    def width(self) -> float:
        """How many times the one bound is the other: what a number in between can be off by."""
        return math.inf if self.above is None or self.enough is None else self.enough / self.above

    def times(self, fast: Need) -> Need:
        """How many times as many this is as what a faster curve needs on the same seed."""
        pairs = ((self.above, fast.enough), (self.enough, fast.above), (self.between, fast.between))
        return Need(*(None if a is None or b is None else a / b for a, b in pairs))

    def __str__(self) -> str:
        if self.above is not None and self.enough is not None:
            return f"{self.above:.1f} to {self.enough:.1f}"
        if self.above is not None:
            return f"more than {self.above:.1f}"
        return "its sizes do not tell" if self.enough is None else f"less than {self.enough:.1f}"


def needed(accuracies: Mapping[float, float], threshold: float) -> Need:
    """Where a curve of accuracies by size first passes the threshold."""
    before: tuple[float, float] | None = None
    for size, accuracy in sorted(accuracies.items()):
        if accuracy >= threshold:
            if before is None:
                return Need(enough=size)
            share = (threshold - before[1]) / (accuracy - before[1])
            return Need(before[0], size, math.exp(math.log(before[0]) + share * math.log(size / before[0])))
        before = (size, accuracy)
    return Need(above=before[0] if before else None)


@dataclass(frozen=True)
class Ratio:
    """How many times as many samples one curve needs as another, for each seed that either of them has.

    `least` and `most` are what the sizes say of every seed; a verdict rests on them. `mean`, with `low` and `high` that
    bound it (95 %, Student's t over the logarithms), is geometric and of points between sizes. It is given only where
    every seed has sizes on both sides of the threshold, near and equally far apart: else seeds would differ by what was
    tried. How far apart sizes are is not in its interval.
    """

    seeds: dict[int, Need]
    mean: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def least(self) -> float | None:
        return self._outer("above", min)

    @property
    def most(self) -> float | None:
        return self._outer("enough", max)

    def _outer(self, bound: str, pick: Callable[[list[float]], float]) -> float | None:
        """The outermost of all seeds' bounds; None while one has none."""
        bounds = [getattr(times, bound) for times in self.seeds.values()]
        return None if not bounds or None in bounds else pick(bounds)

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
    slower, faster = (_needs_by_seed(rows, name, threshold) for name in (slow, fast))
    pairs = {seed: (slower.get(seed, Need()), faster.get(seed, Need())) for seed in {**slower, **faster}}
    seeds = {seed: need.times(other) for seed, (need, other) in pairs.items()}
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
    by_seed = grouped(where(rows, curve=name), "seed")
    return {seed: needed({row["samples"]: row["accuracy"] for row in runs}, threshold) for seed, runs in by_seed}
