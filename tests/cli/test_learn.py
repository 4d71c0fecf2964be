"""`openbook learn` and `openbook prepare`, end to end on tiny models."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file
from tests.tiny import FAMILIES, byte_level, chatting, tiny, word_level

from openbook.cli import main
from openbook.training.folder import RunFolder

ROOT = Path(__file__).parents[2]
FACTS = ROOT / "examples" / "facts.jsonl"
SMALL = [
    "--set",
    "model.hidden_size=16",
    "--set",
    "model.layers=1",
    "--set",
    "model.heads=2",
    "--set",
    "exam.samples=8",
]
COT = ("--method", "chain-of-thought")
TASK = ["--depth", "2", "--chars", "3", "--set", "task.lengths=[4, 6]", *SMALL]


def saved(folder: Path, family: str = "llama", tokenizer: Any = None) -> Path:
    tiny(family).save_pretrained(folder)
    (tokenizer or byte_level()).save_pretrained(folder)
    return folder


def data(folder: Path, *lines: Any) -> Path:
    path = folder / "facts.jsonl"
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


GOOD = {"prompt": "Who?", "completion": " Orm", "privileged_context": ["Orm rules."]}


# ---- what it is for


def test_thirty_facts_are_learned_by_the_commands_of_the_readme(learned: Path) -> None:
    assert len(FACTS.read_text().splitlines()) == 30
    result = RunFolder(learned).read("result.json")
    assert result["accuracy"]["closed_book"] >= 0.95 > 0.2 > result["chance"]
    assert (result["samples"], result["steps"]) == (30, 150)


def test_a_run_leaves_everything_behind(learned: Path) -> None:
    run = RunFolder(learned)
    assert run.finished and run.damage() == []
    config, data_record = run.read("config.json"), run.read("data.json")
    assert config["curriculum"]["drop"] == "0@0,1@0.6" and config["seed"] == 0
    assert data_record["examples"] == 30 and len(data_record["fingerprint"]) == 64
    assert run.read("environment.json")["versions"]["transformers"]
    metrics = run.metrics()
    losses = [row["loss"] for row in metrics if "loss" in row]
    assert losses[-1] < 0.3 * losses[0]
    exams = [row for row in metrics if "closed_book" in row]
    assert len(exams) == 10 and exams[0]["closed_book"] < 0.5 < exams[-1]["closed_book"]
    assert {p.name for p in run.model_folder.iterdir()} >= {"config.json", "model.safetensors", "tokenizer.json"}


def test_the_book_helps_while_it_is_open_and_is_not_missed_when_it_is_closed(learned: Path) -> None:
    """Closed-book accuracy follows: it rises as the schedule closes the book."""
    exams = [row for row in RunFolder(learned).metrics() if "closed_book" in row]
    assert exams[-1]["closed_book"] > exams[2]["closed_book"]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_few_steps_on_every_family(family: str, tmp_path: Path, told: Any) -> None:
    model = saved(tmp_path / "model", family)
    facts = data(tmp_path, *[{**GOOD, "prompt": f"Who is {k}?"} for k in range(8)])
    result, code = told("learn", "--data", facts, "--model", model, "--epochs", 2, "--out", tmp_path / "run")
    assert code == 0 and result["steps"] == 2 and result["samples"] == 8
    assert set(result) >= {"run", "steps", "samples", "accuracy", "seconds", "cpu_seconds"}
    assert set(result["accuracy"]) == {"closed_book", "open_book"}
    before, after = (load_file(folder / "model.safetensors") for folder in (model, tmp_path / "run" / "model"))
    assert any((before[name] != after[name]).any() for name in before)
    exam, code = told("exam", tmp_path / "run")
    assert code == 0 and len(exam["rows"]) == 5  # one book for all, so none is wrong


@pytest.mark.parametrize("curriculum", ["no-context", "fixed:0.2", "anneal", "no-dropout", "wrong-context"])
def test_the_task_under_every_curriculum(curriculum: str, tmp_path: Path, told: Any) -> None:
    arguments = ("--curriculum", curriculum, "--samples", 128, "--out", tmp_path / "run")
    result, code = told("learn", *TASK, *arguments)
    assert code == 0 and (result["samples"], result["steps"]) == (128, 2)
    assert result["exam"][0]["chance"] == pytest.approx(1 / 3)


def test_a_run_that_learned_nothing_says_what_to_try(
    tmp_path: Path, told: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["learn", *TASK, "--samples", "8", "--curriculum", "no-dropout", "--set", "exam.samples=64"]
    assert main([*command, "--out", str(tmp_path / "a")]) == 0
    result = RunFolder(tmp_path / "a").read("result.json")
    words = " ".join(capsys.readouterr().out.split())
    assert "never closes the book" in result["advice"] and result["advice"] in words
    fresh, code = told(*command, "--set", "task.codebook=fresh", "--out", tmp_path / "b")
    assert code == 0 and fresh["advice"] is None  # nothing is there to be learned by heart


def test_prepare_then_learn(tmp_path: Path, told: Any) -> None:
    ready, code = told("prepare", *COT, *TASK, "--samples", 128, "--out", tmp_path / "ready")
    assert code == 0 and ready["steps"] == 2
    config = RunFolder(tmp_path / "ready").read("config.json")
    assert (config["task"]["codebook"], config["task"]["chain"]) == ("fresh", "explicit")
    assert config["curriculum"]["silence"] == "0@0.1,1@0.6"
    _, code = told("learn", *TASK, "--model", tmp_path / "ready", "--samples", 64, "--out", tmp_path / "run")
    assert code == 0 and RunFolder(tmp_path / "run").read("config.json")["training"]["learning_rate"] == 1e-4
    exam, code = told("exam", tmp_path / "run", "--samples", 8)
    assert code == 0 and exam["rows"][-1]["book"] == "wrong"


def test_prepare_can_be_told_otherwise(tmp_path: Path, told: Any) -> None:
    plan, code = told(
        *("prepare", *COT, *TASK, "--samples", 64, "--dry-run"),
        *("--set", "task.chain=silent", "--set", "curriculum.silence=0.5"),
    )
    assert code == 0 and {point["silent"] for point in plan["schedule"]} == {0.5}


def test_a_conversation_is_learned_through_a_chat_template(tmp_path: Path, told: Any) -> None:
    model = saved(tmp_path / "model", tokenizer=chatting())
    talk = {"messages": [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "Orm"}]}
    arguments = ("--model", model, "--epochs", 1, "--out", tmp_path / "run")
    result, code = told("learn", "--data", data(tmp_path, talk), *arguments)
    assert code == 0 and result["steps"] == 1
    exam, _ = told("exam", tmp_path / "run", "--generate")
    assert exam["rows"][0]["generated_match"] is not None


def test_the_same_command_gives_the_same_weights(tmp_path: Path) -> None:
    facts = data(tmp_path, GOOD, {**GOOD, "prompt": "And?"})
    for name in ("one", "two"):
        assert main(["learn", "--data", str(facts), *SMALL, "--epochs", "2", "--out", str(tmp_path / name)]) == 0
    one, two = (load_file(tmp_path / name / "model" / "model.safetensors") for name in ("one", "two"))
    assert all((one[name] == two[name]).all() for name in one)


def test_adapters_are_trained_saved_and_examined(tmp_path: Path, told: Any) -> None:
    pytest.importorskip("peft")
    model = saved(tmp_path / "model")
    facts = data(tmp_path, *[{**GOOD, "prompt": f"Who is {k}?"} for k in range(8)])
    rate = ("--learning-rate", "1e-2")
    arguments = ("--model", model, "--epochs", 4, *rate, "--set", "model.lora.rank=2", "--out", tmp_path / "run")
    result, code = told("learn", "--data", facts, *arguments)
    assert code == 0
    before, after = (load_file(folder / "model.safetensors") for folder in (model, tmp_path / "run" / "model"))
    changed = {name for name in before if (before[name] != after[name]).any()}
    assert changed and all("proj" in name for name in changed)  # embeddings, norms and head are as they were
    adapter = load_file(tmp_path / "run" / "adapter" / "adapter_model.safetensors")
    assert adapter and all("lora_" in name for name in adapter)
    exam, code = told("exam", tmp_path / "run", "--open", 0, "--open", 1)
    assert code == 0
    assert [row["accuracy"] for row in exam["rows"]] == [row["accuracy"] for row in result["exam"]]


def test_a_real_process_prints_one_json_object_and_nothing_else(tmp_path: Path) -> None:
    facts = data(tmp_path, GOOD)
    command = [sys.executable, "-m", "openbook.cli", "learn", "--data", str(facts), *SMALL, "--json", "--out", "run"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["steps"] == 1 and "Traceback" not in done.stderr


# ---- dry runs


def test_a_dry_run_prints_the_plan_and_leaves_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    assert main(["learn", *TASK, "--samples", "100", "--out", str(folder), "--dry-run"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for word in ("steps", "tokens", "parameters", "memory: total", "60%", "100%", "an estimate, not a measurement"):
        assert word in shown
    assert not folder.exists()


def test_settings_are_listed_for_people_and_programs(told: Any, capsys: pytest.CaptureFixture[str]) -> None:
    listed, code = told("learn", "--settings")
    assert code == 0 and {"key", "value", "words", "meaning"} == set(listed["settings"][0])
    assert main(["learn", "--settings"]) == 0
    text = capsys.readouterr().out
    assert all(one["key"] in text for one in listed["settings"]) and "null" not in text


def test_a_dry_run_speaks_json(told: Any) -> None:
    plan, code = told("learn", *TASK, "--samples", 100, "--dry-run")
    assert code == 0 and plan["steps"] == 2 and plan["memory"]["total"] > 0


# ---- bad input


def test_records_that_cannot_be_read_are_named_or_skipped(tmp_path: Path, refused: Any, told: Any, capsys: Any) -> None:
    facts = data(tmp_path, GOOD, '{"prompt": "half', {"prompt": "no completion"}, {**GOOD, "prompt": "And?"})
    assert f"{facts}:2: not JSON" in refused("learn", "--data", facts, *SMALL, "--out", tmp_path / "run")
    result, code = told("learn", "--data", facts, *SMALL, "--skip-bad", "--out", tmp_path / "run")
    assert code == 0 and (result["samples"], result["skipped"]) == (2, 2)
    record = RunFolder(tmp_path / "run").read("data.json")
    assert record["skipped"] == 2 and ":3: no 'completion'" in record["skipped_because"][1]
    assert main(["learn", "--data", str(facts), *SMALL, "--skip-bad", "--force", "--out", str(tmp_path / "run")]) == 0
    assert "2 records could not be read and were left out" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments, complaint",
    [
        (
            ["--set", "training.learnin_rate=1"],
            "'training.learnin_rate' is not a setting; did you mean 'learning_rate'?",
        ),
        (["--set", "training.epochs=0"], "training.epochs: Input should be greater than or equal to 1"),
        (["--set", "training.epochs=[1"], "not YAML"),
        (["--seed", "-1"], "seed: Input should be greater than or equal to 0"),
        (["--seed", "5000000000"], "seed: Input should be less than 4294967296"),
        (["--curriculum", "aneal"], "did you mean 'anneal'?"),
        (["--depth", "2"], "both 'data' and 'task' are given"),
        (["--samples", "99"], "99 samples asked for, but the source has 1"),
        (["--config", "absent.yaml"], "there is no config 'absent.yaml'"),
        (["--curriculum", "wrong-context"], "all records have the same one"),
        (["--set", "training.report_to=[wandbb]"], "wandbb"),
        (["--set", "training.bf16=sure"], "training.bf16"),
        (["--epochs", "many"], "epochs"),
        (["--set", "exam.data=absent.jsonl"], "absent.jsonl: no such file"),
        (["--resume", "--force"], "--resume goes on with a run and --force replaces it"),
        (["--allow-changes"], "give --resume with it"),
    ],
)
def test_bad_settings_are_refused_before_a_model_loads(
    arguments: list[str], complaint: str, tmp_path: Path, refused: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def loaded(*_: Any, **__: Any) -> None:
        raise AssertionError("a model was loaded")

    for name in ("load", "load_or_make", "make_model"):
        monkeypatch.setattr(f"openbook.training.models.{name}", loaded)
    monkeypatch.setattr("openbook.training.run.load_or_make", loaded)
    folder = tmp_path / "run"
    assert complaint in refused("learn", "--data", data(tmp_path, GOOD), *arguments, "--out", folder)
    assert not folder.exists()


def test_a_typo_in_a_file_is_refused_without_loading_torch(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("training: {learnin_rate: 1}\n")
    code = (
        "import sys; from openbook.cli import main; code = main(['learn', '--config', 'run.yaml']); "
        "sys.exit(99 if 'torch' in sys.modules else code)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and "did you mean 'learning_rate'?" in done.stderr


def test_a_folder_in_use_is_refused_before_a_model_loads(tmp_path: Path, refused: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("openbook.training.run.load_or_make", None)
    model = saved(tmp_path / "model")
    facts = data(tmp_path, GOOD)
    for force in ([], ["--force"]):
        complaint = refused("learn", "--data", facts, "--out", model, *force)
        assert "not empty and not a run" in complaint
    assert (model / "model.safetensors").exists()
    RunFolder.create(tmp_path / "run", {}, {})
    assert "holds a run already" in refused("learn", "--data", facts, "--out", tmp_path / "run")


def test_a_target_that_cannot_fit_is_named_before_training(tmp_path: Path, refused: Any) -> None:
    facts = data(tmp_path, *[GOOD] * 20, {"prompt": "All?", "completion": " and more" * 200})
    complaint = refused("learn", "--data", facts, *SMALL, "--set", "training.max_length=64", "--out", tmp_path / "run")
    assert f"{facts}:21" in complaint and "does not fit into a window of 64" in complaint
    assert not (tmp_path / "run").exists()


def test_pieces_and_prompts_longer_than_the_window_are_trained_on_all_the_same(tmp_path: Path, told: Any) -> None:
    long = {"prompt": "why " * 500 + "?", "completion": " so", "privileged_context": ["because " * 500, "b"]}
    arguments = ("--set", "training.max_length=32", "--out", tmp_path / "run")
    result, code = told("learn", "--data", data(tmp_path, long), *SMALL, *arguments)
    assert code == 0 and result["steps"] == 1


def test_a_book_that_does_not_fit_is_told(tmp_path: Path, told: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Otherwise an exam with the book open would be taken for one that shows it."""
    long = {"prompt": "why?", "completion": " so", "privileged_context": ["b", "because " * 50]}
    facts, window = data(tmp_path, *[long] * 3), ("--set", "training.max_length=32")
    result, _ = told("learn", "--data", facts, *SMALL, *window, "--out", tmp_path / "run")
    (warning,) = result["warnings"]
    assert "prompts" not in warning
    assert "3 pieces of the book of 3 examples do not fit into a window of 32 tokens" in warning
    assert RunFolder(tmp_path / "run").read("result.json")["warnings"] == [warning]
    assert main(["learn", "--data", str(facts), *SMALL, *window, "--out", str(tmp_path / "other")]) == 0
    assert warning in " ".join(capsys.readouterr().err.split())
    assert main(["learn", "--data", str(facts), *SMALL, *window, "--curriculum", "no-dropout", "--dry-run"]) == 0
    assert "1 pieces of an example do not fit into the window of 32" in " ".join(capsys.readouterr().out.split())
    asked = data(tmp_path, *[{**long, "prompt": "why " * 60}] * 3)
    told_closed = (*SMALL, *window, "--curriculum", "no-context", "--force", "--out", tmp_path / "run")
    result, _ = told("learn", "--data", asked, *told_closed)
    assert "3 prompts of 3 do not fit" in result["warnings"][0] and len(result["warnings"]) == 1
    facts = data(tmp_path, *[long] * 3)
    for fitting in (["--set", "training.max_length=200"], [*window, "--curriculum", "no-context"]):
        result, _ = told("learn", "--data", facts, *SMALL, *fitting, "--force", "--out", tmp_path / "run")
        assert result["warnings"] == []


