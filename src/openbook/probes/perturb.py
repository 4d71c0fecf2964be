"""Perturbing: in which layers a model reads each section of the book.

The images of k rules of one section are changed in the context, and the l2 norm of the change of every layer's output
is measured at every thinking token and in front of every answer token (the paper's "Hidden Representations of a
Model"). The first layer whose output changes is where the section begins to be read. As a control the same is done to
k rules that the example does not use: these stand in the same part of the context, but what they mean does not matter.

Legend: S sections, N examples, K layers, Q places, n² rules of a section. Layers count from 1 in all that is returned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch

from openbook.base.arrays import Floats, Ints, Mask
from openbook.base.errors import InputError
from openbook.base.randomness import words
from openbook.probes.layers import states_at
from openbook.probes.significance import LEVEL, larger_cells
from openbook.probes.slots import Slots, slots_of
from openbook.probes.subject import SHOWN, Advance, Subject, no_progress
from openbook.training.batches import Item
from openbook.training.models import examined

RULES = 10  # changed in each example, as in the paper
LARGE = 0.1  # of the largest change of a map: what the eye sees in the paper's figure
BATCH = 16

Count = int | Literal["all"]
Where = Callable[[int], str]  # what complaints call an example


@dataclass(frozen=True)
class SectionChange:
    """How much every layer's output changes at every place when rules of one section do, averaged over examples."""

    name: str
    map: Floats  # [K, Q], used rules changed
    control: Floats  # [K, Q], unused rules changed
    first_layer: int | None  # that differs significantly from the control at the places of any string
    first_large_layer: int | None  # that also moves by a tenth of the largest change
    first_large_layer_by_string: dict[str, int | None]  # the first such layer at the places of each string
    largest: float
    largest_in_control: float


@dataclass(frozen=True)
class PerturbMap:
    """The maps of all sections of one model."""

    model: str
    layers: int
    rules: Count
    samples: int
    places: list[dict[str, int]]
    sections: list[SectionChange]
    level: float = LEVEL
    large: float = LARGE


def perturb_map(
    subject: Subject,
    rules: Count = RULES,
    samples: int = 32,
    sections: Sequence[str] | None = None,
    advance: Advance = no_progress,
) -> PerturbMap:
    """The maps of a model on strings of one length. All texts are made and checked before the first forward pass."""
    source, numbers = subject.translations, subject.section_numbers(sections)
    names = {number: subject.sections[number] for number in numbers}
    shown = subject.curriculum.model_copy(update={"others": max(subject.curriculum.others, SHOWN.others)})
    subject = replace(subject, curriculum=shown)  # the control needs rules that are shown and not used
    plan, shelf, opened = subject.shelf(samples)
    before = subject.encoded(plan, shelf, opened)
    slots = slots_of(source, before)
    positions = np.arange(len(shelf))
    _, tables = source.translations(positions)
    images = np.broadcast_to(tables, shelf.pieces.shape).astype(np.int64)
    is_shown = (opened.slots[..., None, :] == np.arange(images.shape[-1])[:, None]).any(-1)
    used, unused = is_shown & shelf.needed, is_shown & ~shelf.needed
    texts, counts = [], []
    for section, changed, count in changed_books(images, used, unused, names, rules, subject.seed, source.where):
        after = subject.encoded(plan, source.with_images(positions, changed), opened)
        check_equal_length(before, after, section)
        texts.append(after)
        counts.append(count)
    changes = state_changes(subject, before, texts, slots, advance)
    maps = section_changes(list(names.values()), changes, counts, slots.string_q, subject.seed)
    return PerturbMap(subject.name, len(maps[0].map), rules, len(shelf), slots.to_json(), maps)


def changed_books(
    images: Ints, used: Mask, unused: Mask, names: dict[int, str], rules: Count, seed: int, where: Where
) -> Iterator[tuple[str, Ints, Ints]]:
    """For each named section the images [N, S, n²] with used rules changed, then with as many unused ones.

    Each comes with the name of the section and the number of rules that were changed in each example [N].
    """
    for number, name in names.items():
        for kind, candidates in (("used", used[:, number]), ("unused", unused[:, number])):
            check_enough(candidates, rules, kind, name, where)
            chosen = candidates if rules == "all" else choose_rules(candidates, rules, seed, f"perturb {number} {kind}")
            changed = images.copy()
            changed[:, number] = other_images(images[:, number], chosen, seed, number)
            yield name, changed, chosen.sum(-1)


def check_enough(candidates: Mask, rules: Count, kind: str, section: str, where: Where) -> None:
    """Refuse an example that shows too few rules of a kind (used, unused) of a section: [N, n²]."""
    counts, wanted = candidates.sum(-1), 1 if rules == "all" else rules
    if wanted < 1:
        raise InputError(f"{wanted} rules to change: use at least 1, or all")
    if (counts < wanted).any():
        row = int((counts < wanted).argmax())
        raise InputError(
            f"{where(row)} shows {counts[row]} {kind} rules of section '{section}', fewer than the {wanted} to be "
            "changed: change fewer, take longer strings, or change all"
        )


