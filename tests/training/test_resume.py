"""A run that cannot be lost or changed: real kills in real processes, damaged files, a full disk, a second writer."""

from __future__ import annotations

import copy
import json
import os
import pickle
import random
import resource
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.faults import SETTINGS, STEPS, config, in_a_child, killed, run, same, signalled
from tests.tiny import chatting, tiny

from openbook.base.errors import InputError
from openbook.base.files import write_json
from openbook.cli import main
from openbook.curriculum import SamplingPlan, curriculum_named
from openbook.training import checkpoint, exam
from openbook.training.checks import check_moments
from openbook.training.config import RunConfig
from openbook.training.folder import RunFolder
from openbook.training.reopen import reopen
from openbook.training.resolve import resolve


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unbroken") / "run"
    run(config(), folder)
    return folder


def gone_on(folder: Path, **training: Any) -> tuple[dict[str, Any], list[str]]:
    """The result of going on with a run, and what was said after the warning that so few strings are drawn twice."""
    said: list[str] = []
    result = run(config(**training), folder, resume=True, report=said.append)
    assert "among those of training" in said[0]
    return result, said[1:]


def kill_points() -> list[int]:
    """Twenty random steps, and those at which something special happens."""
    special = {0, 4, 7, 8, 15, 16, STEPS - 1}  # nothing saved yet, just saved, epochs end within a step, the last one
    drawn = random.Random(0).choices(range(STEPS), k=20)
    return sorted(special | set(drawn))


@pytest.mark.slow
def test_killed_at_any_step_and_resumed_it_ends_the_same(unbroken: Path, tmp_path: Path) -> None:
    for step in kill_points():
        folder = tmp_path / f"killed-{step}"
        assert killed(folder, step) == -signal.SIGKILL
        assert not RunFolder(folder).finished
        run(config(), folder, resume=True)
        same(unbroken, folder)


