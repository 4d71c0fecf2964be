"""The surrogate computes what the oracle computes: shift and translation, contexts in the input, both capabilities, Q.

Shapes: b string, i level, x bigram as an image (row), k bigram as a left side (column), j column of a sequence.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from openbook.base.randomness import generator
from openbook.task import Codebook, random_inputs
from openbook.task.translate import Chars, output, translate
from openbook.theory.lemmas.check import Outcome, count_unequal, equation, section
from openbook.theory.lemmas.enumeration import all_strings
from openbook.theory.surrogate.model import Floats, Surrogate, augment, context, matricize, shift, shift_matrix

check = section("The surrogate")


def _strings(seed: int) -> Iterator[tuple[Chars, int]]:
    """All short strings of two and three characters, random ones of ten, the shortest included."""
    for chars, length in ((2, 2), (2, 6), (3, 2), (3, 4)):
        yield all_strings(length, chars), chars
    for length in (2, 4, 20):
        yield random_inputs(10, 40, (length, length), seed, stream="theory surrogate")[0], 10


def _translations(seed: int, most_chars: int = 10) -> Iterator[tuple[Floats, Floats]]:
    """Codebooks of several sizes with strings of every level from the oracle, as Matrix(π_i) and one-hot columns.

    P_ixk, and V_bixj with the input at i = 0 and the output at i = d.
    """
    for strings, chars in _strings(seed):
        for depth in (1, 2, 5) if chars <= most_chars else ():
            codebook = Codebook.sample(depth, chars, seed, depth)
            runs = [translate(codebook, string) for string in strings[:64].tolist()]
            levels = np.array([[*(level.string for level in run), output(run)] for run in runs])
            yield context(codebook), matricize(levels, chars)


def _expected(P_ixk: Floats, V_bixj: Floats) -> Floats:
    """The oracle's output."""
    return V_bixj[:, -1]


@check("shift-equivalence", "exhaustive", "lemma:shift-equiv")
def shift_equivalence(*, seed: int, by: int = 1) -> Outcome:
    """Matricize(shifted s) = Shift(Matricize(s)).

    Both sides are computed for all strings at n=2, L=2 and 6, at n=3, L=2 and 4, and for random ones at n=10, with the
    dense Q.

    Remark: Column j+1 is counted modulo L/2 (the number of columns), not L; the proof fixes j in [n/2], it is [L/2].
    """
    return equation(
        _strings(seed),
        lambda strings, chars: matricize(np.roll(strings, -by, axis=1), chars),
        lambda strings, chars: shift(matricize(strings, chars)),
        "{} of {} strings differ",
    )


@check("translate-equivalence", "exhaustive", "lemma:translate-equiv")
def translate_equivalence(*, seed: int, transpose: bool = False) -> Outcome:
    """Matrix(π_i) Shift(Matricize(s_i)) = Matricize(s_{i+1}) at every level.

    Every level of the oracle is compared with the dense formula. `transpose` puts left sides in rows, which must fail.

    Remark: The proof prints e_c ⊗ e_c; it is e_c ⊗ e_d. Index a·n+b needs characters counted from 0, so a bigram is
    read off as (floor(x/n), x%n), not (ceil(x/n), x%n).
    """

    return equation(
        _translations(seed),
        lambda P_ixk, V_bixj: (P_ixk.mT if transpose else P_ixk) @ shift(V_bixj[:, :-1]),
        lambda P_ixk, V_bixj: V_bixj[:, 1:],
        "{} of {} levels differ",
    )


@check("context-augmented", "exhaustive", "defn:apdx-surrogate-surrogateModel-context-augmented")
def context_augmented(*, seed: int, hard: bool = True) -> Outcome:
    """The form with contexts in the input, [C_1..C_d, V_i] -> [C_1..C_d, V_{i+1}], computes the same.

    The block matrices of the definition are multiplied, with random weights below 1/2, and the result is compared with
    the oracle's.

    Remark: HardMax is missing around X_i(e_i⊗I)+W_i; without it the form differs as soon as W is not zero. V counts L/2
    columns, and the last factor is the L/2 × (dn²+L/2) matrix [0 I].
    """

    def augmented(P_ixk: Floats, V_bixj: Floats) -> Floats:
        W_ixk = generator(seed, "theory augmented", len(P_ixk)).uniform(-0.49, 0.49, P_ixk.shape)
        return Surrogate(W_ixk).augmented(augment(P_ixk, V_bixj[:, 0]), hard)

    small = _translations(seed, most_chars=3)  # dense blocks of side d·n² + L/2
    return equation(small, augmented, lambda P_ixk, V_bixj: augment(P_ixk, V_bixj[:, -1]), "{} of {} strings differ")


