"""`openbook report`: runs on a page, through the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from openbook.cli import main


def test_a_run_and_its_exam_on_one_page(
    learned: Path, told: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exam, _ = told("exam", learned, "--open", "0", "--open", "1")
    (tmp_path / "exam.json").write_text(json.dumps(exam))
    found, code = told("report", learned, tmp_path / "exam.json", "--out", tmp_path / "page.html")
    assert code == 0 and [one["status"] for one in found["runs"]] == ["done", "done"]
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "How the training went" in text and "Context reliance" in text
    assert main(["report", str(learned), "--out", str(tmp_path / "page.html")]) == 0
    assert "done" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "no run was named"),
        (["missing"], "missing does not exist"),
        ([".", "--out", "page.pdf"], "the page is an .html file"),
        ([".", "--out", "folder.html"], "folder.html is a folder"),
    ],
)
def test_bad_input_is_refused(
    refused: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder.html").mkdir()
    assert words in refused("report", *arguments)
    assert [path.name for path in tmp_path.iterdir()] == ["folder.html"]
