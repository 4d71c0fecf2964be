"""What the answer says about a rule that is missing, before anything is learned from it.

Context-enhanced learning stores a missing rule by the gradient of the answer's loss. So at each slot whose rule is
missing we look at the output of the layer that ends its level, take a small step against that gradient, and see which
character the model's own head gains most: the right one, or another. A reader that doubts (a missing character could
be any of n) is told more by the answer than one that is sure of something wrong, so the entropy of its guess stands
beside it. The model is not changed.

Students alone, where it is known which layer ends a level. Legend: B rows, Q slots of a string, D width, n characters.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from openbook.base.errors import InputError
from openbook.base.intervals import clustered
from openbook.base.randomness import words
from openbook.book.shelf import NONE
from openbook.probes.intermediate import labelled
from openbook.probes.layers import decoder_layers, tensor_of, with_tensor
from openbook.probes.perturb import open_even
from openbook.probes.slots import Slots
from openbook.probes.subject import Subject
from openbook.student.model import StudentForCausalLM
from openbook.training.batches import Collator, Item, pad_id_of
from openbook.training.config import TaskConfig
from openbook.training.encode import IGNORED
from openbook.training.exam import examined
from openbook.training.targets import summed_loss, target_logits

STEP = 1e-2  # of the length of the state
BATCH = 32
LAYERS = 2  # of a level

Advance = Callable[..., None]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class LevelDoubt:
    """One level with some of its rules missing."""

    level: int
    rules: float  # missing rules of an example, on average
    slots: int  # whose rule is missing, over all examples
    right: float  # share of their characters to which the gradient points
    low: float
    high: float
    entropy: float  # of the guess at a missing character, in nats; ln n is doubt
    size: float  # of the gradient at a slot, on average


@dataclass(frozen=True)
class DoubtMap:
    """All levels of one reader."""

    model: str
    share: float
    samples: int
    length: int
    chance: float
    levels: list[LevelDoubt]

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "doubt": -math.log(self.chance)}


def doubt_map(
    model: str | Path,
    samples: int = 128,
    share: float = 0.25,
    length: int | None = None,
    task: TaskConfig | None = None,
    seed: int | None = None,
    advance: Advance = lambda *_, **__: None,
) -> DoubtMap:
    """The probe on a run or checkpoint, with this share of the rules that an example needs of one level missing."""
    return doubt_subject(open_even(model, length, task, seed), samples, share, advance)


def doubt_subject(
    subject: Subject, samples: int = 128, share: float = 0.25, advance: Advance = lambda *_, **__: None
) -> DoubtMap:
    """The same for a model at hand."""
    source = subject.translations
    if not isinstance(subject.model, StudentForCausalLM) or source.text != "composite":
        raise InputError(
            f"{subject.name} is no student of composite words: of other models it is not known which layer ends a level"
        )
    of = (subject.model.config.depth, subject.model.config.chars)
    if (source.depth, source.chars) != of:
        raise InputError(f"{subject.name} is a student of MLT{of}, but the task is MLT({source.depth}, {source.chars})")
    if not 0 < share <= 1:
        raise InputError(f"the share of rules that is missing is above 0 and at most 1, not {share}")
    plan, shelf, opened = subject.shelf(samples)
    translation, _ = source.translations(np.arange(len(shelf)))
    levels = []
    for level in range(source.depth):
        gone = _missing(shelf.needed[:, level], share, subject.seed, level)  # [B, n²]
        held = opened.slots.copy()
        at = held[:, level]
        held[:, level] = np.where((at != NONE) & np.take_along_axis(gone, np.maximum(at, 0), -1), NONE, at)
        rows = subject.encoded(plan, shelf, replace(opened, slots=held))
        asks = np.take_along_axis(gone, translation.bigrams[:, level].astype(np.int64), -1)  # [B, Q]
        levels.append(_level(subject, rows, level, asks, float(gone.sum(-1).mean()), advance))
    length = int(translation.lengths[0])
    return DoubtMap(subject.name, share, len(shelf), length, 1 / source.chars, levels)


def _missing(needed: Mask, share: float, seed: int, level: int) -> Mask:
    """A share of the marked rules of each example, at least one, without replacement."""
    keys = words(seed, f"doubt {level}", 0, *needed.shape) >> np.uint64(1)
    keys[~needed] = np.iinfo(np.uint64).max
    count = np.maximum(1, np.round(share * needed.sum(-1)).astype(np.int64))
    return keys <= np.take_along_axis(np.sort(keys, -1), count[:, None] - 1, -1)


def _level(subject: Subject, rows: list[Item], level: int, asks: Mask, rules: float, advance: Advance) -> LevelDoubt:
    model = subject.model
    slots, labels = labelled(subject.translations, rows, subject.translations.unit)
    own = slots.string_q == level + 2
    slots, wanted_bqu = slots.keep(own), labels[:, own, level + 1]
    collate = Collator(pad_id_of(subject.encoder.tokenizer), BATCH)
    device = next(model.parameters()).device
    right: list[float] = []
    entropy, size = 0.0, 0.0
    with examined(model):
        for start in range(0, len(rows), BATCH):
            part = slice(start, start + BATCH)
            batch = {name: tensor.to(device) for name, tensor in collate.pad(rows[part]).items()}
            state, slope = _slope(model, batch, LAYERS * (level + 1) - 1, slots, part)
            asked = torch.from_numpy(asks[part]).to(device)
            before = _guess(model, state)
            step = slope * (STEP * state.norm(dim=-1, keepdim=True) / slope.norm(dim=-1, keepdim=True).clamp_min(1e-12))
            gained = (_guess(model, state - step) - before).argmax(-1)
            hits = (gained == torch.from_numpy(wanted_bqu[part]).to(device)).double().mean(-1)
            right += [float(row[here].mean()) for row, here in zip(hits, asked, strict=True)]
            chosen = before[asked].double().log_softmax(-1)
            entropy -= float((chosen.exp() * chosen).sum(-1).mean(-1).sum())
            size += float(slope[asked].norm(dim=-1).sum())
            advance(len(asked))
    accuracy, low, high = clustered(right)
    count = int(asks.sum())
    return LevelDoubt(level + 1, rules, count, accuracy, low, high, entropy / count, size / count)


def _slope(model: Any, batch: dict[str, Tensor], layer: int, slots: Slots, rows: slice) -> tuple[Tensor, Tensor]:
    """The output of a layer at the slots and the gradient of the answer's loss there: [B, Q, D] each."""
    kept: list[Tensor] = []

    def cut(_: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        kept.append(tensor_of(output).detach().requires_grad_())
        return with_tensor(output, kept[0])

    handle = decoder_layers(model)[layer].register_forward_hook(cut)
    try:
        answers = torch.where(batch["answers"], batch["labels"], IGNORED)
        loss = summed_loss(*target_logits(model, {**batch, "labels": answers}))
        (slope,) = torch.autograd.grad(loss, kept[0])
    finally:
        handle.remove()
    places = torch.from_numpy(slots.places_bq[rows]).to(slope.device)
    row = torch.arange(len(places), device=slope.device)[:, None]
    return kept[0].detach()[row, places].float(), slope[row, places].float()


def _guess(model: Any, state: Tensor) -> Tensor:
    """What the model's own norm and head make of a state: logits of the two characters, [..., 2, n]."""
    with torch.no_grad():
        return model.lm_head.characters(model.model.norm(state)).float()
