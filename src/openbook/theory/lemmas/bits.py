"""Two characters: the 24 bijections of {0,1}², correlation, and parities.

Every bijection of {0,1}² is affine over GF(2), so MLT(d, 2) is an affine map of bits, every output character is a
parity of input characters (or its complement), and two such outputs have correlation 1 when the parities are equal
and 0 when they are not. Probabilities of correlation are therefore collision probabilities of parities.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from openbook.task.phrasebook import Table
from openbook.task.translate import translate_batch

Bits = NDArray[np.uint8]

# Truth tables over (a, b) = 00, 01, 10, 11.
OPERATIONS = {"copy1": (0, 0, 1, 1), "copy2": (0, 1, 0, 1), "xor": (0, 1, 1, 0)}


def all_maps() -> Table:
    """The tables of all 24 bijections: [24, 4]."""
    return np.array(list(itertools.permutations(range(4))), dtype=np.uint16)


def characters(tables: NDArray[np.integer]) -> Bits:
    """Both output characters of each map on 00, 01, 10, 11: [maps, 2, 4]."""
    return np.stack([tables >> 1, tables & 1], axis=1).astype(np.uint8)


def agreement(first: Bits, second: Bits) -> NDArray[np.int64]:
    """|#equal − #different| over the last axis, for all pairs of rows: corr(f, g) times the number of inputs."""
    signs_f = 1 - 2 * first.astype(np.int64)
    signs_g = 1 - 2 * second.astype(np.int64)
    return np.abs(signs_f @ signs_g.T)


def all_codebooks(depth: int) -> Table:
    """Every codebook of MLT(depth, 2): [24^depth, depth, 4]."""
    maps = all_maps()
    choice = np.array(list(itertools.product(range(24), repeat=depth)))
    return maps[choice]


def all_strings(length: int, chars: int = 2) -> Bits:
    """Every string of a length, in counting order: [chars^length, length]."""
    index = np.arange(chars**length)[:, None] // chars ** np.arange(length - 1, -1, -1)
    return (index % chars).astype(np.uint8)


def parities(tables: Table, length: int) -> NDArray[np.int64]:
    """The input bits each character of each level depends on, as bit masks: [codebooks, depth+1, length].

    Found by the oracle. For an affine function, input j matters exactly when flipping it alone changes the output.
    """
    probes = np.vstack([np.zeros((1, length), np.uint8), np.eye(length, dtype=np.uint8)])
    strings = np.tile(probes, (len(tables), 1))
    repeated = np.repeat(tables, length + 1, axis=0)
    levels = translate_batch(repeated, strings, chars=2).strings
    levels = levels.reshape(len(tables), length + 1, *levels.shape[1:])
    changed = (levels[:, 1:] ^ levels[:, :1]).astype(np.int64)
    return (changed << np.arange(length)[None, :, None, None]).sum(axis=1)


def collision(first: NDArray[np.int64], second: NDArray[np.int64]) -> Fraction:
    """The probability that independent uniform entries of two lists are equal, exactly."""
    left, right = Counter(first.tolist()), Counter(second.tolist())
    return Fraction(sum(count * right[mask] for mask, count in left.items()), len(first) * len(second))


def output_parities(depth: int) -> Iterator[NDArray[np.int64]]:
    """For d = 1..depth, how many choices of linear parts give each parity of the first output character (L ≥ 2d).

    Write the pair of characters of a level as polynomials in z, the shift by one bigram. A level is
    (u, v) -> M·(v, z·u) with M uniform in GL(2, 2), so the first output character is the row
    e1ᵀ M_d S M_{d-1} S ... M_1 (x) with S = [[0, 1], [z, 0]]. Rows are packed as two polynomials in one word and equal
    ones merged, so the work follows the number of distinct parities, not the 6^d choices. The total is 3·6^(d-1).
    """
    half = np.uint64(32)
    low = np.uint64(2**32 - 1)
    rows = np.array([1 << 32, 1, (1 << 32) | 1], dtype=np.uint64)
    counts = np.ones(3, dtype=np.int64)
    yield counts
    for _ in range(depth - 1):
        p, q = (rows & low) << np.uint64(1), rows >> half  # the row times S
        options = (p, q, p ^ q)
        pairs = [(a, b) for a in range(3) for b in range(3) if a != b]  # the row times each M of GL(2, 2)
        packed = np.concatenate([(options[a] << half) | options[b] for a, b in pairs])
        rows, inverse = np.unique(packed, return_inverse=True)
        counts = np.bincount(inverse, weights=np.tile(counts, 6).astype(np.float64)).astype(np.int64)
        yield counts


def collision_probability(counts: NDArray[np.int64]) -> Fraction:
    """Σ (count / total)², exactly."""
    total = int(counts.sum())
    values, times = np.unique(counts, return_counts=True)
    return Fraction(sum(int(v) ** 2 * int(t) for v, t in zip(values, times, strict=True)), total**2)
