"""Writes a Llama as one GGUF file, which llama.cpp, Ollama and LM Studio read: metadata, tokenizer, then weights.

    model.layers.0.self_attn.q_proj.weight  ->  blk.0.attn_q.weight, its rows in llama.cpp's order

Hugging Face's Llama turns the first half of a head against the second, llama.cpp turns even rows against odd ones. So
row (head, half, i) of the queries and keys becomes row (head, i, half): the same rotation of the same numbers.

Whatever llama.cpp would read differently is refused by name before anything is written.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter, LlamaFileType, TokenType, get_tensor_name_map, quantize
from gguf.constants import GGML_QUANT_SIZES, MODEL_ARCH, MODEL_TENSOR, TENSOR_NAMES

from openbook.base.errors import InputError

WeightType = Literal["float16", "q8_0"]
TYPES = {
    "float16": (GGMLQuantizationType.F16, LlamaFileType.MOSTLY_F16),
    "q8_0": (GGMLQuantizationType.Q8_0, LlamaFileType.MOSTLY_Q8_0),
}
LARGEST = float(np.finfo(np.float16).max)
WAY_OUT = "export it with --to merged, and convert that folder with llama.cpp's convert_hf_to_gguf.py"
ROPE_FACTORS = f"{TENSOR_NAMES[MODEL_TENSOR.ROPE_FREQS]}.weight"

# How llama.cpp cuts a text into words before byte pairs are merged: its name, and the same in terms of tokenizers.
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPLITS: dict[str, tuple[tuple[str, Any], ...]] = {
    "gpt-2": (("ByteLevel", True),),
    "smollm": (("Digits", True), ("ByteLevel", True)),
    "llama-bpe": (("Split", _LLAMA3), ("ByteLevel", False)),
    "qwen2": (("Split", _LLAMA3.replace("{1,3}", "")), ("ByteLevel", False)),
}


@dataclass(frozen=True)
class About:
    """What a file says of the model besides its shape."""

    name: str
    splits: str  # how texts are cut into words, by llama.cpp's name
    base: str | None = None
    licence: str | None = None


def check_model(config: Any) -> None:
    """Refuse a model whose computation the architecture `llama` of llama.cpp does not have."""
    problem = None
    if config.model_type != "llama":
        problem = f"its architecture is {config.model_type}, and this command writes GGUF files of llama alone"
    elif config.attention_bias or config.mlp_bias:
        problem = "its layers have biases"
    elif config.hidden_act != "silu":
        problem = f"its activation is {config.hidden_act}, and llama.cpp's Llama has silu"
    elif (rope := config.rope_parameters["rope_type"]) not in ("default", "linear", "llama3"):
        problem = f"its rotary positions are scaled by '{rope}'"
    if problem:
        raise InputError(f"no GGUF file can be made of this model: {problem}. Instead, {WAY_OUT}")


def check_tokenizer(tokenizer: Any) -> None:
    """Refuse a tokenizer that llama.cpp's byte-level byte pairs (`gpt2`) would not reproduce."""
    core = json.loads(tokenizer.backend_tokenizer.to_str())
    model, normalizer = core["model"], (core["normalizer"] or {"type": "NFC"})["type"]
    parts = _parts(core["pre_tokenizer"])
    problem = None
    if model["type"] != "BPE" or model.get("byte_fallback") or "ByteLevel" not in [part["type"] for part in parts]:
        kind = "SentencePiece's kind" if model["type"] in ("BPE", "Unigram") else f"of the kind {model['type']}"
        problem = f"it is {kind}, and only byte-level byte pairs (GPT-2's kind) are written"
    elif model.get("continuing_subword_prefix") or model.get("end_of_word_suffix"):
        problem = "it marks the parts of a word"
    elif not model["merges"]:
        problem = "it merges no pairs"
    elif normalizer != "NFC":
        problem = f"it changes texts first ({normalizer})"
    elif any(part.get("add_prefix_space") for part in parts):
        problem = "it puts a blank before every text"
    elif _described(parts) not in SPLITS.values():
        problem = f"it cuts texts in a way that llama.cpp has no name for here (known: {', '.join(SPLITS)})"
    elif tokenizer.eos_token_id is None:
        problem = "it has no token that ends a text"
    if problem:
        raise InputError(f"no GGUF file can be made with this tokenizer: {problem}. Instead, {WAY_OUT}")


