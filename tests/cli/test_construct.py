"""`openbook construct`: the machine-readable contract, charts, and refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from openbook.cli import main


def test_verify_speaks_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    chart = tmp_path / "deviation.svg"
    arguments = "construct verify --depth 2 --chars 3 --strings 30 --codebooks 2 --json --chart"
    assert main([*arguments.split(), str(chart)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["mismatches"] == 0 and found["strings"] >= 30 and found["holds"]
    assert found["embedding_size"] == 2 * 9 + 2 * 2 + 4
    assert found["attention_layers"] == found["mlp_layers"] == 4
    assert 0 < found["deviation"] < 1e-3
    assert chart.stat().st_size > 1000


def test_verify_shows_tables(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["construct", "verify", "--depth", "1", "--chars", "2", "--strings", "6", "--codebooks", "1"]) == 0
    shown = capsys.readouterr().out
    assert "holds" in shown and "Outside the lemma" in shown and "Sizes against the lemma" in shown


def test_a_failed_verification_is_loud(monkeypatch: pytest.MonkeyPatch) -> None:
    """Heads that are not saturated mix positions: strings come out wrong and the exit code says so."""
    monkeypatch.setattr("openbook.theory.construction.shift.SATURATED", 1.0)
    arguments = ["--depth", "2", "--chars", "3", "--strings", "30", "--codebooks", "2", "--json"]
    assert main(["construct", "verify", *arguments]) == 1


def test_train_speaks_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    chart = tmp_path / "recovery.svg"
    arguments = (
        "construct train --depth 1 --chars 2 --sequences 640 --length 4 --rates 0.01 0.001 --control --json --chart"
    )
    assert main([*arguments.split(), str(chart)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(run["update"], run["rate"], run["masked"]) for run in found["runs"]] == [
        ("layerwise", 0.01, True),
        ("layerwise", 0.001, True),
        ("full", 0.01, True),
        ("full", 0.001, True),
        ("full", 0.01, False),
        ("full", 0.001, False),
    ]
    assert all(0 <= run["recovered"] <= 1 and run["chance"] == 0.5 for run in found["runs"])
    assert chart.exists()


@pytest.mark.slow
def test_efficiency_of_a_toy_task(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    chart = tmp_path / "efficiency.svg"
    assert (
        main(
            ["construct", "efficiency", "--scale", "smoke", "--samples", "200", "2000", "--json", "--chart", str(chart)]
        )
        == 0
    )
    found = json.loads(capsys.readouterr().out)
    at = {(row["curriculum"], row["samples"]): row["accuracy"] for row in found["rows"]}
    assert at["anneal", 2000] > 0.95 > 0.6 > at["no-dropout", 2000]
    assert found["published_by_a_3b_model"] and chart.exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("construct verify --chars 1", "between 2 and 255"),
        ("construct verify --chars 100", "GiB"),
        ("construct verify --scale 0", "scale N"),
        ("construct verify --strings 0", "at least 1"),
        ("construct train --length 21", "even"),
        ("construct train --rates 0", "learning rate"),
        ("construct train --rates", "no peak rate"),
        ("construct train --chart nowhere.txt", "a chart is saved as"),
        ("construct efficiency --scale huge", "huge"),
        ("construct efficiency --scale smoke --processes 0", "at least 1"),
    ],
)
def test_refusals_name_what_is_wrong(arguments: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments.split()) == 2
    caught = capsys.readouterr()
    assert says in caught.err and caught.out == ""