@check("icl-capability", "algebra", "lemma:surrogateICLCapable-apdx")
def icl_capability(*, seed: int, norm: float = 0.5) -> Outcome:
    """With every |W_i| < 1/2 the surrogate given Matrix(π_1..π_d) as context translates any string.

    The worst W of a given size lowers the right entry and raises all others. It is tried just below 1/2, where every
    string must be right, and at 1/2, where some must be wrong.

    Remark: ‖W‖_0 means the largest absolute entry. The gradient-descent theorem allows = 1/2, where 1 - 1/2 ties with
    0 + 1/2 and the lemma it rests on fails; below 1/2 it must be.
    """

    def wrong(size: float) -> tuple[int, int]:
        def with_worst_weights(P_ixk: Floats, V_bixj: Floats) -> Floats:
            return Surrogate(size * (1 - 2 * P_ixk))(P_ixk, V_bixj[:, 0])

        return count_unequal(_translations(seed), with_worst_weights, _expected, axes=2)

    (below, strings), (at, _) = wrong(float(np.nextafter(norm, 0))), wrong(norm)
    measured = f"wrong on {below} of {strings} strings below {norm}, on {at} at {norm}"
    return Outcome(below == 0 and at > 0, {"wrong_below": below, "wrong_at": at, "strings": strings}, measured, norm)


@check("task-capability", "exhaustive", "lemma:surrogateCapable-apdx")
def task_capability(*, seed: int, wrong_columns: int = 0) -> Outcome:
    """With HardMax(W_i) = Matrix(π*_i) the surrogate without context translates any string.

    The weights are random, except that their largest entries are the codebook's. `wrong_columns` of them are spoilt,
    which must fail.
    """

    def without_context(P_ixk: Floats, V_bixj: Floats) -> Floats:
        W_ixk = generator(seed, "theory capability", len(P_ixk)).uniform(-1, 1, P_ixk.shape) + 3 * P_ixk
        W_ixk[0, :, :wrong_columns] *= -1
        return Surrogate(W_ixk)(np.zeros_like(W_ixk), V_bixj[:, 0])

    return equation(_translations(seed), without_context, _expected, "wrong on {} of {} strings")


@check("q-vectors", "algebra", "lemma:apdx-surrogate-gd-aux-QvQTv")
def q_vectors(*, seed: int, swapped: bool = False) -> Outcome:
    """Q(e_a ⊗ e_b) = e_b ⊗ 1 and Qᵀ(e_a ⊗ e_b) = 1 ⊗ e_a.

    All (a, b) for n = 2..8 are compared in whole numbers, exactly. `swapped` exchanges a and b on the right, which must
    fail.
    """

    def products(n: int, a: int, b: int) -> list[Floats]:
        v = np.kron(np.eye(n)[a], np.eye(n)[b])
        return [shift_matrix(n) @ v, shift_matrix(n).T @ v]

    def closed_forms(n: int, a: int, b: int) -> list[Floats]:
        first, second = (a, b) if swapped else (b, a)
        return [np.kron(np.eye(n)[first], np.ones(n)), np.kron(np.ones(n), np.eye(n)[second])]

    cases = ((n, a, b) for n in range(2, 9) for a, b in itertools.product(range(n), repeat=2))
    return equation(cases, products, closed_forms, "{} of {} identities broken", axes=1)


@check("q-identities", "algebra", "lemma:apdx-surrogate-gd-aux1, lemma:apdx-surrogate-gd-aux2")
def q_identities(*, seed: int, swapped: bool = False) -> Outcome:
    """Qᵀ diag(Qᵀv)² Q = (11ᵀ) ⊗ I and Q diag(Qv)² Qᵀ = I ⊗ (11ᵀ) for every one-hot v.

    All v for n = 2..7 are compared in whole numbers, exactly. `swapped` exchanges the two right sides, which must fail.

    Remark: In the gradient's derivation W_2*ᵀ W_2* is the identity of size n², printed as size n.
    """

    def products(n: int, v: Floats) -> list[Floats]:
        Q_xk = shift_matrix(n)
        return [Q_xk.T @ np.diag(Q_xk.T @ v) ** 2 @ Q_xk, Q_xk @ np.diag(Q_xk @ v) ** 2 @ Q_xk.T]

    def closed_forms(n: int, v: Floats) -> list[Floats]:
        right = [np.kron(np.ones((n, n)), np.eye(n)), np.kron(np.eye(n), np.ones((n, n)))]
        return right[::-1] if swapped else right

    cases = ((n, v) for n in range(2, 8) for v in np.eye(n * n))
    return equation(cases, products, closed_forms, "{} of {} identities broken")
