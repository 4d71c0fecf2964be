"""What the answer says about a rule that is missing, before anything is learned from it.

Context-enhanced learning stores a missing rule by the gradient of the answer's loss. So at each slot whose rule is
missing we look at the output of the layer that ends its level, take a small step against that gradient, and see which
character the model's own head gains most: the right one, or another. A reader that doubts (a missing character could
be any of n) learns more from the answer than one that is sure of something wrong, so the entropy of its guess stands
beside it. The model is not changed.

Students alone, where it is known which layer ends a level. Legend: B rows, Q slots of a string, D width, n characters.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from openbook.base.arrays import Mask
from openbook.base.errors import InputError
from openbook.base.intervals import clustered
from openbook.book.shelf import NONE
from openbook.probes.intermediate import labelled
from openbook.probes.layers import decoder_layers, tensor_of, with_tensor
from openbook.probes.perturb import choose_rules
from openbook.probes.subject import Advance, Subject, no_progress
from openbook.training.batches import Item
from openbook.training.encode import IGNORED
from openbook.training.families import family_of
from openbook.training.models import examined
from openbook.training.targets import summed_loss, target_logits

STEP = 1e-2  # of the length of the state
BATCH = 32


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
    share: float  # of the rules that an example needs of a level, missing
    samples: int
    length: int
    chance: float
    levels: list[LevelDoubt]
    doubt: float  # entropy of a guess that knows nothing


def doubt_map(subject: Subject, samples: int = 128, share: float = 0.25, advance: Advance = no_progress) -> DoubtMap:
    """The probe on a student, with this share of the rules that an example needs of one level missing."""
    source = subject.translations
    task = family_of(subject.model.config.model_type).task(subject.model.config.to_dict())
    if task is None or source.text != "composite":
        raise InputError(
            f"{subject.name} is no student of composite words: of other models it is not known which layer ends a level"
        )
    if (taught := (task["depth"], task["chars"])) != (source.depth, source.chars):
        raise InputError(
            f"{subject.name} is a student of MLT{taught}, but the task is MLT({source.depth}, {source.chars})"
        )
    if not 0 < share <= 1:
        raise InputError(f"the share of rules that is missing is above 0 and at most 1, not {share}")
    plan, shelf, opened = subject.shelf(samples)
    translation, _ = source.translations(np.arange(len(shelf)))
    levels = []
    for level in range(source.depth):
        needed = shelf.needed[:, level]
        count = np.maximum(1, np.round(share * needed.sum(-1)).astype(np.int64))
        missing = choose_rules(needed, count, subject.seed, f"doubt {level}")  # [B, n²]
        slots = opened.slots.copy()
        shown = slots[:, level]
        is_missing = (shown != NONE) & np.take_along_axis(missing, np.maximum(shown, 0), -1)
        slots[:, level] = np.where(is_missing, NONE, shown)
        rows = subject.encoded(plan, shelf, replace(opened, slots=slots))
        asks = np.take_along_axis(missing, translation.bigrams[:, level].astype(np.int64), -1)  # [B, Q]
        levels.append(_level(subject, rows, level, asks, float(missing.sum(-1).mean()), advance))
    length = int(translation.lengths[0])
    return DoubtMap(
        subject.name, share, len(shelf), length, 1 / source.chars, levels, doubt=-math.log(1 / source.chars)
    )


def _level(subject: Subject, rows: list[Item], level: int, asks: Mask, rules: float, advance: Advance) -> LevelDoubt:
    model = subject.model
    slots, labels = labelled(subject.translations, rows)
    own = slots.string_q == level + 2
    places_bq, expected_bqu = (torch.from_numpy(a) for a in (slots.places_bq[:, own], labels[:, own, level + 1]))
    right: list[float] = []
    entropy, size = 0.0, 0.0
    with examined(model):
        for start in range(0, len(rows), BATCH):
            part = slice(start, start + BATCH)
            state, slope = _state_and_slope(model, subject.batch(rows[part]), level, places_bq[part])
            asked = torch.from_numpy(asks[part]).to(state.device)
            with torch.no_grad():
                before = guessed_characters(model, state)
                norms = slope.norm(dim=-1, keepdim=True).clamp_min(1e-12)
                after = guessed_characters(model, state - slope * (STEP * state.norm(dim=-1, keepdim=True) / norms))
            hits = ((after - before).argmax(-1) == expected_bqu[part].to(state.device)).double().mean(-1)
            right += [float(row[here].mean()) for row, here in zip(hits, asked, strict=True)]
            guess = before[asked].double().log_softmax(-1)
            entropy -= float((guess.exp() * guess).sum(-1).mean(-1).sum())
            size += float(slope[asked].norm(dim=-1).sum())
            advance(len(asked))
    count = int(asks.sum())
    return LevelDoubt(level + 1, rules, count, *clustered(right), entropy / count, size / count)


def guessed_characters(model: Any, state: Tensor) -> Tensor:
    """What the model's own norm and head make of a state: logits of its two characters, [..., 2, n]."""
    return model.lm_head.characters(model.model.norm(state)).float()


def _state_and_slope(model: Any, batch: dict[str, Tensor], level: int, places_bq: Tensor) -> tuple[Tensor, Tensor]:
    """The output of the layer that ends a level and the gradient of the answer's loss there: [B, Q, D] each."""
    outputs: list[Tensor] = []

    def cut(_: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        outputs.append(tensor_of(output).detach().requires_grad_())
        return with_tensor(output, outputs[0])

    # a student has two layers for each level
    with decoder_layers(model)[2 * level + 1].register_forward_hook(cut):
        answers = torch.where(batch["answers"], batch["labels"], IGNORED)
        loss = summed_loss(*target_logits(model, {**batch, "labels": answers}))
        (slope,) = torch.autograd.grad(loss, outputs[0])
    places_bq = places_bq.to(slope.device)
    row = torch.arange(len(places_bq), device=slope.device)[:, None]
    return outputs[0].detach()[row, places_bq].float(), slope[row, places_bq].float()
