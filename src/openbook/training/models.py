"""Models: a Hugging Face causal LM and its tokenizer, loaded or made small from scratch. One path for both."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from transformers.utils import logging

from openbook.base.errors import InputError
from openbook.book.source import Source
from openbook.book.text import THINK
from openbook.training.config import ModelConfig
from openbook.training.families import family_of
from openbook.training.shipped import config_of, located, shipped_readers
from openbook.training.store import NAMED, is_stored, stored_folder

logging.disable_progress_bar()  # a bar for a model of a few megabytes only hides what matters

UNKNOWN, END, PAD = "<UNK>", "<END>", "<PAD>"


def load_or_make(config: ModelConfig, source: Source, seed: int, think: str = THINK) -> tuple[Any, Any]:
    """The model and tokenizer of a run. If thoughts need a thinking token that the vocabulary lacks, it is added."""
    if config.path is None:
        tokenizer = make_tokenizer(source, think)
        model = make_model(config, source, len(tokenizer), seed)
    else:
        model, tokenizer = load(config.path, config.dtype)
        if source.has_thoughts:
            add_thinking_token(model, tokenizer, think, seed)
    return (with_lora(model, config, seed) if config.lora else model), tokenizer


def make_model(config: ModelConfig, source: Source, vocabulary: int, seed: int) -> Any:
    """A model with random weights, of the family that suits these examples."""
    family = family_of(source.family)
    return family.make(family.shape(config, source, vocabulary), seed)


def load(path: str, dtype: str = "float32") -> tuple[Any, Any]:
    """A model and its tokenizer: a folder, a run, a GGUF file, a name that openbook knows, or one on the hub."""
    tokenizer = _pretrained("AutoTokenizer", path)
    model = _pretrained("AutoModelForCausalLM", path, dtype=dtype, use_safetensors=True)
    if model.dtype == torch.bfloat16 and not torch.accelerator.is_available():
        with suppress(ValueError):  # of an architecture that has only its own
            model.set_attn_implementation("eager")  # torch's fused attention is slow in bfloat16 on processors
    return model, tokenizer


def load_placed(path: str, dtype: str = "float32") -> tuple[Any, Any]:
    """A model to examine and not to train, and its tokenizer; the model is on the accelerator if there is one.

    Apple's has no float64, in which probes and audits add up, so there models stay on the processor.
    """
    model, tokenizer = load(path, dtype)
    device = torch.accelerator.current_accelerator(check_available=True)
    return model if device is None or device.type == "mps" else model.to(device), tokenizer


def multiplies_bfloat16() -> bool:
    """Whether this machine has instructions for bfloat16, without which it would be slower than float32."""
    if torch.cuda.is_available():
        return torch.cuda.is_bf16_supported()
    known: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return bool(known.get("avx512_bf16") or known.get("amx_bf16"))


def load_shape(path: str, local: bool = False) -> Any:
    """A model's config: its shape and its window, without its weights. If `local`, the hub is not asked for it."""
    return _pretrained("AutoConfig", path, local_files_only=local)


def load_tokenizer(path: str, think: str | None = None, local: bool = False) -> Any:
    """A model's tokenizer, with the thinking token if one is named. If `local`, the hub is not asked for it."""
    tokenizer = _pretrained("AutoTokenizer", path, local_files_only=local)
    if think is not None:
        tokenizer.add_tokens([think], special_tokens=True)
    return tokenizer


def _pretrained(kind: str, path: str, **options: Any) -> Any:
    """What one of transformers' auto classes reads from a model's folder. Code from the hub is never run."""
    import transformers

    folder = model_folder(path)
    family_of(config_of(path).get("model_type"))  # importing the family makes its classes known to transformers
    try:
        return getattr(transformers, kind).from_pretrained(folder, trust_remote_code=False, **options)
    except Exception as error:  # a damaged file raises whatever its reader raises
        first = next(iter(str(error).strip().splitlines()), type(error).__name__)
        is_name = "/" not in path and not Path(path).exists()
        known = ", ".join([*NAMED, *shipped_readers()])
        readers = f" (models that openbook knows by name: {known})" if is_name else ""
        raise InputError(f"cannot load the model '{path}': {first}{readers}") from None


