"""Axes reach as far as their data, show few round ticks, and write numbers for people."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openbook.figures import Axis, share
from openbook.figures.axes import MOST_TICKS, domain, log_ticks, written

finite = st.floats(-1e6, 1e6, allow_nan=False)


@given(st.lists(finite, min_size=1, max_size=20), st.booleans())
def test_an_axis_holds_its_values(values: list[float], log: bool) -> None:
    values = [abs(value) + 1e-3 for value in values] if log else values
    low, high = domain(Axis("x", "log" if log else "linear"), values)
    assert low < high and all(low <= value <= high for value in values)


@given(st.floats(1e-12, 1e12), st.floats(1.6, 1e9))
def test_ticks_of_a_logarithmic_axis_are_few_round_and_inside(low: float, times: float) -> None:
    ticks = log_ticks(low, low * times)
    assert len(ticks) <= MOST_TICKS and ticks == sorted(ticks)
    assert all(low <= tick <= low * times for tick in ticks)
    assert {f"{tick:.6e}"[0] for tick in ticks} <= set("1235")


def test_an_axis_is_as_given_or_begins_at_zero_where_that_is_near() -> None:
    assert domain(share("accuracy"), [0.4, 0.5]) == (0, 1)
    assert domain(Axis("loss", low=0.0), [0.4, 0.5]) == pytest.approx((0, 0.515))
    assert domain(Axis("step"), [1, 100])[0] <= 0
    assert domain(Axis("step"), [80, 100])[0] > 70
    assert domain(Axis("x"), [3.0, 3.0]) == pytest.approx((2.47, 3.53))
    assert domain(Axis("x", "log"), [0.0, 10, float("inf"), 1000]) == (8, 1250)


@pytest.mark.parametrize(
    ("value", "form", "words"),
    [
        (0.5, "percent", "50 %"),
        (1.0, "percent", "100 %"),
        (0.9985, "percent", "99.9 %"),
        (12_500, "si", "12.5k"),
        (1e6, "si", "1M"),
        (0.25, "number", "0.25"),
        (12_500, "number", "12,500"),
        (1.2e-5, "number", "1.2e-5"),
        (None, "number", "-"),
        (float("nan"), "percent", "-"),
        (0, "si", "0"),
    ],
)
def test_numbers_are_written_for_people(value: float | None, form: str, words: str) -> None:
    assert written(value, form) == words  # type: ignore[arg-type]
