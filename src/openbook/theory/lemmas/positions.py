"""The lemmas about whole strings over two characters: uniform levels, invariance under shifts, neighbours."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from openbook.task import random_inputs, translate_batch
from openbook.task.phrasebook import sample_tables
from openbook.theory.lemmas.bits import all_codebooks, all_strings, collision, parities
from openbook.theory.lemmas.check import Outcome, check, ratio


@check(
    "uniformity",
    "E s_{i,j} = 1/2 and E s_{i,j} ⊕ s_{i,j'} = 1/2 for uniform inputs, at every level.",
    "exhaustive",
    "lem:uniform_n2_dist",
    "Pairwise independence is all it gives; the composition lemma needs it of xors too.",
)
def uniformity(*, seed: int, mean: Fraction = Fraction(1, 2)) -> Outcome:
    """All codebooks and all inputs at d=2, L=4 and d=3, L=6."""
    worst, cases = Fraction(0), 0
    for depth in (2, 3):
        length = 2 * depth
        strings = all_strings(length)
        for tables in np.array_split(all_codebooks(depth), 1 + 24**depth // 2000):
            repeated = np.repeat(tables, len(strings), axis=0)
            levels = translate_batch(repeated, np.tile(strings, (len(tables), 1)), chars=2).strings
            levels = levels.reshape(len(tables), len(strings), depth + 1, length).transpose(0, 2, 3, 1)
            ones = levels.astype(np.float32)
            signs = 1 - 2 * ones
            means = ones.sum(axis=-1)
            differ = (len(strings) - signs @ signs.swapaxes(-1, -2)) / 2
            differ = differ[..., ~np.eye(length, dtype=bool)]
            for sums in (means, differ):
                gap = max(abs(Fraction(int(s), len(strings)) - mean) for s in (sums.min(), sums.max()))
                worst, cases = max(worst, gap), cases + sums.size
    return Outcome(worst == 0, worst, f"largest deviation {ratio(worst)} in {cases:,} expectations", 0)


@check(
    "circular-invariance",
    "Shifting the input by 2k characters shifts every level by 2k characters.",
    "exhaustive",
    "lem:circular_invariance",
)
def circular_invariance(*, seed: int, step: int = 2) -> Outcome:
    """All codebooks and strings of MLT(2, 2), L = 6, every shift; 20 codebooks of MLT(3, 10) on random strings."""
    unequal = compared = 0
    tables, strings = all_codebooks(2), all_strings(6)
    wide = random_inputs(10, 300, (12, 12), seed, stream="theory circular")[0]
    small = np.repeat(tables, len(strings), axis=0), np.tile(strings, (len(tables), 1)), 2
    large = np.repeat(sample_tables(3, 10, seed, 0, 20), len(wide), axis=0), np.tile(wide, (20, 1)), 10
    for books, batch, chars in (small, large):
        levels = translate_batch(books, batch, chars=chars).strings
        for shift in range(step, batch.shape[1], step):
            moved = translate_batch(books, np.roll(batch, -shift, axis=1), chars=chars).strings
            unequal += int((moved != np.roll(levels, -shift, axis=2)).sum())
            compared += levels.size
    return Outcome(unequal == 0, unequal, f"{unequal:,} of {compared:,} characters differ", 0)


@check(
    "circular-correlation",
    "corr(s^α_{i,j}, s^β_{i,j}) = corr(s^α_{i,j+2k}, s^β_{i,j+2k}).",
    "exhaustive",
    "lem:circ_invar",
    "Where the lemma is used, only the second index is shifted (p_{j;j} = p_{j;j+2k}); both must be. At level 2, "
    "p_{2;2} = 1/3 and p_{2;4} = 0.",
)
def circular_correlation(*, seed: int, step: int = 2) -> Outcome:
    """All 576 codebooks of MLT(2, 2) in pairs, L = 6: equality of parities at j and at j + 2k."""
    table = parities(all_codebooks(2), 6)  # [codebook, level, position]
    changed = 0
    for level in (1, 2):
        equal = [table[:, level, j][:, None] == table[:, level, j][None, :] for j in range(6)]
        changed += sum(int((equal[j] != equal[(j + step) % 6]).sum()) for j in range(6))
    both, one = collision(table[:, 1, 1], table[:, 1, 1]), collision(table[:, 1, 1], table[:, 1, 3])
    return Outcome(
        changed == 0 and one != both,
        {"changed": changed, "p22": both, "p24": one},
        f"{changed} pairs of codebooks changed; p_2;2 = {ratio(both)}, p_2;4 = {ratio(one)}",
        0,
    )


@check(
    "cross-correlation",
    "P[s^α_j ~ s^β_{j+1}] ≤ ½ (P[s^α_j ~ s^β_j] + P[s^α_{j+1} ~ s^β_{j+1}]).",
    "exact counting",
    "lem:cross_corr",
)
def cross_correlation(*, seed: int, factor: Fraction = Fraction(1, 2)) -> Outcome:
    """All codebooks of MLT(3, 2), L = 6: every level and position."""
    table = parities(all_codebooks(3), 6)
    closest = Fraction(0)
    for level in (1, 2, 3):
        own = [collision(table[:, level, j], table[:, level, j]) for j in range(6)]
        for j in range(6):
            cross = collision(table[:, level, j], table[:, level, (j + 1) % 6])
            closest = max(closest, cross / (own[j] + own[(j + 1) % 6]))
    return Outcome(closest <= factor, closest, f"largest ratio {ratio(closest)}", factor)