def model_folder(path: str) -> str:
    """The folder of the model in a run, a shipped reader, or the model store; any other path or name as it is."""
    if is_stored(path):
        return str(stored_folder(path))
    folder = located(path)
    if (folder / "model" / "config.json").exists():
        return str(folder / "model")
    if folder.is_dir() and not (folder / "config.json").exists():
        raise InputError(f"{path}: no model there: a model's folder has a config.json")
    can_be_name = not path.startswith((".", "/", "~")) and not path.endswith("/") and path.count("/") < 2
    if not folder.exists() and not can_be_name:  # of a model on the hub
        raise InputError(f"{path}: no such folder")
    return path


def add_thinking_token(model: Any, tokenizer: Any, think: str, seed: int) -> None:
    """Give the thinking token an entry of its own; its embedding is drawn near the mean of the others."""
    if think in tokenizer.get_vocab():
        return
    tokenizer.add_tokens([think], special_tokens=True)
    if len(tokenizer) > model.get_input_embeddings().weight.shape[0]:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model.resize_token_embeddings(len(tokenizer))


def make_tokenizer(source: Source, think: str = THINK, texts: int = 2000) -> Any:
    """A small tokenizer for a new model: the words of the task, or byte pairs learned from a user's texts."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    special = [PAD, END, UNKNOWN, think]
    vocabulary = source.vocabulary()
    complete = vocabulary is not None and vocabulary.complete
    if vocabulary is not None:  # the words of a complete one have their numbers already
        words = [*vocabulary.words] if complete else [*special, *vocabulary.words]
        core = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token=UNKNOWN))
        core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    else:
        core = Tokenizer(models.BPE(unk_token=None))
        core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        core.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(
            vocab_size=4096, special_tokens=special, initial_alphabet=alphabet, show_progress=False
        )
        some = range(0, len(source), max(1, len(source) // texts))  # evenly spaced examples, books included
        core.train_from_iterator((source.example(index).render().text for index in some), trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token=PAD,
        eos_token=None if complete else END,  # no word of a complete vocabulary ends a text
        unk_token=UNKNOWN,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.add_tokens([think], special_tokens=True)
    return tokenizer


def with_lora(model: Any, config: ModelConfig, seed: int) -> Any:
    """The model with low-rank adapters. They are drawn from the seed, and nothing else is trained."""
    assert config.lora is not None
    try:
        import peft
    except ImportError:
        raise InputError("model.lora needs the extra: pip install 'openbook[peft]'") from None
    lora = config.lora
    sizes: dict[str, Any] = {"r": lora.rank, "lora_alpha": lora.alpha, "lora_dropout": lora.dropout}
    settings = peft.LoraConfig(target_modules=lora.targets, task_type="CAUSAL_LM", **sizes)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            return peft.get_peft_model(model, settings)
        except ValueError as error:
            raise InputError(f"model.lora: {error}") from None


def freeze(model: Any, parts: list[str]) -> None:
    """Exclude the weights from training whose name contains one of these parts, for instance `self_attn`."""
    for part in parts:
        named = [parameter for name, parameter in model.named_parameters() if part in name]
        if not named:
            raise InputError(f"training.freeze: no weight of this model has '{part}' in its name: name a part of one")
        for parameter in named:
            parameter.requires_grad_(False)


def check_window(model: Any, max_length: int | None) -> None:
    """Refuse a window with more places than the model has position vectors for; a model without these has no limit."""
    window = window_of(model)
    if max_length is None or window is None or max_length <= window:
        return
    for name, table in model.named_modules():
        is_table = isinstance(table, torch.nn.Embedding) and any(part in name for part in ("wpe", "position"))
        if is_table and table.num_embeddings - getattr(table, "offset", 0) == window:  # that of images is different
            raise InputError(
                f"training.max_length is {max_length}, but the model has vectors for {window} places and cannot read "
                "longer texts: set it lower"
            )


def window_of(model: Any) -> int | None:
    """The longest sequence the model was made for, if it says; `model` may be its config alone."""
    config = getattr(model, "config", model)
    return getattr(config.get_text_config(), "max_position_embeddings", None)


@contextmanager
def examined(model: Any) -> Iterator[None]:
    """Turns dropout off; afterwards the model is in the mode it was in."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)
