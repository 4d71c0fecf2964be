"""The probability that two random tasks of MLT(d, 2) correlate at depths far beyond counting, by particles.

p_d is the chance that a walk on rows (p, q) of Laurent polynomials over F₂ is back at its start: from the row (1, 0),
2d-1 uniform steps, in turn by K = GL(2, 2) and by K' = S K S⁻¹ (see `rate`). Such a walk spreads out and its return is
far too rare to wait for, so each step by K' is drawn with weights h(row) = (1 + s)·2^(-s)·exp(-s²/2(r+1)), s the span
of powers of z in the row and r the rounds left, and corrected for it; particles are resampled when the corrections
grow uneven. The estimate is unbiased whatever h is. A row is two words of 64 bits, the power z^0 at bit 32; a particle
that comes to the end of a word is dropped, which can only lower the estimate.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from openbook.base.intervals import student
from openbook.base.randomness import generator
from openbook.theory.lemmas.check import Outcome, Z, section
from openbook.theory.lemmas.parities import DEPTH, exact_decay, paper_bound

check = section("Hard without context")

Rows = NDArray[np.uint64]
FIRST, SECOND = np.array([0, 0, 1, 1, 2, 2]), np.array([1, 2, 0, 2, 0, 1])  # the six elements: two of {x, y, x + y}
ONE, UNIT = np.uint64(1), np.uint64(1 << 32)
EDGE = np.uint64((1 << 63) | 3)
SPANS = np.arange(64.0)


def _span(first: Rows, second: Rows) -> NDArray[np.int64]:
    """Highest minus lowest power of z in a row."""
    both = first | second
    lowest = both & (~both + ONE)
    return (np.frexp(both.astype(np.float64))[1] - np.frexp(lowest.astype(np.float64))[1]).astype(np.int64)


def log_probability(depth: int, particles: int, seed: int, run: int = 0) -> float:
    """One estimate of log p_depth (minus infinity if no particle returned)."""
    draw = generator(seed, f"theory particles {depth}", run)
    index = np.arange(particles)
    start = draw.integers(0, 3, particles)  # (1, 0) after a step by K
    p, q = np.where(start != 1, UNIT, np.uint64(0)), np.where(start != 0, UNIT, np.uint64(0))
    weights, scale = np.full(particles, 1 / particles), 0.0
    for level in range(2, depth + 1):
        guide = (1 + SPANS) * 2.0**-SPANS * np.exp(-(SPANS**2) / (2 * (depth - level + 1)))
        x, y = q << ONE, p  # the row times S; back by S⁻¹ is (second, first / z)
        options = np.stack([x, y, x ^ y])
        lowered = options >> ONE
        chances = np.stack([guide[_span(options[b], lowered[a])] for a, b in zip(FIRST, SECOND, strict=True)])
        total = chances.sum(axis=0)
        chosen = np.minimum((np.cumsum(chances, axis=0) < draw.random(particles) * total).sum(axis=0), 5)
        p, q = options[SECOND[chosen], index], lowered[FIRST[chosen], index]
        weights = weights * total / (6 * chances[chosen, index])
        lost = ((p | q) & EDGE) != 0
        weights[lost], p[lost], q[lost] = 0.0, UNIT, 0
        options, chosen = np.stack([p, q, p ^ q]), draw.integers(0, 6, particles)
        p, q = options[FIRST[chosen], index], options[SECOND[chosen], index]  # a step by K: all six alike
        promise = weights * guide[_span(p, q)]
        mass = promise.sum()
        if level < depth and mass**2 < particles / 2 * (promise**2).sum():
            places = (draw.random() + index) / particles * mass
            kept = np.minimum(np.searchsorted(np.cumsum(promise), places), particles - 1)
            p, q = p[kept], q[kept]
            weights = 1 / (particles * guide[_span(p, q)])
            scale += math.log(mass)
    returned = float(weights[(p | q) == UNIT].sum()) / 3
    return scale + math.log(returned) if returned > 0 else -math.inf


def ratio_to(log_reference: float, depth: int, particles: int, runs: int, seed: int) -> tuple[float, float]:
    """Mean and standard error over independent runs of p_depth / reference."""
    estimates = np.array([log_probability(depth, particles, seed, run) for run in range(runs)])
    ratios = np.exp(estimates - log_reference)
    return float(ratios.mean()), float(ratios.std(ddof=1) / runs**0.5)


@check("decay-deep", "Monte-Carlo with interval", "lem:corr_random_map_n2")
def decay_deep(*, seed: int, depth: int = 600, times: float = 1.0, particles: int = 5000, runs: int = 12) -> Outcome:
    """At d = 600 two random tasks of MLT(d, 2) correlate with a probability above (1/3)(7/9)^(d-1).

    Sequential Monte-Carlo estimates p / bound in twelve independent runs, with a 99.9 % interval, and p / exact at
    d = 11 as a control.

    Remark: The lemma fails in the open: see 'decay-rate' for the proof that it must. The same estimator agrees with
    exact counting at d = 11.
    """
    counted, bound = exact_decay(DEPTH)[-1][0], paper_bound(depth)
    known, spread = ratio_to(math.log(counted), DEPTH, particles, runs, seed)
    log_bound = math.log(bound.numerator) - math.log(bound.denominator)  # the bound itself is too small for a float
    ratio, error = ratio_to(log_bound, depth, particles, runs, seed)
    t = student(Z, runs - 1)
    low, high = ratio - t * error, ratio + t * error
    return Outcome(
        low > times and abs(known - 1) <= t * spread,
        {"ratio": ratio, "low": low, "high": high, "known": known},
        f"p / bound = {ratio:.1f} [{low:.1f}, {high:.1f}] at d={depth}; p / exact = {known:.3f} ± {t * spread:.3f} at "
        f"d={DEPTH}",
        times,
    )
