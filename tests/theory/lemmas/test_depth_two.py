"""Runs of bigrams, against counting by hand."""

from __future__ import annotations

from openbook.theory.lemmas.dense import shift
from openbook.theory.lemmas.depth_two import runs
from openbook.theory.lemmas.search import problem


def test_runs_are_counted_around_the_end() -> None:
    """β counts neighbours inside runs and α the runs; a constant string is one run without an end."""
    given_problem = problem(2, 2, seed=0)
    looked_up = shift(given_problem.V_xj).argmax(axis=0).tolist()
    for bigram, (alpha, beta) in enumerate(runs(given_problem)):
        places = [place for place, other in enumerate(looked_up) if other == bigram]
        assert beta == sum(looked_up[(place + 1) % len(looked_up)] == bigram for place in places)
        assert alpha == len(places) - beta
    assert runs(problem(2, 2, seed=0, string=[1, 1, 1, 1]))[3] == (0, 2)