def test_data_without_a_book_are_told(tmp_path: Path, told: Any) -> None:
    named_otherwise = {"prompt": "Who?", "completion": " Orm", "context": ["Orm rules."]}
    facts = data(tmp_path, named_otherwise)
    result, _ = told("learn", "--data", facts, *SMALL, "--out", tmp_path / "run")
    assert "no record has a privileged_context, so there is no book to close" in result["warnings"][0]
    result, _ = told("learn", "--data", facts, *SMALL, "--curriculum", "no-context", "--out", tmp_path / "plain")
    assert result["warnings"] == []
    result, _ = told("learn", "--data", data(tmp_path, named_otherwise, GOOD), *SMALL, "--out", tmp_path / "some")
    assert result["warnings"] == []


def test_what_a_run_starts_from_is_not_replaced_by_it(tmp_path: Path, refused: Any, told: Any) -> None:
    facts = data(tmp_path, GOOD)
    told("learn", "--data", facts, *SMALL, "--out", tmp_path / "base")
    said = refused("learn", "--data", facts, "--model", tmp_path / "base", "--force", "--out", tmp_path / "base")
    assert "model.path is" in said and "name another folder" in said and RunFolder(tmp_path / "base").damage() == []


def test_words_that_a_vocabulary_lacks_are_not_learned(tmp_path: Path, refused: Any, told: Any) -> None:
    model = saved(tmp_path / "model", tokenizer=word_level())
    known = {"prompt": "who is king ?", "completion": " Orm"}
    facts = data(tmp_path, known, {**known, "completion": " Bjarne"})
    said = refused("learn", "--data", facts, "--model", model, "--out", tmp_path / "run")
    assert f"{facts}:2 (position 1): 1 target tokens are not in the model's vocabulary" in said and "<unk>" in said
    assert not (tmp_path / "run").exists()
    first, _ = told("learn", "--data", facts, "--model", model, "--samples", 1, "--out", tmp_path / "first")
    assert first["samples"] == 1  # what is not trained on does not matter
    written = data(tmp_path, {**known, "completion": " <unk> Orm"})  # as in texts that were cut to a vocabulary
    told("learn", "--data", written, "--model", model, "--out", tmp_path / "written")
    exam = data(tmp_path, known, {**known, "completion": " Bjarne"}).rename(tmp_path / "exam.jsonl")  # not learned
    told_closed = ("--curriculum", "no-context", "--set", f"exam.data={exam}")
    arguments = ("--data", data(tmp_path, known), "--model", model, *told_closed)
    result, _ = told("learn", *arguments, "--out", tmp_path / "run")
    assert result["warnings"] == [
        "exam: 1 answers of 2 have words that the model's vocabulary lacks, so they can only be wrong"
    ]


