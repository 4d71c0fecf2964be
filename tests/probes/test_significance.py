"""The test over all cells holds its level when nothing differs, and finds what does."""

from __future__ import annotations

import numpy as np
import pytest

from openbook.probes.significance import larger_cells


def test_a_false_cell_is_as_rare_as_promised() -> None:
    random = np.random.default_rng(1)
    trials = 200
    false = 0
    for trial in range(trials):
        shared = random.normal(size=(16, 1))  # cells that depend on each other
        differences = random.standard_t(4, size=(16, 60)) + shared
        false += bool(larger_cells(differences, seed=trial, flips=200).any())
    assert false / trials < 0.05 + 3 * np.sqrt(0.05 * 0.95 / trials)


def test_what_differs_is_found_and_nothing_else() -> None:
    random = np.random.default_rng(0)
    differences = random.normal(size=(32, 4, 50))
    differences[:, 2, 7] += 2
    differences[:, 1, 3] -= 2  # smaller than the control is no finding
    cells = larger_cells(differences)
    assert cells.shape == (4, 50) and np.argwhere(cells).tolist() == [[2, 7]]


def test_cells_without_any_difference_are_no_finding() -> None:
    differences = np.zeros((16, 5))
    assert not larger_cells(differences).any()
    differences[:, 2] = 1.0
    assert larger_cells(differences).tolist() == [False, False, True, False, False]


@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_the_scale_does_not_matter(scale: float) -> None:
    differences = np.random.default_rng(0).normal(size=(24, 10)) + np.linspace(0, 2, 10)
    assert np.array_equal(larger_cells(differences), larger_cells(scale * differences))
