"""Figures on the terminal: their numbers as tables in which nothing is cut off, or one JSON object and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console

from openbook.figures.charts import Axis, Chart, Level, Panel, Series, Table, share
from openbook.figures.terminal import numbers_of, present, rich_table

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


@pytest.mark.parametrize("columns", [2, 8])
def test_nothing_is_cut_off_at_80_columns(columns: int) -> None:
    header = ["learner", *(f"long {k}" for k in range(columns))]
    table = Table("t", "Title", header, [["context-enhanced descent", *["12.5%"] * columns]])
    console = Console(width=80)
    with console.capture() as capture:
        console.print(rich_table(table))
    shown = capture.get()
    assert shown.count("12.5%") == columns and "context-enhanced" in shown and "…" not in shown


def test_a_command_prints_tables_or_json_and_saves_its_first_chart(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    figures = [Table("t", "A table", ["a", "b"], [["x", "1"]], "Its caption."), chart(OURS)]
    path = tmp_path / "chart.svg"
    present(figures, {"value": 1}, path, json=False)
    shown = capsys.readouterr().out
    assert "A table" in shown and "Its caption." in shown and path.stat().st_size > 1000
    present(figures, {"value": float("inf")}, None, json=True)
    assert json.loads(capsys.readouterr().out) == {"value": None}
