"""Elimination over GF(2), against the row space and the task, and gradient descent on one level."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from openbook.task import Codebook, translate_batch
from openbook.task.phrasebook import sample_tables
from openbook.theory.lemmas.enumeration import all_strings
from openbook.theory.lemmas.learnability import eliminate, learn_affine, predict_affine, vanilla_descent


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


def test_without_context_one_level_is_learned() -> None:
    accuracy = vanilla_descent(sample_tables(1, 2, 0, 0, 3), np.full(3, 0.1), steps=50, pairs=64, seed=0)
    assert (accuracy == 1).all()
