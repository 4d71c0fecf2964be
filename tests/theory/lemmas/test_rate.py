"""The boundary representation and the bounds it gives."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

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
