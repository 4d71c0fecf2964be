"""The dense surrogate, against the shared cases and finite differences."""

from __future__ import annotations

import numpy as np
import pytest
from tests.cases import CASES

from openbook.theory.lemmas.dense import matricize, squared_loss_gradient, surrogate, translated
from openbook.theory.lemmas.search import column_candidates, problem, without_column
from openbook.theory.surrogate.model import softmax


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_dense_surrogate_obeys_the_shared_cases(case) -> None:
    chars = case.codebook.chars
    books = case.codebook.matrices().astype(float)
    empty = np.zeros_like(books)
    for contexts, weights in ((books, empty), (empty, books)):
        made = surrogate(contexts, weights, matricize(np.array(case.string), chars))
        assert np.array_equal(made, matricize(np.array(case.output), chars))


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
