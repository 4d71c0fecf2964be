"""Files that are written aside: what stands beside them is left alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from openbook.base.files import write_json


def test_files_of_other_processes_in_the_same_folder_are_not_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another worker may rename its half-written file at any moment: opening it would fail now and then."""
    other = tmp_path / ".other.json.writing"
    other.write_text("half")
    opened: list[str] = []
    real = os.open

    def noted(path, flags, *more, **options) -> int:
        opened.append(str(path))
        return real(path, flags, *more, **options)

    monkeypatch.setattr(os, "open", noted)
    write_json(tmp_path / "mine.json", [1, 2])
    assert (tmp_path / "mine.json").read_text() == "[\n 1,\n 2\n]\n"
    assert opened and str(other) not in opened
    assert other.read_text() == "half"
