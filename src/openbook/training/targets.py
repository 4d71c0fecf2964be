"""Only target tokens get logits.

The loss needs the next-token distribution at the completion alone, but a causal LM computes it everywhere. With a
vocabulary of 128k and a long context this is most of the memory of a step. A hook on the output layer keeps just the
hidden states in front of target tokens. The model's own forward runs unchanged around it, so whatever an architecture
does to its logits, and whatever wraps it (DDP, FSDP, PEFT), stays in force.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from openbook.base.errors import InputError
from openbook.training.encode import IGNORED


def output_layer(model: Any) -> nn.Module:
    """The layer that turns hidden states into logits."""
    layer = model.get_output_embeddings()
    if layer is None:
        raise InputError(f"{type(model).__name__} has no output embeddings: openbook needs a causal language model")
    return layer


@contextmanager
def gathered(model: Any, index: Tensor) -> Iterator[None]:
    """The output layer gets only the hidden states at `index` (flat over batch and time): [1, targets, H]."""

    def keep(_: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        hidden, *rest = inputs
        return (hidden.reshape(-1, hidden.shape[-1])[index].unsqueeze(0), *rest)

    handle = output_layer(model).register_forward_pre_hook(keep)
    try:
        yield
    finally:
        handle.remove()


def target_logits(model: Any, batch: dict[str, Tensor], wrapped: Any = None) -> tuple[Tensor, Tensor]:
    """Logits [targets, vocabulary] in front of every labelled token of the batch, and those tokens [targets].

    `wrapped` is called in place of the model: a wrapper for training on several devices.
    """
    labels = batch["labels"][:, 1:]
    row, place = (labels != IGNORED).nonzero(as_tuple=True)
    index = row * batch["labels"].shape[1] + place
    inputs = _inputs(batch)
    if padded_right(batch):  # nothing reaches back from padding, and without a mask attention is faster
        inputs.pop("attention_mask", None)
    with gathered(model, index):
        logits = (model if wrapped is None else wrapped)(**inputs, use_cache=False).logits
    if logits.shape[:2] != (1, len(index)):
        raise InputError(
            f"{type(model).__name__} does not pass its hidden states straight to its output layer "
            f"(logits of shape {tuple(logits.shape)}), so targets cannot be gathered: use another model"
        )
    return logits[0], labels[row, place]


def _inputs(batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """What of a batch the model's forward takes."""
    return {name: batch[name] for name in ("input_ids", "attention_mask", "position_ids") if name in batch}


def padded_right(batch: dict[str, Tensor]) -> bool:
    """Whether padding, if there is any, stands after the text in every row."""
    mask = batch.get("attention_mask")
    return mask is None or bool((mask[:, 1:] <= mask[:, :-1]).all())


def summed_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy in float32, summed over targets; the caller divides by the number of targets in the step."""
    return nn.functional.cross_entropy(logits.float(), targets, reduction="sum")


def all_logits_loss(model: Any, batch: dict[str, Tensor]) -> Tensor:
    """The same loss with logits everywhere, which is the usual way: a reference for tests and benchmarks."""
    logits = model(**_inputs(batch), use_cache=False).logits[:, :-1]
    flat, labels = logits.float().reshape(-1, logits.shape[-1]), batch["labels"][:, 1:].reshape(-1)
    return nn.functional.cross_entropy(flat, labels, ignore_index=IGNORED, reduction="sum")


def finite(value: Tensor) -> bool:
    """Whether all numbers of a tensor are finite."""
    return bool(torch.isfinite(value).all())
