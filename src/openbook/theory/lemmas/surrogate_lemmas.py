"""The surrogate says what the oracle says: shift and translation, the re-parameterised form, both capabilities, Q."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from openbook.base.randomness import generator
from openbook.task import Codebook, random_inputs
from openbook.task.translate import output, translate
from openbook.theory.lemmas.bits import all_strings
from openbook.theory.lemmas.check import Outcome, check
from openbook.theory.lemmas.dense import Matrix, hardmax, matricize, read, shift, shift_matrix, surrogate


def _matrices(codebook: Codebook) -> list[Matrix]:
    return list(codebook.matrices().astype(np.float64))


def _sizes(seed: int) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    """Alphabets and strings: all short ones of two and three characters, random ones of ten, the shortest included."""
    for chars, length in ((2, 2), (2, 6), (3, 2), (3, 4)):
        yield chars, all_strings(length, chars)
    for length in (2, 4, 20):
        yield 10, random_inputs(10, 40, (length, length), seed, stream="theory surrogate")[0]


def _cases(seed: int) -> Iterator[tuple[Codebook, list[list[int]], list[list[int]]]]:
    """Codebooks of several sizes with strings and, from the oracle, their translations."""
    for chars, strings in _sizes(seed):
        for depth in (1, 2, 5):
            codebook = Codebook.sample(depth, chars, seed, depth)
            rows = strings[:64].tolist()
            yield codebook, rows, [output(translate(codebook, row)) for row in rows]


@check(
    "shift-equivalence",
    "Matricize(shifted s) = Shift(Matricize(s)).",
    "exhaustive",
    "lemma:shift-equiv",
    "Column j+1 is counted modulo L/2 (the number of columns), not L; the proof fixes j in [n/2], it is [L/2].",
)
def shift_equivalence(*, seed: int, by: int = 1) -> Outcome:
    """All strings at n=2, L=2 and 6 and n=3, L=2 and 4, random ones at n=10, dense Q."""
    unequal = strings_seen = 0
    for chars, strings in _sizes(seed):
        Q_xx = shift_matrix(chars)
        for string in strings.tolist():
            shifted = string[by:] + string[:by]
            unequal += not np.array_equal(matricize(shifted, chars), shift(matricize(string, chars), Q_xx))
            strings_seen += 1
    return Outcome(unequal == 0, unequal, f"{unequal} of {strings_seen} strings differ", 0)


@check(
    "translate-equivalence",
    "Matrix(π_i) Shift(Matricize(s_i)) = Matricize(s_{i+1}) at every level.",
    "exhaustive",
    "lemma:translate-equiv",
    "The proof prints e_c ⊗ e_c; it is e_c ⊗ e_d. Index a·n+b needs characters counted from 0, so a bigram is read "
    "off as (floor(x/n), x%n), not (ceil(x/n), x%n).",
)
def translate_equivalence(*, seed: int, transpose: bool = False) -> Outcome:
    """Every level of the oracle against the dense formula; `transpose` puts left sides in rows, which must fail."""
    unequal = levels_seen = 0
    for codebook, strings, _ in _cases(seed):
        Q_xx = shift_matrix(codebook.chars)
        for string in strings:
            for P_xx, level in zip(_matrices(codebook), translate(codebook, string), strict=True):
                moved = (P_xx.T if transpose else P_xx) @ shift(matricize(level.string, codebook.chars), Q_xx)
                unequal += read(moved, codebook.chars) != [char for image in level.images for char in image]
                levels_seen += 1
    return Outcome(unequal == 0, unequal, f"{unequal} of {levels_seen} levels differ", 0)


@check(
    "context-augmented",
    "The form with contexts in the input, [C_1..C_d, V_i] -> [C_1..C_d, V_{i+1}], computes the same.",
    "exhaustive",
    "defn:apdx-surrogate-surrogateModel-context-augmented",
    "HardMax is missing around X_i(e_i⊗I)+W_i; without it the form differs as soon as W is not zero. V counts L/2 "
    "columns, and the last factor is the L/2 × (dn²+L/2) matrix [0 I].",
)
def context_augmented(*, seed: int, hard: bool = True) -> Outcome:
    """The block matrices of the definition, random weights below 1/2, against the oracle."""
    unequal = strings_seen = 0
    for codebook, strings, outputs in _cases(seed):
        n, d, size = codebook.chars, codebook.depth, codebook.chars**2
        if n > 3:
            continue  # dense blocks of side d·n² + L/2 are for small alphabets
        Q_xx, books = shift_matrix(n), _matrices(codebook)
        draw = generator(seed, "theory augmented", d)
        weights = [draw.uniform(-0.49, 0.49, (size, size)) for _ in range(d)]
        for string, expected in zip(strings, outputs, strict=True):
            columns = len(string) // 2
            X = np.hstack([*books, matricize(string, n)])
            keep = np.diag(np.r_[np.ones(d * size), np.zeros(columns)])
            take = np.vstack([np.zeros((d * size, columns)), np.eye(columns)])
            for i in range(d):
                pick = np.zeros((d * size + columns, size))
                pick[i * size : (i + 1) * size] = np.eye(size)  # e_i ⊗ I over zeros
                mixed = X @ pick + weights[i]
                X = X @ keep + (hardmax(mixed) if hard else mixed) @ shift(X @ take, Q_xx) @ take.T
            same = np.array_equal(X[:, : d * size], np.hstack(books)) and np.array_equal(
                X[:, d * size :], matricize(expected, n)
            )
            unequal += not same
            strings_seen += 1
    return Outcome(unequal == 0, unequal, f"{unequal} of {strings_seen} strings differ", 0)


@check(
    "icl-capability",
    "With every |W_i| < 1/2 the surrogate given Matrix(π_1..π_d) as context translates any string.",
    "algebra",
    "lemma:surrogateICLCapable-apdx",
    "‖W‖_0 means the largest absolute entry. The gradient-descent theorem allows = 1/2, where 1 - 1/2 ties with "
    "0 + 1/2 and the lemma it rests on fails; below 1/2 it must be.",
)
def icl_capability(*, seed: int, norm: float = 0.5) -> Outcome:
    """The worst W of a given size lowers the right entry and raises all others: tried just below 1/2 and at it."""
    wrong_below = wrong_at = strings_seen = 0
    for codebook, strings, outputs in _cases(seed):
        Q_xx, books = shift_matrix(codebook.chars), _matrices(codebook)
        for size in (np.nextafter(norm, 0), norm):
            worst = [size * (1 - 2 * P_xx) for P_xx in books]
            wrong = 0
            for string, expected in zip(strings, outputs, strict=True):
                V_xj = surrogate(books, worst, matricize(string, codebook.chars), Q_xx)
                wrong += read(V_xj, codebook.chars) != expected
            if size < norm:
                wrong_below, strings_seen = wrong_below + wrong, strings_seen + len(strings)
            else:
                wrong_at += wrong
    return Outcome(
        wrong_below == 0 and wrong_at > 0,
        {"wrong_below": wrong_below, "wrong_at": wrong_at, "strings": strings_seen},
        f"wrong on {wrong_below} of {strings_seen} strings below {norm}, on {wrong_at} at {norm}",
        norm,
    )


@check(
    "task-capability",
    "With HardMax(W_i) = Matrix(π*_i) the surrogate without context translates any string.",
    "exhaustive",
    "lemma:surrogateCapable-apdx",
)
def task_capability(*, seed: int, wrong_columns: int = 0) -> Outcome:
    """Random weights whose largest entries are the codebook's; `wrong_columns` spoils that many, which must fail."""
    wrong = strings_seen = 0
    for codebook, strings, outputs in _cases(seed):
        Q_xx = shift_matrix(codebook.chars)
        draw = generator(seed, "theory capability", codebook.depth)
        weights = [draw.uniform(-1, 1, P_xx.shape) + 3 * P_xx for P_xx in _matrices(codebook)]
        weights[0][:, :wrong_columns] *= -1
        empty = [np.zeros_like(W_xx) for W_xx in weights]
        for string, expected in zip(strings, outputs, strict=True):
            V_xj = surrogate(empty, weights, matricize(string, codebook.chars), Q_xx)
            wrong += read(V_xj, codebook.chars) != expected
            strings_seen += 1
    return Outcome(wrong == 0, wrong, f"wrong on {wrong} of {strings_seen} strings", 0)


