"""Statistics of an audit. What is independent is the secret, so every interval is clustered by secret.

Legend: S secrets, K rivals of a secret.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from openbook.base.arrays import Floats
from openbook.base.intervals import Z95, clustered

FALSE_POSITIVES = 0.01  # of the true-positive rate that is reported


@dataclass(frozen=True)
class Estimate:
    """A rate with its interval."""

    rate: float
    low: float
    high: float


def one_sided(level: float) -> float:
    """How many standard deviations a one-sided bound of this error level is away."""
    return NormalDist().inv_cdf(1 - level)


def mean_rate(values_s: Floats, z: float = Z95) -> Estimate:
    """Mean of one value for each secret, with its interval; without any hit the upper bound is 1 - 0.05^(1/S).

    A value may itself be a mean, over orders of the book. A few hits then have hardly any spread, but they do not tell
    more about the secrets than no hit would have: neither end is closer to 0 or 1 than that.
    """
    values = values_s[~np.isnan(values_s)]
    mean, low, high = clustered(values, z)
    if len(values):
        bound = 1 - 0.05 ** (1 / len(values))
        low, high = (min(low, 1 - bound), max(high, bound)) if values.any() else (0.0, bound)
    return Estimate(mean, low, high)


def harmonic_share(count: int) -> float:
    """H(N)/N: what elimination scores on average when N secrets are shown one by one in a random order."""
    return float(np.mean(1 / np.arange(1, count + 1)))


def placements(true_s: Floats, rivals_sk: Floats) -> tuple[Floats, Floats]:
    """For each truth the share of all rivals below it, and for each secret the share of truths above its rivals.

    Ties count half. Both have the area under the curve as their mean.
    """
    rivals, truths = np.sort(rivals_sk, axis=None), np.sort(true_s)
    above = (np.searchsorted(rivals, true_s, "left") + np.searchsorted(rivals, true_s, "right")) / (2 * rivals.size)
    flat = rivals_sk.reshape(-1)
    below = (np.searchsorted(truths, flat, "left") + np.searchsorted(truths, flat, "right")) / (2 * truths.size)
    return above, 1 - below.reshape(rivals_sk.shape).mean(1)


def area_under_curve(V_s: Floats, W_s: Floats, z: float = Z95) -> Estimate:
    """Area under the ROC curve from its placements, the rivals of all secrets pooled.

    Its variance is var(V + W) / S over secrets: a secret and its rivals are one cluster (Obuchowski's extension of
    DeLong). The interval is symmetric on the scale of log-odds.
    """
    mean = float(V_s.mean())
    if len(V_s) < 2:
        return Estimate(mean, 0.0, 1.0)
    error = math.sqrt(float((V_s + W_s).var(ddof=1)) / len(V_s))
    edge = 0.5 / len(V_s)  # keeps the odds finite where every truth is above every rival
    inside = min(max(mean, edge), 1 - edge)
    spread = z * max(error, edge / z) / (inside * (1 - inside))
    odds = math.log(inside / (1 - inside))
    return Estimate(mean, min(mean, _share(odds - spread)), max(mean, _share(odds + spread)))


def _share(odds: float) -> float:
    return 1 / (1 + math.exp(-odds)) if odds > -700 else 0.0  # exp would overflow


def true_positives(true_s: Floats, rivals_sk: Floats, false_positives: float = FALSE_POSITIVES) -> Floats:
    """Which truths score above all but a share `false_positives` of the rivals: 0 or 1 for each secret."""
    rivals = np.sort(rivals_sk, axis=None)
    allowed = math.floor(false_positives * rivals.size)
    return (true_s > rivals[-1 - allowed]).astype(np.float64)


def paired_difference(values_s: Floats, other_s: Floats, z: float) -> Estimate:
    """Mean difference of two models on the same secrets, with its interval."""
    difference = values_s - other_s
    difference = difference[~np.isnan(difference)]
    count = len(difference)
    mean = float(difference.mean()) if count else math.nan
    if count < 2:
        return Estimate(mean, -1.0, 1.0)
    # With no or hardly any spread the normal bound would claim certainty: one secret more on the other side is added.
    padded = np.concatenate([difference, [-np.sign(mean) if mean else 0.0]])
    error = max(float(difference.std(ddof=1)), float(padded.std(ddof=1))) / math.sqrt(count)
    return Estimate(mean, max(-1.0, mean - z * error), min(1.0, mean + z * error))
