"""From a position of training to its example and what is open of its book.

A position p = 0 .. N·epochs-1 determines the example, the progress p / total and, through a generator keyed by
(seed, p), every random choice. Nothing remembers anything, so workers, prefetching, the number of processes and
resuming cannot change what is trained on.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from openbook.base.errors import InputError
from openbook.base.randomness import Keyed, keyed_words, permutations, words
from openbook.book.shelf import NONE, Shelf
from openbook.book.source import Source
from openbook.book.text import Example
from openbook.curriculum.choice import HEADER, Opened, choose, thought_counts
from openbook.curriculum.settings import PRESETS, Curriculum, expanded

Positions = NDArray[np.int64]

# A curriculum of one's own: (example, progress, generator) -> the open pieces of each section, in order.
Chooser = Callable[[Example, float, np.random.Generator], Sequence[Sequence[int]]]


def curriculum_for(value: Curriculum | Chooser | str | Mapping[str, Any], source: Source) -> Curriculum | Chooser:
    """A curriculum by name, by its settings, or as it is."""
    if isinstance(value, str):
        return Curriculum.for_source(value, source)
    if isinstance(value, Mapping):
        return Curriculum(**expanded(dict(value)))
    return value


@dataclass(frozen=True)
class SamplingPlan:
    """A source, a curriculum and a length of training: position -> example, progress, open pieces."""

    source: Source
    curriculum: Curriculum | Chooser
    seed: int = 0
    epochs: int = 1
    shuffle: bool = False
    samples: int | None = None  # the first so many examples of the source; all, if None

    def __post_init__(self) -> None:
        if self.epochs < 1:
            raise InputError(f"epochs is {self.epochs}: train for at least one")
        if not 0 < self.size <= len(self.source):
            raise InputError(f"{self.size} samples asked for, but the source has {len(self.source)}")
        if isinstance(self.curriculum, Curriculum) and self.curriculum.wrong and not self.source.can_mislead:
            raise InputError("a wrong book is another record's book, but all records have the same one")

    @property
    def size(self) -> int:
        return len(self.source) if self.samples is None else self.samples

    @property
    def total(self) -> int:
        return self.size * self.epochs

    def indices(self, positions: Positions) -> Positions:
        """The example at each position: in order, or in an order shuffled anew each epoch."""
        epochs, places = np.divmod(positions, self.size)
        if not self.shuffle:
            return places
        result = np.empty_like(places)
        for epoch in np.unique(epochs):
            here = epochs == epoch
            result[here] = _epoch_order(self.seed, int(epoch), self.size)[places[here]]
        return result

    def progress(self, positions: Positions) -> NDArray[np.float64]:
        return positions / self.total

    def namer(self, positions: Positions) -> Callable[[int], str]:
        """How complaints name a row of the batch at these positions."""
        indices = self.indices(positions)
        return lambda row: f"{self.source.where(int(indices[row]))} (position {positions[row]})"

    def at(self, positions: Positions) -> tuple[Shelf, Opened]:
        """The batch of a run of positions: its shelf and what is open on it."""
        positions = np.asarray(positions, dtype=np.int64)
        if positions.size and not (positions.min() >= 0 and positions.max() < self.total):
            raise InputError(
                f"positions are 0..{self.total - 1}, but {positions.min()}..{positions.max()} was asked for"
            )
        indices, curriculum = self.indices(positions), self.curriculum
        if not isinstance(curriculum, Curriculum):
            return self._chosen(curriculum, positions, indices)
        if curriculum.rule is not None:
            return self._chosen(cast(Chooser, PRESETS[curriculum.rule]), positions, indices)
        keyed = keyed_words(self.seed, "curriculum")
        if curriculum.wrong:
            shelf = self.source.wrong(indices, keyed.block(positions, HEADER)[:, 4:])
        else:
            shelf = self.source.shelf(indices)
        return shelf, choose(curriculum, shelf, self.progress(positions), _words(keyed, positions, shelf))

    def _chosen(self, chooser: Chooser, positions: Positions, indices: Positions) -> tuple[Shelf, Opened]:
        """The same for a curriculum of the user's own; what it returns is checked."""
        shelf = self.source.shelf(indices)
        batch, sections, longest = shelf.pieces.shape
        slots = np.full((batch, sections, longest), NONE, np.int64)
        for b, (position, index) in enumerate(zip(positions.tolist(), indices.tolist(), strict=True)):
            random = np.random.Generator(np.random.Philox(key=keyed_words(self.seed, "chooser").words(position, 2)))
            example = self.source.example(index)
            opened = chooser(example, position / self.total, random)
            if len(opened) != len(example.sections):
                raise InputError(
                    f"position {position}: the curriculum named {len(opened)} sections, but there are "
                    f"{len(example.sections)}"
                )
            for s, numbers in enumerate(opened):
                exist = int((shelf.pieces[b, s] != NONE).sum())
                if len(set(numbers)) != len(numbers) or any(not 0 <= k < exist for k in numbers):
                    raise InputError(
                        f"position {position}, section {s}: open pieces are distinct numbers below {exist}"
                    )
                slots[b, s, : len(numbers)] = numbers
        return shelf, Opened(slots, thought_counts(shelf))


@functools.lru_cache(maxsize=4)
def _epoch_order(seed: int, epoch: int, size: int) -> NDArray[np.intp]:
    return permutations(words(seed, f"order {size}", epoch, 1, size))[0]


def _words(keyed: Keyed, positions: Positions, shelf: Shelf) -> NDArray[np.uint64]:
    """Random words of each position: HEADER of its own, then one for every piece: [B, HEADER + S·P].

    An example's words depend on its own pieces alone, not on the padding that its neighbours in the batch bring.
    """
    batch, sections, longest = shelf.pieces.shape
    exists = shelf.pieces != NONE
    if exists.all():
        return keyed.block(positions, HEADER + sections * longest)
    drawn = np.zeros((batch, HEADER + sections * longest), dtype=np.uint64)
    own_pieces = exists.reshape(batch, -1)
    for b, position in enumerate(positions.tolist()):
        own = keyed.words(position, HEADER + int(own_pieces[b].sum()))
        drawn[b, :HEADER] = own[:HEADER]
        drawn[b, HEADER:][own_pieces[b]] = own[HEADER:]
    return drawn
