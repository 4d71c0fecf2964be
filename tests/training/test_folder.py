"""What a run leaves on disk."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path

import pytest

from openbook.base.environment import environment
from openbook.base.errors import InputError
from openbook.base.files import differences, file_hash, write_json, written_aside
from openbook.training.folder import MARKS, RunFolder


def finished(folder: Path) -> RunFolder:
    run = RunFolder.create(folder, {"seed": 1}, {"examples": 3})
    run.log(step=1, loss=0.5)
    run.model_folder.mkdir()
    (run.model_folder / "model.safetensors").write_bytes(b"weights")
    run.finish({"accuracy": 1.0})
    return run


def test_a_finished_run_is_whole(tmp_path: Path) -> None:
    run = finished(tmp_path / "run")
    assert run.finished and run.damage() == []
    assert run.read("config.json") == {"seed": 1} and run.read("result.json") == {"accuracy": 1.0}
    assert run.metrics() == [{"step": 1, "loss": 0.5}]
    assert set(run.read("manifest.json")) == {*MARKS, "metrics.jsonl", "model/model.safetensors", "result.json"}


def test_what_a_killed_process_left_is_no_part_of_the_record(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", {}, {})
    for name in (".manifest.json.writing", ".result.json.writing"):
        (run.folder / name).write_text("{")
    (run.folder / ".model.writing").mkdir()
    (run.folder / ".model.writing" / "model.safetensors").write_bytes(b"half")
    run.finish({})
    assert run.damage() == [] and set(run.read("manifest.json")) == {*MARKS, "result.json"}


def test_the_manifest_sees_a_changed_and_a_missing_file(tmp_path: Path) -> None:
    run = finished(tmp_path / "run")
    (run.model_folder / "model.safetensors").write_bytes(b"weight5")
    assert run.damage() == ["model/model.safetensors was changed after the run"]
    (run.model_folder / "model.safetensors").unlink()
    assert run.damage() == ["model/model.safetensors is missing"]


def test_a_run_without_a_manifest_did_not_finish(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", {}, {})
    assert not run.finished and run.damage() == ["the run did not finish: there is no manifest"]
    with pytest.raises(InputError, match=r"has no result\.json: it is not a run, or"):
        run.read("result.json")


def test_the_environment_names_versions_and_commit() -> None:
    recorded = environment()
    assert recorded["versions"]["torch"] and recorded["versions"]["openbook"]
    assert recorded["git"] is None or len(recorded["git"]["commit"]) == 40


def test_a_run_is_not_replaced_unless_forced(tmp_path: Path) -> None:
    finished(tmp_path / "run")
    with pytest.raises(InputError, match="holds a run already"):
        RunFolder.create(tmp_path / "run", {}, {})
    run = RunFolder.create(tmp_path / "run", {"seed": 2}, {}, force=True)
    assert run.read("config.json") == {"seed": 2} and run.metrics() == []
    assert not (run.folder / "result.json").exists()


def test_an_empty_folder_will_do_and_a_file_will_not(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    RunFolder.create(tmp_path / "empty", {}, {})
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="is a file"):
        RunFolder.create(tmp_path / "file", {}, {}, force=True)
    assert (tmp_path / "file").read_text() == "x"


@pytest.mark.parametrize("written", [1, 2, 3])
def test_a_start_that_was_killed_can_be_made_again(
    written: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each of the files that make a folder a run; only with the last of them is there something to resume."""
    names = []

    def killed(path: Path, data: object) -> None:
        if len(names) == written:
            raise SystemExit
        names.append(path.name)
        write_json(path, data)

    with monkeypatch.context() as patched:
        patched.setattr("openbook.training.folder.write_json", killed)
        with pytest.raises(SystemExit) if written < 3 else contextlib.nullcontext():
            RunFolder.create(tmp_path / "run", {"seed": 1}, {})
    (tmp_path / "run" / ".config.json.writing").write_text("{")
    if written < 3:
        with pytest.raises(InputError, match="it is not a run, or the run did not get that far"):
            RunFolder.resume(tmp_path / "run", {"seed": 1}, {})
        RunFolder.create(tmp_path / "run", {"seed": 1}, {})
    else:
        with pytest.raises(InputError, match="holds a run already"):
            RunFolder.create(tmp_path / "run", {"seed": 1}, {})
    assert RunFolder.resume(tmp_path / "run", {"seed": 1}, {}).read("config.json") == {"seed": 1}


