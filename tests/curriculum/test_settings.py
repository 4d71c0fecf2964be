"""Schedules: read, interpolated, written back; what is none is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openbook.base.errors import InputError
from openbook.curriculum import Schedule


@pytest.mark.parametrize(
    "text, progress, rate",
    [
        ("0.2", 0.7, 0.2),
        ("0@0,1@0.6", 0.0, 0.0),
        ("0@0,1@0.6", 0.3, 0.5),
        ("0@0,1@0.6", 0.6, 1.0),
        ("0@0,1@0.6", 1.0, 1.0),
        ("0@0.1,1@0.6", 0.05, 0.0),
        ("0@0.1,1@0.6", 0.35, 0.5),
        ("0@0.5,1@0.5", 0.49, 0.0),
        ("0@0.5,1@0.5", 0.5, 1.0),
        (" 1 , 0@1 ", 0.25, 0.75),
    ],
)
def test_points_are_joined_by_lines(text: str, progress: float, rate: float) -> None:
    assert float(Schedule.parse(text).at(progress)) == pytest.approx(rate)


@pytest.mark.parametrize("text", ["", "x", "0@y", "1.5", "-0.1", "0@2", "nan", "0@0.6,1@0.3", "0;1", "0.2,0.8"])
def test_what_is_no_schedule_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="schedule"):
        Schedule.parse(text)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=5))
def test_a_schedule_is_read_back_exactly(points: list[tuple[float, float]]) -> None:
    schedule = Schedule(tuple(sorted(points)))
    assert Schedule.parse(str(schedule)) == schedule
