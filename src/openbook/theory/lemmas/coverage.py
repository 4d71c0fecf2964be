"""Random inputs: their distribution at every level, and how long they must be to use every rule."""

from __future__ import annotations

import math

import numpy as np

from openbook.base.intervals import wilson
from openbook.task import Codebook, random_inputs, translate_batch
from openbook.task.phrasebook import sample_tables
from openbook.theory.lemmas.check import Outcome, Z, section
from openbook.theory.lemmas.enumeration import all_strings, numbers, translate_all

check = section("Easy with context")


@check("intermediate-distribution", "exhaustive", "lemma:apdx-surrogate-sequence-distn")
def intermediate_distribution(*, seed: int, strings: int = 1) -> Outcome:
    """For i.i.d. uniform columns in, the columns of every level are i.i.d. uniform.

    At n=3, L=6 and n=4, L=4, at every level of 20 codebooks, each string occurs exactly once over all inputs.
    """
    worst = 0
    for chars, length in ((3, 6), (4, 4)):
        levels = translate_all(sample_tables(3, chars, seed, 0, 20), all_strings(length, chars), chars)
        times = np.apply_along_axis(np.bincount, 1, numbers(levels, chars), minlength=chars**length)
        worst = max(worst, int(np.abs(times - strings).max()))
    measured = f"every string occurs {strings} times at every level; largest deviation {worst}"
    return Outcome(worst == 0, worst, measured, 0)


def miss_probability(coupons: int, draws: int) -> float:
    """P[some coupon is not drawn], exactly: the distribution of the number of distinct coupons after each draw."""
    seen = np.zeros(coupons + 1)
    seen[0] = 1.0
    stay = np.arange(coupons + 1) / coupons
    for _ in range(draws):
        seen = seen * stay + np.r_[0.0, (seen * (1 - stay))[:-1]]
    return float(seen[:-1].sum())


@check("coupon-collector", "exact counting", "lemma:apdx-surrogate-coupon")
def coupon_collector(*, seed: int, scale: float = 1.0) -> Outcome:
    """m log(m/δ) uniform draws cover a set of m with probability at least 1-δ.

    The exact probability of a miss is computed as a share of δ, for m = 4..400 and δ = 0.5..0.001.
    """
    worst = 0.0
    for size in (4, 9, 25, 64, 100, 225, 400):
        for delta in (0.5, 0.1, 0.05, 0.01, 0.001):
            draws = math.ceil(scale * size * math.log(size / delta))
            worst = max(worst, miss_probability(size, draws) / delta)
    return Outcome(worst <= 1, worst, f"P[miss]/δ at most {worst:.4f}", 1)


@check("coverage", "Monte-Carlo with interval", "cor:apdx-surrogate-search-learning-random")
def coverage(*, seed: int, scale: float = 2.0, delta: float = 0.05, samples: int = 2000) -> Outcome:
    """A uniform input of 2n² log(nd/δ) bigrams uses every rule of every level with probability at least 1-δ.

    At n=6, d=5, ten codebooks translate 200 inputs each; Wilson's 99.9 % interval of the rate of misses must be below
    δ.

    Remark: L counts bigrams here. Read as characters (as L is defined) there are half as many and the claim fails: the
    rules expected to be missing are then nδ, not δ²/d.
    """
    chars, depth, batch = 6, 5, samples // 10

    def misses(bigrams: int) -> int:
        count = 0
        for index in range(10):
            strings = random_inputs(chars, batch, (2 * bigrams,) * 2, seed, index * batch, "theory coverage")[0]
            used = translate_batch(Codebook.sample(depth, chars, seed, index), strings).used()
            count += int((~used.all(axis=(1, 2))).sum())
        return count

    bigrams = scale * chars**2 * math.log(chars * depth / delta)
    missed, missed_half = misses(math.ceil(bigrams)), misses(math.ceil(bigrams / 2))
    rate, (low, high) = missed / samples, wilson(missed, samples, Z)
    rate_half, (low_half, _) = missed_half / samples, wilson(missed_half, samples, Z)
    return Outcome(
        high <= delta and low_half > delta,
        {"rate": rate, "low": low, "high": high, "rate_if_characters": rate_half},
        f"misses {rate:.4f} [{low:.4f}, {high:.4f}] with L in bigrams, {rate_half:.3f} in characters",
        delta,
    )