@pytest.mark.parametrize("force", [False, True])
def test_force_removes_a_run_and_nothing_else(tmp_path: Path, force: bool) -> None:
    model = tmp_path / "model"  # has a config.json, as a run has
    model.mkdir()
    (model / "config.json").write_text("{}")
    (model / "model.safetensors").write_bytes(b"precious")
    with pytest.raises(InputError, match="not empty and not a run"):
        RunFolder.create(model, {}, {}, force=force)
    assert (model / "model.safetensors").read_bytes() == b"precious"


def test_force_does_not_remove_notes_kept_beside_a_run(tmp_path: Path) -> None:
    run = finished(tmp_path / "run")
    (run.folder / "notes.md").write_text("mine")
    with pytest.raises(InputError, match=r"holds more than a run \(notes\.md\)"):
        RunFolder.create(run.folder, {}, {}, force=True)
    assert (run.folder / "notes.md").read_text() == "mine" and run.damage() == []


@pytest.mark.parametrize("names", [["data.json"], ["environment.json"], ["data.json", "lock"]])
@pytest.mark.parametrize("force", [False, True])
def test_files_of_a_user_that_have_the_names_of_a_run_s_are_kept(tmp_path: Path, names: list[str], force: bool) -> None:
    for name in names:
        (tmp_path / name).write_text("mine")
    with pytest.raises(InputError, match="not empty and not a run"):
        RunFolder.create(tmp_path, {}, {}, force=force)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == dict.fromkeys(names, "mine")


def test_force_removes_what_a_tracker_wrote_but_not_runs_within_a_run(tmp_path: Path) -> None:
    run = finished(tmp_path / "run")
    events = run.folder / "runs" / "Nov16" / "events.out.tfevents.1.host"
    events.parent.mkdir(parents=True)
    events.write_bytes(b"")
    inner = finished(run.folder / "runs" / "learn")
    with pytest.raises(InputError, match=r"holds more than a run \(runs/"):
        RunFolder.create(run.folder, {}, {}, force=True)
    assert inner.damage() == []
    shutil.rmtree(inner.folder)
    assert not (RunFolder.create(run.folder, {}, {}, force=True).folder / "runs").exists()


def test_force_does_not_remove_a_link_to_what_is_not_there_now(tmp_path: Path) -> None:
    """A disk that is not mounted, for instance."""
    run = finished(tmp_path / "run")
    (run.folder / "runs").mkdir()
    (run.folder / "runs" / "elsewhere").symlink_to(tmp_path / "absent")
    with pytest.raises(InputError, match=r"holds more than a run \(runs/elsewhere\)"):
        RunFolder.create(run.folder, {}, {}, force=True)


def test_a_line_that_a_killed_process_left_unfinished_is_not_read(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", {"seed": 1}, {})
    run.log(step=1, loss=2.0)
    with (run.folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 2, "lo')
    assert run.metrics() == [{"step": 1, "loss": 2.0}]
    RunFolder.resume(run.folder, {"seed": 2}, {}, allow_changes=True)
    assert run.read("changes.json")[0]["lines_logged"] == 1


def test_a_file_is_the_old_one_or_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    write_json(path, {"a": 1})
    with pytest.raises(RuntimeError), written_aside(path) as aside:
        aside.write_text("half of")
        raise RuntimeError("power cut")
    assert json.loads(path.read_text()) == {"a": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["config.json"]


def test_a_folder_is_replaced_whole(tmp_path: Path) -> None:
    target = tmp_path / "model"
    for name in ("old", "new"):
        with written_aside(target) as aside:
            aside.mkdir()
            (aside / name).write_text(name)
    assert [p.name for p in target.iterdir()] == ["new"]


def test_a_log_that_a_power_cut_left_too_short_is_not_filled_up(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", {}, {})
    run.log(step=1)
    size = run.log_size()
    (run.folder / "metrics.jsonl").write_text("")
    run.cut_log(size)
    run.log(step=2)
    assert run.metrics() == [{"step": 2}]


def test_a_file_of_a_run_that_is_no_json_is_named(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", {"seed": 1}, {})
    (run.folder / "config.json").write_text('{"seed"')
    with pytest.raises(InputError, match=r"config\.json is damaged: not JSON"):
        run.read("config.json")


def test_a_loss_that_is_no_number_is_not_logged_as_one(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", {}, {})
    with pytest.raises(ValueError, match="Out of range float"):
        run.log(loss=float("nan"))


def test_hashes_are_of_the_content(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    assert file_hash(tmp_path / "a") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_differences_name_the_key() -> None:
    assert differences({"a": {"b": 1}, "c": 2}, {"a": {"b": 3}, "c": 2}) == ["a.b was 1, is 3"]
