"""Sweeps: every combination once, what is done is skipped, what fails is named and stops nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from openbook.base.errors import InputError
from openbook.base.files import write_json
from openbook.cli import main
from openbook.comparison.sweep import SweepConfig, members, run_sweep, status
from openbook.curriculum import curriculum_named
from openbook.training.folder import ERROR, RunFolder
from openbook.training.settings import validated

SETTINGS = """
settings:
  task: {depth: 1, chars: 3, lengths: [4, 4]}
  model: {hidden_size: 16, layers: 1, heads: 1}
  training: {batch_size: 8, micro_batch_size: 8}
  exam: {samples: 4}
  samples: 16
grid:
"""


def test_the_grid_is_every_combination(tmp_path: Path) -> None:
    sweep = validated(
        SweepConfig, {"grid": {"curriculum": ["anneal", "no-context"], "samples": [8, 16], "seed": [0, 1]}}
    )
    listed = members(sweep, tmp_path)
    assert len({member.name for member in listed}) == 8
    assert listed[0].name == "curriculum=anneal,samples=8,seed=0"
    assert listed[-1].config.samples == 16 and listed[-1].config.seed == 1


@pytest.mark.parametrize(
    ("grid", "complaint"),
    [
        ({}, "grid is empty"),
        ({"seed": []}, "grid.seed is empty"),
        ({"sed": [1]}, "did you mean 'seed'"),
        ({"samples": [8, -1]}, "samples=-1"),
        ({"seed": [1, 1]}, "same folder"),
    ],
)
def test_a_bad_grid_is_refused_before_anything_runs(grid: dict, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=complaint):
        members(validated(SweepConfig, {"grid": grid}), tmp_path)


def test_settings_lie_over_the_config_group_by_group(tmp_path: Path) -> None:
    values = {"config": "tiny-mlt-stage2", "grid": {"seed": [0]}}
    (plain,) = members(validated(SweepConfig, values), tmp_path)
    settings = {"training": {"epochs": 2}, "exam.samples": 8}
    (changed,) = members(validated(SweepConfig, {**values, "settings": settings}), tmp_path)
    assert changed.config.exam.samples == 8
    assert changed.config.training == plain.config.training.model_copy(update={"epochs": 2})


def test_settings_of_a_curriculum_lie_over_the_one_that_the_config_names(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("curriculum: no-context\n")
    values = {"config": str(tmp_path / "run.yaml"), "grid": {"seed": [0]}}
    grouped, dotted = (
        members(validated(SweepConfig, {**values, "settings": settings}), tmp_path)[0].config.curriculum
        for settings in ({"curriculum": {"order": "given"}}, {"curriculum.order": "given"})
    )
    assert grouped == dotted and grouped.order == "given"
    assert [rate for _, rate in grouped.drop.points] == [1.0]


def test_presets_of_a_grid_take_the_place_of_the_config_s(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("curriculum: {preset: anneal, drop: '0@0,1@0.8', order: given}\n")
    values = {"config": str(tmp_path / "run.yaml"), "grid": {"curriculum.preset": ["anneal", "no-context"]}}
    found = [member.config.curriculum for member in members(validated(SweepConfig, values), tmp_path)]
    assert found == [curriculum_named(name, order="given") for name in ("anneal", "no-context")]


@pytest.mark.parametrize("executor, options, complaint", [("slurm", {}, "srun"), ("local", {"foo": 1}, "foo")])
def test_a_cluster_that_cannot_be_used_is_named(
    executor: Any, options: dict[str, Any], complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match=f"{executor} cannot be used: .*{complaint}"):
        run_sweep(validated(SweepConfig, {"grid": {"seed": [0]}}), tmp_path / "sweep", executor, options=options)


@pytest.mark.slow
def test_a_sweep_runs_skips_what_is_done_and_names_failures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, folder = tmp_path / "sweep.yaml", tmp_path / "sweep"
    file.write_text(SETTINGS + "  seed: [0]\n  training.max_length: [64, 4]\n")
    command = ["sweep", str(file), "--out", str(folder), "--jobs", "2", "--json"]
    assert main(command) == 1
    rows = {row["training.max_length"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    assert rows[64]["status"] == "done" and 0 <= rows[64]["closed_book"] <= 1
    assert rows[4]["status"] == "failed" and "max_length" in rows[4]["error"]
    finished = (Path(rows[64]["run"]) / "manifest.json").stat().st_mtime_ns
    file.write_text(SETTINGS + "  seed: [0]\n  training.max_length: [64]\n")
    assert main(command) == 0
    assert (Path(rows[64]["run"]) / "manifest.json").stat().st_mtime_ns == finished
    before = (folder / "sweep.json").read_text()
    file.write_text(SETTINGS.replace("samples: 16", "samples: 24") + "  seed: [0]\n  training.max_length: [64]\n")
    capsys.readouterr()
    assert main(command) == 2  # the finished run had other settings
    assert "finished, but with other settings: samples was 16, is 24" in capsys.readouterr().err
    assert (folder / "sweep.json").read_text() == before


def test_a_sweep_that_is_not_there_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", str(tmp_path / "absent.yaml"), "--out", str(tmp_path / "out")]) == 2
    assert "absent.yaml: no such file" in "".join(capsys.readouterr().err.split("\n"))


def test_two_calls_do_not_write_to_one_folder(tmp_path: Path) -> None:
    sweep = validated(SweepConfig, {"grid": {"seed": [0]}})
    with RunFolder(tmp_path).lock(), pytest.raises(InputError, match="another process is writing"):
        run_sweep(sweep, tmp_path)
    assert not (tmp_path / "sweep.json").exists()


def test_a_run_that_ends_well_is_done_whatever_failed_in_its_folder_before(tmp_path: Path) -> None:
    (member,) = members(validated(SweepConfig, {"grid": {"seed": [0]}}), tmp_path)
    run = RunFolder.create(member.folder, {}, {})
    write_json(member.folder / ERROR, {"error": "InputError: another process is writing"})
    assert status(member)["status"] == "failed"
    run.finish({"accuracy": {"closed_book": 1.0, "open_book": 1.0}})
    assert status(member)["status"] == "done" and ERROR not in run.read("manifest.json")
    (member.folder / ERROR).unlink()
    assert run.damage() == []
