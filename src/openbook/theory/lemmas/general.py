"""The SQ dimension for n = 2^b characters: the paper's embedding, and an explicit family of n^d tasks."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from openbook.task.phrasebook import Table, sample_tables
from openbook.task.translate import translate_batch
from openbook.theory.lemmas.bits import agreement, all_codebooks, all_strings
from openbook.theory.lemmas.check import Outcome, check


def embedded_tables(tables: Table, bits: int) -> Table:
    """The paper's phrasebooks over n = 2^bits characters, one for each task ν of MLT(·, 2) on strings of `bits` bits.

    π(a, b) = (numeric ν(bit a ⊕ bit b), numeric ν(bit b)).
    """
    strings = all_strings(bits)
    outputs = translate_batch(
        np.repeat(tables, len(strings), axis=0), np.tile(strings, (len(tables), 1)), chars=2
    ).outputs
    image = (outputs.astype(np.int64) @ (1 << np.arange(bits - 1, -1, -1))).reshape(len(tables), -1)  # ν as a table
    n = 1 << bits
    a, b = np.divmod(np.arange(n * n), n)
    return (image[:, a ^ b] * n + image[:, b]).astype(np.uint16)


def feistel_tables(bits: int) -> Table:
    """π_r(a, b) = (b ⊕ r·a, a) for every r in {0,1}^bits, where r·a is the bit ⟨r, a⟩ added to the first bit of b."""
    n = 1 << bits
    a, b = np.divmod(np.arange(n * n), n)
    tables = []
    for r in range(n):
        inner = np.array([int(word).bit_count() & 1 for word in a & r])
        tables.append((b ^ inner << (bits - 1)) * n + a)
    return np.array(tables, dtype=np.uint16)


def first_bits(tables: Table, strings: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """The first bit of the first output character of every task on every string: [tasks, strings]."""
    rows = []
    for chunk in np.array_split(tables, max(1, len(tables) * len(strings) // 500_000)):
        repeated = np.repeat(chunk, len(strings), axis=0)
        outputs = translate_batch(repeated, np.tile(strings, (len(chunk), 1)), chars=1 << bits).outputs
        rows.append((outputs[:, 0] >> (bits - 1)).reshape(len(chunk), -1))
    return np.concatenate(rows)


def _uncorrelated(signatures: NDArray[np.uint8]) -> int:
    """How many of the functions are pairwise different up to complement (for affine ones: pairwise uncorrelated)."""
    return len(np.unique(signatures ^ signatures[:, :1], axis=0))


@check(
    "sq-embedding",
    "n → log₂n: phrasebooks built from MLT(·, 2) on the bits of characters are bijections; n-1 tasks uncorrelated.",
    "exhaustive",
    "lem:sqn",
    "The paper concludes n^Ω(d). But both outputs pass through the same ν, so d levels are ν_d∘...∘ν_1 after one fixed "
    "map: at most n-1 parities at any depth (3 at n=4, counted). It also needs an even log₂n, and Lemma sqn2 needs "
    "strings of 2d bits where the embedding has d. The theorem is true: see 'sq-explicit'.",
)
def sq_embedding(*, seed: int, per_character: int = 1) -> Outcome:
    """n = 4: every ν of MLT(2, 2); codebooks of depth 1, 2 and 3 from one ν for each linear part, all inputs."""
    books = embedded_tables(all_codebooks(2), 2)
    wide = embedded_tables(sample_tables(4, 2, seed, 0, 200), 4)
    broken = sum(int((np.sort(t, axis=1) != np.arange(t.shape[1])).any(axis=1).sum()) for t in (books, wide))
    distinct = np.unique(books, axis=0)
    linear = distinct[distinct[:, 0] == 0]  # ν(0) = 0: adding a constant only complements outputs
    counts = []
    for depth in (1, 2, 3):
        choice = np.array(list(itertools.product(range(len(linear)), repeat=depth)))
        counts.append(_uncorrelated(first_bits(linear[choice], all_strings(2 * depth, 4), 2)))
    expected = [per_character * 3] * 3
    return Outcome(
        broken == 0 and counts == expected,
        {"bijections_broken": broken, "uncorrelated_by_depth": counts},
        f"{broken} of {len(books) + len(wide)} not bijective; {counts} uncorrelated tasks at n=4, d=1..3",
        expected,
    )


@check(
    "sq-explicit",
    "MLT(d, n) with n = 2^b contains n^d pairwise uncorrelated tasks at L = 2d: SQ dimension at least n^d.",
    "exhaustive",
    "thm:theory-sqdim",
    "Our proof of the theorem, in place of the local lemma and the embedding: with π_r(a,b) = (b ⊕ ⟨r,a⟩e₁, a) the "
    "first output bit is z^d·u ⊕ Σ_l z^(d-l)⟨r_l, v⟩, a different parity for each of the n^d choices of r_1..r_d.",
)
def sq_explicit(*, seed: int, exponent: int = 1) -> Outcome:
    """All n^d tasks, all n^(2d) inputs, (n, d) = (2, 1..5), (4, 1..3), (8, 1..2): the whole correlation matrix."""
    found, largest, broken = {}, 0, 0
    for bits, deepest in ((1, 5), (2, 3), (3, 2)):
        n = 1 << bits
        books = feistel_tables(bits)
        broken += int((np.sort(books, axis=1) != np.arange(n * n)).any(axis=1).sum())
        for depth in range(1, deepest + 1):
            choice = np.array(list(itertools.product(range(n), repeat=depth)))
            signatures = first_bits(books[choice], all_strings(2 * depth, n), bits)
            table = agreement(signatures, signatures)
            np.fill_diagonal(table, 0)
            largest = max(largest, int(table.max()))
            found[n, depth] = _uncorrelated(signatures)
    holds = broken == 0 and largest == 0 and all(count >= n ** (exponent * d) for (n, d), count in found.items())
    shown = {f"{n},{d}": count for (n, d), count in found.items()}
    return Outcome(
        holds,
        {"tasks": shown, "largest_correlation": largest},
        f"{found[2, 5]} tasks at (d,n)=(5,2), {found[4, 3]} at (3,4), {found[8, 2]} at (2,8); largest correlation "
        f"{largest}",
        "n^d",
    )
