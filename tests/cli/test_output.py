"""How commands answer: tables or one JSON object and nothing else, and a chart in a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from openbook.cli.output import Output
from openbook.figures import Axis, Chart, Panel, Series, Table, share


def test_a_command_prints_tables_or_json_and_saves_its_first_chart(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    panel = Panel("Left", Axis("step"), share("accuracy"), [Series("ours", [(1.0, 0.5)])])
    figures = [
        Table("t", "A table", ["a", "b"], [["x", "1"]], "Its caption."),
        Chart("c", "C", "what is seen", [panel]),
    ]
    path = tmp_path / "chart.svg"
    Output(path).present({"value": 1}, figures)
    shown = capsys.readouterr().out
    assert "A table" in shown and "Its caption." in shown and path.stat().st_size > 1000
    Output(json=True).present({"value": float("inf")}, figures)
    assert json.loads(capsys.readouterr().out) == {"value": None}


def test_numbers_of_curves_are_a_table_where_they_are_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    panel = Panel("Left", Axis("step"), share("accuracy"), [Series("ours", [(1.0, 0.5)])])
    for numbers in (False, True):
        Output().present({}, [Chart("c", "C", "what is seen", [panel])], numbers)
        assert ("50.0%" in capsys.readouterr().out) == numbers
