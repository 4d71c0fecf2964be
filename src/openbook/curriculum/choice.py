"""Which pieces are open: a curriculum, a batch of examples and random words decide, for all of them at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from openbook.book.shelf import CODE, NONE, Fragments, Shelf
from openbook.book.text import THINK, Kind
from openbook.curriculum.settings import Curriculum

# Words of a position before those of its pieces: the coin, the section, two for rounding, and four for a wrong book.
HEADER = 8


@dataclass(frozen=True)
class Opened:
    """What a curriculum decided for a batch: open pieces in order, and how many words of thought are silent."""

    slots: NDArray[np.int64]  # [B, S, P]: numbers of the open pieces of a section, in order; NONE is no piece
    quiet: NDArray[np.int64]  # [B]

    def numbers(self, row: int) -> list[list[int]]:
        """The open pieces of one example, section by section."""
        return [[k for k in section if k != NONE] for section in self.slots[row].tolist()]


def thought_counts(shelf: Shelf) -> NDArray[np.int64]:
    return ((shelf.kinds == CODE[Kind.THOUGHT]) & (shelf.completion != NONE)).sum(1)


def _sort_keys(words_in: NDArray[np.uint32], among: NDArray[np.bool_], bits: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """A random key for every entry, with its number in the low bits; entries that are not marked come last.

    With 100 pieces 24 random bits are left: that a tie goes to the lower number favours it by less than one in 10⁷.
    `bits` [B, 1, 1] are those of an example's own numbers, so that ties do not depend on its neighbours in the batch.
    """
    keys = words_in >> np.uint32(1) >> bits << bits
    keys |= np.arange(words_in.shape[-1], dtype=np.uint32)
    keys |= (~among).astype(np.uint32) << np.uint32(31)
    return keys


def _index_bits(exists: NDArray[np.bool_]) -> NDArray[np.uint32]:
    """Bits that the numbers of an example's pieces take, by its longest section: [B, 1, 1]."""
    sizes = exists.sum(-1).max(-1)
    bits = [max(1, (size - 1).bit_length()) for size in sizes.tolist()]
    return np.array(bits, dtype=np.uint32)[:, None, None]


def _first(
    words_in: NDArray[np.uint32], among: NDArray[np.bool_], count: NDArray[np.int64], bits: NDArray[np.uint32]
) -> NDArray[np.bool_]:
    """Mark `count` of the marked entries of each row, drawn uniformly without replacement."""
    keys = _sort_keys(words_in, among, bits)
    last = np.take_along_axis(np.sort(keys, axis=-1), np.maximum(count - 1, 0)[..., None], axis=-1)
    return (keys <= last) & (count > 0)[..., None]


def choose(curriculum: Curriculum, shelf: Shelf, progress: NDArray[np.float64], drawn: NDArray[np.uint64]) -> Opened:
    """Decide what is open, for every example of a shelf at once.

    Shown are the needed pieces and floor(share · others) of the others; floor(rate · shown) of those are closed,
    drawn without replacement; the coin decides whether the rate holds in all sections or in one. `rounding` may be by
    chance instead: a book of one piece is then closed in a share of the examples, and not all at once at a rate of 1.
    """
    batch, sections, longest = shelf.pieces.shape
    quiet = np.floor(curriculum.silence.at(progress) * thought_counts(shelf) + 1e-9).astype(np.int64)
    if sections == 0 or longest == 0:
        return Opened(np.full((batch, sections, longest), NONE, np.int64), quiet)
    halves = np.ascontiguousarray(drawn[:, HEADER:]).view(np.uint32).reshape(batch, sections, longest, 2)
    shown = exists = shelf.pieces != NONE
    bits = _index_bits(exists)
    extra = np.full((2, batch, sections), 1e-9)  # safe against 0.29 · 100 = 28.999...
    if curriculum.rounding == "chance":
        extra = _uniform(drawn[:, 2:4].T, sections)
    if curriculum.candidates == "needed":
        shown = exists & shelf.needed
        if curriculum.others > 0:
            rest = exists & ~shelf.needed
            shown = shown | _first(halves[..., 0], rest, _share(curriculum.others, rest, extra[0]), bits)
    rates = np.broadcast_to(curriculum.drop.at(progress)[:, None], (batch, sections))
    if curriculum.spread != "all":
        one = _one_of(drawn[:, 1], shown.any(-1), curriculum.lean)
        everywhere = (drawn[:, 0] >> np.uint64(11)) * 2.0**-53 >= curriculum.alone(progress)
        rates = np.where(everywhere[:, None] | one, rates, 0.0)
    closed = _share(rates, shown, extra[1])
    if curriculum.order == "given":
        opened = shown & ~_first(halves[..., 1], shown, closed, bits)
        return Opened(np.where(opened, np.arange(longest), NONE), quiet)
    # A random order of the shown pieces: the first are closed.
    keys = np.sort(_sort_keys(halves[..., 1], shown, bits), axis=-1)
    slots = (keys & ((np.uint32(1) << bits) - np.uint32(1))).astype(np.int64)
    place = np.arange(longest)
    opened = (place >= closed[..., None]) & (place < shown.sum(-1)[..., None])
    return Opened(np.where(opened, slots, NONE), quiet)


def _one_of(words_in: NDArray[np.uint64], among: NDArray[np.bool_], lean: float) -> NDArray[np.bool_]:
    """One of the marked entries of each row, by its word alone: padding for wider neighbours must not change it.

    `lean` is how many times as likely the first is as the last, in a geometric series.
    """
    count = np.maximum(among.sum(-1, keepdims=True), 1)
    place = np.cumsum(among, axis=-1) - 1
    if lean == 1:
        return among & (place == (words_in[:, None] % count.astype(np.uint64)).astype(np.int64))
    weight = np.where(among, lean ** (-place / np.maximum(count - 1, 1)), 0.0)
    ends = np.cumsum(weight, axis=-1)
    drawn = (words_in >> np.uint64(12))[:, None] * 2.0**-52 * ends[:, -1:]
    return among & (place == (ends <= drawn).sum(-1, keepdims=True, where=among))


def _share(
    rate: float | NDArray[np.float64], marked: NDArray[np.bool_], extra: NDArray[np.float64]
) -> NDArray[np.int64]:
    """rate · number of marked entries, made whole: floor(· + extra)."""
    return np.floor(rate * marked.sum(-1) + extra).astype(np.int64)


def _uniform(words_in: NDArray[np.uint64], sections: int) -> NDArray[np.float64]:
    """A number in [0, 1) for every section, from one word for all of them: [..., S] (the finaliser of SplitMix64)."""
    mixed = words_in[..., None] + np.arange(1, sections + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return ((mixed ^ (mixed >> np.uint64(31))) >> np.uint64(11)) * 2.0**-53


def open_fragments(shelf: Shelf, opened: Opened) -> Fragments:
    """The fragments of the open pieces, in order: [B, S, P], NONE pads."""
    slots = np.maximum(opened.slots, 0)
    return np.where(opened.slots == NONE, NONE, np.take_along_axis(shelf.pieces, slots, axis=-1)).astype(np.int32)


def silenced(shelf: Shelf, opened: Opened, think: str = THINK) -> Fragments:
    """The completion with the first `quiet` words of its thoughts replaced by the thinking token."""
    thought = (shelf.kinds == CODE[Kind.THOUGHT]) & (shelf.completion != NONE)
    first = thought & (np.cumsum(thought, axis=1) <= opened.quiet[:, None])
    return np.where(first, shelf.bank.number(think), shelf.completion).astype(np.int32)
