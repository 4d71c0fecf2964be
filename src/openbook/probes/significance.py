"""Which cells of a map differ from a control, when a thousand of them are looked at.

Samples are paired: the same example with used and with unused rules changed. If the two did not differ, the sign of
each sample's difference would be a coin toss, so the largest t over all cells under random signs tells how large a t
must be for any cell of any map to be called different (Westfall and Young's max-T). That keeps the chance of a single
false cell in all maps below 5 %, however the cells depend on each other.
"""

from __future__ import annotations

import numpy as np

from openbook.base.arrays import Floats, Mask
from openbook.base.randomness import generator

LEVEL = 0.05
LEAST = 5  # samples: the signs of four are all alike by chance more often than LEVEL
FLIPS = 2000
BLOCK = 1 << 22  # cells of random maps held at once


def larger_cells(differences: Floats, seed: int = 0, level: float = LEVEL, flips: int = FLIPS) -> Mask:
    """Cells whose mean difference is above zero, by a one-sided test over all cells together.

    `differences` [N, ...] are paired differences of N samples; the result has the shape of one of them.
    """
    count = len(differences)
    D = differences.reshape(count, -1)
    squares = np.square(D).sum(0)  # signs do not change it
    observed = _t(D.sum(0), squares, count)
    random = generator(seed, "sign flips")
    largest = np.empty(flips)
    block = max(1, BLOCK // max(1, D.shape[1]))
    for start in range(0, flips, block):
        signs = random.choice([-1.0, 1.0], size=(min(block, flips - start), count))
        largest[start : start + len(signs)] = _t(signs @ D, squares, count).max(-1)
    # the observed signs are one of the possible ones: with it among them, the test holds its level exactly
    threshold = np.quantile(np.append(largest, observed.max()), 1 - level, method="higher")
    return (observed > threshold).reshape(differences.shape[1:])


def _t(sums: Floats, squares: Floats, count: int) -> Floats:
    """Student's t of a mean; 0 where all differences are 0, or all are equal to each other but for rounding."""
    mean = sums / count
    variance = np.maximum(squares / count - mean**2, 1e-12 * squares / count) / max(1, count - 1)
    return np.divide(mean, np.sqrt(variance), out=np.zeros_like(mean), where=variance > 0)
