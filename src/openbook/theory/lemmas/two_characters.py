"""The lemmas about two characters: of one level (the six maps, their mirror sets, correlations, composition), and of
whole strings (uniform levels, invariance under shifts, neighbours).
"""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from openbook.task import random_inputs
from openbook.task.phrasebook import Table, sample_tables
from openbook.task.translate import Chars
from openbook.theory.lemmas.check import Outcome, equation, section
from openbook.theory.lemmas.enumeration import (
    Bits,
    Integers,
    agreement,
    all_codebooks,
    all_maps,
    all_strings,
    characters,
    translate_all,
)
from openbook.theory.lemmas.parities import collision, parities

check = section("Two characters")

# Truth tables over (a, b) = 00, 01, 10, 11.
OPERATIONS = {(0, 0, 1, 1): "copy1", (0, 1, 0, 1): "copy2", (0, 1, 1, 0): "xor"}

# The paper's table of the six maps, with Δ2 corrected: images of 00, 01, 10, 11.
SIX = {
    ("copy1", "copy2"): (0b00, 0b01, 0b10, 0b11),
    ("copy1", "xor"): (0b00, 0b01, 0b11, 0b10),
    ("copy2", "copy1"): (0b00, 0b10, 0b01, 0b11),
    ("copy2", "xor"): (0b00, 0b11, 0b01, 0b10),
    ("xor", "copy1"): (0b00, 0b10, 0b11, 0b01),
    ("xor", "copy2"): (0b00, 0b11, 0b10, 0b01),
}
DELTA_2_AS_PRINTED = (0b00, 0b01, 0b01, 0b10)


def mirror_sets(tables: Table) -> NDArray[np.integer]:
    """Each map with neither, one, the other or both of its output characters negated: [maps, 4 mirrors, 4]."""
    return tables[:, None, :] ^ np.arange(4)[None, :, None]


def map_agreement(first: Bits, second: Bits) -> Integers:
    """`agreement` of character i of f with character j of g, for maps of two lists [maps, 2, inputs]: [f, i, g, j]."""
    rows = (maps.reshape(-1, maps.shape[-1]) for maps in (first, second))
    return agreement(*rows).reshape(len(first), 2, len(second), 2)


def correlations(maps: Table) -> Integers:
    """`map_agreement` of every two of some maps: 4 where their correlation is 1."""
    return map_agreement(characters(maps), characters(maps))


def shares(correlated: NDArray[np.bool_]) -> list[Fraction]:
    """The share of pairs (f, g) that correlate at (i, j), for (i, j) = 11, 12, 21, 22, from a table [f, i, g, j]."""
    pairs = correlated.shape[0] * correlated.shape[2]
    return [Fraction(int(hits), pairs) for hits in correlated.sum(axis=(0, 2)).reshape(-1)]


@check("six-maps", "exhaustive", "lem:map_form_n2")
def six_maps(*, seed: int, maps: int = 6, mirror: int = 4) -> Outcome:
    """Six bijections of {0,1}² are made of copy and xor alone; their mirror sets of four are all 24.

    All maps with copy/xor outputs are looked for among the 24 and compared with the paper's table, and their mirror
    sets are united.

    Remark: Row Δ2 of the truth table lists (0,1) twice and is no bijection; copy₁/xor is 00→00, 01→01, 10→11, 11→10.
    """
    everything = [tuple(table) for table in all_maps().tolist()]
    outputs = [tuple(OPERATIONS.get(tuple(bits)) for bits in both) for both in characters(all_maps()).tolist()]
    six = {names: table for names, table in zip(outputs, everything, strict=True) if None not in names}
    sets = [set(map(tuple, tables)) for tables in mirror_sets(np.array(list(six.values()))).tolist()]
    sizes = {len(tables) for tables in sets}
    union = set().union(*sets)
    disjoint = sum(map(len, sets)) == len(union)
    holds = six == SIX and len(six) == maps and sizes == {mirror} and disjoint and union == set(everything)
    return Outcome(
        holds and DELTA_2_AS_PRINTED not in everything,
        {"maps": len(six), "mirror": max(sizes), "union": len(union)},
        f"{len(six)} maps, mirror sets of {max(sizes)}, union {len(union)}",
        f"{maps} maps, mirror sets of {mirror}, union 24",
    )


