"""`openbook export` on the command line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import openbook as ob
from openbook.cli import main


def test_the_table_and_the_object_say_how_many_answers_agree(
    learned: Path, told: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result, code = told("export", learned, "--to", "gguf", "--out", tmp_path / "new" / "facts.gguf")
    assert code == 0 and result["agreement"] == 1.0 and result["tokenizer_agreement"] == 1.0
    assert result["type"] == "float16" and result["warnings"] == [] and result["splits"] == "gpt-2"
    assert Path(result["path"]).stat().st_size == result["bytes"] and Path(result["card"]).name == "facts.md"
    assert main(["export", str(learned), "--to", "merged", "-o", str(tmp_path / "facts")]) == 0
    caught = capsys.readouterr()
    assert f"100.0% of {result['answer_tokens']} answer tokens" in caught.out and "README.md" in "".join(
        caught.out.split()
    )
    assert "reading it again" in caught.err


def test_what_was_exported_answers_again_as_a_model(learned: Path, told: Any, tmp_path: Path) -> None:
    """The whole way round: a run, a file, a model to start from, and a run again, which knows the facts still."""
    from openbook.training.models import load

    assert told("export", learned, "--to", "gguf", "--type", "q8_0", "--out", tmp_path / "x.gguf")[1] == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENBOOK_CACHE", str(tmp_path / "cache"))
        model, tokenizer = load(str(tmp_path / "x.gguf"))
    question = tokenizer("Who rules Vellmora?", return_tensors="pt", add_special_tokens=False)
    written = model.generate(**question, max_new_tokens=8, do_sample=False, pad_token_id=0)[0]
    said = tokenizer.decode(written[question["input_ids"].shape[1] :], skip_special_tokens=True).strip()
    assert said and said == ob.Run(learned).ask("Who rules Vellmora?", max_new_tokens=8)


def test_weights_that_come_out_otherwise_are_warned_of(
    learned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from openbook.training import gguf_file

    monkeypatch.setattr(gguf_file, "permuted", lambda weight, heads: weight.flip(0))
    assert main(["export", str(learned), "--to", "gguf", "--out", str(tmp_path / "x.gguf")]) == 0
    assert "warning: It answers as the run does on" in " ".join(capsys.readouterr().err.split())


def test_bad_input_is_refused(learned: Path, refused: Any, tmp_path: Path) -> None:
    out = tmp_path / "x"
    assert "--out" in refused("export", learned, "--to", "merged")
    refused("export", learned, "--to", "onnx", "--out", out)
    assert "no adapters (model.lora)" in refused("export", learned, "--to", "adapter", "--out", out)
    assert "ends in .gguf" in refused("export", learned, "--to", "gguf", "--out", out)
    assert "its architecture is" in refused("export", "student-3-8", "--to", "gguf", "--out", f"{out}.gguf")
    begun = tmp_path / "begun"
    shutil.copytree(learned, begun)
    (begun / "manifest.json").unlink()
    assert "did not finish: go on with" in refused("export", begun, "--to", "merged", "--out", out)
    out.mkdir()
    (out / "notes.txt").write_text("mine")
    assert "exists: replace it with --force" in refused("export", learned, "--to", "merged", "--out", out)
    assert "is not replaced" in refused("export", learned, "--to", "merged", "--out", out, "--force")
    assert (out / "notes.txt").read_text() == "mine"


def test_a_student_is_exported_as_a_folder(told: Any, tmp_path: Path) -> None:
    result, code = told("export", "student-3-8", "--to", "merged", "--out", tmp_path / "student")
    assert code == 0 and result["agreement"] == 1.0
    assert json.loads((tmp_path / "student" / "config.json").read_text())["model_type"] != "llama"


def test_a_hub_that_cannot_be_reached_is_one_sentence(
    learned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setenv("HF_TOKEN", "hf_none")
    arguments = ["export", str(learned), "--to", "merged", "--out", str(tmp_path / "x"), "--push-to-hub", "you/x"]
    assert main(arguments) == 1
    said = capsys.readouterr().err
    assert "refused you/x" in said and "Traceback" not in said and not (tmp_path / "x").exists()
