"""Reading the strings in between: what a linear probe and the logit lens find of s_i at every layer and place.

A linear probe is ridge regression from a layer's output to the characters of s_i that belong to the place, one probe
for every layer and place, fitted on half of the examples and judged on the other half. Its control is the same probe
fitted to the labels of other examples: what it scores, a probe scores that has nothing to read. The logit lens asks no
training at all: the model's own norm and head are applied to the output of every layer.

Legend: N examples, K layers, Q places, D width, I strings, U characters of a place, n classes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from openbook.base.errors import InputError
from openbook.base.randomness import generator
from openbook.curriculum import SamplingPlan
from openbook.probes.layers import evaluating, lens_at, states_at
from openbook.probes.perturb import open_even
from openbook.probes.slots import Slots, padded, slots_of
from openbook.probes.subject import Subject
from openbook.task.alphabet import alphabets
from openbook.task.source import Translations
from openbook.training.batches import Item, items, pad_id_of
from openbook.training.config import TaskConfig
from openbook.training.encode import Encoder
from openbook.training.exam import condition

KNOWN = 0.9  # accuracy at which a string is said to be known at its own places
RIDGE = 1e-2  # penalty as a share of the number of examples; features have unit variance
BATCH = 16

Advance = Callable[..., None]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class StringMap:
    """How well one string can be read at every layer (0 is the embedding) and place: [K + 1, Q], lens [K, Q]."""

    string: int  # 1 is the input, d + 1 the answer
    probe: Floats
    control: Floats
    lens: Floats
    own: NDArray[np.bool_]  # [Q]: the places that stand for this string

    def own_curve(self, values: Floats) -> Floats | None:
        """Mean over the string's own places, layer by layer; the input has none."""
        return values[:, self.own].mean(1) if self.own.any() else None

    def first(self, values: Floats, offset: int) -> int | None:
        """The first layer at which the string is known at its own places."""
        curve = self.own_curve(values)
        if curve is None or not (curve >= KNOWN).any():
            return None
        return int((curve >= KNOWN).argmax()) + offset

    def to_json(self) -> dict[str, Any]:
        return {
            "name": f"s_{self.string}",
            "map": self.probe,
            "control": self.control,
            "lens": self.lens,
            "first_layer": self.first(self.probe, 0),
            "first_layer_by_lens": self.first(self.lens, 1),
            "own_places": self.own_curve(self.probe),
            "own_places_by_lens": self.own_curve(self.lens),
            "largest_in_control": float(self.control.max()),
        }


@dataclass(frozen=True)
class IntermediateMap:
    """The maps of all strings s_1 .. s_{d+1} of one model."""

    model: str
    open: float
    fitted_on: int
    judged_on: int
    chance: float
    places: list[dict[str, int]]
    strings: list[StringMap]

    def to_json(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "open": self.open,
            "layers": len(self.strings[0].lens),
            "fitted_on": self.fitted_on,
            "judged_on": self.judged_on,
            "chance": self.chance,
            "known": KNOWN,
            "places": self.places,
            "sections": [string.to_json() for string in self.strings],
        }


def intermediate_map(
    model: str | Path,
    samples: int = 1024,
    open_book: float = 1.0,
    length: int | None = None,
    task: TaskConfig | None = None,
    seed: int | None = None,
    advance: Advance = lambda *_, **__: None,
) -> IntermediateMap:
    """Probes and lens on a run or checkpoint, with this share of the book open."""
    return intermediate_subject(open_even(model, length, task, seed), samples, open_book, advance)


def intermediate_subject(
    subject: Subject, samples: int = 1024, open_book: float = 1.0, advance: Advance = lambda *_, **__: None
) -> IntermediateMap:
    """The same for a model at hand."""
    source = subject.translations
    if samples < 4:
        raise InputError(f"{samples} samples: half of them are fitted and half judged, so use at least four")
    if not 0 <= open_book <= 1:
        raise InputError(f"the share of the book that is open is between 0 and 1, not {open_book}")
    plan = SamplingPlan(source, condition(subject.curriculum, open_book), seed=subject.seed, samples=samples)
    numbers = np.arange(samples)
    rows = items(subject.encoder.encode(*plan.at(numbers), plan.namer(numbers)), numbers.tolist())
    unit = source.unit
    slots, labels = labelled(source, rows, unit)
    words = lens_words(source, subject.encoder, unit)
    states, lens = _run(subject, rows, slots, labels, words, advance)
    half = samples // 2
    fitted = _probe(states, labels, half, source.chars)
    shuffled = labels[generator(subject.seed, "probe control").permutation(half)]
    control = _probe(states, np.concatenate([shuffled, labels[half:]]), half, source.chars)
    strings = [
        StringMap(i + 1, fitted[..., i], control[..., i], lens[..., i], slots.string_q == i + 1)
        for i in range(source.depth + 1)
    ]
    return IntermediateMap(subject.name, open_book, half, samples - half, 1 / source.chars, slots.to_json(), strings)


