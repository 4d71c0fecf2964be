"""How many samples a curriculum needs, seed by seed, and how many times as many as another, with an interval."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
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


def needed(found: Mapping[float, float], threshold: float) -> Need:
    """Where a curve of accuracies by size first passes the threshold."""
    before: tuple[float, float] | None = None
    for size, accuracy in sorted(found.items()):
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

    def __str__(self) -> str:
        if self.above is not None and self.below is not None:
            return f"{self.above:.1f} to {self.below:.1f}"
        if self.above is not None:
            return f"more than {self.above:.1f}"
        return "its sizes do not tell" if self.below is None else f"less than {self.below:.1f}"


@dataclass(frozen=True)
class Ratio:
    """How many times as many samples one curve needs as another, for each seed that either of them has.

    `least` and `most` are what the sizes say of every seed; they are what a verdict rests on. `mean`, with `low` and
    `high` that bound it (95 %, Student's t over the logarithms), is geometric and of points between sizes. It is told
    only where every seed has sizes on both sides of the threshold, near and equally far apart: else seeds would differ
    by what was tried. How far apart sizes are is not in its interval.
    """

    seeds: dict[int, Times]
    mean: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def least(self) -> float | None:
        return self._of_every_seed(min, [times.above for times in self.seeds.values()])

    @property
    def most(self) -> float | None:
        return self._of_every_seed(max, [times.below for times in self.seeds.values()])

    @staticmethod
    def _of_every_seed(outermost: Callable[[list[float]], float], bounds: list[float | None]) -> float | None:
        known = [bound for bound in bounds if bound is not None]
        return outermost(known) if known and len(known) == len(bounds) else None

    def __str__(self) -> str:
        count = "one seed" if len(self.seeds) == 1 else f"{len(self.seeds)} seeds"
        if self.mean is not None and self.least is not None and self.most is not None:
            interval = "" if self.low is None or self.high is None else f" ({self.low:.1f} to {self.high:.1f})"
            return f"{self.mean:.1f}{interval}, {count}; by sizes {self.least:.1f} to {self.most:.1f}"
        said = {seed: str(times) for seed, times in sorted(self.seeds.items())}
        if len(set(said.values())) == 1:
            return f"{next(iter(said.values()))}, {count}"
        return "; ".join(f"seed {seed}: {words}" for seed, words in said.items()) or "its sizes do not tell"


def ratio(rows: Rows, slow: str, fast: str, threshold: float) -> Ratio:
    """Samples that `slow` needs against those that `fast` needs. A seed that only one of them has is not left out."""
    needs = {
        name: {seed: needed(found, threshold) for seed, found in _by_seed(rows, name).items()} for name in (slow, fast)
    }
    both = {
        seed: (needs[slow].get(seed, UNKNOWN), needs[fast].get(seed, UNKNOWN))
        for seed in {**needs[slow], **needs[fast]}
    }
    seeds = {seed: _times(*pair) for seed, pair in both.items()}
    values = [math.log(times.between) for times in seeds.values() if times.between]
    if not seeds or len(values) < len(seeds) or not all(map(_alike, zip(*both.values(), strict=True))):
        return Ratio(seeds)
    mean, *interval = mean_interval(values)
    low, high = (math.exp(bound) if len(seeds) > 1 else None for bound in interval)
    return Ratio(seeds, math.exp(mean), low, high)


def _times(slow: Need, fast: Need) -> Times:
    def over(one: float | None, other: float | None) -> float | None:
        return None if one is None or other is None else one / other

    return Times(over(slow.above, fast.enough), over(slow.enough, fast.above), over(slow.between, fast.between))


def _alike(needs: Iterable[Need]) -> bool:
    """Whether lines are drawn over gaps that are equally wide and not too wide."""
    widths = [need.width for need in needs]
    return max(widths) <= WIDEST and max(widths) / min(widths) < 1.01


def _by_seed(rows: Rows, name: str) -> dict[int, dict[float, float]]:
    found: dict[int, dict[float, float]] = {}
    for row in rows:
        if row["curve"] == name:
            found.setdefault(row["seed"], {})[row["samples"]] = row["accuracy"]
    return found
