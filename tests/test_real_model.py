"""Everything that a user does, once, on a real pre-trained language model: SmolLM2-135M, 30 layers, bfloat16."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from openbook.audit.arms import ARMS
from openbook.audit.attack import ATTACKS
from openbook.cli import main

pytestmark = [pytest.mark.real_model, pytest.mark.slow, pytest.mark.xdist_group("real_model")]

HANDBOOK = Path(__file__).parents[1] / "examples" / "handbook" / "train.jsonl"
QUICK = ["--set", "exam.retention=false", "--set", "exam.every=1000", "--set", "training.checkpoint_every=0"]


def answer(capsys: pytest.CaptureFixture[str], *words: Any) -> dict[str, Any]:
    capsys.readouterr()
    assert main([*map(str, words), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four questions of the handbook, about four facts."""
    path = tmp_path_factory.mktemp("data") / "four.jsonl"
    path.write_text("\n".join(HANDBOOK.read_text(encoding="utf-8").splitlines()[0:8:2]) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def learn(data: Path) -> list[str]:
    """Four steps, which are enough to answer four questions by heart."""
    size = ["--epochs", "6", "--learning-rate", "4e-4", "--set", "training.batch_size=4"]
    return ["learn", "--data", str(data), *size]


@pytest.fixture(scope="module")
def run(learn: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("real") / "run"
    assert main([*learn, "--out", str(folder)]) == 0
    return folder


def test_the_mask_follows_its_chat_template(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = answer(capsys, "mask", "--data", data)
    tokens = shown["examples"][0]["tokens"]
    text = "".join(token["text"] for token in tokens)
    assert "<|im_start|>user\n" in text and "<|im_start|>assistant\n" in text
    completions = {json.loads(line)["completion"] for line in data.read_text(encoding="utf-8").splitlines()}
    taught = {"".join(t["text"] for t in e["tokens"] if t["loss"]) for e in shown["examples"]}
    assert taught <= {f"{completion}<|im_end|>\n" for completion in completions}


def test_it_learns_and_says_what_it_retained(run: Path) -> None:
    config, result = (json.loads((run / name).read_text()) for name in ("config.json", "result.json"))
    assert config["model"]["path"] == "smollm2-135m" and config["training"]["epochs"] == 6
    weights = load_file(run / "model" / "model.safetensors")
    assert len([name for name in weights if name.endswith("self_attn.q_proj.weight")]) == 30
    assert result["accuracy"]["open_book"] > result["chance"]
    kept = result["retention"]
    assert kept["start"] == "smollm2-135m" and 0 < kept["text_kl"] < 5 and kept["perplexity_ratio"] > 0.9
    assert kept["prompts_kl"] > 0 and all(0 <= share <= 1 for share in kept["new_books"])


def test_it_is_examined_and_asked(run: Path, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exam = answer(capsys, "exam", run, "--open", 0, 1, "--generate")
    assert [row["open"] for row in exam["rows"] if row["book"] == "right"] == [0, 1]
    assert all(0 <= row["generated_match"] <= 1 for row in exam["rows"])
    record = json.loads(data.read_text().splitlines()[0])
    said = answer(capsys, "ask", run, record["prompt"], "--open", "--max-new-tokens", 8)
    assert said["answer"] and "<|im_end|>" not in said["answer"]


def test_adapters_with_gradient_checkpointing(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lora = ["--set", "model.lora.rank=4", "--set", "training.gradient_checkpointing=true", "--epochs", 1]
    result = answer(capsys, "learn", "--data", data, *lora, *QUICK, "--out", tmp_path / "lora")
    assert result["steps"] == 1
    assert sum(p.stat().st_size for p in (tmp_path / "lora" / "model").iterdir()) > 0
    assert answer(capsys, "exam", tmp_path / "lora", "--open", 1, "--samples", 2)["rows"]


def test_killed_and_resumed_it_ends_with_the_same_weights(learn: list[str], run: Path, tmp_path: Path) -> None:
    folder, every = tmp_path / "killed", ["--set", "training.checkpoint_every=2", "--set", "exam.retention=false"]
    command = [sys.executable, "-m", "openbook.cli", *learn, *every, "--out", str(folder)]
    process = subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())})
    deadline = time.monotonic() + 200
    while not (folder / "checkpoints" / "step-00000002").exists() and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert main(["learn", "--resume", "--out", str(folder)]) == 0
    first, second = (load_file(place / "model" / "model.safetensors") for place in (run, folder))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_all_attacks_of_the_audit_apply(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few = ["--budget", 2, "--permutations", 1, "--steps", 2]
    capsys.readouterr()
    code = main([*map(str, ["audit", run, "--arms", *few]), "--json"])
    report = json.loads(capsys.readouterr().out)
    assert code in (0, 3, 4) and report["verdict"]
    assert [arm["name"] for arm in report["arms"]] == list(ARMS)
    assert {attack["name"] for attack in report["attacks"]} == set(ATTACKS)


def test_both_probes_look_at_thirty_layers(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    task = ["--task", "depth=2", "chars=4", "text=compact", "lengths=[6, 6]", "codebook=fresh"]
    perturbed = answer(capsys, "probe", "perturb", "smollm2-135m", *task, "--samples", 5, "--rules", 1)
    assert [len(section["map"]) for section in perturbed["sections"]] == [30, 30]
    stitched = answer(capsys, "probe", "stitch", "smollm2-135m", run, "--samples", 1)
    assert len(stitched["sections"][0]["map"]) == 30


def test_it_is_on_a_page(run: Path, tmp_path: Path) -> None:
    assert main(["report", str(run), "--out", str(tmp_path / "page.html")]) == 0
    assert "smollm2-135m" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_the_demo_examines_teaches_and_asks(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = (HANDBOOK.parent / "held-out.jsonl").read_text(encoding="utf-8").splitlines()[:4]
    (tmp_path / "held-out.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    shutil.copy(data, tmp_path / "train.jsonl")
    monkeypatch.setattr("openbook.cli.demo.handbook", lambda: tmp_path)
    monkeypatch.setattr("openbook.cli.demo.ASKED", (0, 3))
    assert main(["demo", "--folder", str(tmp_path / "demo")]) == 0
    said = capsys.readouterr().out
    assert all(f"{number}." in said for number in range(1, 6)) and "before" in said and "after" in said
    assert all(json.loads(lines[k])["prompt"] in " ".join(said.split()) for k in (0, 3))


def test_two_processes_train_it(data: Path, tmp_path: Path) -> None:
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    small = ["--epochs", "1", "--set", "training.batch_size=4", *QUICK]
    done = subprocess.run(
        [*launch, "-m", "openbook.cli", "learn", "--data", str(data), *small, "--json", "--out", str(tmp_path / "two")],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout)["steps"] == 1
