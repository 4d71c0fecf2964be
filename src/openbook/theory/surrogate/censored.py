"""Medians and growth rates from runs of which some were stopped by their budget (right-censored)."""

from __future__ import annotations

from itertools import accumulate
from math import comb, erfc, exp, pi, sqrt

import numpy as np
from numpy.typing import NDArray

from openbook.base.randomness import generator

Array = NDArray[np.float64]
RESAMPLES = 200
ROUNDS, SETTLED = 5000, 1e-6  # EM ends when the slope changes by less


def median_interval(values: Array, level: float = 0.95) -> tuple[float, float, float]:
    """The median and an interval for it from order statistics; infinite values are runs that never finished.

    [x_(r), x_(m+1-r)] covers the median with probability 1 - 2 P(Bin(m, 1/2) < r), whatever the distribution; r is the
    largest rank that keeps it at `level` (the extremes, if there are too few runs for that).
    """
    ordered = np.sort(values)
    count = len(ordered)
    below = [ways / 2**count for ways in accumulate(comb(count, r) for r in range(count // 2))]
    rank = max(1, sum(1 - 2 * share >= level for share in below))
    middle = ordered[[(count - 1) // 2, count // 2]]
    median = float(middle.mean()) if np.isfinite(middle).all() else float("inf")
    return median, float(ordered[rank - 1]), float(ordered[count - rank])


def _mills(z: float) -> float:
    """E[Z | Z > z] of a standard normal; for large z its asymptote."""
    above = 0.5 * erfc(z / sqrt(2))
    return exp(-z * z / 2) / sqrt(2 * pi) / above if above > 1e-280 else z + 1 / z


def is_identified(x: Array, values: Array) -> bool:
    """Whether runs ended at two places of x: otherwise any steeper line is as likely, and there is no slope to fit."""
    return len(np.unique(x[np.isfinite(values)])) > 1


def censored_line(x: Array, values: Array, limits: Array) -> tuple[float, float, float]:
    """log value = a + b x + σ·normal by maximum likelihood (Tobit) with EM: (a, b, σ). Infinite: above its limit."""
    open_ended = ~np.isfinite(values)
    y = np.log(np.where(open_ended, limits, values))
    design = np.stack([np.ones_like(x, dtype=float), x], axis=1)
    (a, b), sigma = np.linalg.lstsq(design, y, rcond=None)[0], float(y.std()) + 1e-6
    for _ in range(ROUNDS):
        before, mean = b, a + b * x
        z = (y - mean) / sigma
        mills = np.array([_mills(float(v)) for v in z[open_ended]])
        expected, extra = y.copy(), np.zeros_like(y)
        expected[open_ended] = mean[open_ended] + sigma * mills
        extra[open_ended] = sigma**2 * (1 + z[open_ended] * mills - mills**2)  # variance left in a censored run
        (a, b) = np.linalg.lstsq(design, expected, rcond=None)[0]
        sigma = max(1e-6, float(np.sqrt(((expected - a - b * x) ** 2 + extra).mean())))
        if not open_ended.any() or abs(b - before) < SETTLED:
            break
    return float(a), float(b), sigma


def growth(x: Array, values: Array, limits: Array, seed: int = 0) -> tuple[float, float, float]:
    """The slope b of `censored_line` and its 95 % interval from resampling runs within each x.

    A resample from which no slope can be had may have come from any steep one: it counts as infinite.
    """
    slope = censored_line(x, values, limits)[1]
    rng = generator(seed, "growth")
    groups = [np.flatnonzero(x == value) for value in np.unique(x)]
    slopes = []
    for _ in range(RESAMPLES):
        pick = np.concatenate([rng.choice(group, group.size) for group in groups])
        drawn = x[pick], values[pick]
        slopes.append(censored_line(*drawn, limits[pick])[1] if is_identified(*drawn) else float("inf"))
    low, high = np.quantile(slopes, 0.025, method="lower"), np.quantile(slopes, 0.975, method="higher")
    return slope, float(low), float(high)


def span(low: float, high: float, form: str = ".2f") -> str:
    """An interval in words: `15 to 90`, or `15 or more`."""
    return f"{low:{form}} to {high:{form}}" if high != float("inf") else f"{low:{form}} or more"
