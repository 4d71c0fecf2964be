"""Perturbing: in which layers a model reads each section of the book.

The images of k rules of one section are changed in the context, and the l2 norm of the change of every layer's output
is measured at every thinking token and in front of every answer token (the paper's "Hidden Representations of a
Model"). The first layer whose output changes is where the section begins to be read. As a control the same is done to
k rules that the example does not use: where they stand is the same, what they mean does not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from openbook.base.errors import InputError
from openbook.base.randomness import words
from openbook.probes.layers import evaluating, states_at
from openbook.probes.significance import LEVEL, larger_cells
from openbook.probes.slots import Slots, padded, slots_of
from openbook.probes.subject import SHOWN, Subject, is_run, open_subject
from openbook.training.batches import Item, pad_id_of
from openbook.training.config import RunConfig, TaskConfig
from openbook.training.folder import RunFolder
from openbook.training.settings import validated
from openbook.training.shipped import located

RULES = 10  # changed in each example, as in the paper
LARGE = 0.1  # of the largest change of a map: what the eye sees in the paper's figure
BATCH = 16

Advance = Callable[..., None]
Count = int | Literal["all"]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class SectionChange:
    """The change of every layer's output at every place, averaged over samples: [K, Q]. Layers count from 1."""

    name: str
    used: Floats
    control: Floats
    differs: dict[str, Mask]  # string -> [K]: larger than the control over the string's places, see `significance.py`
    string_q: NDArray[np.int64]

    @property
    def first_layer(self) -> int | None:
        """The first layer that differs significantly from the control at the places of any string."""
        return _first(np.stack(list(self.differs.values())).any(0))

    @property
    def first_large_layer(self) -> int | None:
        """The first layer that also moves by a tenth of the largest change."""
        return min((layer for layer in self.first_by_string().values() if layer), default=None)

    def first_by_string(self) -> dict[str, int | None]:
        """The first such large layer at the places of each string."""
        means = by_string(self.used, self.string_q)
        least = LARGE * max(float(mean.max()) for mean in means.values())
        return {name: _first(self.differs[name] & (mean >= least)) for name, mean in means.items()}

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "map": self.used,
            "control": self.control,
            "first_layer": self.first_layer,
            "first_large_layer": self.first_large_layer,
            "first_large_layer_by_string": self.first_by_string(),
            "largest": float(self.used.max()),
            "largest_in_control": float(self.control.max()),
        }


def by_string(values: Floats, string_q: NDArray[np.int64]) -> dict[str, Floats]:
    """Means over the places of each string: [..., Q] -> [...] for each of them."""
    return {f"s_{s}": values[..., string_q == s].mean(-1) for s in np.unique(string_q).tolist()}


def section_changes(
    names: Sequence[str], pairs: Floats, counts: NDArray[np.int64], string_q: NDArray[np.int64], seed: int
) -> list[SectionChange]:
    """The maps of sections from the changes of every sample, used rules and control: [S, 2, N, K, Q].

    Which layers differ is tested over all sections, layers and strings together, each by its mean over places. Where
    more used than unused rules were changed (`counts` [S, 2, N]), the control counts for so many times as much: the
    little that any changed token does to every layer adds up at most linearly.
    """
    times = np.maximum(1.0, counts[:, 0] / counts[:, 1])[..., None, None]
    means = by_string(pairs[:, 0] - times * pairs[:, 1], string_q)  # [S, N, K] for each string
    differs = larger_cells(np.stack([np.moveaxis(mean, 1, 0) for mean in means.values()], -1), seed)  # [S, K, strings]
    return [
        SectionChange(
            name, pair[0].mean(0), pair[1].mean(0), {s: differs[k, :, i] for i, s in enumerate(means)}, string_q
        )
        for k, (name, pair) in enumerate(zip(names, pairs, strict=True))
    ]


def _first(layers: Any) -> int | None:
    return int(layers.argmax()) + 1 if layers.any() else None


@dataclass(frozen=True)
class PerturbMap:
    """The maps of all sections of one model."""

    model: str
    rules: Count
    samples: int
    places: list[dict[str, int]]
    sections: list[SectionChange]

    def to_json(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "layers": len(self.sections[0].used),
            "rules": self.rules,
            "samples": self.samples,
            "level": LEVEL,
            "large": LARGE,
            "places": self.places,
            "sections": [section.to_json() for section in self.sections],
        }


def perturb_map(
    model: str | Path,
    rules: Count = RULES,
    samples: int = 32,
    sections: Sequence[str] | None = None,
    length: int | None = None,
    task: TaskConfig | None = None,
    seed: int | None = None,
    advance: Advance = lambda *_, **__: None,
) -> PerturbMap:
    """The perturbation maps of a run or checkpoint, on strings of one length (the task's longest by default)."""
    return perturb_subject(open_even(model, length, task, seed), rules, samples, sections, advance)


def open_even(model: str | Path, length: int | None, task: TaskConfig | None, seed: int | None) -> Subject:
    """A subject with strings of one length, so that places of different examples can be averaged."""
    own = task
    if own is None and is_run(model):
        own = validated(RunConfig, RunFolder(located(model)).read("config.json")).task
        if own is None:
            raise InputError(f"{model} is not about the translation task: this probe needs rules and their images")
    length = (own.lengths[1] if own else None) if length is None else length
    return open_subject(model, None, task, None if length is None else (length, length), seed)


