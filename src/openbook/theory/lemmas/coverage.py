"""Random inputs: their distribution at every level, how long they must be to use every rule, and what that costs."""

from __future__ import annotations

import math

import numpy as np

from openbook.base.intervals import wilson
from openbook.task import Codebook, random_inputs, translate_batch
from openbook.theory.lemmas.bits import all_strings
from openbook.theory.lemmas.check import Outcome, Z, check


@check(
    "intermediate-distribution",
    "For i.i.d. uniform columns in, the columns of every level are i.i.d. uniform.",
    "exhaustive",
    "lemma:apdx-surrogate-sequence-distn",
)
def intermediate_distribution(*, seed: int, strings: int = 1) -> Outcome:
    """n=3, L=6 and n=4, L=4: at every level of 20 codebooks each string occurs exactly once over all inputs."""
    worst = 0
    for chars, length in ((3, 6), (4, 4)):
        inputs = all_strings(length, chars)
        for index in range(20):
            levels = translate_batch(Codebook.sample(3, chars, seed, index), inputs).strings.astype(np.int64)
            codes = levels @ chars ** np.arange(length)
            for level in range(4):
                times = np.bincount(codes[:, level], minlength=chars**length)
                worst = max(worst, int(np.abs(times - strings).max()))
    return Outcome(
        worst == 0, worst, f"every string occurs {strings} times at every level; largest deviation {worst}", 0
    )


def miss_probability(coupons: int, draws: int) -> float:
    """P[some coupon is not drawn], exactly: the distribution of the number of distinct coupons after each draw."""
    seen = np.zeros(coupons + 1)
    seen[0] = 1.0
    stay = np.arange(coupons + 1) / coupons
    for _ in range(draws):
        seen = seen * stay + np.r_[0.0, (seen * (1 - stay))[:-1]]
    return float(seen[:-1].sum())


@check(
    "coupon-collector",
    "m log(m/δ) uniform draws cover a set of m with probability at least 1-δ.",
    "exact counting",
    "lemma:apdx-surrogate-coupon",
)
def coupon_collector(*, seed: int, scale: float = 1.0) -> Outcome:
    """The exact probability of a miss for m = 4..400 and δ = 0.5..0.001, as a share of δ."""
    worst = 0.0
    for size in (4, 9, 25, 64, 100, 225, 400):
        for delta in (0.5, 0.1, 0.05, 0.01, 0.001):
            draws = math.ceil(scale * size * math.log(size / delta))
            worst = max(worst, miss_probability(size, draws) / delta)
    return Outcome(worst <= 1, worst, f"P[miss]/δ at most {worst:.4f}", 1)


@check(
    "coverage",
    "A uniform input of 2n² log(nd/δ) bigrams uses every rule of every level with probability at least 1-δ.",
    "Monte-Carlo with interval",
    "cor:apdx-surrogate-search-learning-random",
    "L counts bigrams here. Read as characters (as L is defined) there are half as many and the claim fails: the rules "
    "expected to be missing are then nδ, not δ²/d.",
)
def coverage(*, seed: int, scale: float = 2.0, delta: float = 0.05, samples: int = 2000) -> Outcome:
    """n=6, d=5, a fresh codebook in ten; Wilson's 99.9 % interval of the rate of misses against δ."""
    chars, depth = 6, 5

    def misses(bigrams: int) -> int:
        count = 0
        for index in range(10):
            codebook = Codebook.sample(depth, chars, seed, index)
            batch = samples // 10
            strings = random_inputs(chars, batch, (2 * bigrams,) * 2, seed, index * batch, "theory coverage")[0]
            count += int((~translate_batch(codebook, strings).used().all(axis=(1, 2))).sum())
        return count

    log = math.log(chars * depth / delta)
    found = misses(math.ceil(scale * chars**2 * log))
    halved = misses(math.ceil(scale * chars**2 * log / 2))
    low, high = wilson(found, samples, Z)
    low_half, _ = wilson(halved, samples, Z)
    return Outcome(
        high <= delta and low_half > delta,
        {"rate": found / samples, "low": low, "high": high, "rate_if_characters": halved / samples},
        f"misses {found / samples:.4f} [{low:.4f}, {high:.4f}] with L in bigrams, {halved / samples:.3f} in characters",
        delta,
    )


@check(
    "sample-complexity",
    "Search sees d·n²(n²+1)/2 passes of 2n² log(nd/δ) bigrams: O(n⁶ d log(nd)).",
    "algebra",
    "thm:apdx-surrogate-search-learning-coverable",
    "The main text has O(n⁶ d log d); at fixed d the ratio to that grows with log n without bound.",
)
def sample_complexity(*, seed: int, with_log_n: bool = True) -> Outcome:
    """The ratio of characters seen to n⁶ d log(nd), for n up to 10⁶, at d = 2, 5, 20; δ = 0.05."""
    largest = 0.0
    growing = []
    for depth in (2, 5, 20):
        ratios = []
        for chars in (2, 4, 10, 100, 10**4, 10**6):
            size = chars**2
            seen = depth * size * (size + 1) / 2 * 2 * (2 * size * math.log(chars * depth / 0.05))
            ratios.append(seen / (chars**6 * depth * math.log(chars * depth if with_log_n else depth)))
        largest = max(largest, *ratios)
        growing.append(ratios[-1] > 2 * ratios[1])
    return Outcome(
        not any(growing), largest, f"ratio at most {largest:.1f}, {'growing' if any(growing) else 'bounded'} in n", None
    )
