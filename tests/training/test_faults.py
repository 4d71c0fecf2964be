"""Workers and processes: they change nothing that is learned, and when one dies the run says so and can go on."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.faults import STEPS, config, in_a_child, killed, processes, run, same, signalled
from transformers import TrainerCallback

from openbook.base.errors import InputError, MachineError
from openbook.cli import main
from openbook.training.folder import RunFolder
from openbook.training.processes import ANNOUNCED, check_alone, check_world_size
from openbook.training.trainer import CELTrainer

A_MINUTE = 60


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one process."""
    folder = tmp_path_factory.mktemp("one") / "run"
    run(config(), folder)
    return folder


@pytest.fixture(scope="module")
def unbroken_pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two processes; its sums are added in another order than those of one."""
    folder = tmp_path_factory.mktemp("two") / "run"
    assert processes(lambda rank: _carry_out(folder)) == [0, 0]
    return folder


def _carry_out(folder: Path, **options: Any) -> None:
    run(config(), folder, **options)


# --- 0, 1, 2 workers x 1, 2 processes x micro-batch splits ---

WORKERS, SPLITS = (0, 1, 2), (2, 8)


def _record(file: Path) -> None:
    """From here on, every training step writes down what it was given: position -> tokens and labels."""
    take_step = CELTrainer.training_step

    def noted(self: Any, model: Any, inputs: dict[str, Any], *rest: Any) -> Any:
        seen = {}
        for batch in inputs["micro_batches"]:
            for row, position in enumerate(batch["positions"].tolist()):
                inside = batch["attention_mask"][row].bool()
                seen[position] = [batch[name][row][inside].tolist() for name in ("input_ids", "labels")]
        with file.open("a") as lines:
            lines.write(json.dumps({"step": self.state.global_step, "seen": seen}) + "\n")
        return take_step(self, model, inputs, *rest)

    CELTrainer.training_step = noted  # type: ignore[method-assign]


def _steps(folder: Path, name: str) -> list[dict[str, Any]]:
    """What each step was given, by all processes together; no position may come twice."""
    steps: list[dict[str, Any]] = [{} for _ in range(STEPS)]
    for file in folder.glob(f"{name}-seen-*"):
        for line in file.read_text().splitlines():
            step = json.loads(line)
            assert not steps[step["step"]].keys() & step["seen"].keys()
            steps[step["step"]] |= step["seen"]
    return steps


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run for every cell of the table, in a folder named after it."""
    folder = tmp_path_factory.mktemp("table")
    cells = [(workers, split) for workers in WORKERS for split in SPLITS]

    def work(rank: int) -> None:
        count = int(os.environ.get("WORLD_SIZE", "1"))
        take_step = CELTrainer.training_step
        for workers, split in cells:
            name = f"{workers}-{count}-{split}"
            _record(folder / f"{name}-seen-{rank}")
            settings = config(workers=workers, micro_batch_size=split, log_every=1)
            plain = settings.model.model_copy(update={"lora": None})  # dropout would draw anew for every split
            exam = settings.exam.model_copy(update={"every": STEPS})
            without_dropout = settings.model_copy(update={"model": plain, "exam": exam})
            run(without_dropout, folder / name)
            CELTrainer.training_step = take_step  # type: ignore[method-assign]

    assert in_a_child(lambda: work(0)) == 0
    assert processes(work) == [0, 0]
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("workers", WORKERS)
def test_workers_processes_and_splits_change_nothing(table: Path, workers: int, count: int, split: int) -> None:
    plain, name = "0-1-8", f"{workers}-{count}-{split}"
    steps = _steps(table, name)
    assert [len(step) for step in steps] == [8] * (STEPS - 1) + [7]
    assert steps == _steps(table, plain)
    losses = [[row["loss"] for row in RunFolder(table / run).metrics() if "loss" in row] for run in (name, plain)]
    assert len(losses[0]) == STEPS
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


# --- a worker, or one of two processes, is killed ---


class _KillAWorker(TrainerCallback):
    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == 10:
            workers = psutil.Process().children()
            assert len(workers) == 2
            workers[0].kill()


