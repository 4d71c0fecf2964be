import hashlib
import json
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from openbook.cli import main
from openbook.task import Codebook
from openbook.task.dataset import DatasetSpec, record
from openbook.task.formats import CompactFormat, ReleasedFormat
from openbook.task.writer import partial_path, state_path

EXECUTABLE = [sys.executable, "-m", "openbook.cli", "task"]


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("options", "spec"),
    [
        ("", DatasetSpec(ReleasedFormat(5, 8), 6, Codebook.sample(5, 8))),
        (
            "--depth 2 --chars 4 --seed 3 --start 10 --lengths 4 50 --thoughts 50 --chain explicit --unused 1",
            DatasetSpec(ReleasedFormat(2, 4, 50), 6, Codebook.sample(2, 4, 3), 3, 10, (4, 50), 1.0, "explicit"),
        ),
        (
            "--depth 3 --chars 6 --fresh-codebooks --format compact --tokens-per-rule 6 --unused 0",
            DatasetSpec(CompactFormat(3, 6, 6), 6, None, unused=0.0),
        ),
    ],
)
def test_the_file_holds_the_records_asked_for(options: str, spec: DatasetSpec, tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    assert main(["task", "--out", str(path), "--samples", "6", *options.split()]) == 0
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert records == [record(spec, spec.start + i) for i in range(6)]


def test_the_codebook_of_a_file_is_used(tmp_path: Path) -> None:
    codebook = Codebook.sample(2, 3, seed=77)
    (tmp_path / "codebook.json").write_text(json.dumps(codebook.to_json()))
    path = tmp_path / "data.jsonl"
    assert main(["task", "-o", str(path), "--samples", "2", "--codebook", str(tmp_path / "codebook.json")]) == 0
    spec = DatasetSpec(ReleasedFormat(2, 3), 2, codebook)
    assert [json.loads(line) for line in path.read_text().splitlines()] == [record(spec, 0), record(spec, 1)]


def test_it_reports_what_it_wrote(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "data.jsonl"
    options = ["--samples", "30", "--depth", "2", "--chars", "3"]
    assert main(["task", "--out", str(path), *options, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["samples"] == 30
    assert data["bytes"] == path.stat().st_size
    assert data["resumed_at"] == 0
    assert (data["dataset"]["depth"], data["dataset"]["chars"], data["dataset"]["format"]) == (2, 3, "released")
    assert main(["task", "--out", str(path), *options, "--force"]) == 0
    text = capsys.readouterr().out
    assert "MLT(2, 3)" in text and "30" in text


def test_start_gives_the_samples_that_follow(tmp_path: Path) -> None:
    for name, start, samples in (("all", 0, 30), ("first", 0, 20), ("rest", 20, 10)):
        options = ["--samples", str(samples), "--start", str(start), "--fresh-codebooks"]
        assert main(["task", "--out", str(tmp_path / name), *options]) == 0
    assert (tmp_path / "first").read_bytes() + (tmp_path / "rest").read_bytes() == (tmp_path / "all").read_bytes()


def test_equal_seeds_give_equal_files_also_after_a_kill(tmp_path: Path) -> None:
    options = ["--depth", "5", "--chars", "8", "--samples", "6000", "--seed", "4"]
    paths = [tmp_path / name for name in ("one", "two", "killed")]
    for path in paths[:2]:
        subprocess.run([*EXECUTABLE, "--out", path, *options], check=True, capture_output=True)
    process = subprocess.Popen([*EXECUTABLE, "--out", paths[2], *options], stderr=subprocess.DEVNULL)
    while not partial_path(paths[2]).exists() or partial_path(paths[2]).stat().st_size == 0:
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "the run ended before it could be killed"
    assert not paths[2].exists()
    found = subprocess.run([*EXECUTABLE, "--out", paths[2], *options, "--json"], check=True, capture_output=True)
    assert json.loads(found.stdout)["resumed_at"] > 0
    assert len({_digest(path) for path in paths}) == 1


def test_another_seed_does_not_continue_a_partial_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "data.jsonl"
    partial_path(path).write_text("{}\n")
    spec = DatasetSpec(ReleasedFormat(2, 3), 5, Codebook.sample(2, 3, seed=1), seed=1)
    state_path(path).write_text(json.dumps(spec.describe()))
    assert main(["task", "--out", str(path), "--samples", "5", "--depth", "2", "--chars", "3"]) == 2
    assert "seed was 1, is 0" in capsys.readouterr().err
    assert partial_path(path).read_text() == "{}\n"


@pytest.mark.parametrize("good_file", [False, True])
def test_a_full_disk(good_file: bool, tmp_path: Path) -> None:
    """The operating system refuses to let the file grow past a megabyte, as a full disk does."""
    path = tmp_path / "data.jsonl"
    if good_file:
        path.write_text("precious")
    command = [*EXECUTABLE, "--out", path, "--samples", "3000", "--depth", "3", "--chars", "4", "--force"]
    limit = 1 << 20
    found = subprocess.run(
        command,
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    assert found.returncode == 1
    assert found.stdout == ""
    assert "File too large: make room and run the same command again" in found.stderr
    assert len(found.stderr.splitlines()) == 1
    assert (path.read_text() == "precious") if good_file else not path.exists()
    subprocess.run(command, check=True, capture_output=True)
    other = tmp_path / "unbroken.jsonl"
    subprocess.run([*EXECUTABLE, "--out", other, *command[6:]], check=True, capture_output=True)
    assert _digest(path) == _digest(other)
