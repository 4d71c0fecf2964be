import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openbook.base.errors import InputError, MachineError
from openbook.task import Codebook
from openbook.task.dataset import DatasetSpec
from openbook.task.encoder import RecordEncoder
from openbook.task.formats import CompactFormat
from openbook.task.writer import partial_path, state_path, write_dataset

SPEC = DatasetSpec(CompactFormat(2, 3), 40, Codebook.sample(2, 3), lengths=(2, 8))
WHOLE = RecordEncoder(SPEC).lines(0, 40)


def _left_behind(path: Path, content: bytes, spec: DatasetSpec = SPEC) -> None:
    """What a killed run leaves."""
    partial_path(path).write_bytes(content)
    state_path(path).write_text(json.dumps(spec.describe()))


def _only(path: Path) -> bool:
    return [item.name for item in path.parent.iterdir()] == [path.name]


def test_an_unbroken_run_leaves_the_file_and_nothing_else(tmp_path: Path) -> None:
    heard: list[int] = []
    written = write_dataset(SPEC, tmp_path / "data.jsonl", advance=heard.append)
    assert (tmp_path / "data.jsonl").read_bytes() == WHOLE
    assert (written.records, written.bytes, written.resumed_at, sum(heard)) == (40, len(WHOLE), 0, 40)
    assert _only(tmp_path / "data.jsonl")


@given(st.integers(0, len(WHOLE)))
def test_a_run_cut_off_anywhere_ends_byte_identical(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    path = tmp_path_factory.mktemp("cut") / "data.jsonl"
    _left_behind(path, WHOLE[:cut])
    written = write_dataset(SPEC, path)
    assert path.read_bytes() == WHOLE
    assert written.resumed_at == WHOLE[:cut].count(b"\n")
    assert _only(path)


SLOW_RUN = """
import sys, time
from pathlib import Path
from openbook.task import Codebook
from openbook.task.dataset import DatasetSpec
from openbook.task.formats import CompactFormat
from openbook.task.writer import write_dataset
spec = DatasetSpec(CompactFormat(2, 3), 20_000, Codebook.sample(2, 3), lengths=(2, 8))
write_dataset(spec, Path(sys.argv[1]), advance=lambda records: time.sleep(float(sys.argv[2])))
"""


def test_a_killed_process_is_continued_byte_for_byte(tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole.jsonl", tmp_path / "broken.jsonl"
    subprocess.run([sys.executable, "-c", SLOW_RUN, whole, "0"], check=True)
    for size in (10_000, 500_000):  # killed twice, the second time while it continues
        process = subprocess.Popen([sys.executable, "-c", SLOW_RUN, broken, "0.2"])
        while not partial_path(broken).exists() or partial_path(broken).stat().st_size < size:
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        assert not broken.exists()
    subprocess.run([sys.executable, "-c", SLOW_RUN, broken, "0"], check=True)
    assert broken.read_bytes() == whole.read_bytes()
    assert sorted(item.name for item in tmp_path.iterdir()) == ["broken.jsonl", "whole.jsonl"]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (replace(SPEC, seed=1), "seed was 1, is 0"),
        (replace(SPEC, samples=41), "samples was 41, is 40"),
        (replace(SPEC, codebook=Codebook.sample(2, 3, seed=1)), "codebook was"),
        (replace(SPEC, text=CompactFormat(2, 3, 6)), "tokens_per_rule was 6, is 4"),
    ],
)
def test_the_partial_file_of_another_dataset_is_refused(tmp_path: Path, other: DatasetSpec, message: str) -> None:
    path = tmp_path / "data.jsonl"
    _left_behind(path, b"something of value\n", other)
    with pytest.raises(InputError, match=message):
        write_dataset(SPEC, path)
    assert partial_path(path).read_bytes() == b"something of value\n"
    assert not path.exists()
    write_dataset(SPEC, path, force=True)
    assert path.read_bytes() == WHOLE
    assert _only(path)


@pytest.mark.parametrize("state", [None, "{", "[]"])
def test_a_partial_file_without_its_description_is_refused(tmp_path: Path, state: str | None) -> None:
    path = tmp_path / "data.jsonl"
    partial_path(path).write_bytes(WHOLE[:1000])
    if state is not None:
        state_path(path).write_text(state)
    with pytest.raises(InputError, match="missing or damaged"):
        write_dataset(SPEC, path)


@pytest.mark.parametrize("content", [b"zeros\0\0\0\n", WHOLE[:-1] + b" \n", WHOLE + WHOLE, WHOLE + b"{}\n"])
def test_a_damaged_partial_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "data.jsonl"
    _left_behind(path, content)
    with pytest.raises(InputError, match="is damaged: delete it"):
        write_dataset(SPEC, path)
    assert not path.exists()


def test_an_existing_file_is_kept_unless_forced(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text("precious")
    with pytest.raises(InputError, match=r"exists already.*--force"):
        write_dataset(SPEC, path)
    assert path.read_text() == "precious"
    write_dataset(SPEC, path, force=True)
    assert path.read_bytes() == WHOLE


def test_a_link_keeps_pointing_at_the_file_that_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    target, link = tmp_path / "there" / "data.jsonl", tmp_path / "link.jsonl"
    target.write_text("old")
    link.symlink_to(target)
    write_dataset(SPEC, link, force=True)
    assert link.is_symlink()
    assert target.read_bytes() == WHOLE


def test_a_failure_while_forced_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text("precious")

    def full(records: int) -> None:
        if records:
            raise OSError(28, "No space left on device")

    with pytest.raises(MachineError, match=r"No space left on device: make room and run the same command again"):
        write_dataset(SPEC, path, force=True, advance=full)
    assert path.read_text() == "precious"
    assert partial_path(path).read_bytes() == WHOLE  # complete, so the next run only renames it
    assert write_dataset(SPEC, path, force=True).resumed_at == 40


def test_a_failure_before_the_first_record_leaves_nothing(tmp_path: Path) -> None:
    def refuse(records: int) -> None:
        raise OSError(13, "Permission denied")

    with pytest.raises(MachineError, match="Permission denied: choose a place"):
        write_dataset(SPEC, tmp_path / "data.jsonl", advance=refuse)
    assert list(tmp_path.iterdir()) == []


def test_two_runs_cannot_write_one_file(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    with partial_path(path).open("wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(InputError, match="another run is writing"):
            write_dataset(SPEC, path)
    assert partial_path(path).exists()


@pytest.mark.parametrize(
    ("place", "kind", "message"),
    [
        ("missing/data.jsonl", MachineError, "the folder .* does not exist: make it first"),
        ("file/data.jsonl", MachineError, "Not a directory"),
        ("folder", InputError, "not a file that can be replaced"),
        ("pipe", InputError, "not a file that can be replaced"),
        ("circle", MachineError, "choose another place"),
        ("x" * 300, MachineError, "File name too long"),
    ],
)
def test_targets_that_cannot_be_written(tmp_path: Path, place: str, kind: type[Exception], message: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    with pytest.raises(kind, match=message):
        write_dataset(SPEC, tmp_path / place, force=True)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(MachineError, match="Permission denied: choose a place that can be written to"):
        write_dataset(SPEC, tmp_path / "data.jsonl")