@check(
    "q-vectors",
    "Q(e_a ⊗ e_b) = e_b ⊗ 1 and Qᵀ(e_a ⊗ e_b) = 1 ⊗ e_a.",
    "algebra",
    "lemma:apdx-surrogate-gd-aux-QvQTv",
)
def q_vectors(*, seed: int, swapped: bool = False) -> Outcome:
    """All (a, b) for n = 2..8, integers, exactly; `swapped` exchanges a and b on the right, which must fail."""
    unequal = seen = 0
    for n in range(2, 9):
        Q_xx, e, ones = shift_matrix(n), np.eye(n), np.ones(n)
        for a in range(n):
            for b in range(n):
                v = np.kron(e[a], e[b])
                first, second = (a, b) if swapped else (b, a)
                unequal += not np.array_equal(Q_xx @ v, np.kron(e[first], ones))
                unequal += not np.array_equal(Q_xx.T @ v, np.kron(ones, e[second]))
                seen += 2
    return Outcome(unequal == 0, unequal, f"{unequal} of {seen} identities broken", 0)


@check(
    "q-identities",
    "Qᵀ diag(Qᵀv)² Q = (11ᵀ) ⊗ I and Q diag(Qv)² Qᵀ = I ⊗ (11ᵀ) for every one-hot v.",
    "algebra",
    "lemma:apdx-surrogate-gd-aux1, lemma:apdx-surrogate-gd-aux2",
    "In the gradient's derivation W_2*ᵀ W_2* is the identity of size n², printed as size n.",
)
def q_identities(*, seed: int, swapped: bool = False) -> Outcome:
    """All v for n = 2..7, integers, exactly; `swapped` exchanges the two right sides, which must fail."""
    unequal = seen = 0
    for n in range(2, 8):
        Q_xx, ones = shift_matrix(n), np.ones((n, n))
        right = (np.kron(ones, np.eye(n)), np.kron(np.eye(n), ones))
        first, second = right[::-1] if swapped else right
        for v in np.eye(n * n):
            squared_t, squared = np.diag(Q_xx.T @ v) ** 2, np.diag(Q_xx @ v) ** 2
            unequal += not np.array_equal(Q_xx.T @ squared_t @ Q_xx, first)
            unequal += not np.array_equal(Q_xx @ squared @ Q_xx.T, second)
            seen += 2
    return Outcome(unequal == 0, unequal, f"{unequal} of {seen} identities broken", 0)
