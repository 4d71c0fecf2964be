"""The particles' estimate, against exact counting."""

from __future__ import annotations

import math

import pytest

from openbook.theory.lemmas.parities import collision_probability, output_parities
from openbook.theory.lemmas.particles import ratio_to


@pytest.mark.parametrize("depth", [1, 2, 3, 6])
def test_particles_agree_with_counting(depth: int) -> None:
    """The estimate is unbiased: within four standard errors of the exact probability, and that is a tight interval."""
    *_, counts = output_parities(depth)
    mean, error = ratio_to(math.log(collision_probability(counts)), depth, particles=4000, runs=10, seed=1)
    assert abs(mean - 1) <= 4 * error + 1e-12
    assert error < 0.02