def test_killed_again_and_again(unbroken: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    killed(folder, 6)
    for step in (9, 9, 21):
        assert killed(folder, step, going=True) == -signal.SIGKILL
    run(config(), folder, resume=True)
    same(unbroken, folder)


def test_a_finished_run_is_left_alone(unbroken: Path) -> None:
    before = (unbroken / "manifest.json").stat().st_mtime_ns
    result, said = gone_on(unbroken)
    assert result["steps"] == STEPS and len(said) == 1 and "finished already" in said[0]
    assert (unbroken / "manifest.json").stat().st_mtime_ns == before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_and_stops_after_the_step(number: int, unbroken: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"

    def work() -> None:
        with signalled(10, number):
            run(config(checkpoint_every=0), folder)

    assert in_a_child(work) == 128 + number
    assert [path.name for path in (folder / "checkpoints").iterdir()] == ["step-00000011"]
    _, said = gone_on(folder, checkpoint_every=0)
    assert said == ["going on from step 11"]
    assert (folder / "model/model.safetensors").read_bytes() == (unbroken / "model/model.safetensors").read_bytes()
    assert (folder / "metrics.jsonl").read_bytes() == (unbroken / "metrics.jsonl").read_bytes()


@pytest.mark.parametrize("step", [9, 10, STEPS - 1])
def test_a_signal_during_an_exam_does_not_wait_for_its_end(step: int, unbroken: Path, tmp_path: Path) -> None:
    """The exam is given up between two batches, and sat again when the run goes on, so that the log is the same."""
    folder, batches = tmp_path / "run", tmp_path / "batches"

    def work() -> None:
        target_logits, count = exam.target_logits, 0

        def watched(*arguments: Any) -> Any:
            nonlocal count
            count += 1
            batches.write_text(str(count))
            if RunFolder(folder).log_size() and count == first_batch:
                os.kill(os.getpid(), signal.SIGTERM)
            return target_logits(*arguments)

        exam.target_logits = watched
        run(config(), folder)

    exams = step // 5  # that are over before the one that is interrupted; each has two shares, a batch each
    first_batch = 2 * exams + 1
    assert in_a_child(work) == 128 + signal.SIGTERM
    assert int(batches.read_text()) == first_batch  # its second batch was never begun
    assert not RunFolder(folder).finished
    gone_on(folder)
    if step < STEPS - 1:
        same(unbroken, folder)
    else:  # the last checkpoint says for good that its exam was given up
        assert (folder / "metrics.jsonl").read_bytes() == (unbroken / "metrics.jsonl").read_bytes()


@pytest.mark.parametrize("files", [0, 1, 2, 3, 4])
def test_killed_while_a_checkpoint_is_written(files: int, unbroken: Path, tmp_path: Path) -> None:
    """After each of its files, the last but one of them the manifest; the one before it is used and that is said."""
    folder = tmp_path / "run"

    def work() -> None:
        save = checkpoint.save

        def broken(target: Path, step: int, *rest: Any, **options: Any) -> Path:
            if step < 8:
                return save(target, step, *rest, **options)
            written = 0

            def count(path: Path) -> None:
                nonlocal written
                if written == files:
                    os.kill(os.getpid(), signal.SIGKILL)
                written += 1

            save_file, write_text, sync = checkpoint.save_file, Path.write_text, checkpoint.written_aside

            def counted_save(tensors: Any, path: Any) -> None:
                count(path)
                save_file(tensors, path)

            def counted_text(self: Path, *arguments: Any, **options: Any) -> int:
                count(self)
                return write_text(self, *arguments, **options)

            @contextmanager
            def aside(path: Path) -> Iterator[Path]:
                with sync(path) as beside:
                    yield beside
                    count(beside)

            checkpoint.save_file, Path.write_text = counted_save, counted_text  # type: ignore[method-assign]
            checkpoint.written_aside = aside
            return save(target, step, *rest, **options)

        checkpoint.save = broken
        run(config(), folder)

    assert in_a_child(work) == -signal.SIGKILL
    _, said = gone_on(folder)
    assert said == ["passed over: .step-00000008.writing: never finished", "going on from step 4"]
    same(unbroken, folder)


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json", "manifest.json"])
@pytest.mark.parametrize("how", ["flip", "truncate"])
def test_a_damaged_checkpoint_is_passed_over(name: str, how: str, unbroken: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    killed(folder, 10)
    path = folder / "checkpoints" / "step-00000008" / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data) if how == "flip" else bytes(data[: len(data) // 2]))
    _, said = gone_on(folder)
    assert said[0].startswith("passed over: step-00000008: ") and said[1] == "going on from step 4"
    same(unbroken, folder)


def test_with_every_checkpoint_damaged_it_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    killed(folder, 10)
    for path in (folder / "checkpoints").glob("*/state.json"):
        path.write_text("{}")
    with pytest.raises(InputError, match=r"no checkpoint in .* is whole"):
        run(config(), folder, resume=True)


class Evil:
    """Unpickling this leaves a trace."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> Any:
        return Path.touch, (self.trace,)


def test_a_pickle_is_never_opened(tmp_path: Path) -> None:
    folder, trace = tmp_path / "run", tmp_path / "opened"
    killed(folder, 10)
    for place in [*(folder / "checkpoints").glob("step-*"), folder]:
        for name in ("pytorch_model.bin", "optimizer.pt", "scheduler.pt", "rng_state.pth", "training_args.bin"):
            (place / name).write_bytes(pickle.dumps(Evil(trace)))
    run(config(), folder, resume=True)
    assert not trace.exists()
    pickle.loads((folder / "optimizer.pt").read_bytes())
    assert trace.exists()  # the trap does work


def test_a_full_disk_leaves_the_old_checkpoint(unbroken: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"

    def work() -> None:
        save = checkpoint.save

        def limited(target: Path, step: int, *rest: Any, **options: Any) -> Path:
            if step == 8:  # from here on no file can grow beyond 2 KiB
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                resource.setrlimit(resource.RLIMIT_FSIZE, (2048, resource.RLIM_INFINITY))
            return save(target, step, *rest, **options)

        checkpoint.save = limited
        run(config(), folder)

    assert in_a_child(work) == 1
    assert sorted(path.name for path in (folder / "checkpoints").iterdir()) == ["step-00000004"]
    run(config(), folder, resume=True)
    same(unbroken, folder)


def test_no_room_is_told_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr(checkpoint.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(OSError, match=r"no room for a checkpoint .* go on with --resume"):
        run(config(), tmp_path / "run")


def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    killed(folder, 10)
    with RunFolder(folder).lock(), pytest.raises(InputError, match="another process is writing"):
        run(config(), folder, resume=True)
    before = RunFolder(folder).read("config.json")
    with RunFolder(folder).lock(), pytest.raises(InputError, match="another process is writing"):
        run(config(learning_rate=0.02), folder, resume=True, allow_changes=True)
    assert RunFolder(folder).read("config.json") == before


def test_what_is_said_on_going_on_lies_over_what_the_run_was_told(tmp_path: Path, capsys: Any) -> None:
    facts = [{"prompt": f"Who is {k}?", "completion": " Orm", "privileged_context": ["Orm is."]} for k in range(64)]
    data, folder = tmp_path / "facts.jsonl", tmp_path / "run"
    data.write_text("".join(json.dumps(record) + "\n" for record in facts))
    small = ["--set", "model.hidden_size=16", "--set", "model.layers=1", "--set", "model.heads=2"]

    def work() -> None:
        with signalled(5):
            main(["learn", "--data", str(data), *small, "--out", str(folder)])

    in_a_child(work)
    assert main(["learn", "--resume", "--epochs", "2", "--out", str(folder)]) == 2
    complaint = " ".join(capsys.readouterr().err.split())
    assert "config: training.epochs was 1, is 2 (pass" in complaint
    assert main(["learn", "--data", str(data), *small, "--out", str(folder)]) == 2
    assert "which did not finish: go on with --resume" in " ".join(capsys.readouterr().err.split())
    assert main(["exam", str(folder)]) == 2
    assert "go on with `openbook learn --resume --out" in " ".join(capsys.readouterr().err.split())
    before = RunFolder(folder).read("config.json")
    for other in ("model.hidden_size=32", "model.layers=2"):
        assert main(["learn", "--resume", "--allow-changes", "--set", other, "--out", str(folder)]) == 2
        assert "is of another model" in capsys.readouterr().err and RunFolder(folder).read("config.json") == before
    other = "training.optimizer=muon"
    assert main(["learn", "--resume", "--allow-changes", "--set", other, "--out", str(folder)]) == 2
    assert "training.optimizer was adamw and is muon: a checkpoint" in " ".join(capsys.readouterr().err.split())
    assert RunFolder(folder).read("config.json") == before and not (folder / "changes.json").exists()
    assert main(["learn", "--resume", "--set", "curriculum.preset=no-context", "--out", str(folder)]) == 2
    assert "curriculum.drop was '0@0,1@0.6', is '1@0'" in " ".join(capsys.readouterr().err.split())
    (folder / "config.json").write_text("[1]")
    assert main(["learn", "--resume", "--out", str(folder)]) == 2 and "is damaged" in capsys.readouterr().err
    write_json(folder / "config.json", before)
    assert main(["learn", "--resume", "--out", str(folder)]) == 0
    assert RunFolder(folder).read("result.json")["samples"] == 64 and not (folder / "changes.json").exists()


def test_a_changed_run_is_refused_and_the_change_named(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    killed(folder, 10)
    with pytest.raises(InputError, match=r"training.learning_rate was 0.01, is 0.02"):
        run(config(learning_rate=0.02), folder, resume=True)
    run(config(learning_rate=0.02), folder, resume=True, allow_changes=True)
    assert RunFolder(folder).read("config.json")["training"]["learning_rate"] == 0.02  # what it was in the end
    (change,) = RunFolder(folder).read("changes.json")
    assert change["changes"] == ["config: training.learning_rate was 0.01, is 0.02"] and not RunFolder(folder).damage()
    run(config(), folder, force=True)  # what tells of the change is a part of the run
    assert not (folder / "changes.json").exists()


def test_other_weights_cannot_be_frozen_in_the_middle() -> None:
    check_moments(config(), config(learning_rate=0.02))
    with pytest.raises(InputError, match=r"training.freeze was \[\] and is \['norm'\]"):
        check_moments(config(freeze=["norm"]), config())


def test_a_copy_beside_the_checkpoints_is_no_checkpoint(unbroken: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    killed(folder, 10)
    newest = checkpoint.newest(folder / "checkpoints")
    assert newest is not None
    shutil.copytree(newest.folder, newest.folder.with_name(f"{newest.folder.name}.bak"))
    run(config(), folder, resume=True)
    same(unbroken, folder)


LINE = '{"prompt": "a?", "completion": " b", "privileged_context": ["a: b"]}\n'


def own_data(data: Path, **more: Any) -> RunConfig:
    settings = {k: v for k, v in SETTINGS.items() if k not in ("task", "samples")}
    return resolve({**settings, "data": str(data), **more})


def killed_early(own: RunConfig, folder: Path) -> None:
    def work() -> None:
        with signalled(6):
            run(own, folder)

    assert in_a_child(work) == -signal.SIGKILL


@pytest.mark.parametrize(("changed", "said"), [("data", "data: fingerprint was"), ("exam", "data: exam was")])
def test_data_changed_by_one_byte_is_refused(changed: str, said: str, tmp_path: Path) -> None:
    data, exam, folder = tmp_path / "data.jsonl", tmp_path / "exam.jsonl", tmp_path / "run"
    data.write_text(LINE * 30)
    exam.write_text(LINE * 4)
    own = own_data(data, exam={"data": str(exam), "samples": 4})
    killed_early(own, folder)
    (tmp_path / f"{changed}.jsonl").write_text(LINE * 3 + LINE.replace(" b", " c"))
    with pytest.raises(InputError, match=said):
        run(own, folder, resume=True)


def test_another_chat_template_is_refused_and_what_it_writes_is_named(tmp_path: Path) -> None:
    """One that writes today's date is another one tomorrow."""
    data, model, folder = tmp_path / "data.jsonl", tmp_path / "model", tmp_path / "run"
    data.write_text(LINE * 30)
    tokenizer = copy.deepcopy(chatting())
    tiny(vocabulary=len(tokenizer)).save_pretrained(model)
    plain = tokenizer.chat_template
    tokenizer.chat_template = f"Today is Sunday.\n{plain}"
    tokenizer.save_pretrained(model)
    own = own_data(data, model={"path": str(model)})
    killed_early(own, folder)
    tokenizer.chat_template = f"Today is Monday.\n{plain}"
    tokenizer.save_pretrained(model)
    with pytest.raises(InputError, match=r"data: chat.before was 'Today is Sunday.*, is 'Today is Monday"):
        run(own, folder, resume=True)
    run(own, folder, resume=True, allow_changes=True)
    assert "Monday" in RunFolder(folder).read("data.json")["chat"]["before"]


def test_a_template_that_tells_the_date_goes_on_telling_that_of_the_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whenever a run is taken up, examined or probed, it sees the text that it was trained on."""
    data, model, folder = tmp_path / "data.jsonl", tmp_path / "model", tmp_path / "run"
    talk = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "a"}]
    talk = {"messages": [*talk, {"role": "assistant", "content": " b"}]}
    data.write_text(LINE * 20 + (json.dumps(talk) + "\n") * 10)
    tokenizer = copy.deepcopy(chatting())
    tiny(vocabulary=len(tokenizer)).save_pretrained(model)
    tokenizer.chat_template = "Today is {{ strftime_now('%d %b %Y') }}.\n" + tokenizer.chat_template
    tokenizer.save_pretrained(model)
    own = own_data(data, model={"path": str(model)})

    with monkeypatch.context() as day:
        day.setattr("openbook.training.encode.date_of_now", lambda: "2025-01-31")
        killed_early(own, folder)
    recorded = RunFolder(folder).read("data.json")["chat"]
    assert recorded["today"] == "2025-01-31" and recorded["before"].startswith("Today is 31 Jan 2025.")
    run(own, folder, resume=True)
    _, _, encoder, source = reopen(folder)
    encoded = encoder.encode(*SamplingPlan(source, curriculum_named("no-context")).at(np.array([0, 25])))
    for ids in encoded.ids:
        assert tokenizer.decode(ids).startswith("Today is 31 Jan 2025.")


def test_a_start_that_was_made_anew_in_another_shape_is_refused(tmp_path: Path) -> None:
    data, model, folder = tmp_path / "data.jsonl", tmp_path / "model", tmp_path / "run"
    data.write_text(LINE * 30)
    tokenizer = chatting()
    tokenizer.save_pretrained(model)
    tiny(vocabulary=len(tokenizer)).save_pretrained(model)
    own = own_data(data, model={"path": str(model)})
    killed_early(own, folder)
    assert checkpoint.newest(RunFolder(folder).checkpoints)
    tiny(vocabulary=len(tokenizer), hidden=32).save_pretrained(model)
    with pytest.raises(InputError, match=r"is of another model: .* was .* and is"):
        run(own, folder, resume=True)


def test_a_finished_run_does_not_depend_on_what_became_of_its_reader(tmp_path: Path, capsys: Any) -> None:
    """Its config was resolved before it was created, so it is what it was when the reader is made anew."""
    reader, folder = tmp_path / "reader", tmp_path / "run"
    for depth in (2, 1):
        from openbook.student.model import StudentForCausalLM
        from openbook.student.vocabulary import student_config
        from openbook.task.source import Translations
        from openbook.training.models import make_tokenizer

        StudentForCausalLM(student_config(depth, 3, width=16, heads=1, head=8, mlp=16)).save_pretrained(reader)
        make_tokenizer(Translations(depth, 3, 4, text="composite")).save_pretrained(reader)
        if depth == 2:
            lengths = ["--set", "task.lengths=[4, 6]", "--set", "exam.samples=4"]
            assert main(["learn", "--model", str(reader), "--samples", "16", *lengths, "--out", str(folder)]) == 0
    assert main(["exam", str(folder), "--open", "0"]) == 0
    assert main(["learn", "--model", str(reader), "--depth", "2", "--out", str(tmp_path / "other")]) == 2
    assert "is a student of MLT(1, 3)" in " ".join(capsys.readouterr().err.split())


def test_tokens_are_counted_as_they_are_trained_on(unbroken: Path, tmp_path: Path) -> None:
    from openbook.training.estimate import tokens_of

    folder = tmp_path / "run"
    killed(folder, 10)
    run(config(), folder, resume=True)
    results = [RunFolder(place).read("result.json") for place in (unbroken, folder)]
    assert results[0]["tokens"] == results[1]["tokens"] == tokens_of(config())
