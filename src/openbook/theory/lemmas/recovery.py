"""Recovering a codebook with context: uniqueness of a column, search, and the depth-2 surrogate gradient.

Letters as in the paper: k is the column held out, (a, b) the bigram it holds, (a*, b*) the bigram it should hold,
α counts the runs of bigram k among the looked-up bigrams and β the neighbours inside runs.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from openbook.base.randomness import generator
from openbook.task import Codebook, coverable_inputs, translate_batch
from openbook.theory.lemmas.check import Outcome, check
from openbook.theory.lemmas.dense import (
    Matrix,
    hardmax,
    matricize,
    shift,
    shift_matrix,
    squared_loss_gradient,
    surrogate,
    without_column,
)


@dataclass(frozen=True)
class Problem:
    """A codebook, an input that covers it, and the label, as dense matrices."""

    chars: int
    books: list[Matrix]
    V_xj: Matrix
    target_xj: Matrix
    Q_xx: Matrix

    @property
    def size(self) -> int:
        return self.chars**2

    def output(self, books: list[Matrix]) -> Matrix:
        return surrogate(books, [np.zeros_like(P_xx) for P_xx in books], self.V_xj, self.Q_xx)


def problem(depth: int, chars: int, seed: int, index: int = 0, string: list[int] | None = None) -> Problem:
    """A random codebook with a coverable input, or with the string given."""
    codebook = Codebook.sample(depth, chars, seed, index)
    given = coverable_inputs(codebook, 1, seed=seed + index) if string is None else np.array([string])
    label = translate_batch(codebook, given).outputs[0]
    books = list(codebook.matrices().astype(np.float64))
    return Problem(chars, books, matricize(given[0], chars), matricize(label, chars), shift_matrix(chars))


def _column(size: int, entry: int) -> Matrix:
    return np.eye(size)[:, entry]


@check(
    "level-uniqueness",
    "Given all other levels, the output on a coverable input is right if and only if P_i = W_i*.",
    "exhaustive",
    "lemma:apdx-surrogate-heuristics-PiUniqueness",
)
def level_uniqueness(*, seed: int, solutions: int = 1) -> Outcome:
    """All 256 binary column-stochastic matrices at each level of MLT(3, 2)."""
    given = problem(3, 2, seed)
    counts = []
    for level in range(3):
        right = 0
        for columns in itertools.product(range(4), repeat=4):
            books = [*given.books]
            books[level] = np.eye(4)[:, list(columns)]
            right += np.array_equal(given.output(books), given.target_xj)
        counts.append(right)
    return Outcome(set(counts) == {solutions}, counts, f"{counts} of 256 matrices right, by level", solutions)


@check(
    "column-uniqueness",
    "Given everything but one column, the output on a coverable input is right for one column only.",
    "exhaustive",
    "cor:apdx-surrogate-holdingOutCol",
    "The condition is needed: a rule that the input does not use can be anything (seen on a short input).",
)
def column_uniqueness(*, seed: int, solutions: int = 1) -> Outcome:
    """Every level, column and candidate of MLT(3, 3); then the same on an input of one bigram, where it must fail."""

    def right_columns(given: Problem) -> set[int]:
        counts = set()
        for level, column in itertools.product(range(3), range(9)):
            right = 0
            for entry in range(9):
                books = [P_xx.copy() for P_xx in given.books]
                books[level][:, column] = _column(9, entry)
                right += np.array_equal(given.output(books), given.target_xj)
            counts.add(right)
        return counts

    covered = right_columns(problem(3, 3, seed))
    short = right_columns(problem(3, 3, seed, string=[0, 1]))
    return Outcome(
        covered == {solutions} and max(short) == 9,
        {"covered": sorted(covered), "not_covered": sorted(short)},
        f"{sorted(covered)} candidates right when covered, up to {max(short)} of 9 when not",
        solutions,
    )


@check(
    "search",
    "Context-enhanced search recovers the codebook in at most n⁴d forward passes: d·n²(n²+1)/2 exactly.",
    "exhaustive",
    "thm:apdx-surrogate-search-learning-coverable, cor:apdx-surrogate-search-learning-random",
    "Sharper than O(n⁴d): the candidates are tried in order and a phrasebook is a permutation. With inputs of "
    "O(n² log(nd)) the characters seen are O(n⁶ d log(nd)); the main text drops the log n.",
)
def search(*, seed: int, passes_per_level: float = 0.5) -> Outcome:
    """Algorithm 2 on three codebooks each of MLT(2, 3) and MLT(3, 2), dense, counting forward passes."""
    spent, expected, bounds, recovered = [], [], [], True
    for depth, chars, index in itertools.product((2, 3), (2, 3), range(3)):
        if depth == chars:
            continue
        given = problem(depth, chars, seed, index)
        weights = [np.zeros((given.size, given.size)) for _ in range(depth)]
        passes = 0
        for level, column in itertools.product(range(depth), range(given.size)):
            contexts = [*given.books]
            contexts[level] = without_column(given.books[level], column)
            for entry in range(given.size):
                weights[level][:, column] = _column(given.size, entry)
                passes += 1
                if np.array_equal(surrogate(contexts, weights, given.V_xj, given.Q_xx), given.target_xj):
                    break
        recovered &= all(np.array_equal(W_xx, P_xx) for W_xx, P_xx in zip(weights, given.books, strict=True))
        spent.append(passes)
        expected.append(round(passes_per_level * depth * given.size * (given.size + 1)))
        bounds.append(depth * given.size**2)
    within = all(passes <= bound for passes, bound in zip(spent, bounds, strict=True))
    return Outcome(
        recovered and within and spent == expected,
        {"passes": spent, "bound": bounds, "recovered": recovered},
        f"{spent[0]} passes for MLT(2,3) (n⁴d = {bounds[0]}), {spent[-1]} for MLT(3,2) ({bounds[-1]}), all columns "
        f"{'right' if recovered else 'NOT right'}",
        expected,
    )


def _first_layer_cases(given: Problem) -> Iterator[tuple[Matrix, int, tuple[int, int], tuple[int, int], int, int]]:
    """Every column k and every wrong bigram in it: (P_1, k, (a, b), (a*, b*), α, β)."""
    looked_up = shift(given.V_xj, given.Q_xx).argmax(axis=0)
    for k in range(given.size):
        here = looked_up == k
        beta = int((here & np.roll(here, -1)).sum())
        alpha = int(here.sum()) - beta
        right = int(given.books[0][:, k].argmax())
        for entry in range(given.size):
            if entry != right:
                P_1 = given.books[0].copy()
                P_1[:, k] = _column(given.size, entry)
                yield P_1, k, divmod(entry, given.chars), divmod(right, given.chars), alpha, beta


def closed_form(n: int, held: tuple[int, int], right: tuple[int, int], alpha: int, beta: int) -> Matrix:
    """∂L/∂P_1^(k) of the lemma, in its three cases."""
    (a, b), (a_star, b_star) = held, right
    e, ones = np.eye(n), np.ones(n)
    row, row_star = np.kron(e[a], ones), np.kron(e[a_star], ones)
    column, column_star = np.kron(ones, e[b]), np.kron(ones, e[b_star])
    both = 2 * alpha + 2 * beta
    if a == a_star:
        return both * column - both * column_star + 2 * beta * row_star
    if b == b_star:
        return both * row - both * row_star + 2 * beta * column_star
    return both * row + both * column - 2 * alpha * row_star - 2 * alpha * column_star


@check(
    "gradient-first-layer",
    "∂L/∂P_1^(k) is the lemma's combination of e_a⊗1, 1⊗e_b, e_a*⊗1, 1⊗e_b* with α and β counted from the input.",
    "exhaustive",
    "lemma:apdx-surrogate-grad-key-W1",
    "The runs are of the shifted columns (printed V_1, it is Ṽ_1), and their left neighbour is case 3, not 2. α ≥ 1 "
    "needs one bigram other than k: on a constant string α = 0 and the gradient does not point at the rule.",
)
def gradient_first_layer(*, seed: int, scale: int = 1) -> Outcome:
    """Every column and wrong bigram of MLT(2, 2) and MLT(2, 3), dense chain rule against the closed form."""
    largest, seen, alphas = 0.0, {1: 0, 2: 0, 3: 0}, []
    runs = 0
    for chars, index in ((2, 0), (2, 1), (3, 0), (3, 1)):
        given = problem(2, chars, seed, index)
        for P_1, k, held, right, alpha, beta in _first_layer_cases(given):
            gradient = squared_loss_gradient(1, P_1, given.books[1], given.V_xj, given.target_xj, given.Q_xx)
            expected = closed_form(chars, held, right, alpha, scale * beta)
            largest = max(largest, float(np.abs(gradient[:, k] - expected).max()))
            seen[1 if held[0] == right[0] else 2 if held[1] == right[1] else 3] += 1
            alphas.append(alpha)
            runs += beta > 0
    constant = problem(2, 3, seed, string=[1, 1] * 4)
    empty = [alpha for *_, alpha, beta in _first_layer_cases(constant) if beta > 0]
    return Outcome(
        largest < 1e-12 and min(alphas) >= 1 and runs > 0 and min(seen.values()) > 0 and set(empty) == {0},
        {"deviation": largest, "cases": seen, "with_runs": runs, "alpha_on_constant_string": empty[0]},
        f"largest deviation {largest:.0e} in {sum(seen.values())} gradients ({runs} with β > 0); α = {empty[0]} on a "
        "constant string",
        0,
    )


@check(
    "gradient-second-layer",
    "∂L/∂P_2^(k) = 2α (P_2^(k) - P_2*^(k)) with α the number of uses.",
    "exhaustive",
    "lemma:apdx-surrogate-grad-key-W2",
    "α counts columns of the shifted Ṽ_2* equal to e_k (the learning lemma prints V_2*).",
)
def gradient_second_layer(*, seed: int, scale: int = 2) -> Outcome:
    """Every column and wrong bigram of MLT(2, 2) and MLT(2, 3)."""
    largest, seen = 0.0, 0
    for chars in (2, 3):
        given = problem(2, chars, seed)
        first, second = given.books
        looked_up = shift(first @ shift(given.V_xj, given.Q_xx), given.Q_xx).argmax(axis=0)
        for k, entry in itertools.product(range(given.size), range(given.size)):
            P_2 = second.copy()
            P_2[:, k] = _column(given.size, entry)
            gradient = squared_loss_gradient(2, first, P_2, given.V_xj, given.target_xj, given.Q_xx)
            expected = scale * (looked_up == k).sum() * (P_2[:, k] - second[:, k])
            largest, seen = max(largest, float(np.abs(gradient[:, k] - expected).max())), seen + 1
    return Outcome(largest < 1e-12, largest, f"largest deviation {largest:.0e} in {seen} gradients", 0)


def _descend(given: Problem, weights: list[Matrix], steps: tuple[int, int]) -> list[Matrix]:
    """Algorithm 3: column by column, `steps` surrogate-gradient updates in layer 1 and in layer 2."""
    learned = [W_xx.copy() for W_xx in weights]
    for layer in (0, 1):
        for k in range(given.size):
            contexts = [*given.books]
            contexts[layer] = without_column(given.books[layer], k)
            for _ in range(steps[layer]):
                P_1, P_2 = (hardmax(C_xx + W_xx) for C_xx, W_xx in zip(contexts, learned, strict=True))
                gradient = squared_loss_gradient(layer + 1, P_1, P_2, given.V_xj, given.target_xj, given.Q_xx)
                learned[layer][:, k] -= gradient[:, k]
    return learned


@check(
    "descent",
    "For d = 2, two surrogate-gradient steps per column of layer 1 and one of layer 2 recover the codebook.",
    "exhaustive",
    "thm:apdx-surrogate-GD-learning-coverable, lemma:apdx-surrogate-learnW1, lemma:apdx-surrogate-learnW2",
    "The theorem and its corollary cite the search algorithm; Algorithm 3 is meant, whose second layer masks W_2* (not "
    "W_1*). In the first layer's proof 'if b_(1) ≠ b*' is 'if a_(1) ≠ a*'. Characters seen: O(n⁴ log n), not O(n⁴).",
)
def descent(*, seed: int, steps: tuple[int, int] = (2, 1)) -> Outcome:
    """MLT(2, 2), (2, 3), (2, 4): random starts below 1/2, and every wrong bigram of every column as the start."""
    right = total = 0
    for chars in (2, 3, 4):
        given = problem(2, chars, seed)
        for start in range(given.size):
            draw = generator(seed, f"theory descent {chars}", start)
            weights = [draw.uniform(-0.4, 0.4, (given.size, given.size)) for _ in range(2)]
            for W_xx in weights:  # start number s: every column points at bigram s
                W_xx[start] = 0.49
            learned = _descend(given, weights, steps)
            for W_xx, P_xx in zip(learned, given.books, strict=True):
                right += int((W_xx.argmax(axis=0) == P_xx.argmax(axis=0)).sum())
                total += given.size
    return Outcome(right == total, right / total, f"{right} of {total} columns recovered", "all")