def perturb_subject(
    subject: Subject,
    rules: Count = RULES,
    samples: int = 32,
    sections: Sequence[str] | None = None,
    advance: Advance = lambda *_, **__: None,
) -> PerturbMap:
    """The same for a model at hand. All texts are made and checked before the first forward pass."""
    source, numbers = subject.translations, subject.numbers_of(sections)
    shows = subject.curriculum.model_copy(update={"others": max(subject.curriculum.others, SHOWN.others)})
    subject = replace(subject, curriculum=shows)  # the control needs rules that are shown and not used
    plan, shelf, opened = subject.shelf(samples)
    before = subject.encoded(plan, shelf, opened)
    slots = slots_of(source, before)
    _, tables = source.translations(np.arange(len(shelf)))
    images = np.broadcast_to(tables, shelf.pieces.shape).astype(np.int64)
    shown = (opened.slots[..., None, :] == np.arange(images.shape[-1])[:, None]).any(-1)
    texts, counts = [], []
    for number in numbers:
        for name, among in (("used", shelf.needed), ("unused", ~shelf.needed)):
            of_kind = shown[:, number] & among[:, number]
            check_enough(of_kind, rules, name, subject.sections[number], source.where)
            chosen = choose_rules(of_kind, rules, subject.seed, f"{number} {name}")
            changed = images.copy()
            changed[:, number] = other_images(images[:, number], chosen, subject.seed, number)
            after = subject.encoded(plan, source.with_images(np.arange(len(shelf)), changed), opened)
            check_equal_length(before, after, subject.sections[number])
            texts.append(after)
            counts.append(chosen.sum(-1))
    found = _changes(subject, before, texts, slots, advance)
    pairs = np.stack([found[0::2], found[1::2]], 1)  # [S, 2, N, K, Q]
    changed_rules = np.stack(counts).reshape(len(numbers), 2, -1)
    names = [subject.sections[number] for number in numbers]
    maps = section_changes(names, pairs, changed_rules, slots.string_q, subject.seed)
    return PerturbMap(subject.name, rules, len(shelf), slots.to_json(), maps)


def check_enough(among: Mask, rules: Count, kind: str, section: str, where: Callable[[int], str]) -> None:
    """Complain about an example that shows too few rules of a kind (used, unused) of a section: [N, n²]."""
    counts, wanted = among.sum(-1), 1 if rules == "all" else rules
    if wanted < 1:
        raise InputError(f"{wanted} rules to change: use at least 1, or all")
    if (counts < wanted).any():
        row = int((counts < wanted).argmax())
        raise InputError(
            f"{where(row)} shows {counts[row]} {kind} rules of section '{section}', fewer than the {wanted} to be "
            "changed: change fewer, take longer strings, or change all"
        )


def choose_rules(among: Mask, rules: Count, seed: int, stream: str) -> Mask:
    """Mark `rules` of the marked rules of each example at random, without replacement: [N, n²]."""
    if rules == "all":
        return among
    keys = words(seed, f"perturb {stream}", 0, *among.shape) >> np.uint64(1)
    keys[~among] = np.iinfo(np.uint64).max
    return keys <= np.sort(keys, axis=-1)[:, rules - 1, None]


def other_images(images: NDArray[np.int64], chosen: Mask, seed: int, section: int) -> NDArray[np.int64]:
    """Every chosen rule with another image, uniform over all but its own: [N, n²]."""
    size = images.shape[-1]
    step = 1 + (words(seed, f"other images {section}", 0, *images.shape) % np.uint64(size - 1)).astype(np.int64)
    return np.where(chosen, (images + step) % size, images)


def check_equal_length(before: Sequence[Item], after: Sequence[Item], section: str) -> None:
    """A changed rule must have as many tokens as before, or every place behind it would move and mean nothing."""
    for one, other in zip(before, after, strict=True):
        if len(one.ids) != len(other.ids) or not np.array_equal(one.kinds, other.kinds):
            raise InputError(
                f"example {one.position} has {len(one.ids)} tokens, but {len(other.ids)} with rules of section "
                f"'{section}' changed: this tokenizer does not give every rule the same length"
            )


def _changes(
    subject: Subject, before: list[Item], texts: list[list[Item]], slots: Slots, advance: Advance
) -> NDArray[np.float64]:
    """||h' - h||_2 of every layer's output at every slot, for each set of changed texts: [texts, N, K, Q]."""
    pad, device = pad_id_of(subject.encoder.tokenizer), next(subject.model.parameters()).device
    found: list[list[NDArray[np.float64]]] = [[] for _ in texts]
    with evaluating(subject.model):
        for start in range(0, len(before), BATCH):
            rows = slice(start, start + BATCH)
            places = torch.from_numpy(slots.places_bq[rows]).to(device)
            original = states_at(subject.model, padded(before[rows], pad).to(device), places)
            for changed, results in zip(texts, found, strict=True):
                states = states_at(subject.model, padded(changed[rows], pad).to(device), places)
                norms_kbq = (states - original)[1:].norm(dim=-1)
                results.append(norms_kbq.transpose(0, 1).double().cpu().numpy())
            advance(len(before[rows]))
    return np.stack([np.concatenate(results) for results in found])
