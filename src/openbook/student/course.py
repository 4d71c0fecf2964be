"""The reading course: its stages, and the batches of a stage. What is learned from them, and how, is in `reading`.

A stage (levels, share of unused rules, lengths) ends when it is mastered, so the settings are the same for all sizes,
except for what more than three levels need:

The wrap-around is one bigram of a string, and from the second level on there are several first bigrams it could begin
with. A reader can tell them apart by level or, for the few lengths it has seen, by distance; the latter is a trap that
one of four courses on five levels did not get out of. So where errors of many levels add up, the last bigram counts for
more (`ends`), two levels are learned at all lengths, and a stage is not passed before it is right.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from openbook.base.randomness import keyed_words
from openbook.book.shelf import Bank
from openbook.curriculum import Curriculum, SamplingPlan, Schedule
from openbook.student.vocabulary import student_config
from openbook.task.source import Translations
from openbook.training.batches import PositionDataset
from openbook.training.config import ReadingConfig
from openbook.training.encode import Encoder
from openbook.training.models import make_tokenizer

EMPTY = 0.1  # of the examples with pages missing: those with whole sections, or all of the book, missing
MANY = 2**40  # codebooks to draw from; a stage sees each of them at most once, the next one may see some again


@dataclass(frozen=True)
class Stage:
    """What the examples of a part of the course are like."""

    levels: int
    others: float  # share of the unused rules that is shown
    lengths: tuple[int, int]  # of the strings
    missing: bool = False  # whether some examples lack pages
    ends: float = 0.0  # weight of a string's last bigram in the loss, beside the mean of all


def stages(depth: int, lengths: tuple[int, int], config: ReadingConfig) -> list[Stage]:
    """The stages for a depth: one level without and with unused rules, then 2, 3, all levels, then full lengths."""
    short = (8, max(16, min(20, lengths[1])))
    grown = sorted({k for k in (2, 3) if k < depth} | ({depth} if depth > 1 else set()))
    ends = config.ends if config.ends is not None else 0.5 if depth > 3 else 0.0
    every = (short[0], max(short[1], lengths[1]))
    return [
        Stage(1, 0.0, short, ends=ends),
        *(Stage(k, config.others, every if k == 2 and ends else short, missing=True, ends=ends) for k in (1, *grown)),
        Stage(depth, config.others, lengths, missing=True, ends=ends),
    ]


@dataclass(frozen=True)
class ReadingBatch:
    """Tokens, the places of the slots of each level, and the characters that they must know."""

    ids: Tensor  # [B, T]
    slots: Tensor  # [B, k, L] places in the sequence
    wanted: Tensor  # [B, k, L, unit] characters of the word of s_{i+1} that belongs there
    shifted: Tensor  # [B, k, L, 2] characters of the bigram that is looked up for it
    complete: Tensor  # [B]: no page is missing
    output: Tensor  # [B]: the first word of the alphabet that the last level writes


class Course:
    """Batches of the reading course for MLT(depth, chars): step -> batch, a pure function of the seed."""

    def __init__(self, depth: int, chars: int, seed: int, most_missing: float = 1.0, text: str = "composite") -> None:
        self.depth, self.chars, self.seed, self.most_missing, self.text = depth, chars, seed, most_missing, text
        self.tokenizer = make_tokenizer(Translations(depth, chars, 1, text=text))
        self._source = functools.cache(self._make_source)

    def _make_source(self, levels: int, length: int) -> tuple[Translations, Encoder]:
        """Translations of strings of one length, each with a codebook of its own, and their encoder."""
        source = Translations(levels, self.chars, MANY, None, (length, length), self.seed, self.text, bank=Bank())
        return source, Encoder(self.tokenizer, source.bank, chat=False)

    def batch(self, stage: Stage, step: int, size: int, missing: float) -> ReadingBatch:
        """The batch of a step: strings of one length, each with its own codebook and its own first level."""
        drawn = keyed_words(self.seed, "reading").words(step, 2 + size)
        shortest, longest = stage.lengths
        length = shortest + 2 * int(drawn[0] % np.uint64((longest - shortest) // 2 + 1))
        whole = size - int(missing * size) if stage.missing else size
        numbers = step * size + np.arange(size, dtype=np.int64)
        numbers[whole:] = (numbers[whole:] * 0x9E3779B97F) % MANY  # spread; by an odd number, so none comes twice
        rows = self._rows(stage, length, numbers[:whole], 0.0)
        if whole < size:
            rows += self._rows(stage, length, numbers[whole:], self.most_missing)
        first_level = (drawn[2:] % np.uint64(self.depth - stage.levels + 1)).astype(np.int64)
        return self._packed(stage.levels, length, numbers, rows, first_level, whole)

    def _rows(self, stage: Stage, length: int, numbers: np.ndarray, most: float) -> list[np.ndarray]:
        """Token rows: <BOOK>, the shown rules, the given string. At most a share of `most` of the pages is missing.

        The missing share is uniform between none and `most`, but sometimes a whole section or the whole book is
        missing: the drop rate rises with progress, and the positions are spread evenly over it.
        """
        source, encoder = self._source(stage.levels, length)
        rates = ((0.0, 0.0), (1 - EMPTY, most), (1 - EMPTY, 1.0), (1.0, 1.0)) if most else ((0.0, 0.0),)
        curriculum = Curriculum(candidates="needed", others=stage.others, drop=Schedule(rates), spread="coin")
        plan = SamplingPlan(source, curriculum, seed=self.seed)
        return [item.ids for item in PositionDataset(plan, encoder).__getitems__(numbers.tolist())]

    def _packed(
        self, levels: int, length: int, numbers: np.ndarray, rows: list[np.ndarray], first: np.ndarray, whole: int
    ) -> ReadingBatch:
        """A batch of rows that start at the levels `first`, with slots behind the given strings."""
        config = student_config(self.depth, self.chars, text=self.text)
        size, unit, pad, think = config.alphabet, config.unit, config.first_special, config.special("<THINK>")
        shape = (len(rows), levels, length // unit, unit)
        slots = levels * shape[2]
        heads = [row[: len(row) - slots - 1] for row in rows]  # without thoughts and answer
        longest = max(map(len, heads)) + slots
        ids = np.full((len(rows), longest), pad, np.int64)
        starts = np.array([len(head) for head in heads])
        for b, head in enumerate(heads):
            is_rule = (head >= config.first_rule) & (not config.writes)
            words = (head + first[b] * size) % pad  # those of the output have the first numbers
            ids[b, : len(head)] = np.where(head < pad, words, head + first[b] * is_rule * size * size)
            ids[b, len(head) : len(head) + slots] = think
        translation, _ = self._source(levels, length)[0].translations(numbers)
        strings = translation.strings[:, :, :length].astype(np.int64)
        shifted = np.roll(strings[:, :-1], -1, axis=-1).reshape(len(rows), levels, length // 2, 2)
        places = starts[:, None] + np.arange(slots)
        return ReadingBatch(
            ids=torch.from_numpy(ids),
            slots=torch.from_numpy(places.reshape(shape[:3])),
            wanted=torch.from_numpy(strings[:, 1:].reshape(shape)),
            shifted=torch.from_numpy(shifted.repeat(2 // unit, axis=2)),
            complete=torch.arange(len(rows)) < whole,
            output=torch.from_numpy((first + levels + 1) % (self.depth + 1) * size),
        )
