"""Stitching: in which layers a trained model keeps each section of the book.

A model is stitched from two checkpoints: layers L_start..L_end from the trained one, all else from the ICL-capable one
it was trained from (the paper's "Definition of a stitched model"; its K, not its d, is the last layer). One section is
taken out of the book, so that only the replaced layers can know it. A stitched model that answers well shows that its
window holds the section; the smallest such window says where.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from openbook.base.errors import InputError
from openbook.base.intervals import clustered
from openbook.probes.layers import decoder_layers, evaluating
from openbook.probes.stitching import Cost, Stitcher, Window, naive_evaluations, one_stitched
from openbook.probes.subject import Subject, open_subject
from openbook.task.source import Translations
from openbook.training.batches import Collator, Item, pad_id_of
from openbook.training.config import TaskConfig
from openbook.training.exam import answer_tokens, chance_level
from openbook.training.targets import gathered

REACHED = 0.9  # accuracy at which a window is said to hold a section
MEMORY = 256  # MiB of activations at once
# Of logits, by which windows that advance together may differ from one that is run alone: a few steps of the type.
TOLERANCE = {torch.float32: 1e-3, torch.float16: 1e-2, torch.bfloat16: 5e-2}
NOT_ARCHITECTURE = {"_name_or_path", "transformers_version", "dtype", "torch_dtype", "use_cache", "architectures"}

Advance = Callable[..., None]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class SectionMap:
    """Accuracy of every stitched model with one section dropped. Layers count from 1 in all that is shown."""

    name: str
    accuracy: Floats  # [K, K]: row L_start, column L_end; NaN below the diagonal
    low: Floats
    high: Floats
    loss: Floats  # mean cross-entropy of an answer token
    reader: float  # accuracy of the ICL-capable model itself
    trained: float  # accuracy of the trained model itself, embedding and head included
    samples: int

    def smallest(self, reached: float = REACHED) -> list[Window]:
        """The shortest windows that reach an accuracy, all of that length, best first; from 1."""
        layers = len(self.accuracy)
        for length in range(layers):
            found = [(s, s + length) for s in range(layers - length) if self.accuracy[s, s + length] >= reached]
            if found:
                found.sort(key=lambda window: -self.accuracy[window])
                return [(start + 1, end + 1) for start, end in found]
        return []

    def to_json(self) -> dict[str, Any]:
        smallest = self.smallest()
        best = smallest[0] if smallest else None
        at = (best[0] - 1, best[1] - 1) if best else None
        return {
            "name": self.name,
            "map": self.accuracy,
            "loss": self.loss,
            "smallest_window": best,
            "smallest_windows": smallest,
            "smallest_accuracy": None if at is None else [self.accuracy[at], self.low[at], self.high[at]],
            "all_layers": float(self.accuracy[0, -1]),
            "reader": self.reader,
            "trained": self.trained,
            "samples": self.samples,
        }


@dataclass(frozen=True)
class StitchMap:
    """The maps of all sections for one pair of models."""

    reader: str
    trained: str
    layers: int
    changed: list[int]  # layers in which the models differ, from 1
    sections: list[SectionMap]
    chance: float
    trained_on: int | None = None
    cost: Cost = field(default_factory=Cost)  # of one input with one section dropped

    def to_json(self) -> dict[str, Any]:
        return {
            "reader": self.reader,
            "trained": self.trained,
            "trained_on": self.trained_on,
            "layers": self.layers,
            "changed_layers": self.changed,
            "reached": REACHED,
            "chance": self.chance,
            "layer_evaluations": self.cost.evaluations,
            "layer_evaluations_one_by_one": naive_evaluations(self.layers),
            "layer_calls": self.cost.calls,
            "sections": [section.to_json() for section in self.sections],
        }


def stitch_map(
    reader: str | Path,
    trained: str | Path,
    samples: int = 64,
    sections: Sequence[str] | None = None,
    data: Path | None = None,
    task: TaskConfig | None = None,
    seed: int | None = None,
    memory: int = MEMORY,
    advance: Advance = lambda *_, **__: None,
) -> StitchMap:
    """The stitching maps of two runs or checkpoints, on inputs that neither was trained on."""
    subject = open_subject(trained, data, task, seed=seed)
    base = open_subject(reader, data, task or (None if data else _task_of(subject)))
    check_tokenizers(base.encoder.tokenizer, subject.encoder.tokenizer)
    return stitch_subjects(base.name, base.model, subject, samples, sections, memory, advance)


def _task_of(subject: Subject) -> TaskConfig | None:
    """A task that a plain checkpoint beside a run is read with; its source is not used."""
    source = subject.source
    if not isinstance(source, Translations):
        return None
    return TaskConfig(depth=source.depth, chars=source.chars, text=source.text, codebook=0)


def stitch_subjects(
    name: str,
    base: Any,
    subject: Subject,
    samples: int = 64,
    sections: Sequence[str] | None = None,
    memory: int = MEMORY,
    advance: Advance = lambda *_, **__: None,
) -> StitchMap:
    """The same for models at hand: `subject` is the trained one, with the examples."""
    check_compatible(base, subject.model)
    numbers = subject.numbers_of(sections)
    stitcher = Stitcher(decoder_layers(base), decoder_layers(subject.model))
    asked = [(number, subject.dropped(number, samples)) for number in numbers]
    maps, cost = [], Cost()
    for number, rows in asked:
        found, cost = _section(base, subject, stitcher, subject.sections[number], rows, memory)
        maps.append(found)
        advance(1 / len(asked))
    changed = [layer + 1 for layer in stitcher.changed]
    chance = chance_level(subject.source, asked[0][1], subject.encoder)
    return StitchMap(name, subject.name, stitcher.layers, changed, maps, chance, subject.trained_on, cost)


def check_tokenizers(one: Any, other: Any) -> None:
    if one.get_vocab() != other.get_vocab():
        raise InputError(
            f"the checkpoints have different tokenizers, of {len(one.get_vocab())} and {len(other.get_vocab())} words: "
            "stitch a model with the one that it was trained from"
        )


def check_compatible(base: Any, trained: Any) -> None:
    """Refuse two models that are not the same architecture at the same size, naming the first difference."""
    if type(base) is not type(trained):
        raise InputError(
            f"{type(base).__name__} and {type(trained).__name__} cannot be stitched: one architecture only"
        )
    ours, theirs = ({n: tuple(t.shape) for n, t in model.state_dict().items()} for model in (base, trained))
    for name in [*ours, *theirs]:
        if ours.get(name) != theirs.get(name):
            shapes = [f"{s[name]}" if name in s else "absent" for s in (ours, theirs)]
            raise InputError(
                f"the checkpoints differ in shape: {name} is {shapes[0]} in one and {shapes[1]} in the other"
            )
    configs = [model.config.get_text_config().to_dict() for model in (base, trained)]
    for key in sorted(set(configs[0]) | set(configs[1])):
        values = [config.get(key) for config in configs]
        if values[0] != values[1] and key not in NOT_ARCHITECTURE and not key.endswith("token_id"):
            raise InputError(
                f"the checkpoints differ in their config: {key} is {values[0]} in one and {values[1]} in the other"
            )
    if base.dtype != trained.dtype:
        raise InputError(f"one checkpoint is in {base.dtype} and the other in {trained.dtype}: load both alike")


def _section(
    base: Any, subject: Subject, stitcher: Stitcher, name: str, rows: list[Item], memory: int
) -> tuple[SectionMap, Cost]:
    """All windows on the examples of one section."""
    source = subject.source
    chars = source.chars if isinstance(source, Translations) and source.unit == 2 else None
    pad = pad_id_of(subject.encoder.tokenizer)
    rows = sorted(rows, key=lambda item: len(item.ids))
    right: dict[Window | None, list[Floats]] = {}
    lost: dict[Window | None, list[Floats]] = {}
    own: list[Floats] = []
    cost = Cost()
    batch_size, most_rows = room(base, rows, stitcher, memory)
    with evaluating(base, subject.model):
        for start in range(0, len(rows), batch_size):
            part = rows[start : start + batch_size]
            batch = Collator(pad, len(part)).pad(part)
            cost = Cost()
            for starts in stitcher.groups(most_rows):
                logits, windows, spent = stitched_logits(base, stitcher, batch, starts)
                if start == 0 and starts[0] == stitcher.changed[0]:
                    check_against_one(base, stitcher, batch, logits[1 + windows.index(_widest(stitcher))])
                cost += spent
                judged, losses = judge(logits, batch, chars)
                for window, hits, loss in zip([None, *windows], judged, losses, strict=True):
                    if window is not None or starts[0] == stitcher.changed[0]:  # every group brings the prefix
                        right.setdefault(window, []).append(hits)
                        lost.setdefault(window, []).append(loss)
            own.append(judge(answer_logits(subject.model, batch)[None], batch, chars)[0][0])
    return _assembled(name, stitcher, right, lost, own), cost


def _widest(stitcher: Stitcher) -> Window:
    return stitcher.changed[0], stitcher.changed[-1]


def room(model: Any, rows: Sequence[Item], stitcher: Stitcher, memory: int) -> tuple[int, int]:
    """How many inputs at once, and how many rows for each, fit into `memory` MiB of activations.

    A row holds its hidden states (twice, while they are joined), one layer's work on them, and logits of its answer.
    Where one input is too much, its windows are taken in groups.
    """
    shape = model.config.get_text_config()
    tokens = max(len(item.ids) for item in rows)
    answers = max(len(answer_tokens(item)) for item in rows)
    layer = 8 * shape.hidden_size + 3 * (getattr(shape, "intermediate_size", None) or 4 * shape.hidden_size)
    row = 4 * (tokens * layer + 2 * answers * shape.vocab_size)
    fit = max(1, memory * 2**20 // row)
    return max(1, fit // stitcher.rows(stitcher.changed)), fit


def stitched_logits(
    base: Any, stitcher: Stitcher, batch: dict[str, Tensor], starts: Sequence[int]
) -> tuple[Tensor, list[Window], Cost]:
    """Logits in front of every answer token, for the base model and every window of these starts: [R, answers, V]."""
    with stitcher.stitching(starts) as state:
        try:
            logits = answer_logits(base, batch, stitcher.rows(starts))
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:  # something that goes with the states has a row for each input, as ALiBi's bias
            raise InputError(f"{type(base).__name__}: its windows cannot be run together ({error})") from None
    return logits.reshape(stitcher.rows(starts), -1, logits.shape[-1]), state.windows, state.cost


def answer_logits(model: Any, batch: dict[str, Tensor], rows: int = 1) -> Tensor:
    """Logits in front of every answer token of the batch, `rows` times over: [rows · answers, V]."""
    row, place = batch["answers"][:, 1:].nonzero(as_tuple=True)
    size, tokens = batch["input_ids"].shape
    index = (torch.arange(rows)[:, None] * size + row) * tokens + place
    device = next(model.parameters()).device
    with gathered(model, index.reshape(-1).to(device)):
        return model(input_ids=batch["input_ids"].to(device), use_cache=False).logits[0]


def check_against_one(base: Any, stitcher: Stitcher, batch: dict[str, Tensor], logits: Tensor) -> None:
    """Hold the widest window against the same model run alone, once for every map.

    An architecture that hands something from layer to layer beside the hidden states would fail here, not quietly.
    """
    with one_stitched(stitcher.base, stitcher.trained, _widest(stitcher)):
        alone = answer_logits(base, batch)
    within = TOLERANCE.get(base.dtype, 1e-3)
    if not torch.allclose(alone.float(), logits.float(), rtol=within, atol=within * float(alone.abs().max())):
        raise InputError(
            f"{type(base).__name__} hands on more than hidden states from layer to layer: its windows cannot be run "
            "together"
        )


def judge(logits: Tensor, batch: dict[str, Tensor], chars: int | None) -> tuple[list[Floats], list[Floats]]:
    """For every row the share of right answer tokens and the loss of each example: lists of [B].

    Where a token is a bigram over `chars` characters, its two characters are judged apart, as in the exam.
    """
    answers = batch["answers"][:, 1:]
    targets = batch["input_ids"][:, 1:][answers].to(logits.device)
    guess = logits.argmax(-1)
    right = (guess == targets).double()
    if chars is not None:
        level = guess // chars**2 == targets // chars**2  # a word of another alphabet is all wrong
        right = ((guess // chars == targets // chars).double() + (level & (guess % chars == targets % chars))) / 2
    flat = logits.float().reshape(-1, logits.shape[-1])
    loss = functional.cross_entropy(flat, targets.repeat(len(logits)), reduction="none").reshape(right.shape).double()
    owner = answers.nonzero(as_tuple=True)[0].to(logits.device)
    share = torch.zeros(len(answers), len(targets), dtype=torch.float64, device=logits.device)
    share[owner, torch.arange(len(targets), device=logits.device)] = 1
    share /= share.sum(1, keepdim=True)
    return list((right @ share.T).cpu().numpy()), list((loss @ share.T).cpu().numpy())


def _assembled(
    name: str,
    stitcher: Stitcher,
    right: dict[Window | None, list[Floats]],
    lost: dict[Window | None, list[Floats]],
    own: list[Floats],
) -> SectionMap:
    """The map of a section, with every window looked up by the one that gives the same model."""
    layers = stitcher.layers
    accuracy, low, high, loss = (np.full((layers, layers), np.nan) for _ in range(4))
    stats = {window: clustered(np.concatenate(values)) for window, values in right.items()}
    mean_loss = {window: float(np.concatenate(values).mean()) for window, values in lost.items()}
    for first in range(layers):
        for last in range(first, layers):
            window = stitcher.canonical((first, last))
            accuracy[first, last], low[first, last], high[first, last] = stats[window]
            loss[first, last] = mean_loss[window]
    own_share = np.concatenate(own)
    return SectionMap(name, accuracy, low, high, loss, stats[None][0], float(own_share.mean()), len(own_share))
