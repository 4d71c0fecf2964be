"""A model whose logits are known: after token i they are row i of a table, whatever stood before."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from openbook.audit.attack import Attacker, AuditConfig
from openbook.audit.model import AttackedModel
from openbook.audit.secret import Secrets, task_secrets
from openbook.task import Codebook
from openbook.task.source import Translations
from openbook.training.models import make_tokenizer


def table_model(table_ij: np.ndarray) -> Any:
    """A Llama of one layer that adds nothing, between one-hot embeddings and the table."""
    size = len(table_ij)
    config = LlamaConfig(
        vocab_size=size,
        hidden_size=size,
        intermediate_size=2,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=2,
        max_position_embeddings=512,
        tie_word_embeddings=False,
        rms_norm_eps=1e-30,
    )
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        model.model.embed_tokens.weight.copy_(torch.eye(size))
        # the norm turns a one-hot vector into sqrt(size) times itself
        model.lm_head.weight.copy_(torch.tensor(table_ij.T / np.sqrt(size), dtype=torch.float32))
    return model


def small_task(depth: int = 1, chars: int = 3, text: str = "compact") -> Translations:
    return Translations(depth, chars, 50, Codebook.sample(depth, chars, seed=3), lengths=(4, 4), text=text)


def handmade(seed: int = 0, chars: int = 3) -> tuple[AttackedModel, Secrets, np.ndarray]:
    """A model with a random table, the secrets of a small task, and the log-probabilities after each token."""
    source = small_task(chars=chars)
    tokenizer = make_tokenizer(source)
    table_ij = np.random.default_rng(seed).normal(scale=2.0, size=(len(tokenizer), len(tokenizer)))
    logp_ij = table_ij - np.log(np.exp(table_ij).sum(1, keepdims=True))
    return AttackedModel(table_model(table_ij), tokenizer), task_secrets(source), logp_ij


def attacker(**budget: Any) -> Attacker:
    """An attacker with this budget and nothing else."""
    return Attacker(AuditConfig(("completion",), **budget))


def shifted(strings: np.ndarray, chars: int) -> np.ndarray:
    """The bigrams that a level looks up, of strings [B, L]: shift left by one, then pair."""
    rolled = np.roll(np.asarray(strings, np.int64), -1, axis=1)
    return rolled[:, 0::2] * chars + rolled[:, 1::2]