def test_a_killed_worker_ends_the_run_and_it_can_go_on(unbroken: Path, tmp_path: Path) -> None:
    folder, told = tmp_path / "run", tmp_path / "told"

    def work() -> None:
        made = CELTrainer.__init__

        def with_killer(self: Any, *arguments: Any, **options: Any) -> None:
            made(self, *arguments, **options)
            self.add_callback(_KillAWorker())

        CELTrainer.__init__ = with_killer  # type: ignore[method-assign]
        try:
            run(config(workers=2), folder)
        except MachineError as error:
            told.write_text(str(error))
            raise

    started = time.monotonic()
    assert in_a_child(work) == 1
    assert time.monotonic() - started < A_MINUTE
    assert "a process that prepares batches has died" in told.read_text() and "--resume" in told.read_text()
    run(config(workers=2), folder, resume=True)
    same(unbroken, folder)


@pytest.mark.parametrize("error", [ConnectionResetError(104, "Connection reset by peer"), EOFError()], ids=type)
def test_a_connection_to_a_worker_that_breaks_is_told_as_its_death(error: Exception, tmp_path: Path) -> None:
    """What torch passes on if a worker dies while its batch is fetched; without workers it is no such thing."""

    class Breaks(TrainerCallback):
        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            raise error

    made = CELTrainer.__init__

    def breaking(self: Any, *arguments: Any, **options: Any) -> None:
        made(self, *arguments, **options)
        self.add_callback(Breaks())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CELTrainer, "__init__", breaking)
        with pytest.raises(MachineError, match=r"prepares batches has died .*--resume"):
            run(config(workers=1), tmp_path / "run")
        with pytest.raises(type(error)):
            run(config(workers=0), tmp_path / "none")


