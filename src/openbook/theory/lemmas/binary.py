"""The lemmas about one level over two characters: the six maps, their mirror sets, correlations, composition."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from openbook.task import translate_batch
from openbook.task.phrasebook import sample_tables
from openbook.theory.lemmas.bits import OPERATIONS, Bits, agreement, all_maps, all_strings, characters
from openbook.theory.lemmas.check import Outcome, check, ratio

# The table of the six maps, with Δ2 corrected: images of 00, 01, 10, 11.
SIX = {
    ("copy1", "copy2"): (0b00, 0b01, 0b10, 0b11),
    ("copy1", "xor"): (0b00, 0b01, 0b11, 0b10),
    ("copy2", "copy1"): (0b00, 0b10, 0b01, 0b11),
    ("copy2", "xor"): (0b00, 0b11, 0b01, 0b10),
    ("xor", "copy1"): (0b00, 0b10, 0b11, 0b01),
    ("xor", "copy2"): (0b00, 0b11, 0b10, 0b01),
}
DELTA_2_AS_PRINTED = (0b00, 0b01, 0b01, 0b10)


def _mirror(table: tuple[int, ...]) -> set[tuple[int, ...]]:
    """The map with either, both or neither of its output characters negated."""
    return {tuple(image ^ mask for image in table) for mask in range(4)}


@check(
    "six-maps",
    "Six bijections of {0,1}² are made of copy and xor alone; their mirror sets of four are all 24.",
    "exhaustive",
    "lem:map_form_n2",
    "Row Δ2 of the truth table lists (0,1) twice and is no bijection; copy₁/xor is 00→00, 01→01, 10→11, 11→10.",
)
def six_maps(*, seed: int, maps: int = 6, mirror: int = 4) -> Outcome:
    """Find all maps with copy/xor outputs among the 24, compare with the table, and unite their mirror sets."""
    everything = {tuple(table) for table in all_maps().tolist()}
    operations = {np.array(bits, np.uint8).tobytes(): name for name, bits in OPERATIONS.items()}
    found = {}
    for table in sorted(everything):
        first, second = characters(np.array([table]))[0]
        if first.tobytes() in operations and second.tobytes() in operations:
            found[operations[first.tobytes()], operations[second.tobytes()]] = table
    mirrors = [_mirror(table) for table in found.values()]
    sizes = {len(m) for m in mirrors}
    union = set().union(*mirrors)
    disjoint = sum(len(m) for m in mirrors) == len(union)
    holds = found == SIX and len(found) == maps and sizes == {mirror} and disjoint and union == everything
    holds = holds and DELTA_2_AS_PRINTED not in everything
    return Outcome(
        holds,
        {"maps": len(found), "mirror": max(sizes), "union": len(union)},
        f"{len(found)} maps, mirror sets of {max(sizes)}, union {len(union)}",
        f"{maps} maps, mirror sets of {mirror}, union 24",
    )


@check(
    "affine",
    "All 24 bijections of {0,1}² are affine over GF(2), so MLT(d, 2) is an affine map of bits.",
    "exhaustive",
    "beyond",
    "Not said in the paper; it turns correlation into equality of parities, and gives elimination below.",
)
def affine(*, seed: int, count: int = 24) -> Outcome:
    """f is affine when f(x) ⊕ f(y) ⊕ f(z) ⊕ f(x⊕y⊕z) = 0; all maps, then whole translations at d=3, L=6."""
    tables = all_maps()
    x, y, z = np.meshgrid(*[np.arange(4)] * 3, indexing="ij")
    defect = tables[:, x] ^ tables[:, y] ^ tables[:, z] ^ tables[:, x ^ y ^ z]
    maps = int((defect == 0).all(axis=(1, 2, 3)).sum())
    codebooks = sample_tables(3, 2, seed, 0, 200)
    strings = all_strings(6)
    outputs = translate_batch(np.repeat(codebooks, 64, axis=0), np.tile(strings, (200, 1)), chars=2).outputs
    outputs = outputs.reshape(200, 64, 6)
    index = np.arange(64)
    left, right = np.meshgrid(index, index, indexing="ij")
    whole = outputs[:, left] ^ outputs[:, right] ^ outputs[:, left ^ right] ^ outputs[:, :1, None]
    broken = int(whole.any(axis=(1, 2, 3)).sum())
    return Outcome(
        maps == count and broken == 0, {"maps": maps, "not_affine": broken}, f"{maps} of 24 maps affine", count
    )


@check(
    "mirror-correlation",
    "Replacing maps by mirror maps, or negating their inputs, leaves every correlation as it is.",
    "exhaustive",
    "lem:corr_distinctmirrormap",
    "The composition lemma's proof defines the mirror of π^β through π^α; it is π^β with an input negated, which lies "
    "in the mirror set of π^β (checked here for all 24 maps).",
)
def mirror_correlation(*, seed: int, mirrors: int = 4) -> Outcome:
    """All 36 pairs of the six maps, all 16 pairs of mirrors, all four pairs of characters; then negated inputs.

    With more than four `mirrors` maps that are none are counted among them.
    """

    def alike(table: tuple[int, ...]) -> list[tuple[int, ...]]:
        others = [other for other in map(tuple, all_maps().tolist()) if other not in _mirror(table)]
        return [*_mirror(table), *others][:mirrors]

    changed = pairs = 0
    for first, second in itertools.product(SIX.values(), repeat=2):
        plain = agreement(characters(np.array([first]))[0], characters(np.array([second]))[0])
        for a, b in itertools.product(alike(first), alike(second)):
            changed += int((agreement(characters(np.array([a]))[0], characters(np.array([b]))[0]) != plain).sum())
            pairs += 1
    outside = 0
    for table in map(tuple, all_maps().tolist()):
        outside += sum(tuple(table[x ^ mask] for x in range(4)) not in _mirror(table) for mask in range(4))
    return Outcome(
        changed == 0 and outside == 0,
        {"changed": changed, "outside": outside, "pairs": pairs},
        f"{changed} of {4 * pairs} correlations changed, {outside} negated inputs outside the mirror set",
        0,
    )


def _pair_correlations(tables: NDArray[np.integer]) -> NDArray[np.int64]:
    """corr × 4 of character i of one map with character j of another: [map, i, map, j]."""
    bits: Bits = characters(tables).reshape(-1, 4)
    return agreement(bits, bits).reshape(len(tables), 2, len(tables), 2)


@check(
    "correlation-six",
    "Two of the six maps drawn at random correlate at output 1 with probability 1/3, and so at output 2.",
    "exhaustive",
    "lem:nonmirror_corr",
)
def correlation_six(*, seed: int, probability: Fraction = Fraction(1, 3)) -> Outcome:
    """All 36 pairs; a correlation is 0 or 1."""
    table = _pair_correlations(np.array(list(SIX.values())))
    shares = [Fraction(int((table[:, i, :, i] == 4).sum()), 36) for i in range(2)]
    binary = bool(np.isin(table, (0, 4)).all())
    return Outcome(binary and set(shares) == {probability}, shares, " and ".join(map(ratio, shares)), probability)


@check(
    "correlation-pair",
    "Fix output characters i and j: two random bijections of {0,1}² have correlation 1 there w.p. 1/3, else 0.",
    "exhaustive",
    "lem:corr_n2",
    "i, j run over {1, 2}, not {0, 1}. The heading 'at least one pair' must be read as 'at one fixed pair': at some "
    "pair or other, two bijections of {0,1}² correlate always (two of three parities meet two of three).",
)
def correlation_pair(*, seed: int, probability: Fraction = Fraction(1, 3)) -> Outcome:
    """All 576 pairs of maps, each of the four choices of (i, j)."""
    table = _pair_correlations(all_maps())
    shares = [Fraction(int((table[:, i, :, j] == 4).sum()), 576) for i in range(2) for j in range(2)]
    somewhere = Fraction(int((table == 4).any(axis=(1, 3)).sum()), 576)
    binary = bool(np.isin(table, (0, 4)).all())
    return Outcome(
        binary and set(shares) == {probability} and somewhere == 1,
        {"fixed_pair": shares, "some_pair": somewhere},
        f"{', '.join(map(ratio, shares))} by (i, j); at some pair: {ratio(somewhere)}",
        probability,
    )


@check(
    "correlation-both",
    "Two random bijections correlate at both outputs (straight or crossed) with probability 1/3; never one to two.",
    "exhaustive",
    "lem:corr_n2",
)
def correlation_both(*, seed: int, probability: Fraction = Fraction(1, 3)) -> Outcome:
    """All 576 pairs of maps."""
    full = _pair_correlations(all_maps()) == 4
    straight = full[:, 0, :, 0] & full[:, 1, :, 1]
    crossed = full[:, 0, :, 1] & full[:, 1, :, 0]
    forked = int((full[:, :, :, 0] & full[:, :, :, 1]).sum())
    share = Fraction(int((straight | crossed).sum()), 576)
    return Outcome(
        share == probability and forked == 0,
        {"both": share, "one_to_two": forked},
        f"{ratio(share)}; one character with two others: {forked}",
        probability,
    )


@check(
    "composition",
    "corr(π^α(f)_i, π^β(g)_j) = 1 w.p. 1/3 if f and g span the same parities, 1/9 if one is shared, 0 if none.",
    "exhaustive",
    "lem:corr_compose",
    "The paper conditions on pairs of characters and forgets their xor. With f=(x1,x2): g=(x1,x1⊕x2) has one "
    "correlated pair but the probability is 1/3, not 1/9; g=(x1⊕x2,x3) has none but it is 1/9, not 0. In its case 1 "
    "the second map is printed π^α; it is π^β.",
)
def composition(
    *, seed: int, probabilities: tuple[Fraction, Fraction, Fraction] = (Fraction(1, 3), Fraction(1, 9), Fraction(0))
) -> Outcome:
    """f = (x1, x2) on four bits (any other f is a change of basis), every pair g of parities, all 576 maps."""
    inputs = all_strings(4)
    masks = np.arange(1, 16)
    bits = ((inputs @ (1 << np.arange(4)))[None, :] & masks[:, None]).astype(np.int64)
    parity = np.array([[int(word).bit_count() & 1 for word in row] for row in bits])  # [mask, input]
    maps = characters(all_maps())

    def after(first: int, second: int) -> Bits:  # both characters of every map of the pair: [24 * 2, 16]
        return maps[:, :, 2 * parity[first - 1] + parity[second - 1]].reshape(48, 16)

    outputs_f = after(1, 2)
    span_f = {1, 2, 3}
    seen: dict[int, set[Fraction]] = {3: set(), 1: set(), 0: set()}
    literal = {"one pair": [0, 0], "no pair": [0, 0]}  # how often the paper's hypothesis holds, and fails to predict
    for first, second in itertools.permutations(range(1, 16), 2):
        full = (agreement(outputs_f, after(first, second)) == 16).reshape(24, 2, 24, 2)
        shares = {Fraction(int(full[:, i, :, j].sum()), 576) for i in range(2) for j in range(2)}
        seen[len(span_f & {first, second, first ^ second})] |= shares
        equal = len({1, 2} & {first, second})
        if equal < 2:
            case, predicted = (("no pair", Fraction(0)), ("one pair", Fraction(1, 9)))[equal]
            literal[case][0] += 1
            literal[case][1] += shares != {predicted}
    expected = {size: {p} for size, p in zip((3, 1, 0), probabilities, strict=True)}
    wrong = {case: f"{bad} of {total}" for case, (total, bad) in literal.items()}
    return Outcome(
        seen == expected,
        {"same": max(seen[3]), "one": max(seen[1]), "none": max(seen[0]), "paper_wrong": wrong},
        f"{ratio(max(seen[3]))}, {ratio(max(seen[1]))}, {ratio(max(seen[0]))}; the paper's cases 2 and 3 are wrong "
        f"for {wrong['one pair']} and {wrong['no pair']} g",
        list(probabilities),
    )
