"""The public API: what it offers, that it is light, and that it does what the command line does."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import FACTS

import openbook as ob
from openbook.base.errors import InputError
from openbook.base.files import file_hash
from openbook.cli import main
from openbook.training.folder import RunFolder

SMALL = {"model.hidden_size": 32, "model.layers": 1, "model.heads": 2, "exam.samples": 12}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> ob.Run:
    folder = tmp_path_factory.mktemp("api") / "facts"
    return ob.learn(ob.load(FACTS), epochs=2, samples=12, out=folder, **SMALL)


def test_importing_it_is_quick_and_light() -> None:
    code = (
        "import sys, openbook; print([m for m in ('torch', 'numpy', 'pydantic', 'transformers') if m in sys.modules])"
    )
    started = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done
    assert time.perf_counter() - started < 5  # on a busy machine; benchmarks have the time itself


def test_every_public_name_is_there() -> None:
    for name in ob.__all__:
        assert getattr(ob, name) is not None
    assert set(ob.__all__) <= set(dir(ob))
    with pytest.raises(AttributeError, match="did you mean 'learn'"):
        ob.lern  # noqa: B018


def test_python_and_the_command_line_train_the_same_weights(run: ob.Run, tmp_path: Path) -> None:
    settings = [word for key, value in SMALL.items() for word in ("--set", f"{key}={value}")]
    folder = tmp_path / "cli"
    assert (
        main(["learn", "--data", str(FACTS), "--epochs", "2", "--samples", "12", *settings, "--out", str(folder)]) == 0
    )
    assert file_hash(folder / "model/model.safetensors") == file_hash(run.folder / "model/model.safetensors")
    assert (folder / "metrics.jsonl").read_bytes() == (run.folder / "metrics.jsonl").read_bytes()
    assert RunFolder(folder).read("config.json") == RunFolder(run.folder).read("config.json")


def test_a_run_is_examined_asked_and_reported(run: ob.Run, tmp_path: Path) -> None:
    exam = run.exam(shares=[0, 1])
    assert (exam.closed.open, exam.open.open, exam.at(1, "wrong").book) == (0, 1, "wrong")
    assert exam.closed.accuracy == run.result["accuracy"]["closed_book"]
    new = [{"prompt": "Who rules Vellmora?", "completion": " Queen Ilva", "privileged_context": ["a", "b"]}]
    assert run.exam(new, shares=[0]).closed.samples == 1
    with pytest.raises(InputError, match="no row with"):
        exam.at(0.5)
    assert isinstance(run.ask("Who rules Vellmora?", max_new_tokens=4), str)
    assert run.ask("Who?", max_new_tokens=4) == run.ask("Who?", max_new_tokens=4)
    assert run.tokenizer.decode([run.model.config.eos_token_id]) == "<END>"
    assert run.report(tmp_path / "page.html").is_file()


def test_it_is_looked_into() -> None:
    maps = ob.Run("student-3-8").probe("perturb", samples=2, rules=2)
    assert [section["name"] for section in maps["sections"]] == ["level 1", "level 2", "level 3"]
    with pytest.raises(InputError, match="no section 'no such'"):
        ob.Run("student-3-8").probe("perturb", samples=2, sections=["no such"])


def test_records_in_memory_are_kept_beside_the_run(tmp_path: Path) -> None:
    rows = list(ob.records(FACTS))[:6]
    run = ob.learn(rows, out=tmp_path / "run", batch_size=3, **SMALL)
    written = tmp_path / "run.data.jsonl"
    assert [json.loads(line) for line in written.read_text().splitlines()] == rows
    assert run.result["samples"] == 6 and run.exam(shares=[0]).closed.samples == 6


def test_the_task_and_its_records() -> None:
    source = ob.mlt(depth=2, chars=3, samples=5, lengths=(4, 6), text="compact")
    assert len(source) == 5 and source.one_book and not ob.mlt(2, 3, 5, fresh=True).one_book
    again = ob.load(list(ob.records(source)))
    for index in range(5):
        ours, theirs = source.example(index), again.example(index)
        assert ours.render().text == theirs.render().text and ours.sections == theirs.sections


@pytest.mark.parametrize(
    "options, complaint",
    [
        ({"epoch": 3}, "'epoch' is not a setting; did you mean 'epochs'?"),
        ({"curriculum": "aneal"}, "did you mean 'anneal'"),
        ({"resume": True, "force": True}, "give one of them"),
    ],
)
def test_what_is_wrong_is_named(options: dict[str, Any], complaint: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        ob.learn(FACTS, out=tmp_path / "run", **options)
    assert complaint in str(caught.value) and not (tmp_path / "run").exists()


def test_a_setting_is_found_by_its_last_word() -> None:
    config = ob.config_for(data=FACTS, batch_size=3, hidden_size=64, drop="0.5", **{"exam.batch_size": 7})
    assert (config.training.batch_size, config.exam.batch_size, config.model.hidden_size) == (3, 7, 64)
    assert str(config.curriculum.drop) == "0.5@0"
    assert ob.config_for(task={"depth": 2}).task.depth == 2  # type: ignore[union-attr]


def test_a_stream_and_other_things_that_cannot_be_loaded_are_refused() -> None:
    with pytest.raises(InputError, match="stream"):
        ob.load(iter([{"prompt": "a", "completion": "b"}]))
    with pytest.raises(InputError, match="give a path"):
        ob.load(5)
    with pytest.raises(InputError, match="no such file"):
        ob.load("absent.jsonl")
