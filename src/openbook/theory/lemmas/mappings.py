"""Properties of the task: how many phrasebooks there are, that translation is invertible, what depends on what."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from openbook.task import Codebook, Phrasebook, translate_batch
from openbook.task.translate import invert_batch
from openbook.theory.lemmas.bits import all_codebooks, all_strings, parities
from openbook.theory.lemmas.check import Outcome, check


def _matchings(size: int) -> int:
    """Perfect matchings of the complete bipartite graph on size + size vertices, counted over subsets."""
    ways = [0] * (1 << size)
    ways[0] = 1
    for taken in range(1, 1 << size):  # the left sides 0..k-1 are matched with the set `taken` of right sides
        ways[taken] = sum(ways[taken ^ (1 << j)] for j in range(size) if taken >> j & 1)
    return ways[-1]


@check("bijection-count", "A level has (n²)! possible phrasebooks.", "exact counting", "lem:num_bijective")
def bijection_count(*, seed: int, formula: Callable[[int], int] = lambda n: math.factorial(n * n)) -> Outcome:
    """Count bijections for n = 2, 3, 4 by dynamic programming over the set of right sides already taken."""
    counted = {n: _matchings(n * n) for n in (2, 3, 4)}
    holds = all(formula(n) == value for n, value in counted.items())
    return Outcome(holds, counted, ", ".join(f"n={n}: {v:,}" for n, v in counted.items()), "(n²)!")


@check(
    "invertibility",
    "With the phrasebooks of levels i..d fixed, s_i and s_{d+1} determine each other.",
    "exhaustive",
    "lemma:setting-MLTinvertability",
)
def invertibility(*, seed: int, skipped: int = 0) -> Outcome:
    """All strings of all 576 codebooks of MLT(2, 2), of 20 codebooks of MLT(3, 3), and from every level.

    The way back leaves out as many phrasebooks as are `skipped`.
    """
    strings = all_strings(4)
    tables = all_codebooks(2)
    outputs = translate_batch(np.repeat(tables, 16, axis=0), np.tile(strings, (576, 1)), chars=2).outputs
    codes = (outputs.astype(np.int64) @ (1 << np.arange(4))).reshape(576, 16)
    collisions = int((np.sort(codes, axis=1) != np.arange(16)).any(axis=1).sum())
    strings = all_strings(4, 3)
    unequal = 0
    for index in range(20):
        codebook = Codebook.sample(3, 3, seed, index)
        levels = translate_batch(codebook, strings).strings
        for level in range(4):  # back from the output to s_1, and forward to s_i again
            rest = Codebook(3, codebook.tables[level + skipped :]) if level + skipped < 3 else None
            back = levels[:, 3] if rest is None else invert_batch(rest, levels[:, 3])
            unequal += int((back != levels[:, level]).sum())
    return Outcome(
        collisions == 0 and unequal == 0,
        {"collisions": collisions, "unequal": unequal},
        f"{collisions} codebooks with a collision, {unequal} characters not recovered",
        0,
    )


@check(
    "dependencies",
    "(s_{i+1,1}, s_{i+1,2}) = π_i(s_{i,2}, s_{i,3}), so an output character depends on 2d input characters.",
    "exhaustive",
    "lem:dependencies",
    "Inside the n = 2 proof the right side is printed with level l+1; it is level l. In the proof of uniformity the "
    "phrasebook is printed π_i and the second character s_{i,2k+3}; they are π_{i-1} and s_{i-1,2k+3}.",
)
def dependencies(*, seed: int, per_level: int = 2) -> Outcome:
    """The relation for all codebooks and strings of MLT(2, 2), L = 8; the parities of all of MLT(d, 2), d ≤ 3."""
    tables, strings = all_codebooks(2), all_strings(8)
    repeated = np.repeat(tables, len(strings), axis=0)
    levels = translate_batch(repeated, np.tile(strings, (len(tables), 1)), chars=2).strings
    unequal = 0
    for i in range(2):
        left = 2 * levels[:, i, 1].astype(np.int64) + levels[:, i, 2]
        image = repeated[np.arange(len(repeated)), i, left]
        unequal += int((image != 2 * levels[:, i + 1, 0] + levels[:, i + 1, 1]).sum())
    reached = {}
    for depth in (1, 2, 3):
        union = np.bitwise_or.reduce(parities(all_codebooks(depth), 2 * depth + 4)[:, depth, 0])
        reached[depth] = [j for j in range(2 * depth + 4) if union >> j & 1]
    counts = [len(places) for places in reached.values()]
    holds = unequal == 0 and all(reached[d] == list(range(1, per_level * d + 1)) for d in reached)
    return Outcome(holds, counts, f"{unequal} pairs differ; {counts} input characters at d=1..3", f"{per_level}d")


@check(
    "shift-matters",
    "Without the shift, d levels are one phrasebook: an output character depends on two input characters.",
    "exhaustive",
    "sec:properties_mlt",
)
def shift_matters(*, seed: int, characters: int = 2) -> Outcome:
    """All 576 codebooks of MLT(2, 2), L = 8: the composed phrasebook, and the reach of the first output character."""
    tables, strings = all_codebooks(2), all_strings(8)
    rows = np.arange(len(tables))[:, None]
    composed = tables[:, 1][rows, tables[:, 0].astype(np.int64)]  # first π_1, then π_2
    one_by_one = np.stack([Phrasebook(2, one[0]).then(Phrasebook(2, one[1])).table for one in tables])
    outputs = composed[:, 2 * strings[:, 0].astype(np.int64) + strings[:, 1]] >> 1  # [codebook, string]

    def reach(first: NDArray[np.integer]) -> int:  # input characters whose change can change the first output character
        index = np.arange(len(strings))
        return sum(bool((first != first[:, index ^ (1 << j)]).any()) for j in range(8))

    repeated = np.repeat(tables, len(strings), axis=0)
    shifted = translate_batch(repeated, np.tile(strings, (len(tables), 1)), chars=2).outputs[:, 0]
    without, with_shift = reach(outputs), reach(shifted.reshape(len(tables), -1))
    return Outcome(
        np.array_equal(composed, one_by_one) and without == characters and with_shift == 4,
        {"without": without, "with": with_shift},
        f"{without} characters without the shift, {with_shift} with it (d=2)",
        characters,
    )
