"""How commands speak: tables in which nothing is cut off."""

from __future__ import annotations

import pytest
from rich.console import Console

from openbook.base import console


@pytest.mark.parametrize("columns", [2, 8])
def test_nothing_is_cut_off_at_80_columns(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(console, "out", Console(width=80))
    header = ["learner", *(f"long {k}" for k in range(columns))]
    console.print_cells(header, [["context-enhanced descent", *["12.5%"] * columns]], "what it is [of]")
    shown = capsys.readouterr().out
    assert shown.count("12.5%") == columns and "context-enhanced" in shown and "…" not in shown
    assert "what it is [of]" in shown


def test_words_stand_to_the_left_and_numbers_to_the_right(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"name": "[a]", "value": 1}, {"name": "long name", "value": 1000}]
    console.print_table(rows, {"name": "{name}", "verdict": lambda _: "[red]x[/]", "value": "{value:,}"})
    first, second = (line.rstrip() for line in capsys.readouterr().out.splitlines()[1:3])
    assert (first.index("[a]"), first.index("x")) == (second.index("long"), second.index("x"))
    assert first.endswith("    1") and second.endswith("1,000") and len(first) == len(second)