def test_an_exam_that_training_has_seen_is_told(tmp_path: Path, told: Any) -> None:
    """There are 81 strings of four characters out of three."""
    few = ["--depth", "1", "--chars", "3", "--set", "task.lengths=[4, 4]", *SMALL]
    result, _ = told("learn", *few, "--samples", 500, "--out", tmp_path / "run")
    assert [line[:40] for line in result["warnings"]] == ["100% of the exam's strings are among tho"]
    result, _ = told("learn", *few, "--samples", 500, "--set", "task.codebook=fresh", "--out", tmp_path / "fresh")
    assert result["warnings"] == []
    for longer in ("[20, 40]", "[800, 800]"):
        arguments = ("--samples", 16, "--set", f"task.lengths={longer}", "--force", "--out", tmp_path / "long")
        result, _ = told("learn", *few, *arguments)
        assert result["warnings"] == []


def test_the_exam_is_of_records_that_were_trained_on(tmp_path: Path, told: Any) -> None:
    facts = data(tmp_path, *[{**GOOD, "prompt": f"Who is {k}?"} for k in range(20)])
    settings = ["--samples", 8, *SMALL, "--set", "exam.samples=20"]
    result, _ = told("learn", "--data", facts, *settings, "--out", tmp_path / "run")
    assert result["samples"] == 8 and {row["samples"] for row in result["exam"]} == {8}
    exam, _ = told("exam", tmp_path / "run", "--open", 0)
    assert {row["samples"] for row in exam["rows"]} == {8}
    exam, _ = told("exam", tmp_path / "run", "--open", 0, "--data", facts)
    assert {row["samples"] for row in exam["rows"]} == {20}


