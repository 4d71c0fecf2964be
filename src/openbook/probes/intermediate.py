"""Reading the strings in between: what a linear probe and the logit lens find of s_i at every layer and place.

A linear probe is ridge regression from a layer's output to the characters of s_i that belong to the place, one probe
for every layer and place, fitted on half of the examples and judged on the other half. Its control is the same probe
fitted to the labels of other examples: what it scores, a probe scores that has nothing to read. The logit lens needs no
fit at all: the model's own norm and head are applied to the output of every layer.

Legend: N examples, K layers, Q places, D width, I strings, U characters of a place, n classes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from openbook.base.arrays import Floats, Ints, Mask
from openbook.base.errors import InputError
from openbook.base.randomness import generator
from openbook.probes.layers import lens_at, states_at
from openbook.probes.slots import Slots, slots_of
from openbook.probes.subject import Advance, Subject, no_progress
from openbook.task.alphabet import alphabets
from openbook.task.source import Translations
from openbook.training.batches import Item
from openbook.training.encode import Encoder
from openbook.training.models import examined

KNOWN = 0.9  # accuracy at which a string is said to be known at its own places
RIDGE = 1e-2  # penalty as a share of the number of examples; features have unit variance
BATCH = 16


@dataclass(frozen=True)
class StringMap:
    """How well one string can be read at every layer and place. A string's own places are those that stand for it."""

    name: str  # s_1 is the input, s_{d+1} the answer
    map: Floats  # [K + 1, Q], linear probe; layer 0 is the embedding
    control: Floats  # [K + 1, Q]
    lens: Floats  # [K, Q], from layer 1 on
    first_layer: int | None  # that knows the string at its own places
    first_layer_by_lens: int | None
    own_places: Floats | None  # [K + 1], mean over them; the input has none
    own_places_by_lens: Floats | None  # [K]
    largest_in_control: float


@dataclass(frozen=True)
class IntermediateMap:
    """The maps of all strings s_1 .. s_{d+1} of one model."""

    model: str
    open: float
    layers: int
    fitted_on: int
    judged_on: int
    chance: float
    places: list[dict[str, int]]
    sections: list[StringMap]
    known: float = KNOWN


def intermediate_map(
    subject: Subject, samples: int = 1024, open_book: float = 1.0, advance: Advance = no_progress
) -> IntermediateMap:
    """Linear probes and logit lens on strings of one length, with this share of the book open."""
    source = subject.translations
    if samples < 4:
        raise InputError(f"{samples} samples: half of them are fitted and half judged, so use at least four")
    if not 0 <= open_book <= 1:
        raise InputError(f"the share of the book that is open is between 0 and 1, not {open_book}")
    rows = subject.encoded(*subject.shelf(samples, open_book))
    slots, labels = labelled(source, rows)
    states, lens = _states_and_lens(subject, rows, slots, labels, advance)
    half = len(rows) // 2
    fitted = probe_accuracy(states, labels, half, source.chars)
    shuffled = labels[generator(subject.seed, "probe control").permutation(half)]
    control = probe_accuracy(states, np.concatenate([shuffled, labels[half:]]), half, source.chars)
    strings = [
        string_map(i + 1, fitted[..., i], control[..., i], lens[..., i], slots.string_q == i + 1)
        for i in range(source.depth + 1)
    ]
    sizes = (len(lens), half, len(rows) - half)
    return IntermediateMap(subject.name, open_book, *sizes, 1 / source.chars, slots.to_json(), strings)


def string_map(number: int, probe: Floats, control: Floats, lens: Floats, own_q: Mask) -> StringMap:
    """The map of string s_number, whose own places are marked in `own_q` [Q]."""
    by_probe, by_lens = (values[:, own_q].mean(1) if own_q.any() else None for values in (probe, lens))
    firsts = _first_known(by_probe, 0), _first_known(by_lens, 1)
    return StringMap(f"s_{number}", probe, control, lens, *firsts, by_probe, by_lens, float(control.max()))


def _first_known(curve: Floats | None, first: int) -> int | None:
    """The layer at which a curve that begins at layer `first` reaches `KNOWN`."""
    return None if curve is None or not (curve >= KNOWN).any() else int((curve >= KNOWN).argmax()) + first


