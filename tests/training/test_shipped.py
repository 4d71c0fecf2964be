"""Readers of the package are called by their names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from openbook.base.errors import InputError
from openbook.cli import main
from openbook.training.families import task_of
from openbook.training.models import load, model_folder
from openbook.training.resolve import configured
from openbook.training.shipped import located, shipped_readers


def test_a_name_is_a_folder_of_the_package_and_never_means_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert set(shipped_readers()) >= {"student-3-8", "student-5-8", "writer-2-8"}
    assert located("student-3-8") == shipped_readers()["student-3-8"]
    assert located("student-3-9") == Path("student-3-9") and located("org/student-3-8") == Path("org/student-3-8")
    for path in ("./student-3-8", "student-3-8/"):
        with pytest.raises(InputError, match="no such folder"):
            model_folder(path)
    Path("student-3-8").mkdir()
    with pytest.raises(InputError, match=r"comes with openbook and a folder here: .* full path"):
        located("student-3-8")
    with pytest.raises(InputError, match="no model there"):
        model_folder("./student-3-8")
    assert located(tmp_path / "student-3-8") == tmp_path / "student-3-8"


def test_every_shipped_reader_is_what_its_name_says() -> None:
    for name in shipped_readers():
        kind, depth, chars = name.split("-")
        shape = task_of(name)
        assert shape is not None and (shape["depth"], shape["chars"]) == (int(depth), int(chars))
        assert shape["text"] == {"student": "composite", "writer": "pairs"}[kind]
        task = configured(None, [], {"model.path": name}).task
        assert task is not None and (task.depth, task.chars) == (int(depth), int(chars))


def test_a_name_that_is_none_is_told_which_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transformers.AutoTokenizer.from_pretrained", lambda *_, **__: 1 / 0)  # instead of asking a hub
    with pytest.raises(
        InputError, match=r"cannot load the model 'student-3-9'.*openbook knows by name: smollm2-135m, student-3-8, "
    ):
        load("student-3-9")


def test_learning_and_looking_start_from_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """And the record has the name, which means the same on another machine."""
    monkeypatch.chdir(tmp_path)
    assert main(["learn", "--model", "student-3-8", "--samples", "16", "--out", "run", "--json"]) == 0
    assert '"path": "student-3-8"' in Path("run/config.json").read_text()
    assert main(["exam", "student-3-8", "--samples", "8", "--open", "1"]) == 0
    assert main(["probe", "doubt", "student-3-8", "--samples", "4"]) == 0
    capsys.readouterr()
    assert main(["reproduce", "stitching", "--scale", "laptop", "--reader", "student-3-8", "--dry-run"]) == 0
    assert str(shipped_readers()["student-3-8"]) in capsys.readouterr().out.replace("\n", "")
    assert main(["learn", "--model", "student-3-8", "--out", "student-3-8"]) == 2
    assert "model.path is student-3-8, which is in student-3-8" in capsys.readouterr().err
