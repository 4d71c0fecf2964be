"""The exact distribution of coupons, against inclusion and exclusion."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openbook.theory.lemmas.search import miss_probability


@given(st.integers(2, 9), st.integers(0, 60))
@settings(max_examples=40, deadline=None)
def test_misses_by_inclusion_and_exclusion(coupons: int, draws: int) -> None:
    exact = 1 - sum(
        (-1) ** k * math.comb(coupons, k) * Fraction(coupons - k, coupons) ** draws for k in range(coupons + 1)
    )
    assert miss_probability(coupons, draws) == pytest.approx(float(exact), abs=1e-12)
