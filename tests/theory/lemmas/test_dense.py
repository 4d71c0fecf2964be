"""The dense surrogate, against the shared cases that every implementation obeys."""

from __future__ import annotations

import numpy as np
import pytest
from tests.cases import CASES

from openbook.theory.lemmas.dense import matricize, surrogate


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_dense_surrogate_obeys_the_shared_cases(case) -> None:
    chars = case.codebook.chars
    books = case.codebook.matrices().astype(float)
    empty = np.zeros_like(books)
    for contexts, weights in ((books, empty), (empty, books)):
        made = surrogate(contexts, weights, matricize(np.array(case.string), chars))
        assert np.array_equal(made, matricize(np.array(case.output), chars))
