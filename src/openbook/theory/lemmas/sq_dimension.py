"""The SQ dimension: how many pairwise uncorrelated tasks there are, and what a gradient can tell of them.

For two characters they are counted. For n = 2^b characters there are the paper's embedding and an explicit family of
n^d tasks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from openbook.base.randomness import generator
from openbook.task.phrasebook import Table, sample_tables
from openbook.theory.lemmas.check import Outcome, section
from openbook.theory.lemmas.enumeration import (
    Bits,
    all_codebooks,
    all_strings,
    largest_agreement,
    not_bijective,
    numbers,
    translate_all,
)
from openbook.theory.lemmas.parities import DEPTH, exact_decay, paper_bound, parities
from openbook.theory.surrogate.dense import backward, forward
from openbook.theory.surrogate.factored import weight_gradient
from openbook.theory.surrogate.model import matricize, softmax

check = section("Hard without context")


@check("distinct-parities", "exact counting", "lem:sqn2")
def distinct_parities(*, seed: int, counts: tuple[int, ...] = (3, 12, 39, 132, 441, 1494)) -> Outcome:
    """MLT(d, 2) at L = 2d contains 3, 12, 39, 132, 441, 1494, ... pairwise uncorrelated functions: 2^Ω(d).

    The parities reached are counted; at d = 2 and 3 one task for each is translated, and all correlations over all
    inputs are 0.

    Remark: A direct lower bound of the SQ dimension, in place of the existence argument; it grows about 3.4-fold a
    level.
    """
    counted = [number for _, number in exact_decay(DEPTH)]
    holds = tuple(counted[: len(counts)]) == counts and all(n >= 2**d for d, n in enumerate(counted, 1))
    for depth in (2, 3):
        tables = all_codebooks(depth)
        masks, first = np.unique(parities(tables, 2 * depth)[:, depth, 0], return_index=True)
        functions = translate_all(tables[first], all_strings(2 * depth))[:, :, -1, 0]
        holds &= len(masks) == counted[depth - 1] and largest_agreement(functions) == 0
    growth, shown = counted[-1] / counted[-2], ", ".join(map(str, counted[:6]))
    measured = f"{shown}, ... {counted[-1]:,} at d={DEPTH} (x{growth:.2f} a level); correlation 0"
    return Outcome(holds, counted, measured, list(counts))


@check("local-lemma", "algebra", "cor:local")
def local_lemma(*, seed: int, p: Callable[[int], Fraction] = paper_bound) -> Outcome:
    """The local lemma gives k = sqrt(1/(ep) - 1) = 2^Ω(d) pairwise uncorrelated tasks, p = (1/3)(7/9)^(d-1).

    k follows from the bound for d up to 60. It must not exceed the exact count of parities where there is one, and must
    grow by about √(9/7) per level.

    Remark: The paper sets p to the probability of being uncorrelated, for which e·p·(k²+1) < 1 has no solution; p is
    the probability of correlation. There are k(k-1)/2 events, not k(k+1)/2. It is far from tight: nothing below d = 8.
    """
    promised = {depth: math.sqrt(max(0.0, 1 / (math.e * float(p(depth))) - 1)) for depth in range(1, 61)}
    counted = [number for _, number in exact_decay(DEPTH)]
    consistent = all(promised[d] <= counted[d - 1] for d in range(1, DEPTH + 1))
    grows = promised[60] > 1.1 * promised[59]
    first = next((d for d, k in promised.items() if k >= 2), None)
    return Outcome(
        consistent and grows,
        {"first_depth_with_two": first, "k": {d: promised[d] for d in (8, 11, 20, 40, 60)}},
        f"two tasks from d={first} on, k={promised[20]:.0f} at d=20, {promised[60]:.0f} at d=60; "
        f"counted at d={DEPTH}: {counted[-1]:,}",
        "2^Ω(d)",
    )


def embedded_tables(tables: Table, bits: int) -> Table:
    """The paper's phrasebooks over n = 2^bits characters, one for each task ν of MLT(·, 2) on strings of `bits` bits.

    π(a, b) = (numeric ν(bit a ⊕ bit b), numeric ν(bit b)).
    """
    image = numbers(translate_all(tables, all_strings(bits))[:, :, -1])  # ν as a table
    a, b = np.divmod(np.arange(4**bits), 2**bits)
    return (image[:, a ^ b] * 2**bits + image[:, b]).astype(np.uint16)


def feistel_tables(bits: int) -> Table:
    """π_r(a, b) = (b ⊕ r·a, a) for every r in {0,1}^bits, where r·a is the bit ⟨r, a⟩ added to the first bit of b."""
    a, b = np.divmod(np.arange(4**bits), 2**bits)
    inner = np.bitwise_count(a & np.arange(2**bits)[:, None]) & 1  # [r, (a, b)]
    return ((b ^ inner.astype(np.int64) << (bits - 1)) * 2**bits + a).astype(np.uint16)


def first_bits(tables: Table, strings: NDArray[np.uint8], bits: int) -> Bits:
    """The first bit of the first output character of every task on every string: [tasks, strings]."""
    return translate_all(tables, strings, 2**bits)[:, :, -1, 0] >> np.uint8(bits - 1)


def _uncorrelated(functions: Bits) -> int:
    """How many of the functions are pairwise different up to complement (for affine ones: pairwise uncorrelated)."""
    return len(np.unique(functions ^ functions[:, :1], axis=0))


@check("sq-embedding", "exhaustive", "lem:sqn")
def sq_embedding(*, seed: int, per_character: int = 1) -> Outcome:
    """n → log₂n: phrasebooks built from MLT(·, 2) on the bits of characters are bijections; n-1 tasks uncorrelated.

    At n = 4, every ν of MLT(2, 2) is embedded. The uncorrelated tasks of depth 1, 2 and 3, made of one ν for each
    linear part, are counted over all inputs.

    Remark: The paper concludes n^Ω(d). But both outputs pass through the same ν, so d levels are ν_d∘...∘ν_1 after one
    fixed map: at most n-1 parities at any depth (3 at n=4, counted). It also needs an even log₂n, and Lemma sqn2 needs
    strings of 2d bits where the embedding has d. The theorem is true: see 'sq-explicit'.
    """
    books = embedded_tables(all_codebooks(2), 2)
    wide = embedded_tables(sample_tables(4, 2, seed, 0, 200), 4)
    broken = not_bijective(books) + not_bijective(wide)
    distinct = np.unique(books, axis=0)
    linear = distinct[distinct[:, 0] == 0]  # ν(0) = 0: adding a constant only complements outputs
    depths = (1, 2, 3)
    counts = [_uncorrelated(first_bits(all_codebooks(d, linear), all_strings(2 * d, 4), 2)) for d in depths]
    expected = [per_character * 3] * 3
    value = {"bijections_broken": broken, "uncorrelated_by_depth": counts}
    measured = f"{broken} of {len(books) + len(wide)} not bijective; {counts} uncorrelated tasks at n=4, d=1..3"
    return Outcome(broken == 0 and counts == expected, value, measured, expected)


@check("sq-explicit", "exhaustive", "thm:theory-sqdim")
def sq_explicit(*, seed: int, exponent: int = 1) -> Outcome:
    """MLT(d, n) with n = 2^b contains n^d pairwise uncorrelated tasks at L = 2d: SQ dimension at least n^d.

    The whole correlation matrix of all n^d tasks on all n^(2d) inputs is computed for (n, d) = (2, 1..5), (4, 1..3),
    (8, 1..2).

    Remark: Our proof of the theorem, in place of the local lemma and the embedding: with π_r(a,b) = (b ⊕ ⟨r,a⟩e₁, a)
    the first output bit is z^d·u ⊕ Σ_l z^(d-l)⟨r_l, v⟩, a different parity for each of the n^d choices of r_1..r_d.
    """
    tasks, largest, holds = {}, 0, True
    for bits, deepest in ((1, 5), (2, 3), (3, 2)):
        n, phrasebooks = 2**bits, feistel_tables(bits)
        holds &= not_bijective(phrasebooks) == 0
        for depth in range(1, deepest + 1):
            functions = first_bits(all_codebooks(depth, phrasebooks), all_strings(2 * depth, n), bits)
            largest = max(largest, largest_agreement(functions))
            tasks[f"{n},{depth}"] = _uncorrelated(functions)
            holds &= tasks[f"{n},{depth}"] >= n ** (exponent * depth)
    measured = (
        f"{tasks['2,5']} tasks at (d,n)=(5,2), {tasks['4,3']} at (3,4), {tasks['8,2']} at (2,8); largest correlation "
        f"{largest}"
    )
    return Outcome(holds and largest == 0, {"tasks": tasks, "largest_correlation": largest}, measured, "n^d")


@check("sgd-signal", "exhaustive", "cor:sgd")
def sgd_signal(*, seed: int, constant: float = 1.0) -> Outcome:
    """What a gradient says about which of μ uncorrelated tasks it is: its variance over tasks is at most E‖∇h‖²/μ.

    For μ = 2^d tasks and all 4^d inputs, d = 1..5, the variance of E[χ ∇h] over tasks χ is computed as a share of
    E‖∇h‖²/μ.

    Remark: The corollary itself is asymptotic and quoted without proof; this is the inequality it rests on (Bessel),
    with the n^d tasks of 'sq-explicit' and the soft surrogate as the model h.
    """
    shares, signals = [], []
    for depth in range(1, 6):
        strings = all_strings(2 * depth)
        tasks = feistel_tables(1)[all_strings(depth)[:, ::-1]]  # all of them; the order is that of recorded numbers
        signs = 1 - 2.0 * first_bits(tasks, strings, 1)  # [task, string]
        draw = generator(seed, "theory signal", depth)
        translations = [softmax(draw.uniform(0, 0.1, (4, 4))) for _ in range(depth)]
        predicted, tape = forward(translations, matricize(strings, 2))
        first = np.zeros_like(predicted)
        first[:, 2:, 0] = 1  # h is the probability that the first output character is 1
        layers = zip(translations, backward(translations, tape, first, range(depth)), strict=True)
        gradient = np.hstack([weight_gradient(P_xk, G_txk).reshape(len(strings), -1) for P_xk, G_txk in layers])
        energy = float((gradient**2).sum(axis=1).mean())
        signal = signs @ gradient / len(strings)  # E[χ ∇h], for each task
        variance = float(((signal - signal.mean(axis=0)) ** 2).sum(axis=1).mean())
        shares.append(variance * 2**depth / energy)
        signals.append(variance / energy)
    measured = (
        f"variance/E‖∇h‖² {', '.join(f'{s:.1e}' for s in signals)} at d=1..5, at most {max(shares):.2f} of the bound"
    )
    return Outcome(max(shares) <= constant, {"share_of_bound": shares, "variance": signals}, measured, constant)