def _parts(pre_tokenizer: dict[str, Any] | None) -> list[dict[str, Any]]:
    if pre_tokenizer is None:
        return []
    return pre_tokenizer["pretokenizers"] if pre_tokenizer["type"] == "Sequence" else [pre_tokenizer]


def _described(parts: Sequence[dict[str, Any]]) -> tuple[tuple[str, Any], ...]:
    """The steps of a pre-tokenizer, as `SPLITS` lists them."""
    said = {
        "Digits": lambda part: part["individual_digits"],
        "Split": lambda part: part["pattern"].get("Regex") if part["behavior"] == "Isolated" else None,
        "ByteLevel": lambda part: part["use_regex"],
    }
    return tuple((part["type"], said.get(part["type"], str)(part)) for part in parts)


def cutting(tokenizer: Any, name: str) -> Any:
    """The tokenizer's core, but cutting texts as llama.cpp does under this name."""
    from tokenizers import Regex, Tokenizer, pre_tokenizers

    made = {
        "Digits": lambda value: pre_tokenizers.Digits(individual_digits=value),
        "Split": lambda value: pre_tokenizers.Split(Regex(value), behavior="isolated"),
        "ByteLevel": lambda value: pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=value),
    }
    core = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    core.pre_tokenizer = pre_tokenizers.Sequence([made[kind](value) for kind, value in SPLITS[name]])
    return core


def encoded_alike(core: Any, other: Any, texts: Sequence[str]) -> float:
    """The share of texts that two tokenizers encode into the same tokens, without those put before and after."""
    pairs = zip(*(c.encode_batch(list(texts), add_special_tokens=False) for c in (core, other)), strict=True)
    return float(np.mean([one.ids == two.ids for one, two in pairs]))


def restore_cutting(tokenizer: Any, file: Path) -> None:
    """Let a tokenizer that transformers has read from a GGUF file cut texts as that file says."""
    field = GGUFReader(file).get_field("tokenizer.ggml.pre")
    name = None if field is None else field.contents()
    if name in SPLITS:
        tokenizer.backend_tokenizer.pre_tokenizer = cutting(tokenizer, name).pre_tokenizer


def splits_of(tokenizer: Any) -> str:
    """What llama.cpp calls the way in which a tokenizer cuts texts."""
    described = _described(_parts(json.loads(tokenizer.backend_tokenizer.to_str())["pre_tokenizer"]))
    return next(name for name, steps in SPLITS.items() if steps == described)


def size_of(model: Any, kind: WeightType) -> int:
    """The size of the file's weights in bytes."""
    block, size = GGML_QUANT_SIZES[TYPES[kind][0]]
    return sum(parameter.numel() for parameter in model.parameters()) * size // block


def write_gguf(path: Path, model: Any, tokenizer: Any, kind: WeightType, about: About) -> list[str]:
    """Write the file; returns the names of the matrices that do not divide into blocks and stay in float16."""
    writer = GGUFWriter(path, "llama")
    _add_metadata(writer, model.config, kind, about)
    _add_tokenizer(writer, tokenizer, model.config.vocab_size, about.splits)
    plan = [(name, tensor, type_of(tensor, kind)) for name, tensor in _tensors(model)]
    for name, tensor, type_ in plan:
        shape = list(tensor.shape)
        if type_ == GGMLQuantizationType.Q8_0:
            block, size = GGML_QUANT_SIZES[type_]
            shape[-1] = shape[-1] // block * size
        dtype = {GGMLQuantizationType.F32: np.float32, GGMLQuantizationType.F16: np.float16}.get(type_, np.uint8)
        writer.add_tensor_info(name, shape, np.dtype(dtype), int(np.prod(shape)) * np.dtype(dtype).itemsize, type_)
    try:
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for name, tensor, type_ in plan:  # one after another, so that there is never a second model in memory
            writer.write_tensor_data(quantize(_numbers(name, tensor), type_))
    finally:
        writer.close()
    return [name for name, tensor, type_ in plan if kind == "q8_0" and type_ == GGMLQuantizationType.F16]


def type_of(tensor: torch.Tensor, kind: WeightType) -> GGMLQuantizationType:
    """The type of a tensor in the file: norms stay in float32, and a matrix must divide into blocks."""
    if tensor.dim() == 1:
        return GGMLQuantizationType.F32
    type_ = TYPES[kind][0]
    return GGMLQuantizationType.F16 if tensor.shape[-1] % GGML_QUANT_SIZES[type_][0] else type_


