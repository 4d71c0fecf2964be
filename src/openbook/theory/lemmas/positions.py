"""The lemmas about whole strings over two characters: uniform levels, invariance under shifts, neighbours."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from openbook.task import random_inputs
from openbook.task.phrasebook import Table, sample_tables
from openbook.task.translate import Chars
from openbook.theory.lemmas.check import Outcome, equation, section
from openbook.theory.lemmas.enumeration import all_codebooks, all_strings, translate_all
from openbook.theory.lemmas.parities import collision, parities

check = section("Two characters")


@check("uniformity", "exhaustive", "lem:uniform_n2_dist")
def uniformity(*, seed: int, mean: Fraction = Fraction(1, 2)) -> Outcome:
    """E s_{i,j} = 1/2 and E s_{i,j} ⊕ s_{i,j'} = 1/2 for uniform inputs, at every level.

    Both means are computed for all codebooks and all inputs at d=2, L=4 and d=3, L=6.

    Remark: Pairwise independence is all it gives; the composition lemma needs it of xors too.
    """
    worst, cases = Fraction(0), 0
    for depth in (2, 3):
        strings = all_strings(2 * depth)
        levels = translate_all(all_codebooks(depth), strings).transpose(0, 2, 3, 1).astype(np.float32)
        signs = 1 - 2 * levels  # [codebook, level, character, string]
        differ = (len(strings) - signs @ signs.mT) / 2
        for sums in (levels.sum(axis=-1), differ[..., ~np.eye(2 * depth, dtype=bool)]):
            gap = max(abs(Fraction(int(extreme), len(strings)) - mean) for extreme in (sums.min(), sums.max()))
            worst, cases = max(worst, gap), cases + sums.size
    return Outcome(worst == 0, worst, f"largest deviation {worst} in {cases:,} expectations", 0)


@check("circular-invariance", "exhaustive", "lem:circular_invariance")
def circular_invariance(*, seed: int, step: int = 2) -> Outcome:
    """Shifting the input by 2k characters shifts every level by 2k characters.

    Every shift of all strings is translated by all codebooks of MLT(2, 2), L = 6, and every shift of random strings by
    20 codebooks of MLT(3, 10). An odd `step` splits bigrams, so it must fail.
    """
    wide = random_inputs(10, 300, (12, 12), seed, stream="theory circular")[0]
    tasks = ((all_codebooks(2), all_strings(6), 2), (sample_tables(3, 10, seed, 0, 20), wide, 10))

    def shifted_input(tables: Table, strings: Chars, chars: int, by: int) -> Chars:
        return translate_all(tables, np.roll(strings, -by, axis=-1), chars)

    def shifted_levels(tables: Table, strings: Chars, chars: int, by: int) -> Chars:
        return np.roll(translate_all(tables, strings, chars), -by, axis=-1)

    cases = ((*task, by) for task in tasks for by in range(step, task[1].shape[1], step))
    return equation(cases, shifted_input, shifted_levels, "{:,} of {:,} characters differ", axes=0)


@check("circular-correlation", "exhaustive", "lem:circ_invar")
def circular_correlation(*, seed: int, step: int = 2) -> Outcome:
    """corr(s^α_{i,j}, s^β_{i,j}) = corr(s^α_{i,j+2k}, s^β_{i,j+2k}).

    For all pairs of the 576 codebooks of MLT(2, 2), L = 6, it is compared whether their parities are equal at j and
    whether they are equal at j + 2k.

    Remark: Where the lemma is used, only the second index is shifted (p_{j;j} = p_{j;j+2k}); both must be. At level 2,
    p_{2;2} = 1/3 and p_{2;4} = 0.
    """
    table = parities(all_codebooks(2), 6)  # [codebook, level, position]
    equal = table[:, None, 1:] == table[None, :, 1:]  # [α, β, level, position]
    changed = int((equal != np.roll(equal, -step, axis=-1)).sum())
    both, one = collision(table[:, 1, 1], table[:, 1, 1]), collision(table[:, 1, 1], table[:, 1, 3])
    return Outcome(
        changed == 0 and one != both,
        {"changed": changed, "p22": both, "p24": one},
        f"{changed} pairs of codebooks changed; p_2;2 = {both}, p_2;4 = {one}",
        0,
    )


@check("cross-correlation", "exact counting", "lem:cross_corr")
def cross_correlation(*, seed: int, factor: Fraction = Fraction(1, 2)) -> Outcome:
    """P[s^α_j ~ s^β_{j+1}] ≤ ½ (P[s^α_j ~ s^β_j] + P[s^α_{j+1} ~ s^β_{j+1}]).

    The three probabilities are counted over all codebooks of MLT(3, 2), L = 6, at every level and position.
    """
    table = parities(all_codebooks(3), 6)
    closest = Fraction(0)
    for level in (1, 2, 3):
        here = [table[:, level, j] for j in range(6)]
        for one, other in zip(here, here[1:] + here[:1], strict=True):
            closest = max(closest, collision(one, other) / (collision(one, one) + collision(other, other)))
    return Outcome(closest <= factor, closest, f"largest ratio {closest}", factor)