def test_a_record_that_is_all_thoughts_is_named_before_training(tmp_path: Path, refused: Any) -> None:
    facts = data(tmp_path, GOOD, {**GOOD, "thoughts": [GOOD["completion"]]})
    said = refused("learn", "--data", facts, *SMALL, "--out", tmp_path / "run")
    assert f"{facts}:2" in said and "all of the completion is thoughts" in said
    assert not (tmp_path / "run").exists()


def test_a_loss_that_explodes_ends_the_run_with_step_and_positions(tmp_path: Path, refused: Any) -> None:
    facts = data(tmp_path, *[{**GOOD, "prompt": f"Who is {k}?"} for k in range(16)])
    settings = ["--learning-rate", "1e30", "--epochs", "20", "--set", "training.warmup=0", *SMALL]
    complaint = refused("learn", "--data", facts, *settings, "--out", tmp_path / "run")
    assert "is not finite at step " in complaint and "positions " in complaint and "before the update" in complaint
    assert not RunFolder(tmp_path / "run").finished


@pytest.mark.parametrize(
    "flags",
    [["--samples", "5000"], ["--learning-rate", "0.5"], ["--set", "samples=5"], ["--set", "training.epochs=2"]],
)
def test_a_course_that_ends_by_itself_takes_no_length_and_no_rate(flags: list[str], refused: Any) -> None:
    assert "leave out" in refused("prepare", "--depth", 3, "--dry-run", *flags)


@pytest.mark.parametrize("command", [["learn", "--model", "student-3-8"], ["prepare", "--method", "chain-of-thought"]])
def test_a_reading_course_is_asked_for_by_its_own_command(command: list[str], tmp_path: Path, refused: Any) -> None:
    """It would have been carried out from nothing, whatever --model says."""
    said = refused(*command, "--set", "task.text=composite", "--set", "reading.batch_size=8", "--out", tmp_path / "run")
    assert "the course of `openbook prepare --method reading`" in said and not (tmp_path / "run").exists()


def test_the_plan_of_a_student_from_nothing_is_a_students(told: Any) -> None:
    plan, _ = told("learn", "--set", "task.text=composite", "--dry-run")
    assert 450_000 < plan["parameters"] < 550_000  # as the reader that ships


def test_a_course_does_not_go_on_by_another_method(tmp_path: Path, refused: Any) -> None:
    RunFolder.create(tmp_path / "run", {"reading": None}, {})
    said = refused("prepare", "--resume", "--method", "reading", "--out", tmp_path / "run")
    assert "was started with --method chain-of-thought, so it cannot continue with reading" in said
