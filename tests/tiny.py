"""Small real tokenizers and small real models, made once for all tests."""

from __future__ import annotations

import functools
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

TEXT = [
    "The capital of Vellmora is Quistane. Question: who rules Vellmora? Answer: Queen Ilva.",
    "A B -> K L; B C -> M N; <THINK> language_task_0 Sequence in language 1: A B C D",
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich. 日本語 ελληνικά \n\n ok?",
]
CHAT = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def _byte_level(special: list[str], merges: int = 400) -> Tokenizer:
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=256 + merges, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    core.train_from_iterator(TEXT, trainer)
    return core


def _wrapped(core: Tokenizer, **options: Any) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(tokenizer_object=core, clean_up_tokenization_spaces=False, **options)


@functools.cache
def byte_level() -> PreTrainedTokenizerFast:
    """GPT-2's kind: any text, byte by byte."""
    return _wrapped(_byte_level(["<END>", "<THINK>"]), eos_token="<END>")


@functools.cache
def chatting() -> PreTrainedTokenizerFast:
    """The same with a chat template, as instruction-tuned models have."""
    core = _byte_level(["<END>", "<THINK>", "<|im_start|>", "<|im_end|>"])
    tokenizer = _wrapped(core, eos_token="<END>", pad_token="<END>")
    tokenizer.chat_template = CHAT
    return tokenizer


@functools.cache
def metaspace() -> PreTrainedTokenizerFast:
    """SentencePiece's kind: a blank is put before every text, and a start token before that."""
    core = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    core.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="always")])
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    special = ["<unk>", "<s>", "</s>", *bytes_]
    trainer = trainers.BpeTrainer(vocab_size=600, special_tokens=special, show_progress=False)
    core.train_from_iterator([" ".join(text.split()) for text in TEXT], trainer)
    core.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return _wrapped(core, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


@functools.cache
def word_level() -> PreTrainedTokenizerFast:
    """Words of a small vocabulary; what it does not know is one token."""
    words = ["<unk>", "<END>", "<THINK>", *"abcdefgh", "who", "is", "king", "queen", "?", "Ilva", "Orm", "fact"]
    core = Tokenizer(models.WordLevel({word: k for k, word in enumerate(words)}, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return _wrapped(core, eos_token="<END>", pad_token="<END>", unk_token="<unk>")


TOKENIZERS = {"byte_level": byte_level, "chatting": chatting, "metaspace": metaspace, "word_level": word_level}


def _llama(size: dict[str, int]) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(LlamaConfig(num_key_value_heads=2, **size))


def _qwen2(size: dict[str, int]) -> Any:
    from transformers import Qwen2Config, Qwen2ForCausalLM

    return Qwen2ForCausalLM(Qwen2Config(num_key_value_heads=2, tie_word_embeddings=True, **size))


def _qwen3(size: dict[str, int]) -> Any:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    return Qwen3ForCausalLM(Qwen3Config(num_key_value_heads=2, head_dim=8, **size))


def _gpt_neox(size: dict[str, int]) -> Any:
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    return GPTNeoXForCausalLM(GPTNeoXConfig(**size))


def _gemma2(size: dict[str, int]) -> Any:
    from transformers import Gemma2Config, Gemma2ForCausalLM

    # a cap of 2 bends even the logits of a model that was just made
    config = Gemma2Config(num_key_value_heads=2, head_dim=8, final_logit_softcapping=2.0, **size)
    return Gemma2ForCausalLM(config)


def _gemma3(size: dict[str, int]) -> Any:
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig

    return Gemma3ForCausalLM(Gemma3TextConfig(num_key_value_heads=2, head_dim=8, sliding_window=16, **size))


def _mistral(size: dict[str, int]) -> Any:
    from transformers import MistralConfig, MistralForCausalLM

    return MistralForCausalLM(MistralConfig(num_key_value_heads=2, sliding_window=16, **size))


FAMILIES = {
    "llama": _llama,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "gpt_neox": _gpt_neox,
    "gemma2": _gemma2,
    "gemma3": _gemma3,
    "mistral": _mistral,
}


def tiny(family: str = "llama", vocabulary: int = 700, seed: int = 0, layers: int = 1, hidden: int = 16) -> Any:
    """A model of a family with random weights, for a tokenizer of at most `vocabulary` tokens."""
    size = {
        "vocab_size": vocabulary,
        "hidden_size": hidden,
        "intermediate_size": 2 * hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": 2,
        "max_position_embeddings": 512,
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = FAMILIES[family](size)
    model.config.pad_token_id, model.config.bos_token_id, model.config.eos_token_id = None, None, None
    return model
