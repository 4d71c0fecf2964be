"""`openbook theory` on the command line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from openbook.cli import main
from openbook.theory.lemmas import CHECKS, Check, Outcome


def test_json_is_one_object_with_the_agreed_keys(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["theory", "--only", "six-maps", "--only", "correlation-pair", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in shown["checks"]] == ["six-maps", "correlation-pair"]
    for row in shown["checks"]:
        assert {"name", "claim", "method", "value", "holds", "paper", "remark", "bound"} <= set(row)
        assert row["holds"] is True
    assert shown["checks"][1]["value"]["fixed_pair"] == pytest.approx([1 / 3] * 4)
    assert (shown["hold"], shown["fail"]) == (2, 0)


def test_one_check_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["theory", "--only", "composition"]) == 0
    shown = capsys.readouterr().out
    assert "lem:corr_compose" in shown and "holds" in shown and "remark" in shown


def test_list_runs_nothing(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Check, **_: object) -> None:
        raise AssertionError("ran")

    monkeypatch.setattr(Check, "run", refuse)
    assert main(["theory", "--list"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in CHECKS)
    assert main(["theory", "--list", "--json"]) == 0
    assert [row["name"] for row in json.loads(capsys.readouterr().out)["checks"]] == list(CHECKS)
    assert main(["theory", "--list", "--only", "search"]) == 0
    listed = capsys.readouterr().out
    assert "Easy with context" in listed and "The task" not in listed and "six-maps" not in listed


def test_a_failed_check_is_loud(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = replace(CHECKS["six-maps"], function=lambda *, seed: Outcome(False, 0, "no"))
    monkeypatch.setattr("openbook.theory.lemmas.CHECKS", {"six-maps": wrong})
    assert main(["theory", "--only", "six-maps"]) == 1
    assert "FAILS" in capsys.readouterr().out
    assert main(["theory"]) == 1
    shown = capsys.readouterr().out
    assert "FAILS" in shown and "0 of 1 checks hold" in shown


@pytest.mark.parametrize(
    "arguments, complaint",
    [
        (["--only", "six-mapps"], "did you mean 'six-maps'"),
        (["--only"], "no check is named"),
        (["--chart", "bound.pdf"], "a chart is saved as one of"),
        (["--seed", "x"], "seed"),
    ],
)
def test_bad_input_is_refused(arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["theory", *arguments]) == 2
    caught = capsys.readouterr()
    assert complaint in caught.err and "Traceback" not in caught.err and caught.out == ""


def test_the_chart_is_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "bound.json"
    assert main(["theory", "--only", "affine", "--chart", str(target)]) == 0
    drawn = target.read_text(encoding="utf-8")
    assert "Two random tasks correlate" in drawn and "our construction, 2^d" in drawn
