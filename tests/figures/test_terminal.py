"""Figures on the terminal: their numbers as tables in which nothing is cut off."""

from __future__ import annotations

from openbook.figures.charts import Axis, Chart, Level, Panel, Series, Table, share
from openbook.figures.terminal import numbers_of

OURS = Series("ours", [(1.0, 0.5), (2.0, 0.75)], spread=[(0.4, 0.6), (0.7, 0.8)])
LATE = Series("late", [(2.0, 0.123)])
PUBLISHED = Series("theirs", [(3.0, 0.9)], published=True)
LEVEL = Level(0.125, "chance")


def chart(*series: Series) -> Chart:
    return Chart("c", "A chart", "what is seen", [Panel("Left", Axis("step"), share("accuracy"), series, [LEVEL])])


def test_numbers_of_a_panel_are_those_of_our_curves_with_their_intervals() -> None:
    (table,) = numbers_of([chart(OURS, PUBLISHED, LATE), Table("t", "no chart", ["a"], [["1"]])])
    assert table.title == "Left; chance: 12.5%"
    assert list(table.header) == ["step", "ours", "late"]
    assert table.rows == [["1", "50.0% (40.0%-60.0%)", ""], ["2", "75.0% (70.0%-80.0%)", "12.3%"]]


def test_many_curves_leave_their_intervals_and_decimals_out() -> None:
    many = [Series(f"curve {k}", [(1.0, 0.5)], spread=[(0.4, 0.6)]) for k in range(10)]
    (table,) = numbers_of([chart(*many)])
    assert table.rows == [["1", *["50%"] * 10]]
