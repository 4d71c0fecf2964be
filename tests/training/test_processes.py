"""Several processes train what one does, and leave one run behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from openbook.cli import main
from openbook.training.folder import RunFolder
from openbook.training.processes import Onlooker, is_first

FACTS = Path(__file__).parents[2] / "examples" / "facts.jsonl"
SETTINGS = ["model.hidden_size=16", "model.layers=1", "model.heads=2", "training.micro_batch_size=3", "samples=22"]
LEARN = ["learn", "--data", str(FACTS), *(word for setting in SETTINGS for word in ("--set", setting))]


@pytest.mark.slow
def test_two_processes_train_what_one_does(tmp_path: Path) -> None:
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*launch, "-m", "openbook.cli", *LEARN, "--json", "--out", str(tmp_path / "two")],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=500,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout)  # one object, from one of them
    assert result["steps"] == 3  # the last step has six positions, three for each process
    assert main([*LEARN, "--out", str(tmp_path / "one")]) == 0
    two, one = RunFolder(tmp_path / "two"), RunFolder(tmp_path / "one")
    assert two.damage() == []
    weights = [load_file(run.model_folder / "model.safetensors") for run in (two, one)]
    for name, value in weights[1].items():
        torch.testing.assert_close(weights[0][name], value, msg=name)
    losses = [[row["loss"] for row in run.metrics() if "loss" in row] for run in (two, one)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_the_first_process_is_the_only_one_that_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_first()
    monkeypatch.setenv("RANK", "1")
    assert not is_first()
    run = Onlooker(tmp_path)
    with run.lock():
        run.log(loss=1.0)
        run.cut_log(0)
        run.save_model(None, None)
        run.drop_checkpoints()
        run.finish({})
    assert list(tmp_path.iterdir()) == []
