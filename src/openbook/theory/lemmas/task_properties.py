"""Properties of the task: how many phrasebooks there are, that translation is invertible, what depends on what."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from openbook.task import Codebook, Phrasebook, translate_batch
from openbook.task.translate import invert_batch
from openbook.theory.lemmas.check import Outcome, section
from openbook.theory.lemmas.enumeration import all_codebooks, all_strings, not_bijective, numbers, translate_all
from openbook.theory.lemmas.parities import parities

check = section("The task")


def _matchings(size: int) -> int:
    """Perfect matchings of the complete bipartite graph on size + size vertices, counted over subsets."""
    ways = [1] + [0] * ((1 << size) - 1)
    for taken in range(1, 1 << size):  # the left sides 0..k-1 are matched with the set `taken` of right sides
        ways[taken] = sum(ways[taken ^ (1 << j)] for j in range(size) if taken >> j & 1)
    return ways[-1]


@check("bijection-count", "exact counting", "lem:num_bijective")
def bijection_count(*, seed: int, formula: Callable[[int], int] = lambda n: math.factorial(n * n)) -> Outcome:
    """A level has (n²)! possible phrasebooks.

    The bijections are counted for n = 2, 3, 4 by dynamic programming over the set of right sides already taken.
    """
    counted = {n: _matchings(n * n) for n in (2, 3, 4)}
    holds = all(formula(n) == value for n, value in counted.items())
    return Outcome(holds, counted, ", ".join(f"n={n}: {v:,}" for n, v in counted.items()), "(n²)!")


@check("invertibility", "exhaustive", "lemma:setting-MLTinvertability")
def invertibility(*, seed: int, skipped: int = 0) -> Outcome:
    """With the phrasebooks of levels i..d fixed, s_i and s_{d+1} determine each other.

    The outputs of all strings are all different for each of the 576 codebooks of MLT(2, 2), and for 20 codebooks of
    MLT(3, 3) every string at every level is recovered from the output. The way back leaves out the first `skipped`
    phrasebooks, so with one or more of them it must fail.
    """
    collisions = not_bijective(numbers(translate_all(all_codebooks(2), all_strings(4))[:, :, -1]))
    unequal = 0
    for index in range(20):
        codebook = Codebook.sample(3, 3, seed, index)
        levels = translate_batch(codebook, all_strings(4, 3)).strings
        for level in range(4):  # back from the output to s_1, and forward to s_i again
            rest = codebook.tables[level + skipped :]
            back = invert_batch(Codebook(3, rest), levels[:, 3]) if len(rest) else levels[:, 3]
            unequal += int((back != levels[:, level]).sum())
    measured = f"{collisions} codebooks with a collision, {unequal} characters not recovered"
    return Outcome(collisions == unequal == 0, {"collisions": collisions, "unequal": unequal}, measured, 0)


@check("dependencies", "exhaustive", "lem:dependencies")
def dependencies(*, seed: int, per_level: int = 2) -> Outcome:
    """(s_{i+1,1}, s_{i+1,2}) = π_i(s_{i,2}, s_{i,3}), so an output character depends on 2d input characters.

    The relation is tested for all codebooks and strings of MLT(2, 2), L = 8. What an output depends on is read from the
    parities of all codebooks of MLT(d, 2), d ≤ 3.

    Remark: Inside the n = 2 proof the right side is printed with level l+1; it is level l. In the proof of uniformity
    the phrasebook is printed π_i and the second character s_{i,2k+3}; they are π_{i-1} and s_{i-1,2k+3}.
    """
    tables = all_codebooks(2)
    levels = translate_all(tables, all_strings(8))
    unequal = 0
    for i in range(2):
        image = np.take_along_axis(tables[:, i], numbers(levels[:, :, i, 1:3]), axis=1)
        unequal += int((image != numbers(levels[:, :, i + 1, :2])).sum())
    reached = {}
    for depth in (1, 2, 3):
        union = np.bitwise_or.reduce(parities(all_codebooks(depth), 2 * depth + 4)[:, depth, 0])
        reached[depth] = [j for j in range(2 * depth + 4) if union >> j & 1]
    counts = [len(places) for places in reached.values()]
    holds = unequal == 0 and all(reached[d] == list(range(1, per_level * d + 1)) for d in reached)
    return Outcome(holds, counts, f"{unequal} pairs differ; {counts} input characters at d=1..3", f"{per_level}d")


def _reach(outputs: NDArray[np.integer]) -> int:
    """How many of eight input characters can change an output that is given for all strings: [codebooks, 256]."""
    index = np.arange(256)
    return sum(bool((outputs != outputs[:, index ^ (1 << j)]).any()) for j in range(8))


@check("shift-matters", "exhaustive", "sec:properties_mlt")
def shift_matters(*, seed: int, characters: int = 2) -> Outcome:
    """Without the shift, d levels are one phrasebook: an output character depends on two input characters.

    All 576 codebooks of MLT(2, 2), L = 8, are composed without the shift. Then each input character is changed, with
    and without the shift, to see whether the first output character ever changes.
    """
    tables, strings = all_codebooks(2), all_strings(8)
    composed = np.take_along_axis(tables[:, 1], tables[:, 0].astype(np.int64), axis=1)  # first π_1, then π_2
    one_by_one = np.stack([Phrasebook(2, first).then(Phrasebook(2, second)).table for first, second in tables])
    without = _reach(composed[:, numbers(strings[:, :2])] >> 1)
    shifted = _reach(translate_all(tables, strings)[:, :, -1, 0])
    measured = f"{without} characters without the shift, {shifted} with it (d=2)"
    holds = np.array_equal(composed, one_by_one) and without == characters and shifted == 4
    return Outcome(holds, {"without": without, "with": shifted}, measured, characters)
