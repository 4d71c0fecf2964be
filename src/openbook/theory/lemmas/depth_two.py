"""Recovering a codebook of depth 2 with context, by gradient descent, and how many characters learning takes.

Letters as in the paper: k is the column held out, (a, b) the bigram it holds, (a*, b*) the bigram it should hold,
α counts the runs of bigram k among the looked-up bigrams and β the neighbours inside runs.
"""

from __future__ import annotations

import math
from collections import Counter

import numpy as np

from openbook.base.randomness import generator
from openbook.theory.lemmas.check import Outcome, section
from openbook.theory.lemmas.search import Problem, column_candidates, problem, without_column
from openbook.theory.surrogate.dense import backward, forward
from openbook.theory.surrogate.descent import CASES, case_of, closed_form
from openbook.theory.surrogate.model import Floats, hardmax, shift

check = section("Easy with context")


def squared_loss_gradient(given: Problem, level: int, P_1: Floats, P_2: Floats) -> Floats:
    """∂‖V_3 - V_3*‖² / ∂P_level by the chain rule on the dense formula; the matrices may be batches."""
    output_xj, tape = forward([P_1, P_2], given.V_xj)
    return backward([P_1, P_2], tape, 2 * (output_xj - given.target_xj), [level - 1])[0]


def runs(given: Problem) -> list[tuple[int, int]]:
    """(α, β) of every bigram k."""
    is_k = shift(given.V_xj).astype(bool)  # [k, position]
    neighbours = (is_k & np.roll(is_k, -1, axis=1)).sum(axis=1)
    return [(int(count), int(beta)) for count, beta in zip(is_k.sum(axis=1) - neighbours, neighbours, strict=True)]


@check("gradient-first-layer", "exhaustive", "lemma:apdx-surrogate-grad-key-W1")
def gradient_first_layer(*, seed: int, scale: int = 1) -> Outcome:
    """∂L/∂P_1^(k) is the lemma's combination of e_a⊗1, 1⊗e_b, e_a*⊗1, 1⊗e_b* with α and β counted from the input.

    The dense chain rule is compared with the closed form for every column and wrong bigram of MLT(2, 2) and MLT(2, 3).

    Remark: The runs are of the shifted columns (printed V_1, it is Ṽ_1), and their left neighbour is case 3, not 2.
    α ≥ 1 needs one bigram other than k: on a constant string α = 0 and the gradient does not point at the rule.
    """
    largest, seen, with_runs, alphas = 0.0, Counter(dict.fromkeys(range(1, len(CASES) + 1), 0)), 0, []
    for chars, index in ((2, 0), (2, 1), (3, 0), (3, 1)):
        given = problem(2, chars, seed, index)
        first, second = given.P_ixk
        for k, (alpha, beta) in enumerate(runs(given)):
            P_bxk, right = column_candidates(first, k), int(first[:, k].argmax())
            gradient_bx = squared_loss_gradient(given, 1, P_bxk, second)[:, :, k]
            for held in set(range(given.size)) - {right}:
                expected = closed_form(chars, held, right, alpha, scale * beta)
                largest = max(largest, float(np.abs(gradient_bx[held] - expected).max()))
                seen[1 + CASES.index(case_of(chars, held, right))] += 1
                with_runs += beta > 0
            alphas.append(alpha)
    constant = {alpha for alpha, beta in runs(problem(2, 3, seed, string=[1, 1] * 4)) if beta > 0}
    return Outcome(
        largest < 1e-12 and min(alphas) >= 1 and with_runs > 0 and min(seen.values()) > 0 and constant == {0},
        {"deviation": largest, "cases": seen, "with_runs": with_runs, "alpha_on_constant_string": min(constant)},
        f"largest deviation {largest:.0e} in {seen.total()} gradients ({with_runs} with β > 0); α = {min(constant)} on "
        "a constant string",
        0,
    )


