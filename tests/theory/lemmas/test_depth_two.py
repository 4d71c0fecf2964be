"""Gradients of the depth-2 surrogate, against finite differences, and runs of bigrams, against counting by hand."""

from __future__ import annotations

import numpy as np
import pytest

from openbook.theory.lemmas.depth_two import runs, squared_loss_gradient
from openbook.theory.lemmas.search import column_candidates, problem, without_column
from openbook.theory.surrogate.model import shift, softmax, translated


def test_runs_are_counted_around_the_end() -> None:
    """β counts neighbours inside runs and α the runs; a constant string is one run without an end."""
    given_problem = problem(2, 2, seed=0)
    looked_up = shift(given_problem.V_xj).argmax(axis=0).tolist()
    for bigram, (alpha, beta) in enumerate(runs(given_problem)):
        places = [place for place, other in enumerate(looked_up) if other == bigram]
        assert beta == sum(looked_up[(place + 1) % len(looked_up)] == bigram for place in places)
        assert alpha == len(places) - beta
    assert runs(problem(2, 2, seed=0, string=[1, 1, 1, 1]))[3] == (0, 2)


def test_the_dense_gradient_is_the_derivative() -> None:
    given_problem = problem(2, 2, seed=3)
    draw = np.random.default_rng(0)
    books = [softmax(draw.uniform(0, 0.1, (4, 4))) for _ in range(2)]

    def loss(*books: np.ndarray) -> float:
        return float(((translated(books, given_problem.V_xj) - given_problem.target_xj) ** 2).sum())

    for level in (1, 2):
        analytic = squared_loss_gradient(given_problem, level, *books)
        for x, y in ((0, 0), (1, 3), (2, 1)):
            moved = [b.copy() for b in books]
            moved[level - 1][x, y] += 1e-6
            assert (loss(*moved) - loss(*books)) / 1e-6 == pytest.approx(analytic[x, y], rel=1e-3, abs=1e-3)


def test_a_batch_of_gradients_is_the_gradients_of_its_members() -> None:
    """Candidates for a column hold every bigram in turn, and nothing else changes."""
    given_problem = problem(2, 3, seed=1)
    first, second = given_problem.P_ixk
    candidates = column_candidates(first, 4)
    assert candidates[:, :, 4].tolist() == np.eye(9).tolist()
    assert all(np.array_equal(without_column(P, 4), without_column(first, 4)) for P in candidates)
    assert not without_column(first, 4)[:, 4].any()
    for level, books in ((1, (candidates, second)), (2, (first, candidates))):
        batch = squared_loss_gradient(given_problem, level, *books)
        for number, candidate in enumerate(candidates):
            single_books = (candidate if P is candidates else P for P in books)
            single = squared_loss_gradient(given_problem, level, *single_books)
            assert np.array_equal(batch[number], single)
