"""Families of models: what is special about a kind of causal language model, so that nobody else needs to ask.

`FAMILIES` maps the `model_type` of a model's config to its family, which is imported when such a model is first met. A
model of a kind that is not in the table is an ordinary causal language model, which `Family` describes.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openbook.base.registry import Registry
from openbook.book.source import Source
from openbook.training.shipped import config_of

if TYPE_CHECKING:
    from openbook.training.config import ModelConfig


class Family:
    """An ordinary causal language model; what is made from nothing is a small Llama."""

    training_defaults: Mapping[str, Any] = {}  # settings of `training` that suit the family

    def task(self, shape: Mapping[str, Any]) -> dict[str, Any] | None:
        """The task that the vocabulary of a model is made for, if there is one; `shape` is its config.json."""
        return None

    def shape(self, config: ModelConfig, source: Source, vocabulary: int) -> Any:
        """The Hugging Face config of a model to make for these examples."""
        return llama_shape(config, vocabulary)

    def logits(self, shape: Any) -> int:
        """How many tokens have a logit."""
        return shape.vocab_size

    def make(self, shape: Any, seed: int) -> Any:
        """A model with random weights drawn from the seed."""
        import torch
        from transformers import AutoModelForCausalLM

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return AutoModelForCausalLM.from_config(shape)


FAMILIES: Registry[type[Family]] = Registry("model family", {"openbook_student": "openbook.student.family:Student"})
FAMILIES.register("llama")(Family)


def family_of(model_type: str | None) -> Family:
    """The family of a model by the type that its config names."""
    return FAMILIES[model_type]() if model_type is not None and model_type in FAMILIES else Family()


def task_of(path: str | Path) -> dict[str, Any] | None:
    """The task that the model in a folder is made for, if its vocabulary is made for one."""
    shape = config_of(path)
    return family_of(shape.get("model_type")).task(shape)


def llama_shape(config: ModelConfig, vocabulary: int) -> Any:
    """The Hugging Face config of a small Llama."""
    from transformers import LlamaConfig

    return LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size or 2 * config.hidden_size,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        num_key_value_heads=config.key_value_heads or config.heads,
        max_position_embeddings=8192,
        tie_word_embeddings=config.tie_embeddings,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=1,
    )
