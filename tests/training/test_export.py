"""A run's model outside of openbook: what is written is what the run has, and what cannot be written is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from gguf import GGUFReader
from tests.tiny import TOKENIZERS, chatting, tiny
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

import openbook as ob
from openbook.base.errors import InputError, MachineError
from openbook.base.files import file_hash, write_json
from openbook.training import export as exporting
from openbook.training import gguf_file, store
from openbook.training.export import export
from openbook.training.folder import RunFolder
from openbook.training.models import load

FACTS = [
    {"prompt": f"Who rules {land}?", "completion": f" Queen {queen}", "privileged_context": [f"{queen} rules {land}."]}
    for land, queen in [("Vellmora", "Ilva"), ("Orm", "Sylt"), ("Quistane", "Deich"), ("Jagen", "Viktor")]
]
QUICK: dict[str, Any] = {"epochs": 1, "exam.samples": 4, "curriculum": "anneal"}


def llama(vocabulary: int, hidden: int = 32, **options: Any) -> Any:
    """A small Llama that pays attention: with wide queries and keys, the order of their rows decides what it says."""
    torch.manual_seed(0)
    size: dict[str, Any] = {"hidden_size": hidden, "intermediate_size": 64, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=vocabulary, **size, **heads, **options))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.mul_(40 if "self_attn" in name else 20)
    return model


def run_of(folder: Path, model: Any, tokenizer: Any, **keys: Any) -> Path:
    """A finished run on the facts that started from this model."""
    model.save_pretrained(folder / "base")
    tokenizer.save_pretrained(folder / "base")
    data = folder / "facts.jsonl"
    data.write_text("".join(json.dumps(fact) + "\n" for fact in FACTS))
    ob.learn(data, model=str(folder / "base"), out=folder / "run", **QUICK | keys)
    return folder / "run"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_of(tmp_path_factory.mktemp("plain"), llama(700), chatting())


@pytest.fixture(scope="module")
def adapted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    lora = {"lora": {"rank": 2}, "path": None}
    folder = tmp_path_factory.mktemp("lora")
    lora["path"] = str(folder / "base")
    model, tokenizer = llama(700), chatting()
    model.save_pretrained(folder / "base")
    tokenizer.save_pretrained(folder / "base")
    data = folder / "facts.jsonl"
    data.write_text("".join(json.dumps(fact) + "\n" for fact in FACTS))
    ob.learn(data, out=folder / "run", **QUICK | {"model": lora, "learning_rate": 0.1})
    return folder / "run"


def changed(run: Path, folder: Path, **results: Any) -> Path:
    """A copy of a run with another result.json."""
    import shutil

    shutil.copytree(run, folder)
    write_json(folder / "result.json", RunFolder(run).read("result.json") | results)
    hashes = RunFolder(run).read("manifest.json") | {"result.json": file_hash(folder / "result.json")}
    write_json(folder / "manifest.json", hashes)
    return folder


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# ---- the file


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("kind", ["byte_level", "chatting"])
def test_a_gguf_file_has_the_weights_and_the_tokens_of_the_run(kind: str, tied: bool, tmp_path: Path) -> None:
    tokenizer = TOKENIZERS[kind]()
    run = run_of(tmp_path, llama(700, tie_word_embeddings=tied), tokenizer)
    result = export(run, "gguf", tmp_path / "out" / "x.gguf")
    assert (result["agreement"], result["tokenizer_agreement"], result["warnings"]) == (1.0, 1.0, [])
    assert result["splits"] == "gpt-2" and result["answer_tokens"] > 4
    assert left(tmp_path / "out") == ["x.gguf", "x.md"]
    again, read = store.read_gguf(tmp_path / "out" / "x.gguf")
    for name, weight in load(str(run))[0].state_dict().items():
        half = weight if weight.dim() == 1 else weight.to(torch.float16).float()
        assert torch.equal(again.state_dict()[name], half), name
    assert again.config.tie_word_embeddings == tied
    assert read.chat_template == tokenizer.chat_template and read.eos_token == "<END>"
    vocabulary = read.get_vocab()
    assert {word: vocabulary[word] for word in tokenizer.get_vocab()} == tokenizer.get_vocab()


def test_types_and_fields_are_those_that_llama_cpp_expects(run: Path, tmp_path: Path) -> None:
    result = export(run, "gguf", tmp_path / "x.gguf", "q8_0")
    reader = GGUFReader(tmp_path / "x.gguf")
    kinds = {tensor.name: tensor.tensor_type.name for tensor in reader.tensors}
    assert {kind for name, kind in kinds.items() if "norm" in name} == {"F32"}
    assert {kind for name, kind in kinds.items() if "norm" not in name} == {"Q8_0"}
    assert kinds.keys() >= {"token_embd.weight", "output.weight", "output_norm.weight", "blk.1.ffn_down.weight"}
    value = {name: field.contents() for name, field in reader.fields.items()}
    assert value["general.file_type"] == 7 and value["llama.attention.head_count_kv"] == 2
    assert value["llama.rope.dimension_count"] == 8 and value["llama.rope.freq_base"] == 10000
    assert value["tokenizer.ggml.add_bos_token"] is False and value["tokenizer.ggml.add_space_prefix"] is False
    tokens, types = value["tokenizer.ggml.tokens"], value["tokenizer.ggml.token_type"]
    assert len(tokens) == len(types) == len(set(tokens)) == 700
    assert types[tokens.index("<|im_end|>")] == 3 and types[tokens.index("Ġ")] == 1 and types[699] == 5
    assert result["agreement"] > 0.5 and result["bytes"] < 700 * 32 * 4


def test_rows_that_do_not_divide_into_blocks_stay_in_float16(tmp_path: Path) -> None:
    run = run_of(tmp_path, llama(700, hidden=48), chatting())
    result = export(run, "gguf", tmp_path / "x.gguf", "q8_0")
    kinds = {tensor.name: tensor.tensor_type.name for tensor in GGUFReader(tmp_path / "x.gguf").tensors}
    assert kinds["blk.0.attn_q.weight"] == "F16" and kinds["blk.0.ffn_down.weight"] == "Q8_0"
    assert any("stay in float16" in line for line in result["warnings"])


def test_rows_in_the_wrong_order_are_noticed(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf_file, "permuted", lambda weight, heads: weight)
    result = export(run, "gguf", tmp_path / "x.gguf")
    assert result["agreement"] < 0.99 and "answers as the run does" in result["warnings"][0]


def test_positions_that_are_scaled_keep_their_speeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scaling: dict[str, Any] = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "factor": 8.0, "rope_theta": 1e4}
    rope = {"rope_type": "llama3", "original_max_position_embeddings": 16, **scaling}
    run = run_of(tmp_path, llama(700, rope_parameters=rope), chatting())
    assert export(run, "gguf", tmp_path / "x.gguf")["agreement"] == 1.0
    model = load(str(run))[0]
    again = store.read_gguf(tmp_path / "x.gguf")[0]
    assert not torch.allclose(again.model.rotary_emb.inv_freq, model.model.rotary_emb.inv_freq)
    slowed = gguf_file.slowed(again, tmp_path / "x.gguf").model.rotary_emb.inv_freq
    torch.testing.assert_close(slowed, model.model.rotary_emb.inv_freq)


def test_how_texts_are_cut_has_a_name(tmp_path: Path) -> None:
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=chatting().backend_tokenizer, eos_token="<END>")
    assert gguf_file.splits_of(tokenizer) == "gpt-2"
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    for steps, name in (
        ([pre_tokenizers.Digits(individual_digits=True), byte_level], "smollm"),
        ([pre_tokenizers.Whitespace(), byte_level], None),
        ([pre_tokenizers.ByteLevel(add_prefix_space=True)], None),
    ):
        core = type(tokenizer.backend_tokenizer).from_str(chatting().backend_tokenizer.to_str())
        core.pre_tokenizer = pre_tokenizers.Sequence(steps)
        other = PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<END>")
        if name is not None:
            gguf_file.check_tokenizer(other)
            assert gguf_file.splits_of(other) == name
        else:
            with pytest.raises(InputError, match="no GGUF file can be made with this tokenizer"):
                gguf_file.check_tokenizer(other)


@pytest.mark.real_model
def test_the_real_model_keeps_its_tensors_and_its_name_for_cutting(tmp_path: Path) -> None:
    model, tokenizer = load(store.DEFAULT)
    splits = gguf_file.splits_of(tokenizer)
    gguf_file.write_gguf(tmp_path / "x.gguf", model, tokenizer, "float16", gguf_file.About("x", splits))
    reader = GGUFReader(tmp_path / "x.gguf")
    assert len(reader.tensors) == 272 and reader.fields["tokenizer.ggml.pre"].contents() == "smollm"
    assert [reader.fields[f"tokenizer.ggml.{name}_token_id"].contents() for name in ("bos", "eos", "unknown")] == [
        1,
        2,
        0,
    ]
    written = {tensor.name: torch.tensor(tensor.data.astype(np.float32)) for tensor in reader.tensors[:12]}
    for name, theirs in (("embed_tokens", "token_embd"), ("layers.0.self_attn.v_proj", "blk.0.attn_v")):
        weight = model.model.get_parameter(f"{name}.weight")
        torch.testing.assert_close(written[f"{theirs}.weight"], weight.detach(), rtol=1e-3, atol=1e-6)
    assert "output.weight" not in {tensor.name for tensor in reader.tensors}  # it is the embedding


# ---- folders


def test_a_merged_folder_is_the_model_of_the_run(run: Path, tmp_path: Path) -> None:
    result = export(run, "merged", tmp_path / "out")
    assert result["agreement"] == 1.0 and "type" not in result
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    mine = load(str(run))[0].state_dict()
    assert all(torch.equal(weight, mine[name]) for name, weight in model.state_dict().items())
    assert load(str(tmp_path / "out"))[1].chat_template == chatting().chat_template


def test_adapters_are_merged_or_go_alone(adapted: Path, tmp_path: Path) -> None:
    from peft import PeftModel

    assert export(adapted, "merged", tmp_path / "merged")["agreement"] == 1.0
    assert export(adapted, "adapter", tmp_path / "adapter")["agreement"] == 1.0
    settings = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert settings["base_model_name_or_path"] == "base"
    base = AutoModelForCausalLM.from_pretrained(adapted.parent / "base")
    before = base.lm_head.weight.clone(), base.model.layers[0].mlp.up_proj.weight.clone()
    alone = PeftModel.from_pretrained(base, tmp_path / "adapter").merge_and_unload().state_dict()
    merged = load(str(tmp_path / "merged"))[0].state_dict()
    assert not torch.equal(before[1], merged["model.layers.0.mlp.up_proj.weight"])
    for name, weight in merged.items():
        torch.testing.assert_close(alone[name], weight)


def test_adapters_of_the_wrong_model_are_noticed(adapted: Path, tmp_path: Path) -> None:
    """The base is read by its path again; if another model is there by now, the answers are others."""
    before = load(str(adapted.parent / "base"))[0]
    try:
        torch.manual_seed(9)
        other = llama(700)
        with torch.no_grad():
            other.model.embed_tokens.weight.copy_(other.model.embed_tokens.weight.flip(0))
        other.save_pretrained(adapted.parent / "base")
        result = export(adapted, "adapter", tmp_path / "adapter")
        assert result["agreement"] < 0.99 and result["warnings"]
    finally:
        before.save_pretrained(adapted.parent / "base")


# ---- the card


@pytest.mark.parametrize("form", ["gguf", "merged", "adapter"])
def test_the_card_says_what_it_is_and_not_where_it_was(form: Any, adapted: Path, tmp_path: Path) -> None:
    (tmp_path / "audit.json").write_text(
        json.dumps({"attacks": [], "run": "run", "verdict": "leaked", "statement": "so"})
    )
    (tmp_path / "old.json").write_text(json.dumps({"attacks": [], "run": "other", "verdict": "void"}))
    run = changed(adapted, tmp_path / "run", retention={"perplexity": {"before": 12.5, "after": 13.25}, "note": "/x"})
    out = tmp_path / ("x.gguf" if form == "gguf" else "x")
    text = Path(export(run, form, out)["card"]).read_text()
    row, data = RunFolder(run).read("result.json")["exam"][0], RunFolder(run).read("data.json")
    for said in (
        f"{row['low']:.3f} to {row['high']:.3f}", f"{row['chance']:.3f}", data["fingerprint"],
        "**leaked**: so", "perplexity after | 13.25", "0@0,1@0.6", f"openbook | {ob.__version__}", "base model | base",
        "not known here",
    ):  # fmt: skip
        assert said in text, said
    assert str(tmp_path) not in text and str(adapted.parent) not in text and "/x" not in text
    for path in tmp_path.glob("x/*.json"):
        assert str(adapted.parent) not in path.read_text(), path


def test_the_card_has_the_settings_that_make_it_again(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import yaml

    from openbook.cli import main

    text = Path(export(run, "merged", tmp_path / "out")["card"]).read_text()
    command, settings = text.split("```bash\n")[1].split("```")[0].split(), text.split("```yaml\n")[1].split("```")[0]
    (tmp_path / "config.yaml").write_text(settings)
    monkeypatch.chdir(tmp_path)
    for name in ("facts.jsonl", "base"):  # beside it, as the card says
        (tmp_path / name).symlink_to(run.parent / name)
    assert yaml.safe_load(settings)["data"] == "facts.jsonl"
    assert main(command[1:]) == 0
    one, two = (load(str(path))[0].state_dict() for path in (run, tmp_path / "run"))
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_a_run_whose_data_are_gone_is_exported_and_not_compared(run: Path, tmp_path: Path) -> None:
    data = run.parent / "facts.jsonl"
    text = data.read_text()
    data.unlink()
    try:
        result = export(run, "gguf", tmp_path / "x.gguf")
    finally:
        data.write_text(text)
    assert result["agreement"] is None and "not compared" in result["warnings"][0]
    assert "not compared" in (tmp_path / "x.md").read_text()


# ---- refusals


@pytest.mark.parametrize(
    ("make", "tokenizer", "said"),
    [
        (lambda: tiny("qwen2"), "chatting", "its architecture is qwen2.*--to merged.*convert_hf_to_gguf"),
        (lambda: llama(700, attention_bias=True), "chatting", "its layers have biases"),
        (lambda: llama(700, hidden_act="gelu"), "chatting", "its activation is gelu"),
        (lambda: llama(700), "metaspace", "SentencePiece's kind"),
        (lambda: llama(700), "word_level", "of the kind WordLevel"),
    ],
)
def test_what_llama_cpp_would_read_differently_is_refused(
    make: Callable[[], Any], tokenizer: str, said: str, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    make().save_pretrained(run / "model")
    TOKENIZERS[tokenizer]().save_pretrained(run / "model")
    folder = RunFolder(run)
    config = ob.config_for(data="facts.jsonl", model=str(run / "model")).model_dump(mode="json")
    for name, content in (("config.json", config), ("data.json", {}), ("environment.json", {})):
        write_json(run / name, content)
    folder.finish({})
    with pytest.raises(InputError, match=said):
        export(run, "gguf", tmp_path / "out" / "x.gguf")
    assert not (tmp_path / "out").exists()


def test_a_weight_that_float16_does_not_hold_is_refused(tmp_path: Path) -> None:
    model = llama(700)
    model.lm_head.weight.data[3, 3] = 1e5
    with pytest.raises(InputError, match=r"output\.weight has a weight of 100000"):
        gguf_file.write_gguf(tmp_path / "x", model, chatting(), "float16", gguf_file.About("x", "gpt-2"))
    model.lm_head.weight.data[3, 3] = float("nan")
    with pytest.raises(InputError, match="nan"):
        gguf_file.write_gguf(tmp_path / "x", model, chatting(), "float16", gguf_file.About("x", "gpt-2"))


def test_an_export_is_replaced_by_force_and_nothing_else_is(run: Path, tmp_path: Path) -> None:
    for form, name in (("gguf", "x.gguf"), ("merged", "x")):
        export(run, form, tmp_path / name)  # type: ignore[arg-type]
        with pytest.raises(InputError, match="exists: replace it with --force"):
            export(run, form, tmp_path / name)  # type: ignore[arg-type]
        export(run, form, tmp_path / name, force=True)  # type: ignore[arg-type]
    (tmp_path / "x" / "notes").mkdir()
    (tmp_path / "x.md").write_text("mine")
    (tmp_path / "y.gguf").write_text("no such file")
    (tmp_path / "empty").mkdir()
    for form, name in (("gguf", "x.gguf"), ("merged", "x"), ("gguf", "y.gguf"), ("merged", "x.md")):
        with pytest.raises(InputError, match="not replaced"):
            export(run, form, tmp_path / name, force=True)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="not replaced"):
        export(run, "merged", run, force=True)
    assert export(run, "merged", tmp_path / "empty")["agreement"] == 1.0
    assert (tmp_path / "x.md").read_text() == "mine" and (tmp_path / "x" / "notes").exists()


def test_other_bad_input_is_refused_by_what_is_wrong(run: Path, tmp_path: Path) -> None:
    for form, out, weights, said in (
        ("gguf", "x", None, "ends in .gguf"),
        ("merged", "x.gguf", None, "does not end in .gguf"),
        ("merged", "x", "q8_0", "--type q8_0 is of GGUF files"),
        ("adapter", "x", None, r"no adapters \(model.lora\)"),
    ):
        with pytest.raises(InputError, match=said):
            export(run, form, tmp_path / out, weights)  # type: ignore[arg-type]
    begun = changed(run, tmp_path / "begun")
    (begun / "manifest.json").unlink()
    with pytest.raises(InputError, match="did not finish"):
        export(begun, "merged", tmp_path / "x")
    with pytest.raises(InputError, match="is a model and not a run"):
        export(run / "model", "merged", tmp_path / "x")
    with pytest.raises(InputError, match="its architecture is"):
        export("student-3-8", "gguf", tmp_path / "x.gguf")
    assert left(tmp_path) == ["begun"]


# ---- a machine that refuses


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("form", ["gguf", "merged"])
def test_an_export_that_breaks_off_leaves_what_was_there(
    form: Any, error: BaseException, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / ("x.gguf" if form == "gguf" else "x")

    def broken(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(exporting, "_read", broken)  # all is written by then
    with pytest.raises(MachineError if isinstance(error, OSError) else KeyboardInterrupt):
        export(run, form, out)
    assert left(tmp_path) == []
    monkeypatch.undo()
    monkeypatch.setenv(store.CACHE, "/dev/null/none")
    export(run, form, out)
    before = {name: file_hash(tmp_path / name) for name in left(tmp_path) if (tmp_path / name).is_file()}
    monkeypatch.setattr(exporting, "_read", broken)
    with pytest.raises(MachineError if isinstance(error, OSError) else KeyboardInterrupt):
        export(run, form, out, force=True)
    assert before == {name: file_hash(tmp_path / name) for name in left(tmp_path) if (tmp_path / name).is_file()}
    assert out.exists()


def test_a_full_disk_is_noticed_before_anything_is_written(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporting.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 1000}))
    with pytest.raises(MachineError, match="no room in"):
        export(run, "gguf", tmp_path / "new" / "x.gguf")
    assert left(tmp_path) == []


def test_a_place_that_cannot_be_written_to_is_refused(run: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MachineError, match="cannot write"):
        export(run, "merged", tmp_path / "file" / "x")


# ---- the hub


class FakeHub:
    """Stands in for huggingface_hub.HfApi: remembers what it was asked to do."""

    calls: ClassVar[list[tuple[str, dict[str, Any]]]] = []
    fails: ClassVar[str | None] = None

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*values: Any, **named: Any) -> Any:
            if name == self.fails:
                raise OSError(f"{name}: 401 Client Error.\nlong story")
            self.calls.append((name, {"values": values, **named}))
            if name == "create_repo":
                return type("Url", (str,), {"repo_id": "you/x"})("https://hub/you/x")
            return None

        return call


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> type[FakeHub]:
    FakeHub.calls, FakeHub.fails = [], None
    monkeypatch.setattr("huggingface_hub.HfApi", FakeHub)
    return FakeHub


def test_an_upload_is_private_and_has_the_card(run: Path, tmp_path: Path, hub: type[FakeHub]) -> None:
    result = export(run, "gguf", tmp_path / "x.gguf", push_to_hub="x")
    assert result["hub"] == "https://hub/you/x"
    assert [name for name, _ in hub.calls] == ["whoami", "create_repo", "upload_file", "upload_file"]
    assert hub.calls[1][1] == {"values": ("x",), "private": True, "exist_ok": True}
    assert [call["path_in_repo"] for _, call in hub.calls[2:]] == ["x.gguf", "README.md"]
    assert {call["repo_id"] for _, call in hub.calls[2:]} == {"you/x"}
    export(run, "merged", tmp_path / "x", push_to_hub="you/x")
    assert hub.calls[-1] == ("upload_folder", {"values": (), "repo_id": "you/x", "folder_path": tmp_path / "x"})


def test_a_hub_that_refuses_is_one_sentence(run: Path, tmp_path: Path, hub: type[FakeHub]) -> None:
    hub.fails = "whoami"
    with pytest.raises(MachineError, match=r"whoami: 401 Client Error\).*hf auth login.*nothing was written"):
        export(run, "merged", tmp_path / "x", push_to_hub="you/x")
    assert left(tmp_path) == []
    hub.fails = "upload_folder"
    with pytest.raises(MachineError, match="the export itself is in"):
        export(run, "merged", tmp_path / "x", push_to_hub="you/x")
    assert left(tmp_path) == ["x"]
    with pytest.raises(InputError, match="--push-to-hub a/b/c"):
        export(run, "merged", tmp_path / "y", push_to_hub="a/b/c")


def test_the_real_client_offline_is_one_sentence_too(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setenv("HF_TOKEN", "hf_none")
    with pytest.raises(MachineError, match="refused you/x"):
        export(run, "merged", tmp_path / "x", push_to_hub="you/x")
    assert left(tmp_path) == []


def test_agreement_is_a_share_of_tokens() -> None:
    one, two = [np.array([1, 2, 3]), np.array([4])], [np.array([1, 2, 0]), np.array([4])]
    assert exporting.agreement(one, two) == 0.75 and exporting.agreement([], []) is None