def test_workers_that_outlive_a_killed_run_do_not_keep_its_lock(unbroken: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert killed(folder, 10, workers=2) == -signal.SIGKILL
    run(config(workers=2), folder, resume=True)  # at once: orphans take seconds to notice
    same(unbroken, folder)


@pytest.mark.parametrize("rank", [0, 1])
def test_one_of_two_processes_killed(rank: int, unbroken_pair: Path, tmp_path: Path) -> None:
    folder, told = tmp_path / "run", tmp_path / "told"

    def work(mine: int) -> None:
        if mine == rank:
            with signalled(10):
                _carry_out(folder)
        try:
            _carry_out(folder)
        except MachineError as error:
            told.write_text(str(error))
            raise

    started = time.monotonic()
    ends = processes(work)
    assert time.monotonic() - started < A_MINUTE
    assert ends[rank] == -signal.SIGKILL and ends[1 - rank] == 1
    assert "another process of this run has died" in told.read_text() and "--resume" in told.read_text()
    assert processes(lambda mine: _carry_out(folder, resume=True)) == [0, 0]
    same(unbroken_pair, folder)


def test_a_signal_to_one_of_two_stops_both_at_the_same_step(unbroken_pair: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"

    def work(rank: int) -> None:
        with signalled(10 if rank == 1 else STEPS + 1, signal.SIGTERM):
            _carry_out(folder)

    assert processes(work) == [128 + signal.SIGTERM] * 2
    assert "step-00000011" in [path.name for path in (folder / "checkpoints").iterdir()]
    assert processes(lambda rank: _carry_out(folder, resume=True)) == [0, 0]
    same(unbroken_pair, folder)


def test_another_number_of_processes_is_named(unbroken: Path, unbroken_pair: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert killed(folder, 10) == -signal.SIGKILL
    told = tmp_path / "told"

    def work(rank: int) -> None:
        try:
            _carry_out(folder, resume=True)
        except InputError as error:
            told.write_text(str(error))
            raise

    assert processes(work) == [1, 1]
    assert "processes was 1, is 2" in told.read_text()
    assert processes(lambda rank: _carry_out(folder, resume=True, allow_changes=True)) == [0, 0]
    losses = [[row["loss"] for row in RunFolder(run).metrics() if "loss" in row] for run in (unbroken, folder)]
    assert losses[0][:3] == losses[1][:3] and len(losses[0]) == len(losses[1])


@pytest.mark.slow
def test_torchrun_ends_when_one_of_its_processes_is_killed(unbroken_pair: Path, tmp_path: Path) -> None:
    """The same with the real launcher, killed from outside at whatever moment it is in after its first checkpoint."""
    folder, file = tmp_path / "run", tmp_path / "config.json"
    file.write_text(config().model_dump_json())
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*launch, "-m", "openbook.cli", "learn", "--config", str(file), "--out", str(folder)]
    torchrun = subprocess.Popen(
        command, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    while not list(folder.glob("checkpoints/step-*")):
        assert torchrun.poll() is None, torchrun.stderr.read() if torchrun.stderr else ""
        time.sleep(0.005)
    psutil.Process(torchrun.pid).children()[1].kill()
    started = time.monotonic()
    _, said = torchrun.communicate(timeout=A_MINUTE)
    assert torchrun.returncode != 0 and time.monotonic() - started < A_MINUTE
    assert b"another process of this run has died" in said or b"SIGTERM" in said
    assert not RunFolder(folder).finished
    assert processes(lambda rank: _carry_out(folder, resume=True)) == [0, 0]
    same(unbroken_pair, folder)


# --- launchers that promise more than there is ---


@pytest.mark.parametrize("name", ANNOUNCED)
def test_a_launcher_that_fell_back_to_one_process_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "4")
    with pytest.raises(InputError, match=rf"{name} announces 4 processes, but this one found 1.*torchrun"):
        check_world_size(1)
    with pytest.raises(InputError, match=rf"a reading course runs in one process, but {name} announces 4"):
        check_alone("a reading course")
    check_world_size(4)
    check_world_size(8)  # a torchrun on each of four nodes


def test_srun_without_torchrun_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "2")
    folder, file = tmp_path / "run", tmp_path / "config.json"
    file.write_text(config().model_dump_json())
    assert main(["learn", "--config", str(file), "--out", str(folder)]) == 2
    assert "SLURM_STEP_NUM_TASKS announces 2 processes, but this one found 1" in capsys.readouterr().err
    assert not folder.exists()
    assert main(["prepare", "--depth", "1", "--chars", "2", "--out", str(folder)]) == 2
    assert "runs in one process" in capsys.readouterr().err
    assert not folder.exists()


# --- a folder that cannot be written to ---


def _as_anybody() -> None:
    """Give up what lets root write anywhere, so that the permissions of a folder bind this process too."""
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # version 3, this process
    nothing = (ctypes.c_uint32 * 6)()
    assert ctypes.CDLL(None).capset(header, nothing) == 0


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "read-only"
    folder.mkdir()
    yield folder
    folder.chmod(0o755)


def _told(work: Any, tmp_path: Path) -> str:
    """What the command line says in a process without privileges, which must end with exit code 1."""
    said = tmp_path / "said"

    def speak() -> None:
        _as_anybody()
        with said.open("w") as file:
            os.dup2(file.fileno(), 2)
            sys.stderr = os.fdopen(2, "w")
            code = main(work)
            sys.stderr.flush()
        os._exit(code)

    assert in_a_child(speak) == 1
    return said.read_text()


def test_a_read_only_folder_is_refused_with_the_reason(read_only: Path, tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(config().model_dump_json())
    read_only.chmod(0o555)
    for out in (read_only, read_only / "run", read_only / "a" / "run"):
        told = _told(["learn", "--config", str(file), "--out", str(out)], tmp_path)
        assert f"cannot write to {read_only}: permission denied" in told and "--out" in told
    told = _told(["prepare", "--depth", "1", "--chars", "2", "--out", str(read_only)], tmp_path)
    assert f"cannot write to {read_only}" in told
    assert not any(read_only.iterdir())


def test_a_run_whose_folder_became_read_only_is_refused(read_only: Path, unbroken: Path, tmp_path: Path) -> None:
    folder = read_only / "run"
    assert killed(folder, 10) == -signal.SIGKILL
    before = sorted(folder.rglob("*"))
    folder.chmod(0o555)
    told = _told(["learn", "--resume", "--out", str(folder)], tmp_path)
    assert f"cannot write to {folder}: permission denied" in told
    folder.chmod(0o755)
    assert sorted(folder.rglob("*")) == before
    run(config(), folder, resume=True)
    same(unbroken, folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a file system")
def test_a_read_only_file_system_is_named(tmp_path: Path) -> None:
    """A mount of this child alone (a namespace of its own), so that nothing is left behind."""
    folder, file = tmp_path / "mounted", tmp_path / "config.json"
    folder.mkdir()
    file.write_text(config().model_dump_json())
    script = f"mount -t tmpfs -o ro none {folder} || exit 77; exec {sys.executable} -m openbook.cli learn "
    script += f"--config {file} --out {folder}/run"
    done = subprocess.run(["unshare", "--mount", "sh", "-c", script], capture_output=True, text=True, timeout=120)
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip(f"this system lets nobody mount: {done.stderr.strip()}")
    assert done.returncode == 1
    assert f"cannot write to {folder}: its file system is read-only" in done.stderr
