"""The places of a translation that are looked at: where the model thinks, and where it is about to answer.

A thinking token stands for a character (or a bigram) of s_2 .. s_d. A place of the answer is the token in front of it:
its output is what predicts the answer, while the output at the last answer token predicts nothing that is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from openbook.base.errors import InputError
from openbook.book.shelf import CODE
from openbook.book.text import Kind
from openbook.task.formats import STUDENT_TEXTS
from openbook.task.source import Translations
from openbook.training.batches import Item


@dataclass(frozen=True)
class Slots:
    """Q places of every row: which string each belongs to (2 .. d+1) and which of its places it is (from 0)."""

    places_bq: NDArray[np.int64]
    string_q: NDArray[np.int64]
    place_q: NDArray[np.int64]

    def to_json(self) -> list[dict[str, int]]:
        pairs = zip(self.string_q.tolist(), self.place_q.tolist(), strict=True)
        return [{"string": string, "place": place + 1} for string, place in pairs]

    def keep(self, wanted_q: NDArray[np.bool_]) -> Slots:
        return Slots(self.places_bq[:, wanted_q], self.string_q[wanted_q], self.place_q[wanted_q])


def slots_of(source: Translations, rows: Sequence[Item]) -> Slots:
    """The slots of examples of one length."""
    found = [_row(source, item) for item in rows]
    if len({len(places) for places in found}) > 1:
        raise InputError(
            "the examples have different numbers of thinking and answer tokens: probe strings of one length"
        )
    answers = int((rows[0].kinds == CODE[Kind.ANSWER]).sum())
    width = (len(found[0]) - answers) // max(1, source.depth - 1)
    sizes = [width] * (source.depth - 1) + [answers]
    string_q = np.repeat(np.arange(2, source.depth + 2), sizes)
    place_q = np.concatenate([np.arange(size) for size in sizes])
    return Slots(np.stack(found), string_q, place_q)


def _row(source: Translations, item: Item) -> NDArray[np.int64]:
    thoughts = np.flatnonzero(item.kinds == CODE[Kind.THOUGHT])
    answers = np.flatnonzero(item.kinds == CODE[Kind.ANSWER])
    if source.text in STUDENT_TEXTS:
        thoughts = thoughts[:-1]  # the last one is the first place of the answer already
    if len(thoughts) % max(1, source.depth - 1):
        raise InputError(f"{len(thoughts)} thinking tokens do not divide evenly into {source.depth - 1} strings")
    return np.concatenate([thoughts, answers - 1])


def padded(rows: Sequence[Item], pad: int) -> Tensor:
    """Token rows padded on the right: [B, T]."""
    ids = np.full((len(rows), max(len(item.ids) for item in rows)), pad, np.int64)
    for row, item in enumerate(rows):
        ids[row, : len(item.ids)] = item.ids
    return torch.from_numpy(ids)
