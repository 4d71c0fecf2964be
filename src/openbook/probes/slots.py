"""The tokens of a translation at which a probe looks: the thinking tokens, and the one in front of each answer token.

A thinking token stands for a character (or a bigram) of s_2 .. s_d. Of the answer the probe takes the token in front of
each: the output there is what predicts the answer, while the output at the last answer token predicts nothing that is
asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from openbook.base.arrays import Ints, Mask
from openbook.base.errors import InputError
from openbook.book.shelf import CODE
from openbook.book.text import Kind
from openbook.task.source import Translations
from openbook.training.batches import Item


@dataclass(frozen=True)
class Slots:
    """Q places of every row: which string each belongs to (2 .. d+1) and which of its places it is (from 0)."""

    places_bq: Ints
    string_q: Ints
    place_q: Ints

    def to_json(self) -> list[dict[str, int]]:
        """String and place (both from 1) of each, as the JSON of a map has them."""
        pairs = zip(self.string_q.tolist(), self.place_q.tolist(), strict=True)
        return [{"string": string, "place": place + 1} for string, place in pairs]

    def keep(self, wanted_q: Mask) -> Slots:
        """Only some of the places."""
        return Slots(self.places_bq[:, wanted_q], self.string_q[wanted_q], self.place_q[wanted_q])


def slots_of(source: Translations, rows: Sequence[Item]) -> Slots:
    """The slots of examples of one length."""
    places = [_places(source, item) for item in rows]
    if len(set(map(len, places))) > 1:
        raise InputError(
            "the examples have different numbers of thinking and answer tokens: probe strings of one length"
        )
    answers = int((rows[0].kinds == CODE[Kind.ANSWER]).sum())
    width = (len(places[0]) - answers) // max(1, source.depth - 1)
    sizes = [width] * (source.depth - 1) + [answers]
    string_q = np.repeat(np.arange(2, source.depth + 2), sizes)
    place_q = np.concatenate([np.arange(size) for size in sizes])
    return Slots(np.stack(places), string_q, place_q)


def _places(source: Translations, item: Item) -> Ints:
    thoughts = np.flatnonzero(item.kinds == CODE[Kind.THOUGHT])
    answers = np.flatnonzero(item.kinds == CODE[Kind.ANSWER])
    if source.format.complete:
        thoughts = thoughts[:-1]  # the output at the last one is the first place of the answer already
    if len(thoughts) % max(1, source.depth - 1):
        raise InputError(f"{len(thoughts)} thinking tokens do not divide evenly into {source.depth - 1} strings")
    return np.concatenate([thoughts, answers - 1])
