"""Intervals for rates. A rate without one is not reported."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

Z95 = 1.959963984540054


def wilson(hits: float, trials: float, z: float = Z95) -> tuple[float, float]:
    """Wilson's interval for a share of independent trials; honest at 0 and 1."""
    if trials <= 0:
        return 0.0, 1.0
    share = hits / trials
    centre = share + z * z / (2 * trials)
    spread = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)


def clustered(values: Sequence[float] | np.ndarray, z: float = Z95) -> tuple[float, float, float]:
    """Mean of rates, one for each independent cluster, with its interval: (mean, low, high).

    What is inside a cluster (the characters of one string) is not independent, so the spread is taken between
    clusters. It is turned into a number of effective trials, to which Wilson's interval is applied; with no spread at
    all there are as many trials as clusters.
    """
    rates = np.asarray(values, dtype=np.float64)
    count = len(rates)
    if count == 0:
        return math.nan, 0.0, 1.0
    mean = float(rates.mean())
    variance = float(rates.var(ddof=1)) / count if count > 1 else 0.0
    spread = variance > 1e-20  # less is rounding
    trials = mean * (1 - mean) / variance if spread else float(count)
    low, high = wilson(mean * trials, trials, z)
    return mean, low, high


_T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)  # Student's t, 1 to 9 degrees of freedom


def mean_interval(values: Sequence[float] | np.ndarray) -> tuple[float, float, float]:
    """Mean of a few independent measurements with its 95 % interval by Student's t: (mean, low, high)."""
    found = np.asarray(values, dtype=np.float64)
    mean = float(found.mean())
    if len(found) < 2:
        return mean, -math.inf, math.inf
    t = _T95[min(len(found), 1 + len(_T95)) - 2]  # of more than ten the last, which is too wide, not too narrow
    half = t * float(found.std(ddof=1)) / math.sqrt(len(found))
    return mean, mean - half, mean + half
