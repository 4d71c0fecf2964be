"""How many samples a curriculum needs, seed by seed, and how many times as many as another, with an interval."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from openbook.experiments.experiment import Rows
from openbook.intervals import mean_interval

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
class Ratio:
    """How many times as many samples one curve needs as another.

    Where every seed has sizes on both sides of the threshold, near and equally far apart in all seeds, there is one
    number for each and their geometric mean, with `low` and `high` that bound it (95 %, Student's t over the
    logarithms). Where that is not so, seeds would differ by what was tried: then there is only what the sizes say,
    `above` and, if every seed arrives, `at_most`. `count` seeds of `of` say how much it is at least.
    """

    seeds: dict[int, float]
    mean: float | None
    low: float | None
    high: float | None
    above: float | None
    at_most: float | None
    count: int
    of: int

    @property
    def least(self) -> float | None:
        """What it is at least: by the interval, or by the sizes if those of every seed say so."""
        return self.low if self.low is not None else (self.above if self.count == self.of else None)

    @property
    def most(self) -> float | None:
        """What it is at most, likewise."""
        return self.high if self.high is not None else self.at_most

    def __str__(self) -> str:
        if self.mean is None:
            said = [f"more than {self.above:.1f}"] if self.above is not None else []
            said += [f"at most {self.at_most:.1f}"] if self.at_most is not None else []
            return " and ".join(said) + (f", {self.count} of {self.of} seeds" if self.count else "")
        if self.low is None or self.high is None:
            return f"{self.mean:.1f}, one seed"
        return f"{self.mean:.1f} ({self.low:.1f} to {self.high:.1f}), {self.count} seeds"


def ratio(rows: Rows, slow: str, fast: str, threshold: float) -> Ratio | None:
    """Samples that `slow` needs against those that `fast` needs; None if a seed of `fast` never arrives.

    Leaving such a seed out would make the ratio one of its successes.
    """
    needs = {
        name: {seed: needed(found, threshold) for seed, found in _by_seed(rows, name).items()} for name in (slow, fast)
    }
    both = {seed: (needs[slow][seed], needs[fast][seed]) for seed in needs[slow] if seed in needs[fast]}
    if not both or any(need.enough is None for need in needs[fast].values()):
        return None
    bounds = _bounds(list(needs[slow].values()), list(needs[fast].values()))
    alike = all(_alike(needs[name][seed] for seed in both) for name in (slow, fast))
    if bounds is None or not alike or len(both) < len(needs[slow]):
        return bounds
    seeds = {seed: s.between / f.between for seed, (s, f) in both.items() if s.between and f.between}
    mean, *interval = mean_interval([math.log(value) for value in seeds.values()])
    low, high = (math.exp(bound) if len(seeds) > 1 else None for bound in interval)
    return replace(bounds, seeds=seeds, mean=math.exp(mean), low=low, high=high)


def _alike(needs: Iterable[Need]) -> bool:
    """Whether lines are drawn over gaps that are equally wide and not too wide."""
    widths = [need.width for need in needs]
    return max(widths) <= WIDEST and max(widths) / min(widths) < 1.01


def _bounds(slow: Sequence[Need], fast: Sequence[Need]) -> Ratio | None:
    """What the sizes say, for any two seeds. Of seeds that never arrive, those count that were given the most."""
    most = max((need.above for need in slow if need.enough is None and need.above is not None), default=None)
    given = [need for need in slow if need.above is not None and (need.enough is not None or need.above == most)]
    tried = max(len(slow), len(fast))  # a seed that only one of them had says nothing of how many times
    slowest = max(need.enough for need in fast if need.enough is not None)
    above = min((need.above for need in given if need.above is not None), default=None)
    ends = [need.enough for need in slow]
    starts = [need.above for need in fast]
    at_most = None
    if len(slow) == tried and None not in ends and None not in starts:
        at_most = max(end for end in ends if end) / min(start for start in starts if start)
    if above is None and at_most is None:
        return None
    return Ratio({}, None, None, None, above and above / slowest, at_most, len(given), tried)


def _by_seed(rows: Rows, name: str) -> dict[int, dict[float, float]]:
    found: dict[int, dict[float, float]] = {}
    for row in rows:
        if row["curve"] == name:
            found.setdefault(row["seed"], {})[row["samples"]] = row["accuracy"]
    return found
