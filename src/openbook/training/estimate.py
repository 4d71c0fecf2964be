"""What a run will need, before it starts: steps, tokens, parameters and memory."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM

from openbook.base.errors import InputError
from openbook.book.shelf import NONE
from openbook.book.source import Source
from openbook.curriculum import Curriculum, SamplingPlan, Schedule
from openbook.training.config import RunConfig
from openbook.training.encode import IGNORED, Encoder
from openbook.training.families import family_of, llama_shape
from openbook.training.models import check_window, freeze, load_shape, load_tokenizer, make_tokenizer, window_of
from openbook.training.sources import plan_for, sources_of

PROBED = 128  # positions that are encoded for an estimate, spread evenly over training
COUNTED = 1024  # positions that are encoded at a time when all are counted
BYTES = {"float32": 4, "bfloat16": 2, "auto": 2}


def estimate(config: RunConfig) -> dict[str, Any]:
    """The plan of a run. If the model cannot be loaded, the shape that the config describes is used instead."""
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


def _without_book(plan: SamplingPlan, curriculum: Curriculum, progress: float) -> float:
    """Share of the examples that have nothing of their book open at a moment of training."""
    fixed: dict[str, Any] = {"drop": Schedule(((0.0, float(curriculum.drop.at(progress))),))}  # at all times
    if isinstance(curriculum.spread, Schedule):
        fixed["spread"] = Schedule(((0.0, float(curriculum.spread.at(progress))),))
    steady = dataclasses.replace(plan, curriculum=curriculum.model_copy(update=fixed))
    _, opened = steady.at(np.linspace(0, steady.total - 1, PROBED).astype(np.int64))
    return round(float((opened.slots == NONE).all((1, 2)).mean()), 2)


def tokens_of(config: RunConfig) -> int:
    """The number of tokens that a run trains on, counted over all positions."""
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
    model, exact = config.model, True
    if model.path is None:
        tokenizer = make_tokenizer(source, config.think)
        shape = family_of(source.family).shape(model, source, len(tokenizer))
    else:
        local = model.vocabulary is not None  # with a shape in the config, do not wait for a hub that may be offline
        try:
            tokenizer = load_tokenizer(model.path, config.think if source.has_thoughts else None, local)
            shape = load_shape(model.path, local)
        except InputError:
            if model.vocabulary is None:
                raise
            tokenizer, exact = make_tokenizer(source, config.think, texts=50), False
            shape = llama_shape(model, model.vocabulary)
    with torch.device("meta"):
        return tokenizer, AutoModelForCausalLM.from_config(shape), exact


def _probe(plan: SamplingPlan, encoder: Encoder) -> tuple[np.ndarray, np.ndarray, int, int]:
    """Tokens and target tokens of positions spread over training; pieces that did not fit, and prompts cut."""
    positions = np.unique(np.linspace(0, plan.total - 1, min(PROBED, plan.total)).astype(np.int64))
    encoded = encoder.encode(*plan.at(positions), plan.namer(positions))
    targets = np.array([(labels != IGNORED).sum() for labels in encoded.labels])
    return np.diff(encoded.ends, prepend=0), targets, encoded.dropped_pieces, encoded.cut_prompts


def memory(
    config: RunConfig, shape: Any, parameters: int, trained: float, longest: int, targets: float
) -> dict[str, float]:
    """Bytes of a training step, roughly: weights, gradients, two moments, activations, and the logits of targets."""
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
        # two moments, and beside rounded weights a float32 copy of them and of their gradients
        "optimiser": trained * (8 if config.model.dtype == "float32" else 16),
        "activations": tokens * per_layer * layers,
        "logits": micro * targets * outputs * (width + 8),
        "logits_if_everywhere": tokens * outputs * (width + 8),
    }
    total = sum(value for name, value in parts.items() if name != "logits_if_everywhere")
    return {name: float(value) for name, value in parts.items()} | {"total": float(total)}