def _numbers(name: str, tensor: torch.Tensor) -> np.ndarray:
    values = tensor.detach().to("cpu", torch.float32).contiguous().numpy()
    if not (largest := float(np.abs(values).max())) <= LARGEST:  # NaN too
        raise InputError(f"{name} has a weight of {largest:g}, which float16 does not hold. Instead, {WAY_OUT}")
    return values


def _tensors(model: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Every tensor of the file, by llama.cpp's name and in its order of rows."""
    config = model.config
    names = get_tensor_name_map(MODEL_ARCH.LLAMA, config.num_hidden_layers)
    if (factors := rope_factors(model)) is not None:
        yield ROPE_FACTORS, factors
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue  # llama.cpp takes the embedding where there is no output matrix
        heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}.get(name.split(".")[-2])
        if (known := names.get_name(name, try_suffixes=(".weight",))) is None:
            raise InputError(f"no GGUF file can be made of this model: llama.cpp has no name for its '{name}'")
        yield known, permuted(tensor, heads) if heads else tensor


def permuted(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Rows (head, half, i) as rows (head, i, half)."""
    return weight.reshape(heads, 2, -1, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)


def rope_factors(model: Any) -> torch.Tensor | None:
    """By how much slower each pair of a head turns than without scaling; None if positions are not scaled."""
    rotary, rope = model.model.rotary_emb, model.config.rope_parameters
    if rope["rope_type"] == "default":
        return None
    half = len(rotary.inv_freq)
    plain = 1 / rope["rope_theta"] ** (torch.arange(half, dtype=torch.float32) / half)
    return plain / rotary.inv_freq.float().cpu()


def slowed(model: Any, file: Path) -> Any:
    """The model that transformers has read from a file, with the file's factors, which transformers passes over."""
    for tensor in GGUFReader(file).tensors:
        if tensor.name == ROPE_FACTORS:
            model.model.rotary_emb.inv_freq /= torch.from_numpy(np.array(tensor.data))
    return model


def _add_metadata(writer: GGUFWriter, config: Any, kind: WeightType, about: About) -> None:
    writer.add_type("model")
    writer.add_name(about.name)
    if about.licence:
        writer.add_license(about.licence.lower())
    if about.base:
        writer.add_base_model_count(1)
        writer.add_base_model_name(0, about.base)
    head = config.head_dim or config.hidden_size // config.num_attention_heads
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(head)
    writer.add_value_length(head)
    writer.add_rope_dimension_count(head)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    writer.add_file_type(TYPES[kind][1])
    writer.add_quantization_version(2)


def _add_tokenizer(writer: GGUFWriter, tokenizer: Any, rows: int, splits: str) -> None:
    """Tokens with their types, merges, and what is put around a text; rows of no token are unused ones."""
    words = {number: word for word, number in tokenizer.get_vocab().items()}
    if max(words) >= rows:
        raise InputError(f"the tokenizer has {max(words) + 1} tokens and the model {rows}: they do not belong together")
    added = tokenizer.added_tokens_decoder
    types = [
        TokenType.UNUSED if number not in words
        else TokenType.NORMAL if number not in added
        else TokenType.CONTROL if added[number].special
        else TokenType.USER_DEFINED
        for number in range(rows)
    ]  # fmt: skip
    merges = json.loads(tokenizer.backend_tokenizer.to_str())["model"]["merges"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(splits)
    writer.add_token_list([words.get(number, f"[PAD{number}]") for number in range(rows)])
    writer.add_token_types(types)
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in merges])
    bos, eos = tokenizer.bos_token_id, tokenizer.eos_token_id
    writer.add_bos_token_id(eos if bos is None else bos)  # without one, llama.cpp would take number 11
    writer.add_eos_token_id(eos)
    if tokenizer.unk_token_id is not None:
        writer.add_unk_token_id(tokenizer.unk_token_id)
    if tokenizer.pad_token_id is not None:
        writer.add_pad_token_id(tokenizer.pad_token_id)
    around = tokenizer("x")["input_ids"]
    writer.add_add_bos_token(bos is not None and around[0] == bos)
    writer.add_add_eos_token(around[-1] == eos)
    writer.add_add_space_prefix(False)
    if tokenizer.chat_template:
        writer.add_chat_template(tokenizer.get_chat_template())
