"""The shipped configs: each one is valid, dry-runs without the weights, and says what the paper says."""

from __future__ import annotations

import json
import re
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from openbook.cli import main
from openbook.curriculum import curriculum_named
from openbook.training.config import RunConfig
from openbook.training.resolve import configured
from openbook.training.settings import shipped

LLAMA = [f"llama-3b-stage{stage}-n{n}" for stage in (1, 2) for n in (8, 10)]
STEPS = {  # a single epoch in batches of 64
    "llama-3b-stage1-n8": 4_688,
    "llama-3b-stage1-n10": 15_625,
    "llama-3b-stage2-n8": 1_563,
    "llama-3b-stage2-n10": 1_563,
}


def command(name: str) -> str:
    return "prepare" if "stage1" in name else "learn"


def read(name: str) -> RunConfig:
    return configured(name, [], {})


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def dry_run(name: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main([command(name), "--config", name, "--dry-run", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_all_are_known_here() -> None:
    assert set(shipped()) == {*LLAMA, "tiny-mlt-stage1", "tiny-mlt-stage2", "student-deep", "student-brief"}


@pytest.mark.parametrize("name", shipped())
def test_every_hyperparameter_of_a_paper_config_has_its_place(name: str) -> None:
    text = (resources.files("openbook") / "configs" / f"{name}.yaml").read_text(encoding="utf-8")
    assert text.startswith("# ")
    if name in LLAMA:
        settings = text.split("tie_embeddings: true\n")[1]
        lines = [line for line in settings.splitlines() if re.match(r"\s*\w+: \S", line)]
        assert len(lines) >= 18
        assert [line for line in lines if not re.search(r"# (paper|code)", line)] == []


def test_the_deep_student_leaves_its_reading_alone() -> None:
    config = read("student-deep")
    assert config.curriculum == curriculum_named("patient")
    assert "self_attn" in config.training.freeze and config.training.step_size == 64


@pytest.mark.parametrize("name", LLAMA)
def test_paper_configs_dry_run_without_the_weights(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    plan = dry_run(name, capsys)
    assert plan["parameters"] == pytest.approx(3.21e9, rel=1e-3)
    assert plan["steps"] == STEPS[name]
    assert plan["positions"] == {4_688: 300_000, 15_625: 1_000_000, 1_563: 100_000}[STEPS[name]]
    assert plan["tokens_are"].startswith("estimated")  # the tokenizer is not here, and it says so
    assert 250 < plan["targets_per_example"] < 280  # the reference counts about 264, with a start token and two ends
    assert 25 < plan["memory"]["total"] / 2**30 < 80  # one GPU
    table = [(row["progress"], row["closed"], row["silent"]) for row in plan["schedule"]]
    if "stage1" in name:  # the book stays open; thoughts fall silent from 10 % to 60 %
        expected = [(0.0, 0.0, 0.0), (0.3, 0.0, 0.4), (0.6, 0.0, 1.0), (1.0, 0.0, 1.0)]
    else:  # annealing dropout
        expected = [(0.0, 0.0, 1.0), (0.3, 0.5, 1.0), (0.6, 1.0, 1.0), (1.0, 1.0, 1.0)]
    assert [pytest.approx(row) for row in expected] == table


@pytest.mark.parametrize("name", LLAMA)
def test_paper_configs_say_what_the_paper_says(name: str) -> None:
    config = read(name)
    first = "stage1" in name
    assert config.task is not None
    assert (config.task.depth, config.task.lengths, config.task.text) == (5, (20, 40), "released")
    assert f"-n{config.task.chars}" in name
    assert config.task.codebook == ("fresh" if first else 0)
    assert config.task.chain == ("explicit" if first else "silent")
    training = config.training
    assert (training.batch_size, training.learning_rate, training.warmup, training.epochs) == (64, 1e-4, 0.06, 1)
    assert (training.schedule, training.betas, training.bf16) == ("cosine", (0.9, 0.95), True)
    assert training.weight_decay == (1e-4 if first else 0.0)
    assert config.think == "<|reserved_special_token_100|>"
    if not first:
        assert config.curriculum == curriculum_named("anneal")


@pytest.mark.parametrize("curriculum", ["fixed:0.2", "no-context", "no-dropout", "wrong-context"])
def test_the_other_curves_are_one_flag_away(curriculum: str) -> None:
    config = configured("llama-3b-stage2-n8", [], {"curriculum": curriculum})
    assert config.curriculum == curriculum_named(curriculum)
    assert config.samples == read("llama-3b-stage2-n8").samples


def test_stage_two_starts_where_stage_one_ends() -> None:
    for n in (8, 10):
        first, second = read(f"llama-3b-stage1-n{n}"), read(f"llama-3b-stage2-n{n}")
        assert first.model.path == "meta-llama/Llama-3.2-3B-Instruct"
        assert second.model.path == f"runs/llama-3b-stage1-n{n}"
        assert first.model.model_copy(update={"path": None}) == second.model.model_copy(update={"path": None})


def test_a_shape_is_needed_where_the_files_are_not(capsys: pytest.CaptureFixture[str]) -> None:
    """The fall-back is the shape in the config: without it, a model that cannot be had is an error."""
    more = ["--set", "model.vocabulary=null"]
    assert main(["learn", "--config", "llama-3b-stage2-n8", "--dry-run", *more]) == 2
    assert "cannot load the model 'runs/llama-3b-stage1-n8'" in capsys.readouterr().err


def test_a_config_that_is_not_there_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["learn", "--config", "llama-3b-stage2-n9", "--dry-run"]) == 2
    assert "did you mean 'llama-3b-stage2-n" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["tiny-mlt-stage1", "tiny-mlt-stage2"])
def test_tiny_configs_are_tiny(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    plan = dry_run(name, capsys)
    assert plan["parameters"] < 1e6
    assert plan["tokens"] < 2e7


@pytest.mark.slow
def test_the_tiny_configs_run_one_after_the_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    short = ["--samples", "192", "--set", "exam.samples=16", "--json"]
    assert main(["prepare", "--config", "tiny-mlt-stage1", "--out", str(first), *short]) == 0
    assert main(["learn", "--config", "tiny-mlt-stage2", "--model", str(first), "--out", str(second), *short]) == 0
    results = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(result["steps"], result["samples"]) for result in results] == [(3, 192), (3, 192)]
