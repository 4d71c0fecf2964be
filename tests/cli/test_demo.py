import json
from pathlib import Path

import pytest

from openbook.cli import main


def test_the_tour_translates_writes_and_shows_three_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):  # a second demo replaces the first
        assert main(["demo", "task", "--folder", str(tmp_path / "new" / "demo")]) == 0
        text = capsys.readouterr().out
        assert "Level 2" in text
        assert all(f"record {number}" in text for number in (1, 2, 3)) and "record 4" not in text
        assert "<THINK> x 8" in text
    lines = (tmp_path / "new" / "demo" / "translations.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 1000


def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "task", "--folder", str(tmp_path), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    lines = Path(data["dataset"]).read_text(encoding="utf-8").splitlines()
    assert data["records"] == [json.loads(line) for line in lines[:3]]
    assert len(data["input"]) == len(data["output"]) == 8