@check("affine", "exhaustive", "beyond")
def affine(*, seed: int, count: int = 24) -> Outcome:
    """All 24 bijections of {0,1}² are affine over GF(2), so MLT(d, 2) is an affine map of bits.

    A map f is affine when f(x) ⊕ f(y) ⊕ f(z) ⊕ f(x⊕y⊕z) = 0. This is tested for all maps, and for whole translations of
    200 codebooks at d=3, L=6.

    Remark: Not said in the paper; it turns correlation into equality of parities, and gives elimination below.
    """
    tables = all_maps()
    x, y, z = np.meshgrid(*[np.arange(4)] * 3, indexing="ij")
    defect = tables[:, x] ^ tables[:, y] ^ tables[:, z] ^ tables[:, x ^ y ^ z]
    maps = int((defect == 0).all(axis=(1, 2, 3)).sum())
    outputs = translate_all(sample_tables(3, 2, seed, 0, 200), all_strings(6))[:, :, -1]
    x, y = np.meshgrid(*[np.arange(64)] * 2, indexing="ij")
    broken = int((outputs[:, x] ^ outputs[:, y] ^ outputs[:, x ^ y] ^ outputs[:, :1, None]).any(axis=(1, 2, 3)).sum())
    holds = maps == count and broken == 0
    return Outcome(holds, {"maps": maps, "not_affine": broken}, f"{maps} of 24 maps affine", count)


@check("mirror-correlation", "exhaustive", "lem:corr_distinctmirrormap")
def mirror_correlation(*, seed: int, mirrors: int = 4) -> Outcome:
    """Replacing maps by mirror maps, or negating their inputs, leaves every correlation as it is.

    All 36 pairs of the six maps are compared with all 16 pairs of their mirrors, at all four pairs of characters; then
    the inputs of all 24 maps are negated. If `mirrors` is more than four, maps that are no mirrors are taken for
    mirrors, so the check must fail.

    Remark: The composition lemma's proof defines the mirror of π^β through π^α; it is π^β with an input negated, which
    lies in the mirror set of π^β (checked here for all 24 maps).
    """
    six, everything = np.array(list(SIX.values())), all_maps()
    mirrors_first = [
        sorted(everything.tolist(), key=lambda table: table not in own) for own in mirror_sets(six).tolist()
    ]
    alike = np.array(mirrors_first)[:, :mirrors].reshape(-1, 4)
    original = correlations(six)[:, None, :, :, None, :]
    changed = int((correlations(alike).reshape(6, mirrors, 2, 6, mirrors, 2) != original).sum())
    negated = everything[:, np.arange(4)[:, None] ^ np.arange(4)]  # [map, which inputs are negated, 4]
    inside = (negated[:, :, None] == mirror_sets(everything)[:, None]).all(axis=-1).any(axis=-1)
    outside, pairs = int((~inside).sum()), (6 * mirrors) ** 2
    measured = f"{changed} of {4 * pairs} correlations changed, {outside} negated inputs outside the mirror set"
    return Outcome(changed == outside == 0, {"changed": changed, "outside": outside, "pairs": pairs}, measured, 0)


@check("correlation-six", "exhaustive", "lem:nonmirror_corr")
def correlation_six(*, seed: int, probability: Fraction = Fraction(1, 3)) -> Outcome:
    """Two of the six maps drawn at random correlate at output 1 with probability 1/3, and so at output 2.

    All 36 pairs are enumerated, and every correlation is 0 or 1.
    """
    table = correlations(np.array(list(SIX.values())))
    first, _, _, second = shares(table == 4)
    holds = bool(np.isin(table, (0, 4)).all()) and first == second == probability
    return Outcome(holds, [first, second], f"{first} and {second}", probability)