def choose_rules(candidates: Mask, count: int | Ints, seed: int, stream: str) -> Mask:
    """Mark so many of the candidates of each example at random, without replacement: [N, n²]."""
    keys = words(seed, stream, 0, *candidates.shape) >> np.uint64(1)
    keys[~candidates] = np.iinfo(np.uint64).max
    last = np.broadcast_to(count, len(keys))[:, None] - 1
    return keys <= np.take_along_axis(np.sort(keys, axis=-1), last, -1)


def other_images(images: Ints, chosen: Mask, seed: int, section: int) -> Ints:
    """Every chosen rule with another image, uniform over all but its own: [N, n²]."""
    size = images.shape[-1]
    step = 1 + (words(seed, f"other images {section}", 0, *images.shape) % np.uint64(size - 1)).astype(np.int64)
    return np.where(chosen, (images + step) % size, images)


def check_equal_length(before: Sequence[Item], after: Sequence[Item], section: str) -> None:
    """A changed rule must have as many tokens as before, or every place behind it would move and mean nothing."""
    for old, new in zip(before, after, strict=True):
        if len(old.ids) != len(new.ids) or not np.array_equal(old.kinds, new.kinds):
            raise InputError(
                f"example {old.position} has {len(old.ids)} tokens, but {len(new.ids)} with rules of section "
                f"'{section}' changed: this tokenizer does not give every rule the same length"
            )


def state_changes(
    subject: Subject, before: list[Item], texts: list[list[Item]], slots: Slots, advance: Advance = no_progress
) -> list[Floats]:
    """||h' - h||_2 of every layer's output at every slot, for each set of changed texts: [N, K, Q] each."""
    norms: list[list[Floats]] = [[] for _ in texts]
    with torch.inference_mode(), examined(subject.model):
        for start in range(0, len(before), BATCH):
            rows = slice(start, start + BATCH)
            places = torch.from_numpy(slots.places_bq[rows]).to(subject.device)
            original = states_at(subject.model, subject.batch(before[rows])["input_ids"], places)
            for changed, parts in zip(texts, norms, strict=True):
                states = states_at(subject.model, subject.batch(changed[rows])["input_ids"], places)
                norms_kbq = (states - original)[1:].norm(dim=-1)
                parts.append(norms_kbq.transpose(0, 1).double().cpu().numpy())
            advance(len(before[rows]))
    return [np.concatenate(parts) for parts in norms]


def section_changes(
    names: Sequence[str], changes: Sequence[Floats], counts: Sequence[Ints], string_q: Ints, seed: int
) -> list[SectionChange]:
    """The maps of sections from the changes of every example [N, K, Q], with used rules and with unused ones in turn.

    Which layers differ is tested over all sections, layers and strings together, each by its mean over places. Where
    more used than unused rules were changed (`counts` [N], in turn), the control counts for so many times as much: the
    little that any changed token does to every layer adds up at most linearly.
    """
    used, unused = np.stack(changes[0::2]), np.stack(changes[1::2])  # [S, N, K, Q]
    times = np.maximum(1.0, np.stack(counts[0::2]) / np.stack(counts[1::2]))[..., None, None]
    means = by_string(used - times * unused, string_q)  # [S, N, K] for each string
    differs = larger_cells(np.stack([np.moveaxis(mean, 1, 0) for mean in means.values()], -1), seed)  # [S, K, strings]
    parts = zip(names, used.mean(1), unused.mean(1), differs, strict=True)
    return [section_change(*part, string_q) for part in parts]


def section_change(name: str, used: Floats, unused: Floats, differs: Mask, string_q: Ints) -> SectionChange:
    """The map of a section from its means [K, Q] and the layers that differ from the control at each string."""
    sizes = by_string(used, string_q)
    least = LARGE * max(float(size.max()) for size in sizes.values())
    large = {
        string: _first(differs_k & (size >= least))
        for (string, size), differs_k in zip(sizes.items(), differs.T, strict=True)
    }
    first_large = min((layer for layer in large.values() if layer), default=None)
    largest, largest_in_control = float(used.max()), float(unused.max())
    return SectionChange(name, used, unused, _first(differs.any(1)), first_large, large, largest, largest_in_control)


def by_string(values: Floats, string_q: Ints) -> dict[str, Floats]:
    """Means over the places of each string: [..., Q] -> [...] for each of them."""
    return {f"s_{s}": values[..., string_q == s].mean(-1) for s in np.unique(string_q).tolist()}


def _first(layers: Any) -> int | None:
    return int(layers.argmax()) + 1 if layers.any() else None
