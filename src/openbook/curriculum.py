"""The curriculum: which pieces of the book are open at a position of training.

A position p = 0 .. N·epochs-1 determines the example, the progress p / total and, through a generator keyed by
(seed, p), every random choice. Nothing remembers anything, so workers, prefetching, the number of processes and
resuming cannot change what is trained on.

The paper's curricula by name, over the progress of training:

    no-context      every piece closed (plain fine-tuning)
    fixed:0.2       needed pieces, a fifth of them closed
    anneal          needed pieces and a quarter of the others; closed share 0 -> 1 over the first 60 %, then 1
    no-dropout      needed pieces, all open
    wrong-context   as anneal, but the pieces are wrong

and one of ours, for books of many sections that build on each other:

    patient         as anneal, but first one section at a time, a quarter and then all of it, the first sections more
                    often than the last; then all sections, and in a quarter of the examples still one, so that
                    reading is not forgotten
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer

from openbook.book.example import Example
from openbook.book.shelf import CODE, NONE, Fragments, Shelf, Source
from openbook.errors import InputError, nearest
from openbook.randomness import Keyed, keyed_words, permutations, words
from openbook.schedule import Schedule, ScheduleField
from openbook.task.text import THINK, Kind

Positions = NDArray[np.int64]


SPREADS = {"all": 0.0, "one": 1.0, "coin": 0.5}  # share of the examples whose closed pieces are all of one section


def _spread(value: Any) -> Any:
    """A name stays a name; everything else is a schedule, or an error that tells both."""
    if isinstance(value, str) and value in SPREADS:
        return value
    try:
        return Schedule.parse(value)
    except InputError as error:
        raise ValueError(f"spread is all, one, coin, or a schedule of the share of 'one': {error}") from None


SpreadField = Annotated[str | Schedule, BeforeValidator(_spread), PlainSerializer(str, return_type=str)]


class Curriculum(BaseModel):
    """What is open when. All of it can be set in a config; presets fill it in."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    candidates: Literal["all", "needed"] = Field(
        "needed", description="which pieces may be shown: all, or those the example needs and a share of the others"
    )
    others: float = Field(0.0, ge=0, le=1, description="share of the pieces not needed that are shown as well")
    drop: ScheduleField = Field(Schedule(((0.0, 0.0),)), description="share of the shown pieces that is closed")
    spread: SpreadField = Field(
        "all",
        description="drop from all sections, from one at random, or toss a fair coin between the two; a schedule is "
        "the chance of 'one'",
    )
    lean: float = Field(
        1.0,
        ge=1e-6,
        le=1e6,
        description="where pieces of one section close: how many times as often it is the first section as the last, "
        "in even ratios between",
    )
    rounding: Literal["floor", "chance"] = Field(
        "floor",
        description="of a share that is no whole number of pieces: down, as in the paper, or down or up by chance, so "
        "that it is right on average",
    )
    order: Literal["shuffled", "given"] = Field("shuffled", description="order of the open pieces in a section")
    wrong: bool = Field(False, description="show a book that misleads")
    silence: ScheduleField = Field(
        Schedule(((0.0, 1.0),)), description="share of the words of a chain of thought replaced by thinking tokens"
    )

    def alone(self, progress: ArrayLike) -> NDArray[np.float64]:
        """Chance that an example's closed pieces are all of one section."""
        if isinstance(self.spread, Schedule):
            return self.spread.at(progress)
        return np.full(np.shape(progress), SPREADS[self.spread])


PRESETS: dict[str, dict[str, Any]] = {
    "no-context": {"candidates": "needed", "drop": "1"},
    "fixed": {"candidates": "needed", "drop": "0.2", "spread": "coin"},
    "anneal": {"candidates": "needed", "others": 0.25, "drop": "0@0,1@0.6", "spread": "coin"},
    "no-dropout": {"candidates": "needed", "drop": "0"},
    "wrong-context": {"candidates": "needed", "others": 0.25, "drop": "0@0,1@0.6", "spread": "coin", "wrong": True},
    "patient": {
        "candidates": "needed",
        "others": 0.25,
        "drop": "0@0,0.25@0.03,0.25@0.2,1@0.4,1@0.58,0.3@0.6,1@0.78",
        "spread": "1@0,1@0.58,0.25@0.6",
        "lean": 6.0,
    },
}
PARAMETERS = {"fixed"}  # presets that take a rate: fixed:0.2


def curriculum_named(name: str, **changes: Any) -> Curriculum:
    """A preset by name (`anneal`, `fixed:0.2`, ...) with changes, for instance `order="given"`."""
    return Curriculum(**{**preset(name), **changes})


def preset(name: str) -> dict[str, Any]:
    """The settings that a name stands for."""
    base, _, parameter = name.partition(":")
    if base not in PRESETS:
        raise InputError(f"there is no curriculum '{base}' ({', '.join(PRESETS)}){nearest(base, PRESETS)}")
    if parameter and base not in PARAMETERS:
        raise InputError(f"curriculum '{base}' takes no parameter, but '{name}' gives one")
    return {**PRESETS[base], "drop": parameter} if parameter else PRESETS[base]


@dataclass(frozen=True)
class Opened:
    """What a curriculum decided for a batch: open pieces in order, and how many words of thought are silent."""

    slots: NDArray[np.int64]  # [B, S, P]: numbers of the open pieces of a section, in order; NONE is no piece
    quiet: NDArray[np.int64]  # [B]

    def numbers(self, row: int) -> list[list[int]]:
        """The open pieces of one example, section by section."""
        return [[k for k in section if k != NONE] for section in self.slots[row].tolist()]


# A curriculum of one's own: (example, progress, generator) -> the open pieces of each section, in order.
Chooser = Callable[[Example, float, np.random.Generator], Sequence[Sequence[int]]]

# Words of a position before those of its pieces: the coin, the section, two for rounding, and four for a wrong book.
HEADER = 8


@dataclass(frozen=True)
class Plan:
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
        indices = self.indices(positions)
        if not isinstance(self.curriculum, Curriculum):
            return self._chosen(self.curriculum, positions, indices)
        keyed = keyed_words(self.seed, "curriculum")
        if self.curriculum.wrong:
            shelf = self.source.wrong(indices, keyed.block(positions, HEADER)[:, 4:])
        else:
            shelf = self.source.shelf(indices)
        drawn = _words(keyed, positions, shelf)
        return shelf, choose(self.curriculum, shelf, self.progress(positions), drawn)

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
        return shelf, Opened(slots, _thought_counts(shelf))


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


def _thought_counts(shelf: Shelf) -> NDArray[np.int64]:
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
    quiet = np.floor(curriculum.silence.at(progress) * _thought_counts(shelf) + 1e-9).astype(np.int64)
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