@check("correlation-pair", "exhaustive", "lem:corr_n2")
def correlation_pair(*, seed: int, probability: Fraction = Fraction(1, 3)) -> Outcome:
    """Fix output characters i and j: two random bijections of {0,1}² have correlation 1 there w.p. 1/3, else 0.

    All 576 pairs of maps are enumerated, with each of the four choices of (i, j).

    Remark: i, j run over {1, 2}, not {0, 1}. The heading 'at least one pair' must be read as 'at one fixed pair': at
    some pair or other, two bijections of {0,1}² correlate always (two of three parities meet two of three).
    """
    table = correlations(all_maps())
    fixed = shares(table == 4)
    somewhere = Fraction(int((table == 4).any(axis=(1, 3)).sum()), 576)
    holds = bool(np.isin(table, (0, 4)).all()) and set(fixed) == {probability} and somewhere == 1
    measured = f"{', '.join(map(str, fixed))} by (i, j); at some pair: {somewhere}"
    return Outcome(holds, {"fixed_pair": fixed, "some_pair": somewhere}, measured, probability)


@check("correlation-both", "exhaustive", "lem:corr_n2")
def correlation_both(*, seed: int, probability: Fraction = Fraction(1, 3)) -> Outcome:
    """Two random bijections correlate at both outputs (straight or crossed) with probability 1/3; never one to two.

    All 576 pairs of maps are enumerated.
    """
    full = correlations(all_maps()) == 4
    straight = full[:, 0, :, 0] & full[:, 1, :, 1]
    crossed = full[:, 0, :, 1] & full[:, 1, :, 0]
    forked = int((full[:, :, :, 0] & full[:, :, :, 1]).sum())
    share = Fraction(int((straight | crossed).sum()), 576)
    measured = f"{share}; one character with two others: {forked}"
    return Outcome(share == probability and forked == 0, {"both": share, "one_to_two": forked}, measured, probability)


@check("composition", "exhaustive", "lem:corr_compose")
def composition(
    *, seed: int, probabilities: tuple[Fraction, Fraction, Fraction] = (Fraction(1, 3), Fraction(1, 9), Fraction(0))
) -> Outcome:
    """corr(π^α(f)_i, π^β(g)_j) = 1 w.p. 1/3 if f and g span the same parities, 1/9 if one is shared, 0 if none.

    With f = (x1, x2) on four bits (any other f is a change of basis), every pair g of parities and all 576 pairs of
    maps are enumerated.

    Remark: The paper conditions on pairs of characters and forgets their xor. With f=(x1,x2): g=(x1,x1⊕x2) has one
    correlated pair but the probability is 1/3, not 1/9; g=(x1⊕x2,x3) has none but it is 1/9, not 0. In its case 1 the
    second map is printed π^α; it is π^β.
    """
    masks = np.arange(16)  # a parity is the mask of the bits that it adds; an input of four bits is a number too
    parity = np.bitwise_count(masks[:, None] & masks) & 1  # [mask, input]

    def after(first: int, second: int) -> Bits:
        """Both characters of all 24 maps, applied to a pair of parities: [24, 2, 16]."""
        return characters(all_maps())[:, :, 2 * parity[first] + parity[second]]

    found: dict[int, set[Fraction]] = {3: set(), 1: set(), 0: set()}  # by the number of shared parities
    predicted = {1: Fraction(1, 9), 0: Fraction(0)}  # by the paper, from the number of characters that f and g share
    wrong: dict[int, list[bool]] = {1: [], 0: []}
    for first, second in itertools.permutations(range(1, 16), 2):
        probability = set(shares(map_agreement(after(1, 2), after(first, second)) == 16))
        found[len({1, 2, 3} & {first, second, first ^ second})] |= probability
        same = len({1, 2} & {first, second})
        if same < 2:
            wrong[same].append(probability != {predicted[same]})
    one, none = (f"{sum(wrong[same])} of {len(wrong[same])}" for same in (1, 0))
    largest = [max(values) for values in found.values()]
    return Outcome(
        list(found.values()) == [{probability} for probability in probabilities],
        {**dict(zip(("same", "one", "none"), largest, strict=True)), "paper_wrong": {"one pair": one, "no pair": none}},
        f"{', '.join(map(str, largest))}; the paper's cases 2 and 3 are wrong for {one} and {none} g",
        list(probabilities),
    )


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
    measured = f"{changed} pairs of codebooks changed; p_2;2 = {both}, p_2;4 = {one}"
    return Outcome(changed == 0 and one != both, {"changed": changed, "p22": both, "p24": one}, measured, 0)


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
