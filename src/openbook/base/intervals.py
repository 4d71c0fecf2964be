"""Intervals for rates. A rate without one is not reported."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

Z95 = 1.959963984540054


def student(z: float, degrees: int) -> float:
    """The quantile of Student's t that leaves as much outside as `z` does of a normal.

    Exact for 1 and 2 degrees of freedom, by Hill's expansion (to 0.5 %, at 95 % to 0.1 %) for more.
    """
    p = NormalDist().cdf(z)
    if degrees == 1:
        return math.tan(math.pi * (p - 0.5))
    if degrees == 2:
        return (2 * p - 1) / math.sqrt(2 * p * (1 - p))
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / degrees**power for power, term in enumerate(terms, 1))


def wilson(hits: float, trials: float, z: float = Z95) -> tuple[float, float]:
    """Wilson's interval for a share of independent trials; honest at 0 and 1."""
    if trials <= 0:
        return 0.0, 1.0
    share = hits / trials
    centre = share + z * z / (2 * trials)
    spread = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    low, high = (centre - spread) / scale, (centre + spread) / scale
    return max(0.0, min(share, low)), min(1.0, max(share, high))  # rounding must not leave the share itself outside


def clustered(values: Sequence[float] | np.ndarray, z: float = Z95) -> tuple[float, float, float]:
    """Mean of rates, one for each independent cluster, with its interval: (mean, low, high).

    What is inside a cluster (the characters of one string) is not independent, so the spread is taken between
    clusters. It is turned into a number of effective trials, to which Wilson's interval is applied, with Student's t
    since the spread is an estimate too; with no spread at all there are as many trials as clusters.
    """
    rates = np.asarray(values, dtype=np.float64)
    count = len(rates)
    if count == 0:
        return math.nan, 0.0, 1.0
    mean = float(rates.mean())
    variance = float(rates.var(ddof=1)) / count if count > 1 else 0.0
    spread = variance > 1e-20  # less is rounding
    trials = mean * (1 - mean) / variance if spread else float(count)
    low, high = wilson(mean * trials, trials, student(z, count - 1) if spread else z)
    return mean, low, high


def mean_interval(values: Sequence[float] | np.ndarray) -> tuple[float, float, float]:
    """Mean of a few independent measurements with its 95 % interval by Student's t: (mean, low, high)."""
    found = np.asarray(values, dtype=np.float64)
    mean = float(found.mean())
    if len(found) < 2:
        return mean, -math.inf, math.inf
    half = student(Z95, len(found) - 1) * float(found.std(ddof=1)) / math.sqrt(len(found))
    return mean, mean - half, mean + half
