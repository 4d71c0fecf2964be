"""Models and tokenizers, loaded and made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.tiny import byte_level, tiny, word_level
from transformers import AutoModelForCausalLM, GPT2Config, OPTConfig

import openbook
from openbook.base.errors import InputError
from openbook.book import ListSource
from openbook.book.text import THINK
from openbook.task import Codebook
from openbook.task.source import Translations
from openbook.training.config import LoraConfig, ModelConfig
from openbook.training.families import Family, llama_shape
from openbook.training.models import (
    add_thinking_token,
    check_window,
    load,
    load_or_make,
    load_placed,
    load_shape,
    load_tokenizer,
    make_tokenizer,
    model_folder,
    window_of,
)

SMALL = ModelConfig(hidden_size=16, layers=1, heads=2)


def facts(**extra: Any) -> ListSource:
    return ListSource([{"prompt": "Who rules Zürich?", "completion": " Nobody — 誰も", **extra}])


def saved(folder: Path, tokenizer: Any, family: str = "llama") -> Path:
    tiny(family, len(tokenizer)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_the_same_seed_makes_the_same_model() -> None:
    before = torch.random.get_rng_state()
    one, same, other = (Family().make(llama_shape(SMALL, 50), seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not torch.equal(one["lm_head.weight"], other["lm_head.weight"])
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_tokenizer_made_from_data_can_write_anything() -> None:
    tokenizer = make_tokenizer(facts())
    for text in ("Who rules Zürich?", "something else entirely: ελληνικά 🦉"):
        assert tokenizer.decode(tokenizer(text, add_special_tokens=False)["input_ids"]) == text
    assert tokenizer.pad_token_id == 0 and tokenizer.eos_token_id == 1
    assert len(tokenizer(THINK, add_special_tokens=False)["input_ids"]) == 1


def test_a_tokenizer_made_for_the_task_has_a_word_for_each_symbol() -> None:
    task = Translations(2, 4, 10, Codebook.sample(2, 4), lengths=(4, 8), text="compact", chain="explicit")
    tokenizer = make_tokenizer(task)
    text = task.example(0).render().text
    assert len(tokenizer(text)["input_ids"]) == len(text.split())
    assert tokenizer.unk_token_id not in tokenizer(text)["input_ids"]


def test_a_thinking_token_is_added_where_thoughts_need_one(tmp_path: Path) -> None:
    tokenizer = word_level().__class__(tokenizer_object=byte_level().backend_tokenizer, eos_token="<END>")
    folder = saved(tmp_path / "model", tokenizer)
    config = ModelConfig(path=str(folder))
    before = tiny("llama", len(tokenizer)).get_input_embeddings().weight
    plain, plain_tokenizer = load_or_make(config, facts(), 0, think="<MULL>")
    assert len(plain_tokenizer) == len(tokenizer) and plain.get_input_embeddings().weight.shape == before.shape
    thoughtful = facts(thoughts=["Nobody"])
    model, with_token = load_or_make(config, thoughtful, 0, think="<MULL>")
    token = with_token.convert_tokens_to_ids("<MULL>")
    assert with_token("<MULL>", add_special_tokens=False)["input_ids"] == [token] and token >= len(tokenizer)
    assert model.get_input_embeddings().weight.shape[0] > token
    torch.testing.assert_close(model.get_input_embeddings().weight[: len(tokenizer)], before)
    written = ListSource([{"prompt": "Who?", "completion": " <MULL> Nobody"}], think="<MULL>")
    for source in (thoughtful, written):  # marked as a thought, or written out already
        again, known = load_or_make(config, source, 0, think="<MULL>")
        assert known.convert_tokens_to_ids("<MULL>") == token
    assert torch.equal(again.get_input_embeddings().weight, model.get_input_embeddings().weight)


def test_a_word_that_the_vocabulary_does_not_know_is_no_thinking_token() -> None:
    """It is one token all the same: the one for unknown words."""
    tokenizer = word_level().__class__(tokenizer_object=word_level().backend_tokenizer, unk_token="<unk>")
    model = tiny("llama", len(tokenizer))
    add_thinking_token(model, tokenizer, "<PONDER>", 0)
    assert tokenizer("<PONDER>")["input_ids"] != [tokenizer.unk_token_id]
    assert model.get_input_embeddings().weight.shape[0] == len(tokenizer)


@pytest.mark.parametrize("targets", ["all-linear", ["q_proj", "v_proj"]])
def test_adapters_alone_are_trained(targets: Any) -> None:
    pytest.importorskip("peft")
    config = SMALL.model_copy(update={"lora": LoraConfig(rank=2, targets=targets)})
    model, _ = load_or_make(config, facts(), 0)
    trained = [name for name, p in model.named_parameters() if p.requires_grad]
    assert trained and all("lora_" in name for name in trained)
    again, _ = load_or_make(config, facts(), 0)
    state = again.state_dict()
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())


def test_adapters_for_layers_that_do_not_exist_are_refused() -> None:
    pytest.importorskip("peft")
    config = SMALL.model_copy(update={"lora": LoraConfig(targets=["no_such_layer"])})
    with pytest.raises(InputError, match=r"model\.lora: .*no_such_layer"):
        load_or_make(config, facts(), 0)


def test_a_run_s_folder_stands_for_its_model(tmp_path: Path) -> None:
    folder = saved(tmp_path / "run" / "model", word_level())
    assert model_folder(str(tmp_path / "run")) == str(folder)
    model, tokenizer = load(str(tmp_path / "run"))
    assert len(tokenizer) == len(word_level()) and window_of(model) == 512


@pytest.mark.parametrize(
    "shape",
    [
        GPT2Config(n_positions=64, n_embd=16, n_layer=1, n_head=2, vocab_size=50),
        OPTConfig(max_position_embeddings=64, hidden_size=16, ffn_dim=16, num_hidden_layers=1, num_attention_heads=2),
    ],
    ids=["gpt2", "opt"],
)
def test_a_window_is_no_longer_than_a_model_has_places_for(shape: Any) -> None:
    model = AutoModelForCausalLM.from_config(shape)
    model(input_ids=torch.zeros(1, 64, dtype=torch.long))
    check_window(model, None)
    check_window(model, 64)
    with pytest.raises(InputError, match="max_length is 65, but the model has vectors for 64 places"):
        check_window(model, 65)
    check_window(tiny("llama"), 9999)  # whose positions are angles
    seeing = tiny("llama")
    seeing.vision_position = torch.nn.Embedding(7, 4)  # as models have that see images as well
    check_window(seeing, 9999)


@pytest.mark.parametrize("damage", ["config", "weights", "cut weights"])
def test_a_damaged_model_is_refused_with_its_path(tmp_path: Path, damage: str) -> None:
    folder = saved(tmp_path / "model", word_level())
    if damage == "config":
        (folder / "config.json").write_text('{"model_type": "nonsense"}')
    elif damage == "weights":
        (folder / "model.safetensors").write_bytes(b"not weights at all")
    else:
        whole = (folder / "model.safetensors").read_bytes()
        (folder / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=f"cannot load the model '{folder}'"):
        load(str(folder))


@pytest.mark.parametrize("path", ["./modles/llama", "/nowhere/llama", "~/llama", "runs/a/b"])
def test_a_folder_that_is_not_there_is_not_looked_for_elsewhere(path: str) -> None:
    with pytest.raises(InputError, match="no such folder"):
        load(path)


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no model there"):
        load(str(tmp_path / "empty"))
    with pytest.raises(InputError, match="no model there"):
        load_tokenizer(str(tmp_path / "empty"))


def test_code_that_comes_with_a_model_is_never_run(tmp_path: Path) -> None:
    folder = saved(tmp_path / "model", word_level())
    (folder / "trap.py").write_text("raise SystemExit('ran')\n")
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "trap", "auto_map": {"AutoConfig": "trap.T", "AutoModelForCausalLM": "trap.T"}}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match="cannot load the model"):
        load(str(folder))


def test_frozen_weights_stay_and_a_name_that_is_not_there_is_refused() -> None:
    from openbook.student.model import StudentForCausalLM
    from openbook.student.vocabulary import student_config
    from openbook.training.models import freeze

    model = StudentForCausalLM(student_config(1, 3, width=16, heads=1, head=8, mlp=16))
    freeze(model, ["self_attn", "embed_tokens"])
    trained = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    assert trained and not any("self_attn" in name or "embed_tokens" in name for name in trained)
    with pytest.raises(InputError, match="'self_atn'"):
        freeze(model, ["self_atn"])


def test_a_student_from_nothing_has_the_shape_of_one_that_reads() -> None:
    """Else a comparison of the two would be one of sizes as well."""
    reader = load_shape(str(Path(openbook.__file__).parent / "checkpoints" / "student-3-8"))
    made, _ = load_or_make(ModelConfig(), Translations(3, 8, 4, text="composite"), seed=0)
    names = (
        "hidden_size",
        "intermediate_size",
        "num_attention_heads",
        "head_dim",
        "num_hidden_layers",
        "lag",
        "stride",
    )
    assert {name: getattr(made.config, name) for name in names} == {name: getattr(reader, name) for name in names}


@pytest.mark.parametrize("kind, expected", [("meta", "meta"), ("mps", "cpu"), (None, "cpu")])
def test_what_is_looked_at_is_put_on_the_accelerator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str | None, expected: str
) -> None:
    """The meta device stands for one, since it is on every machine; Apple's cannot do what probes and audits need."""
    saved(tmp_path, byte_level())
    device = torch.device(kind) if kind else None
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available=False: device)
    model, _ = load_placed(str(tmp_path))
    assert {parameter.device.type for parameter in model.parameters()} == {expected}
