"""What a run will take, before it is begun: steps, tokens, parameters and memory."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM

from openbook.base.errors import InputError
from openbook.book.shelf import NONE
from openbook.book.source import Source
from openbook.curriculum import Curriculum, SamplingPlan
from openbook.curriculum.schedule import Schedule
from openbook.training.config import RunConfig
from openbook.training.encode import IGNORED, Encoder
from openbook.training.families import family_of, llama_shape
from openbook.training.models import check_window, freeze, load_shape, load_tokenizer, make_tokenizer, window_of
from openbook.training.sources import plan_for, sources_of

PROBED = 128  # positions looked at, spread evenly over training
COUNTED = 1024  # positions at a time
BYTES = {"float32": 4, "bfloat16": 2, "auto": 2}


def estimate(config: RunConfig) -> dict[str, Any]:
    """The plan of a run. Where a model's files are not at hand, its shape in the config stands in for them."""
    config.check_start()
    plan, encoder, shape, exact = without_weights(config)
    lengths, targets, dropped, cut = _probe(plan, encoder)
    steps = -(-plan.total // config.training.step_size)
    freeze(shape, config.training.freeze)
    parameters = sum(p.numel() for p in shape.parameters())
    trained = sum(p.numel() for p in shape.parameters() if p.requires_grad)
    return {
        "examples": plan.size,
        "positions": plan.total,
        "steps": steps,
        "tokens_per_example": round(float(lengths.mean()), 1),
        "longest_example": int(lengths.max()),
        "targets_per_example": round(float(targets.mean()), 1),
        "tokens": round(float(lengths.mean()) * plan.total),
        "window": encoder.max_length,
        "pieces_that_do_not_fit": round(dropped / len(lengths), 2),  # of an example, on average
        "prompts_cut": round(cut / len(lengths), 2),
        "tokens_are": "counted with the model's tokenizer" if exact else "estimated without the model's tokenizer",
        "parameters": parameters,
        "memory": memory(config, shape.config, parameters, trained, int(lengths.max()), float(targets.mean())),
        "learning_rate": config.training.learning_rate,
        "schedule": [
            {
                "progress": p,
                "closed": float(config.curriculum.drop.at(p)),
                "without_book": _without_book(plan, config.curriculum, p),
                "silent": float(config.curriculum.silence.at(p)),
            }
            for p in (0.0, 0.3, 0.6, 1.0)
        ],
    }


def _without_book(plan: SamplingPlan, closing: Curriculum, progress: float) -> float:
    """Share of the examples that have nothing of their book open at a moment of training."""
    held: dict[str, Any] = {"drop": Schedule(((0.0, float(closing.drop.at(progress))),))}  # as it is then, throughout
    if isinstance(closing.spread, Schedule):
        held["spread"] = Schedule(((0.0, float(closing.spread.at(progress))),))
    steady = dataclasses.replace(plan, curriculum=closing.model_copy(update=held))
    _, opened = steady.at(np.linspace(0, steady.total - 1, PROBED).astype(np.int64))
    return round(float((opened.slots == NONE).all((1, 2)).mean()), 2)


def tokens_of(config: RunConfig) -> int:
    """The tokens that a run trains on, counted over all positions with the tokenizer it has."""
    plan, encoder, _, _ = without_weights(config)
    chunks = np.array_split(np.arange(plan.total), -(-plan.total // COUNTED))
    return sum(int(encoder.encode(*plan.at(chunk), plan.namer(chunk)).ends[-1]) for chunk in chunks)


def without_weights(config: RunConfig) -> tuple[SamplingPlan, Encoder, Any, bool]:
    """Plan, encoder and a model without weights, and whether the tokenizer is the model's own."""
    source, _ = sources_of(config)
    tokenizer, shape, exact = _shape(config, source)
    check_window(shape, config.training.max_length)
    window = config.training.max_length or window_of(shape)
    chat = config.chat if exact else False
    encoder = Encoder(tokenizer, source.bank, window, config.think, chat, config.training.loss)
    return plan_for(config, source), encoder, shape, exact


def _shape(config: RunConfig, source: Source) -> tuple[Any, Any, bool]:
    """A tokenizer and a weightless model of the right shape; whether the tokenizer is the model's own."""
    if config.model.path is None:
        tokenizer = make_tokenizer(source, config.think)
        with torch.device("meta"):
            shape = family_of(source.family).shape(config.model, source, len(tokenizer))
            return tokenizer, AutoModelForCausalLM.from_config(shape), True
    vocabulary = config.model.vocabulary
    try:  # with a shape to fall back on, a dry run does not wait for a hub that may be out of reach
        think = config.think if source.has_thoughts else None
        tokenizer = load_tokenizer(config.model.path, think, local=vocabulary is not None)
        with torch.device("meta"):
            shape = load_shape(config.model.path, local=vocabulary is not None)
            return tokenizer, AutoModelForCausalLM.from_config(shape), True
    except InputError:
        if vocabulary is None:
            raise
        with torch.device("meta"):
            shape = AutoModelForCausalLM.from_config(llama_shape(config.model, vocabulary))
        return make_tokenizer(source, config.think, texts=50), shape, False


def _probe(plan: SamplingPlan, encoder: Encoder) -> tuple[np.ndarray, np.ndarray, int, int]:
    """Tokens and target tokens of positions spread over training; pieces that did not fit, and prompts cut."""
    positions = np.unique(np.linspace(0, plan.total - 1, min(PROBED, plan.total)).astype(np.int64))
    encoded = encoder.encode(*plan.at(positions), plan.namer(positions))
    targets = np.array([(labels != IGNORED).sum() for labels in encoded.labels])
    return np.diff(encoded.ends, prepend=0), targets, encoded.dropped_pieces, encoded.cut_prompts


def memory(
    config: RunConfig, shape: Any, parameters: int, trained: float, longest: int, targets: float
) -> dict[str, float]:
    """Bytes of a training step, roughly: weights, gradients and two moments, activations, and the targets' logits."""
    shape = shape.get_text_config()
    width = 2 if config.training.bf16 else BYTES[config.model.dtype]
    trained = trained if config.model.lora is None else parameters * 0.02
    outputs = family_of(shape.model_type).logits(shape)
    micro = min(config.training.micro_batch_size, config.training.step_size)
    tokens = micro * longest
    inner = getattr(shape, "intermediate_size", None) or 4 * shape.hidden_size
    per_layer = (8 * shape.hidden_size + 3 * inner) * width  # what backward needs of one token in one layer
    layers = shape.num_hidden_layers**0.5 if config.training.gradient_checkpointing else shape.num_hidden_layers
    parts = {
        "weights": parameters * BYTES[config.model.dtype],
        "gradients": trained * BYTES[config.model.dtype],
        "optimiser": trained * 2 * BYTES[config.model.dtype],
        "activations": tokens * per_layer * layers,
        "logits": micro * targets * outputs * (width + 8),
        "logits_if_everywhere": tokens * outputs * (width + 8),
    }
    total = sum(value for name, value in parts.items() if name != "logits_if_everywhere")
    return {name: float(value) for name, value in parts.items()} | {"total": float(total)}
