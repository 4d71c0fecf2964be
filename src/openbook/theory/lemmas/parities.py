"""Two characters: which parity of the input each character is, and how often two random tasks have the same one.

Every bijection of {0,1}² is affine over GF(2), so MLT(d, 2) is an affine map of bits, every output character is a
parity of input characters (or its complement), and two such outputs have correlation 1 when the parities are equal
and 0 when they are not. Probabilities of correlation are therefore collision probabilities of parities.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from openbook.task.phrasebook import Table
from openbook.theory.lemmas.enumeration import Integers, translate_all

DEPTH = 11  # exact counting takes some three times the memory for each level more; 14 is a matter of a minute


def parities(tables: Table, length: int) -> Integers:
    """The input bits each character of each level depends on, as bit masks: [codebooks, depth + 1, length].

    They are read off the oracle. For an affine function, input j matters exactly when flipping it alone changes the
    output.
    """
    probes = np.vstack([np.zeros((1, length), np.uint8), np.eye(length, dtype=np.uint8)])
    levels = translate_all(tables, probes)
    changed = (levels[:, 1:] ^ levels[:, :1]).astype(np.int64)
    return (changed << np.arange(length)[None, :, None, None]).sum(axis=1)


def collision(first: Integers, second: Integers) -> Fraction:
    """The probability that independent uniform entries of two lists are equal, exactly."""
    left, right = Counter(first.tolist()), Counter(second.tolist())
    return Fraction(sum(count * right[mask] for mask, count in left.items()), len(first) * len(second))


def output_parities(depth: int) -> Iterator[Integers]:
    """For d = 1..depth, how many choices of linear parts give each parity of the first output character (L ≥ 2d).

    Write the pair of characters of a level as polynomials in z, the shift by one bigram. A level is
    (u, v) -> M·(v, z·u) with M uniform in GL(2, 2), so the first output character is the row
    e1ᵀ M_d S M_{d-1} S ... M_1 (x) with S = [[0, 1], [z, 0]]. Rows are packed as two polynomials in one word and equal
    ones merged, so the work follows the number of distinct parities, not the 6^d choices. The total is 3·6^(d-1).
    """
    half, low = np.uint64(32), np.uint64(2**32 - 1)
    rows = np.array([1 << 32, 1, (1 << 32) | 1], dtype=np.uint64)
    counts = np.ones(3, dtype=np.int64)
    yield counts
    for _ in range(depth - 1):
        p, q = (rows & low) << np.uint64(1), rows >> half  # the row times S
        pairs = itertools.permutations((p, q, p ^ q), 2)  # the row times each M of GL(2, 2)
        rows, inverse = np.unique(
            np.concatenate([first << half | second for first, second in pairs]), return_inverse=True
        )
        counts = np.bincount(inverse, weights=np.tile(counts, 6).astype(np.float64)).astype(np.int64)
        yield counts


def collision_probability(counts: Integers) -> Fraction:
    """Σ (count / total)², exactly."""
    return Fraction(sum(count * count for count in counts.tolist()), int(counts.sum()) ** 2)


@functools.lru_cache(maxsize=4)
def exact_decay(depth: int = DEPTH) -> tuple[tuple[Fraction, int], ...]:
    """For d = 1..depth: the probability that two random tasks correlate at output 1, and the number of parities."""
    return tuple((collision_probability(counts), len(counts)) for counts in output_parities(depth))


def paper_bound(depth: int, base: Fraction = Fraction(1, 3), factor: Fraction = Fraction(7, 9)) -> Fraction:
    """The paper's bound of that probability, (1/3)(7/9)^(d-1)."""
    return base * factor ** (depth - 1)