def labelled(source: Translations, rows: list[Item]) -> tuple[Slots, Ints]:
    """Slots that have a character, and the characters of every string that belong to them: [N, Q, I, U]."""
    slots, unit = slots_of(source, rows), source.unit
    translation, _ = source.translations(np.array([item.position for item in rows]))
    width = int(translation.lengths[0]) // unit
    if int((slots.string_q == source.depth + 1).sum()) != width:
        raise InputError(f"the answer's {width} words are not one token each: places cannot be told apart")
    slots = slots.keep(slots.place_q < width)  # thoughts that are padded to a fixed number stand for nothing
    strings = translation.strings[:, :, : width * unit].astype(np.int64)
    cut = strings.reshape(len(rows), source.depth + 1, width, unit)
    return slots, np.moveaxis(cut[:, :, slots.place_q], 2, 1)


def lens_words(source: Translations, encoder: Encoder) -> Tensor | None:
    """The token of every character of every alphabet, [I, n]; None where the head's words are bigrams."""
    if source.unit == 2:
        return None
    letters = alphabets(source.depth, source.chars)
    tokens = encoder.table.tokenize([f" {symbol}" for alphabet in letters for symbol in alphabet])
    if any(len(token) != 1 for token in tokens):
        raise InputError("a character is not one token of this tokenizer: the logit lens has no word to look for")
    return torch.tensor(tokens).reshape(source.depth + 1, source.chars)


def bigram_hits(guess: Tensor, expected: Tensor, chars: int, has_levels: bool) -> Tensor:
    """How much of a string's bigrams [B, Q, I, 2] a guess of a bigram [K, B, Q, 1] has right: [K, B, Q, I].

    A head of one alphabet's bigrams cannot say of which level they are. One that has those of all alphabets, those of
    the output first, can, and a bigram of another alphabet than the string's own is all wrong.
    """
    bigram = guess % chars**2
    right = ((bigram // chars == expected[..., 0]).double() + (bigram % chars == expected[..., 1]).double()) / 2
    if not has_levels:
        return right
    strings = expected.shape[-2]
    return right * (guess // chars**2 == (torch.arange(strings) + 1) % strings)


def _states_and_lens(
    subject: Subject, rows: list[Item], slots: Slots, labels: Ints, advance: Advance
) -> tuple[Tensor, Floats]:
    """States at the slots [K + 1, N, Q, D], and the lens's accuracy [K, Q, I]."""
    chars, words = subject.translations.chars, lens_words(subject.translations, subject.encoder)
    states, hits = [], []
    with torch.inference_mode(), examined(subject.model):
        for start in range(0, len(rows), BATCH):
            part = slice(start, start + BATCH)
            ids = subject.batch(rows[part])["input_ids"]
            places = torch.from_numpy(slots.places_bq[part]).to(ids.device)
            states.append(states_at(subject.model, ids, places).cpu())
            logits = lens_at(subject.model, ids, places)
            guess = logits.argmax(-1).cpu()[..., None]  # [K, B, Q, 1]
            expected = torch.from_numpy(labels[part])  # [B, Q, I, U]
            if words is None:
                hit = bigram_hits(guess, expected, chars, has_levels=logits.shape[-1] > chars**2)
            else:
                hit = (guess == words[torch.arange(len(words)), expected[..., 0]]).double()
            hits.append(hit.sum(1))
            advance(len(ids))
    return torch.cat(states, 1), (torch.stack(hits).sum(0) / len(rows)).numpy()


def probe_accuracy(states: Tensor, labels: Ints, half: int, chars: int) -> Floats:
    """Fit on the first `half` examples, judge on the others: accuracy of characters [K + 1, Q, I].

    W = (X'X + λN)⁻¹ X'Y,   X standardised, Y one-hot and centred; the guess is the largest entry
    """
    judged = torch.from_numpy(labels[half:])
    Y_nqm = torch.nn.functional.one_hot(torch.from_numpy(labels[:half]), chars).float()
    shape = Y_nqm.shape[2:]  # I, U, n
    Y_qnm = Y_nqm.flatten(2).transpose(0, 1)
    mean_q = Y_qnm.mean(1, keepdim=True)
    accuracy = []
    for X_nqd in states:  # layer by layer
        X_qnd = X_nqd.transpose(0, 1)
        centre, scale = X_qnd[:, :half].mean(1, keepdim=True), X_qnd[:, :half].std(1, keepdim=True) + 1e-6
        X_qnd = (X_qnd - centre) / scale
        fit, rest = X_qnd[:, :half], X_qnd[:, half:]
        gram = fit.mT @ fit + RIDGE * half * torch.eye(fit.shape[-1])
        W = torch.linalg.solve(gram, fit.mT @ (Y_qnm - mean_q))
        guess = (rest @ W + mean_q).unflatten(-1, shape).argmax(-1)  # [Q, N, I, U]
        accuracy.append((guess == judged.transpose(0, 1)).double().mean((1, 3)))
    return torch.stack(accuracy).numpy()
