"""What was computed before is computed now: weights and numbers of short runs, bit for bit.

A change that means to leave results alone is held to `tests/golden.json`. One that means to change them records them
anew, in a commit that says why:

    OPENBOOK_RECORD_GOLDEN=1 .venv/bin/python -m pytest tests/test_golden.py

Floating-point sums depend on the processor's instructions and on torch. Where either is not the one of the record,
numbers are held to a tolerance, and hashes of weights are not compared.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from openbook.cli import main

RECORD = Path(__file__).parent / "golden.json"
FACTS = Path(__file__).parents[1] / "examples" / "facts.jsonl"
RECORDING = "OPENBOOK_RECORD_GOLDEN"
PASSING = {"seconds", "cpu_seconds", "run"}  # what differs from call to call
WORDS = {"advice", "warnings", "claim", "story"}  # sentences for people, which may be put better
TOLERANCE = 0.02  # of numbers on another processor

pytestmark = pytest.mark.slow


def machine() -> str:
    return f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}"


def weights_hash(folder: Path) -> str:
    """A hash of the tensors themselves, whatever else the file says."""
    digest = hashlib.sha256()
    for name, tensor in sorted(load_file(folder / "model" / "model.safetensors").items()):
        digest.update(name.encode() + str(tuple(tensor.shape)).encode())
        digest.update(tensor.reshape(-1).contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def lasting(value: Any) -> Any:
    """Without times, paths and sentences."""
    if isinstance(value, dict):
        return {key: lasting(item) for key, item in value.items() if key not in PASSING | WORDS}
    return [lasting(item) for item in value] if isinstance(value, list) else value


def close(before: Any, now: Any) -> bool:
    if isinstance(before, dict):
        return isinstance(now, dict) and all(key in now and close(before[key], now[key]) for key in before)
    if isinstance(before, list):
        return isinstance(now, list) and len(before) == len(now) and all(map(close, before, now))
    if isinstance(before, float) and isinstance(now, int | float):
        return math.isclose(before, now, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    return bool(before == now)


def holds(before: Any, now: Any) -> bool:
    """Every number of the record is there and the same; what was added since is of no concern."""
    if isinstance(before, dict):
        return isinstance(now, dict) and all(key in now and holds(before[key], now[key]) for key in before)
    if isinstance(before, list):
        return isinstance(now, list) and len(before) == len(now) and all(map(holds, before, now))
    return bool(before == now)


def check(name: str, values: dict[str, Any]) -> None:
    record = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {"machine": machine(), "runs": {}}
    values = json.loads(json.dumps(lasting(values)))
    if os.environ.get(RECORDING):
        record["machine"] = machine()
        record["runs"][name] = values
        RECORD.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        return
    before = record["runs"][name]
    if record["machine"] == machine():
        assert holds(before, values), f"{name} is not what it was"
    else:
        loose = {key: value for key, value in before.items() if key != "weights"}
        assert close(loose, values), f"{name} is not what it was"


@pytest.fixture
def answer(capsys: pytest.CaptureFixture[str]) -> Any:
    """Run a command with --json on one thread, and return its object."""

    def run(*arguments: Any) -> dict[str, Any]:
        torch.set_num_threads(1)
        capsys.readouterr()
        assert main([*map(str, arguments), "--json"]) in (0, 4)
        return json.loads(capsys.readouterr().out)

    return run


def test_twenty_steps_of_a_student(answer: Any, tmp_path: Path) -> None:
    run = tmp_path / "student"
    said = answer("learn", "--model", "student-3-8", "--samples", 320, "--out", run, "--set", "exam.samples=64")
    assert said["steps"] == 20
    check("student", {"weights": weights_hash(run), "result": said})
    check("exam", answer("exam", run, "--samples", 48, "--sections"))


def test_twenty_steps_of_own_data(answer: Any, tmp_path: Path) -> None:
    run = tmp_path / "facts"
    shape = ["--samples", 28, "--epochs", 5, "--set", "training.batch_size=7", "--set", "model.hidden_size=64"]
    said = answer("learn", "--data", FACTS, *shape, "--out", run)
    assert said["steps"] == 20
    check("own-data", {"weights": weights_hash(run), "result": said})
    check("own-data-exam", answer("exam", run, "--generate"))


def test_a_chain_of_thought_falls_silent(answer: Any, tmp_path: Path) -> None:
    run = tmp_path / "stage-one"
    shape = ["--depth", 2, "--chars", 3, "--samples", 320, "--set", "task.lengths=[4, 6]", "--set", "exam.samples=16"]
    said = answer("prepare", "--method", "chain-of-thought", *shape, "--out", run)
    check("chain-of-thought", {"weights": weights_hash(run), "result": said})


def test_a_reading_course(answer: Any, tmp_path: Path) -> None:
    run = tmp_path / "reader"
    shape = ["--depth", 1, "--chars", 3, "--set", "task.lengths=[4, 8]", "--set", "reading.most_steps=12"]
    torch.set_num_threads(1)
    assert main(["prepare", *map(str, shape), "--set", "exam.samples=16", "--out", str(run)]) in (0, 1)
    result = json.loads((run / "result.json").read_text())
    check("reading", {"weights": weights_hash(run), "result": result})


def test_the_surrogate(answer: Any) -> None:
    check("surrogate", answer("surrogate", "learn", "--algorithm", "full", "--depth", 3, "--chars", 4))
    check("surrogate-gap", answer("surrogate", "gap", "--chars", 2, "--depth", 3, "--seeds", 6, "--budget", 20000))


def test_a_construction(answer: Any) -> None:
    shape = ["--depth", 2, "--chars", 4, "--sequences", 320, "--length", 8, "--rates", 0.01]
    check("construct-train", answer("construct", "train", *shape))
    check(
        "construct-verify",
        answer("construct", "verify", "--depth", 2, "--chars", 4, "--strings", 400, "--codebooks", 40),
    )


def test_an_audit(answer: Any, tmp_path: Path) -> None:
    run = tmp_path / "audited"
    answer("learn", "--data", FACTS, "--model", "scratch", "--epochs", 40, "--out", run)
    quick = ["--attacks", "completion", "exposure", "membership", "--permutations", 2]
    report = answer("audit", run, "--arms", *quick)
    arms = [{key: value for key, value in arm.items() if key != "runs"} for arm in report["arms"]]  # their folders
    check("audit", {"arms": arms, "attacks": report["attacks"], "verdict": report["verdict"]})


def test_a_difference_is_found_out() -> None:
    assert holds({"a": [1.0]}, {"a": [1.0], "new": 2}) and holds([{"a": 1}], [{"a": 1, "new": 2}])
    assert not holds([{"a": 1}], [{"a": 2}]) and not holds([1], [1, 2]) and not holds([1], [])
    assert not holds({"a": [1.0]}, {"a": [1.0 + 1e-15]})
    assert not holds({"a": 1}, {}) and close({"a": [1.0]}, {"a": [1.001]}) and not close({"a": [1.0]}, {"a": [1.1]})
