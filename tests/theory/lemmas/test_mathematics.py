"""The tools of the checks, against slower or independent ways to the same numbers."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import CASES

from openbook.task import Codebook, translate_batch
from openbook.task.phrasebook import sample_tables
from openbook.task.translate import output, translate
from openbook.theory.lemmas.correlation import level_parities
from openbook.theory.lemmas.coverage import miss_probability
from openbook.theory.lemmas.dense import matricize, shift, squared_loss_gradient, surrogate, translated
from openbook.theory.lemmas.depth_two import runs
from openbook.theory.lemmas.enumeration import (
    agreement,
    all_codebooks,
    all_maps,
    all_strings,
    largest_agreement,
    not_bijective,
    numbers,
    translate_all,
)
from openbook.theory.lemmas.learnability import eliminate, learn_affine, predict_affine
from openbook.theory.lemmas.parities import collision, collision_probability, output_parities, parities
from openbook.theory.lemmas.particles import ratio_to
from openbook.theory.lemmas.rate import (
    GL2,
    cells,
    harish_chandra,
    koopman,
    locate,
    rate_by_constants,
    rate_from_below,
    twisted,
)
from openbook.theory.lemmas.search import column_candidates, problem, without_column
from openbook.theory.lemmas.soft import backward, forward, one_hot, vanilla_descent
from openbook.theory.lemmas.sq_dimension import embedded_tables, feistel_tables
from openbook.theory.surrogate.factored import weight_gradient
from openbook.theory.surrogate.model import softmax


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_dense_surrogate_obeys_the_shared_cases(case) -> None:
    chars = case.codebook.chars
    books = case.codebook.matrices().astype(float)
    empty = np.zeros_like(books)
    for contexts, weights in ((books, empty), (empty, books)):
        made = surrogate(contexts, weights, matricize(np.array(case.string), chars))
        assert np.array_equal(made, matricize(np.array(case.output), chars))


@pytest.mark.parametrize("length, chars", [(1, 2), (4, 2), (3, 3)])
def test_strings_are_enumerated_in_counting_order(length: int, chars: int) -> None:
    strings = all_strings(length, chars)
    assert strings.tolist() == [list(string) for string in itertools.product(range(chars), repeat=length)]
    assert numbers(strings, chars).tolist() == list(range(chars**length))


def test_all_codebooks_are_translated_as_by_the_oracle() -> None:
    tables, strings = all_codebooks(2)[::91], all_strings(4)
    assert len(all_codebooks(2)) == len(np.unique(all_codebooks(2).reshape(-1, 8), axis=0)) == 24**2
    levels = translate_all(tables, strings)
    for table, of_table in zip(tables, levels, strict=True):
        for string, states in zip(strings.tolist(), of_table.tolist(), strict=True):
            steps = translate(Codebook(2, table), string)
            assert states == [*(step.string for step in steps), output(steps)]


def test_rows_that_are_no_permutation_are_counted() -> None:
    assert not_bijective(all_maps()) == 0
    assert not_bijective(np.array([[0, 1, 2], [0, 1, 1], [1, 2, 3], [2, 0, 1]])) == 2


@given(st.integers(0, 10_000), st.integers(1, 4), st.integers(1, 4))
@settings(max_examples=30, deadline=None)
def test_parities_say_what_the_truth_table_says(seed: int, depth: int, pairs: int) -> None:
    length = 2 * pairs
    tables = sample_tables(depth, 2, seed, 0, 1)
    masks = parities(tables, length)[0, depth]
    strings = all_strings(length)
    outputs = translate_batch(Codebook(2, tables[0]), strings).outputs
    for j in range(length):
        parity = np.array([sum(int(bit) for k, bit in enumerate(row) if masks[j] >> k & 1) % 2 for row in strings])
        assert len(set((parity ^ outputs[:, j]).tolist())) == 1  # equal, or complemented throughout


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_counting_merges_the_same_parities_as_enumeration(depth: int) -> None:
    *_, counts = output_parities(depth)
    first = parities(all_codebooks(depth), 2 * depth)[:, depth, 0]
    assert counts.sum() == 3 * 6 ** (depth - 1)
    assert len(counts) == len(np.unique(first))
    assert collision_probability(counts) == collision(first, first)
    *_, (one, _, _) = level_parities(depth)
    assert collision(one, one) == collision(first, first)


def test_agreement_is_the_definition_of_correlation() -> None:
    f, g = all_strings(3)[:, 0], all_strings(3)[:, 0] & all_strings(3)[:, 1]
    equal = int((f == g).sum())
    assert agreement(f[None], g[None])[0, 0] == abs(equal - (8 - equal)) == 4
    assert largest_agreement(np.stack([f, g])) == 4 and largest_agreement(all_strings(3).T) == 0


@given(st.integers(2, 9), st.integers(0, 60))
@settings(max_examples=40, deadline=None)
def test_misses_by_inclusion_and_exclusion(coupons: int, draws: int) -> None:
    exact = 1 - sum(
        (-1) ** k * math.comb(coupons, k) * Fraction(coupons - k, coupons) ** draws for k in range(coupons + 1)
    )
    assert miss_probability(coupons, draws) == pytest.approx(float(exact), abs=1e-12)


@given(st.integers(0, 10_000), st.integers(1, 7), st.integers(1, 9))
@settings(max_examples=60, deadline=None)
def test_elimination_keeps_the_row_space(seed: int, unknowns: int, rows: int) -> None:
    draw = np.random.default_rng(seed)
    equations = draw.integers(0, 2, (rows, unknowns + 2), dtype=np.uint8)
    rank, reduced = eliminate(equations, unknowns)

    def span(matrix: np.ndarray) -> set[bytes]:
        choices = itertools.product((0, 1), repeat=len(matrix))
        return {(np.array(c, np.uint8) @ matrix % 2).astype(np.uint8).tobytes() for c in choices}

    assert span(equations) == span(reduced)
    assert 2**rank == len(span(equations[:, :unknowns]))
    assert not reduced[rank:, :unknowns].any()


def test_elimination_waits_for_enough_samples() -> None:
    codebook = Codebook.sample(3, 2, seed=4)
    strings = all_strings(6)
    outputs = translate_batch(codebook, strings).outputs
    assert learn_affine(strings[:6], outputs[:6]) is None  # seven unknowns
    solution = learn_affine(strings, outputs)
    assert solution is not None and np.array_equal(predict_affine(solution, strings), outputs)


def test_constructed_phrasebooks_are_bijections() -> None:
    for tables in (feistel_tables(1), feistel_tables(3), embedded_tables(all_codebooks(1), 2)):
        for table in tables:
            assert sorted(table.tolist()) == list(range(tables.shape[1]))


def test_the_dense_gradient_is_the_derivative() -> None:
    given_problem = problem(2, 2, seed=3)
    draw = np.random.default_rng(0)
    books = [softmax(draw.uniform(0, 0.1, (4, 4))) for _ in range(2)]
    args = (given_problem.V_xj, given_problem.target_xj)

    def loss(*books: np.ndarray) -> float:
        return float(((translated(books, given_problem.V_xj) - given_problem.target_xj) ** 2).sum())

    for level in (1, 2):
        analytic = squared_loss_gradient(level, books[0], books[1], *args)
        for x, y in ((0, 0), (1, 3), (2, 1)):
            moved = [b.copy() for b in books]
            moved[level - 1][x, y] += 1e-6
            assert (loss(*moved) - loss(*books)) / 1e-6 == pytest.approx(analytic[x, y], rel=1e-3, abs=1e-3)


def test_a_batch_of_gradients_is_the_gradients_of_its_members() -> None:
    """Candidates for a column hold every bigram in turn, and nothing else changes."""
    given_problem = problem(2, 3, seed=1)
    first, second = given_problem.P_ixx
    args = (given_problem.V_xj, given_problem.target_xj)
    candidates = column_candidates(first, 4)
    assert candidates[:, :, 4].tolist() == np.eye(9).tolist()
    assert all(np.array_equal(without_column(P, 4), without_column(first, 4)) for P in candidates)
    assert not without_column(first, 4)[:, 4].any()
    for level, books in ((1, (candidates, second)), (2, (first, candidates))):
        batch = squared_loss_gradient(level, *books, *args)
        for number, candidate in enumerate(candidates):
            single = squared_loss_gradient(level, *(candidate if P is candidates else P for P in books), *args)
            assert np.array_equal(batch[number], single)


def test_runs_are_counted_around_the_end() -> None:
    """β counts neighbours inside runs and α the runs; a constant string is one run without an end."""
    given_problem = problem(2, 2, seed=0)
    looked_up = shift(given_problem.V_xj).argmax(axis=0).tolist()
    for bigram, (alpha, beta) in enumerate(runs(given_problem)):
        places = [place for place, other in enumerate(looked_up) if other == bigram]
        assert beta == sum(looked_up[(place + 1) % len(looked_up)] == bigram for place in places)
        assert alpha == len(places) - beta
    assert runs(problem(2, 2, seed=0, string=[1, 1, 1, 1]))[3] == (0, 2)


def test_the_soft_gradient_is_the_derivative() -> None:
    draw = np.random.default_rng(1)
    strings = draw.integers(0, 3, (2, 8), dtype=np.uint8)
    weights = [draw.uniform(0, 0.1, (9, 9)) for _ in range(3)]
    towards = draw.normal(size=(2, 4, 9))

    def value(ws: list[np.ndarray]) -> float:
        return float((forward([softmax(w) for w in ws], one_hot(strings, 3))[0] * towards).sum())

    books = [softmax(w) for w in weights]
    _, tape = forward(books, one_hot(strings, 3))
    gradients = [weight_gradient(P, G).sum(axis=0) for P, G in zip(books, backward(books, tape, towards), strict=True)]
    for layer in range(3):
        for x, y in ((0, 0), (4, 7), (8, 2)):
            moved = [w.copy() for w in weights]
            moved[layer][x, y] += 1e-6
            numeric = (value(moved) - value(weights)) / 1e-6
            assert numeric == pytest.approx(gradients[layer][x, y], rel=1e-3, abs=1e-6)


def test_without_context_one_level_is_learned() -> None:
    accuracy = vanilla_descent(sample_tables(1, 2, 0, 0, 3), np.full(3, 0.1), steps=50, pairs=64, seed=0)
    assert (accuracy == 1).all()


def test_cells_are_numbered_in_their_own_order() -> None:
    for depth in (1, 2, 4):
        assert locate(*cells(depth), depth).tolist() == list(range(3 << (depth - 1)))


def test_the_boundary_representation_is_what_it_should_be() -> None:
    """Constants permute cells; twisted elements have Harish-Chandra's diagonal coefficient and lose no norm."""
    for element in GL2:
        plain = koopman(element, 0, 3)
        assert np.array_equal(plain.sum(axis=0), np.ones(12)) and set(np.unique(plain)) == {0.0, 1.0}
        for matrix, moves in zip(twisted(element), (element[2], element[1]), strict=True):
            table = koopman(matrix, 1, 3)
            assert table.mean(axis=0).sum() == pytest.approx(float(harish_chandra(2 * moves)))
            fine = koopman(matrix, 1, 6) @ np.kron(np.eye(12), np.ones((8, 1)))[_coarse(6, 3)] / 8**0.5
            assert np.allclose((fine**2).sum(axis=0), 1)  # the image of a coarse cell is a function on fine cells


def _coarse(fine: int, depth: int) -> np.ndarray:
    """For each fine cell, a row of the block matrix of its coarse cell."""
    return 8 * locate(*cells(fine), depth)


def test_the_rate_is_nineteen_over_twentyfour_and_more() -> None:
    assert rate_by_constants() == Fraction(19, 24)
    bounds = [rate_from_below(depth) for depth in (1, 2, 3)]
    assert float(rate_by_constants()) < bounds[0] < bounds[1] < bounds[2] < 1


@pytest.mark.parametrize("depth", [1, 2, 3, 6])
def test_particles_agree_with_counting(depth: int) -> None:
    """The estimate is unbiased: within four standard errors of the exact probability, and that is a tight interval."""
    *_, counts = output_parities(depth)
    mean, error = ratio_to(math.log(collision_probability(counts)), depth, particles=4000, runs=10, seed=1)
    assert abs(mean - 1) <= 4 * error + 1e-12
    assert error < 0.02
