"""`openbook mask` on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.tiny import byte_level, chatting, tiny
from transformers import PreTrainedTokenizerFast

from openbook.cli import main
from openbook.training.encode import IGNORED
from openbook.training.models import load_or_make
from openbook.training.resolve import configured
from openbook.training.sources import encoder_for, plan_for, sources_of

FACTS = Path(__file__).parents[2] / "examples" / "facts.jsonl"


def data(folder: Path, *records: dict[str, Any]) -> Path:
    path = folder / "facts.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def test_the_example_of_the_readme_has_a_sound_mask(told: Any) -> None:
    shown, code = told("mask", "--data", FACTS, "--model", "scratch")
    assert code == 0 and shown["ok"] and shown["problems"] == [] and shown["checked"] == 30
    (first, _) = shown["examples"]
    tokens = first["tokens"]
    assert first["targets"] == sum(token["loss"] for token in tokens) > 0
    assert {token["kind"] for token in tokens if token["loss"]} == {"answer", "words"}
    record = next(r for r in map(json.loads, FACTS.read_text().splitlines()) if r["prompt"] in _text(tokens, "prompt"))
    assert _text(tokens, "answer") == record["completion"]
    assert _text(tokens, "words") == "<END>"


def _text(tokens: list[dict[str, Any]], kind: str) -> str:
    return "".join(token["text"] for token in tokens if token["kind"] == kind)


def test_the_book_closes_with_progress(told: Any) -> None:
    nine = ("mask", "--data", FACTS, "--model", "scratch", "--set", "training.epochs=9")
    start, end = (told(*nine, "--progress", p)[0] for p in (0, 1))
    assert all("piece" in {t["kind"] for t in example["tokens"]} for example in start["examples"])
    closed = [example for example in end["examples"] if "piece" not in {t["kind"] for t in example["tokens"]}]
    assert len(closed) == len(end["examples"])  # one section: all of it, whichever way the coin falls


def test_a_person_sees_the_text(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--model", "scratch", "--examples", "1", "--set", "curriculum.preset=no-dropout"]
    assert main(["mask", "--data", str(FACTS), *arguments]) == 0
    shown = capsys.readouterr().out
    assert "carry loss" in shown and "⏎" in shown and "<END>" in shown
    assert "30 positions checked, 0 with a wrong mask" in shown


def test_the_task_is_shown_too(told: Any) -> None:
    shown, code = told("mask", "--set", "task.depth=2", "--set", "task.chars=3", "--set", "task.lengths=[4, 6]")
    assert code == 0 and shown["checked"] == 1000
    assert {token["kind"] for token in shown["examples"][0]["tokens"] if token["loss"]} >= {"thought", "answer"}


def test_a_models_tokenizer_template_and_window_are_used(tmp_path: Path, told: Any, refused: Any) -> None:
    tiny().save_pretrained(tmp_path / "model")
    chatting().save_pretrained(tmp_path / "model")
    facts = data(tmp_path, {"prompt": "Who rules? ", "completion": "Queen Ilva"})
    shown, code = told("mask", "--data", facts, "--model", tmp_path / "model")
    assert code == 0
    text = "".join(token["text"] for token in shown["examples"][0]["tokens"])
    assert text.startswith("<|im_start|>user\n") and text.endswith("Queen Ilva<|im_end|>\n")
    long = data(tmp_path, {"prompt": "Who?", "completion": "x" * 3000})  # the model's window is 512
    complaint = refused("mask", "--data", long, "--model", tmp_path / "model")
    assert f"{long}:1" in complaint and "window of 512" in complaint


def test_a_conversation_without_a_template_has_a_line_for_each_message(tmp_path: Path, told: Any) -> None:
    asked = [{"role": "user", "content": "Colour of the flag?"}, {"role": "assistant", "content": "Green."}]
    plain = {"prompt": "Colour of the flag?", "completion": " Green."}
    system = {"role": "system", "content": "Answer in a word."}
    records = [{"messages": asked}, {"messages": [system, *asked]}, plain]
    settings = ("--set", "training.shuffle=false", "--examples", 3)
    shown, code = told("mask", "--data", data(tmp_path, *records), "--model", "scratch", *settings)
    texts = ["".join(token["text"] for token in example["tokens"]) for example in shown["examples"]]
    assert code == 0 and texts == [
        "Colour of the flag?\nGreen.<END>",
        "system: Answer in a word.\nColour of the flag?\nGreen.<END>",
        "Colour of the flag? Green.<END>",
    ]


def test_what_is_shown_is_what_is_learned(tmp_path: Path, told: Any) -> None:
    """Thinking tokens that a file of `openbook task` has written out, and the window of a model that is to be made."""
    core = PreTrainedTokenizerFast(tokenizer_object=byte_level().backend_tokenizer, eos_token="<END>")
    tiny("llama", len(core)).save_pretrained(tmp_path / "model")
    core.save_pretrained(tmp_path / "model")
    file = tmp_path / "task.jsonl"
    task = ["--depth", "2", "--chars", "4", "--samples", "4", "--lengths", "4", "4"]
    assert main(["task", *task, "--out", str(file)]) == 0
    file.write_text(file.read_text().replace("<THINK>", "<MULL>"))  # which the model does not know yet
    flags = {"data": file, "model.path": str(tmp_path / "model"), "think": "<MULL>", "training.shuffle": False}
    config = configured(None, [], flags)
    source, _ = sources_of(config)
    _, tokenizer = load_or_make(config.model, source, 0, config.think)
    encoded = encoder_for(config, tokenizer, source, None).encode(*plan_for(config, source).at(np.arange(4)))
    settings = ("--data", file, "--model", tmp_path / "model", "--set", "think=<MULL>", "--set", "training.shuffle=no")
    shown, code = told("mask", *settings, "--examples", 4)
    assert code == 0 and [token["id"] for e in shown["examples"] for token in e["tokens"]] == encoded.flat_ids.tolist()
    assert tokenizer.convert_tokens_to_ids("<MULL>") in encoded.flat_ids
    plan, _ = told("learn", *settings, "--dry-run")
    assert plan["targets_per_example"] == (encoded.flat_labels != IGNORED).sum() / 4
    book = [f"rule {k} of the book" for k in range(3000)]
    long = data(tmp_path, {"prompt": "Who?", "completion": " Orm", "privileged_context": book})
    shown, _ = told("mask", "--data", long, "--model", "scratch", "--curriculum", "no-dropout")
    plan, _ = told("learn", "--data", long, "--model", "scratch", "--curriculum", "no-dropout", "--dry-run")
    assert len(shown["examples"][0]["tokens"]) == plan["longest_example"] <= plan["window"]


def test_a_wrong_mask_ends_with_exit_code_two(tmp_path: Path, told: Any, capsys: pytest.CaptureFixture[str]) -> None:
    good = {"prompt": "Who rules Vellmora?", "completion": " Queen"}
    merging = {"prompt": "Who rules Vellmora? ", "completion": "Queen"}
    facts = data(tmp_path, *[good] * 6, merging)
    settings = ["--model", "scratch", "--set", "training.shuffle=false"]
    shown, code = told("mask", "--data", facts, *settings)
    assert code == 2 and not shown["ok"]
    assert [problem["position"] for problem in shown["problems"]] == [6]  # found though it is not among those shown
    assert "across the boundary" in shown["problems"][0]["problems"][0]
    assert main(["mask", "--data", str(facts), *settings]) == 2
    assert "7 positions checked, 1 with a wrong mask" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments, complaint",
    [
        (["--progress", "1.5"], "training goes from 0 to 1"),
        (["--examples", "0"], "show at least one"),
        (["--set", "training.max_length=2"], "does not fit into a window of 2"),
        (["--set", "chat=true"], "has no chat template"),
        (["--curriculum", "aneal"], "did you mean 'anneal'"),
    ],
)
def test_bad_input_is_refused(arguments: list[str], complaint: str, refused: Any) -> None:
    assert complaint in refused("mask", "--data", FACTS, "--model", "scratch", *arguments)


def test_an_empty_target_is_refused_with_its_line(tmp_path: Path, refused: Any) -> None:
    facts = data(tmp_path, {"prompt": "a", "completion": "b"}, {"prompt": "a", "completion": ""})
    assert f"{facts}:2: 'completion' is empty" in refused("mask", "--data", facts, "--model", "scratch")