@check("gradient-second-layer", "exhaustive", "lemma:apdx-surrogate-grad-key-W2")
def gradient_second_layer(*, seed: int, scale: int = 2) -> Outcome:
    """∂L/∂P_2^(k) = 2α (P_2^(k) - P_2*^(k)) with α the number of uses.

    The dense chain rule is compared with the closed form for every column and bigram of MLT(2, 2) and MLT(2, 3).

    Remark: α counts columns of the shifted Ṽ_2* equal to e_k (the learning lemma prints V_2*).
    """
    largest, seen = 0.0, 0
    for chars in (2, 3):
        given = problem(2, chars, seed)
        first, second = given.P_ixk
        for k, alpha in enumerate(shift(first @ shift(given.V_xj)).sum(axis=1)):
            P_bxk = column_candidates(second, k)
            gradient_bxk = squared_loss_gradient(given, 2, first, P_bxk)
            expected_bx = scale * alpha * (P_bxk - second)[:, :, k]
            largest = max(largest, float(np.abs(gradient_bxk[:, :, k] - expected_bx).max()))
            seen += given.size
    return Outcome(largest < 1e-12, largest, f"largest deviation {largest:.0e} in {seen} gradients", 0)


def descended(given: Problem, W_isxk: Floats, steps: tuple[int, int]) -> Floats:
    """Algorithm 3 from many starts s: in each layer, column by column, so many surrogate-gradient `steps`."""
    learned = W_isxk.copy()
    for layer in (0, 1):
        for k in range(given.size):
            contexts = given.P_ixk.copy()
            contexts[layer] = without_column(given.P_ixk[layer], k)
            for _ in range(steps[layer]):
                P_1, P_2 = hardmax(contexts[:, None] + learned)
                gradient_sxk = squared_loss_gradient(given, layer + 1, P_1, P_2)
                learned[layer, :, :, k] -= gradient_sxk[:, :, k]
    return learned


@check(
    "descent",
    "exhaustive",
    "thm:apdx-surrogate-GD-learning-coverable, lemma:apdx-surrogate-learnW1, lemma:apdx-surrogate-learnW2",
)
def descent(*, seed: int, steps: tuple[int, int] = (2, 1)) -> Outcome:
    """For d = 2, two surrogate-gradient steps per column of layer 1 and one of layer 2 recover the codebook.

    Algorithm 3 is run on MLT(2, 2), (2, 3), (2, 4) from random weights below 1/2, and every wrong bigram of every
    column is the start once.

    Remark: The theorem and its corollary cite the search algorithm; Algorithm 3 is meant, whose second layer masks W_2*
    (not W_1*). In the first layer's proof 'if b_(1) ≠ b*' is 'if a_(1) ≠ a*'. Characters seen: O(n⁴ log n), not O(n⁴).
    """
    right = total = 0
    for chars in (2, 3, 4):
        given = problem(2, chars, seed)
        starts, stream = range(given.size), f"theory descent {chars}"
        draws = [generator(seed, stream, start).uniform(-0.4, 0.4, given.P_ixk.shape) for start in starts]
        W_isxk = np.stack(draws, axis=1)
        W_isxk[:, starts, starts] = 0.49  # at start number s every column points at bigram s
        correct = descended(given, W_isxk, steps).argmax(axis=-2) == given.P_ixk.argmax(axis=-2)[:, None]
        right, total = right + int(correct.sum()), total + correct.size
    return Outcome(right == total, right / total, f"{right} of {total} columns recovered", "all")


@check("sample-complexity", "algebra", "thm:apdx-surrogate-search-learning-coverable")
def sample_complexity(*, seed: int, with_log_n: bool = True) -> Outcome:
    """Search sees d·n²(n²+1)/2 passes of 2n² log(nd/δ) bigrams: O(n⁶ d log(nd)).

    The ratio of characters seen to n⁶ d log(nd) must stay bounded for n up to 10⁶, at d = 2, 5, 20 and δ = 0.05.

    Remark: The main text has O(n⁶ d log d); at fixed d the ratio to that grows with log n without bound.
    """

    def ratio(d: int, n: int) -> float:
        seen = d * n**2 * (n**2 + 1) / 2 * 2 * (2 * n**2 * math.log(n * d / 0.05))
        return seen / (n**6 * d * math.log(n * d if with_log_n else d))

    ratios = [[ratio(d, n) for n in (2, 4, 10, 100, 10**4, 10**6)] for d in (2, 5, 20)]
    largest, growing = max(map(max, ratios)), any(row[-1] > 2 * row[1] for row in ratios)
    return Outcome(not growing, largest, f"ratio at most {largest:.1f}, {'growing' if growing else 'bounded'} in n")