def labelled(source: Translations, rows: list[Item], unit: int) -> tuple[Slots, NDArray[np.int64]]:
    """Slots that have a character, and the characters of every string that belong to them: [N, Q, I, U]."""
    slots = slots_of(source, rows)
    translation, _ = source.translations(np.array([item.position for item in rows]))
    width = int(translation.lengths[0]) // unit
    if int((slots.string_q == source.depth + 1).sum()) != width:
        raise InputError(f"the answer's {width} words are not one token each: places cannot be told apart")
    slots = slots.keep(slots.place_q < width)  # thoughts that are padded to a fixed number stand for nothing
    strings = translation.strings[:, :, : width * unit].astype(np.int64)
    cut = strings.reshape(len(rows), source.depth + 1, width, unit)
    return slots, np.moveaxis(cut[:, :, slots.place_q], 2, 1)


def lens_words(source: Translations, encoder: Encoder, unit: int) -> Tensor | None:
    """The token of every character of every alphabet, [I, n]; None where the head's words are bigrams."""
    if unit == 2:
        return None
    letters = alphabets(source.depth, source.chars)
    tokens = encoder.table.tokenize([f" {symbol}" for alphabet in letters for symbol in alphabet])
    if any(len(token) != 1 for token in tokens):
        raise InputError("a character is not one token of this tokenizer: the logit lens has no word to look for")
    return torch.tensor(tokens).reshape(source.depth + 1, source.chars)


def bigram_hits(guess: Tensor, wanted: Tensor, chars: int, has_levels: bool) -> Tensor:
    """How much of a string's bigrams [B, Q, I, 2] a guess of a bigram [K, B, Q, 1] has right: [K, B, Q, I].

    A head of one alphabet's bigrams cannot say of which level they are. One that has those of all alphabets, those of
    the output first, can, and a bigram of another alphabet than the string's own is all wrong.
    """
    bigram = guess % chars**2
    right = ((bigram // chars == wanted[..., 0]).double() + (bigram % chars == wanted[..., 1]).double()) / 2
    if not has_levels:
        return right
    strings = wanted.shape[-2]
    return right * (guess // chars**2 == (torch.arange(strings) + 1) % strings)


def _run(
    subject: Subject, rows: list[Item], slots: Slots, labels: NDArray[np.int64], words: Tensor | None, advance: Advance
) -> tuple[Tensor, Floats]:
    """States at the slots [K + 1, N, Q, D], and the lens's accuracy [K, Q, I]."""
    pad, device = pad_id_of(subject.encoder.tokenizer), next(subject.model.parameters()).device
    chars = subject.translations.chars
    states, hits = [], []
    with evaluating(subject.model):
        for start in range(0, len(rows), BATCH):
            part = slice(start, start + BATCH)
            ids = padded(rows[part], pad).to(device)
            places = torch.from_numpy(slots.places_bq[part]).to(device)
            states.append(states_at(subject.model, ids, places).cpu())
            logits = lens_at(subject.model, ids, places)
            guess = logits.argmax(-1).cpu()[..., None]  # [K, B, Q, 1]
            wanted = torch.from_numpy(labels[part])  # [B, Q, I, U]
            if words is None:
                hit = bigram_hits(guess, wanted, chars, has_levels=logits.shape[-1] > chars**2)
            else:
                level = torch.arange(len(words))
                hit = (guess == words[level, wanted[..., 0]]).double()
            hits.append(hit.sum(1))
            advance(len(ids))
    return torch.cat(states, 1), (torch.stack(hits).sum(0) / len(rows)).numpy()


def _probe(states: Tensor, labels: NDArray[np.int64], half: int, chars: int) -> Floats:
    """Fit on the first `half` examples, judge on the others: accuracy of characters [K + 1, Q, I].

    W = (X'X + λN)⁻¹ X'Y,   X standardised, Y one-hot and centred; the guess is the largest entry
    """
    judged = torch.from_numpy(labels[half:])
    Y_nqm = torch.nn.functional.one_hot(torch.from_numpy(labels[:half]), chars).float()
    shape = Y_nqm.shape[2:]  # I, U, n
    Y_qnm = Y_nqm.flatten(2).transpose(0, 1)
    mean_q = Y_qnm.mean(1, keepdim=True)
    found = []
    for X_nqd in states:  # layer by layer
        X_qnd = X_nqd.transpose(0, 1)
        centre, scale = X_qnd[:, :half].mean(1, keepdim=True), X_qnd[:, :half].std(1, keepdim=True) + 1e-6
        X_qnd = (X_qnd - centre) / scale
        fit, rest = X_qnd[:, :half], X_qnd[:, half:]
        gram = fit.mT @ fit + RIDGE * half * torch.eye(fit.shape[-1])
        W = torch.linalg.solve(gram, fit.mT @ (Y_qnm - mean_q))
        guess = (rest @ W + mean_q).unflatten(-1, shape).argmax(-1)  # [Q, N, I, U]
        found.append((guess == judged.transpose(0, 1)).double().mean((1, 3)))
    return torch.stack(found).numpy()
