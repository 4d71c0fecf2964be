"""Examples of the task: one codebook and many inputs, or a fresh codebook for every example.

The book of an example holds every rule of every level, each marked as needed or not. A shelf is built with arrays
throughout, many examples at once; `example` writes out the same thing one at a time, and tests hold them equal.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from openbook.base.errors import InputError
from openbook.base.randomness import permutations, words
from openbook.book.shelf import CODE, NONE, Bank, Fragments, Shelf
from openbook.book.source import Indices, Source, Tokenize, Vocabulary
from openbook.book.text import Example, Kind
from openbook.task.alphabet import alphabets
from openbook.task.formats import FORMATS, PAD, Chain, Slot
from openbook.task.inputs import check_lengths, random_inputs, subset_inputs
from openbook.task.phrasebook import Codebook, Table, rule_text, sample_tables
from openbook.task.translate import Translation, translate_batch

Sides = NDArray[np.integer]  # bigrams on one side of the rules in some books: [B, depth, n²]


@dataclass(eq=False)
class Translations(Source):
    """`count` translations of MLT(depth, chars), numbered; number i is the same however it is asked for."""

    depth: int
    chars: int
    count: int
    codebook: Codebook | None = None  # None: a fresh one for every example
    lengths: tuple[int, int] = (20, 40)
    seed: int = 0
    text: str = "released"
    chain: Chain = "silent"
    start: int = 0  # the first example's number, so that an exam can use inputs that training does not
    only: tuple[int, tuple[int, ...]] | None = None  # a level from 0, and the rules that strings may use there
    bank: Bank = field(default_factory=Bank, repr=False)

    uniform = True
    can_mislead = True

    def __post_init__(self) -> None:
        check_lengths(*self.lengths)
        self.format = FORMATS[self.text](self.depth, self.chars)
        if self.chain not in self.format.chains:
            raise InputError(f"the {self.text} format has no explicit chain of thought: use text compact or released")
        if self.only is not None and self.codebook is None:
            raise InputError("strings are restricted to rules of one codebook, but every example has its own")
        self.task = {"text": self.text, "depth": self.depth, "chars": self.chars}
        self.family, self.writable = self.format.family, self.format.writable
        self.unit = self.format.unit  # characters in a word of a string
        self.has_thoughts = self.depth > 1
        self.one_book = self.codebook is not None
        self.fingerprint = self._fingerprint()
        self._letters = alphabets(self.depth, self.chars)
        # The numbers of all fragments that the format can write, by level and word; of rules when they are first met.
        numbers, layout = self.bank.numbers, self.format.layout
        self._words = np.stack([numbers([f" {word}" for word in level]) for level in self.format.words()])
        self._headings = numbers([layout.set_heading(name) for name in self.format.section_names()])
        self._think, self._pad = numbers([self.format.think, f" {PAD}"])
        self._known_rules = np.full((self.depth, self.chars**2, self.chars**2), NONE, np.int32)

    def _fingerprint(self) -> str:
        settings = [self.depth, self.chars, self.count, self.lengths, self.seed, self.text, self.chain, self.start]
        settings += [self.only] if self.only else []
        tables = b"fresh" if self.codebook is None else self.codebook.tables.tobytes()
        return hashlib.sha256(json.dumps(settings).encode() + tables).hexdigest()

    def __len__(self) -> int:
        return self.count

    def where(self, index: int) -> str:
        return f"example {index + self.start}"

    def section_names(self, indices: Indices) -> list[list[str]]:
        return [[f"level {level + 1}" for level in range(self.depth)]] * len(indices)

    def vocabulary(self) -> Vocabulary | None:
        return self.format.vocabulary()

    def score(self, guess: NDArray[np.int64], truth: NDArray[np.int64]) -> NDArray[np.bool_]:
        """The characters of a bigram are judged apart, as in the paper; a word of another alphabet is all wrong."""
        if self.unit == 1:
            return super().score(guess, truth)
        same_alphabet = guess // self.chars**2 == truth // self.chars**2
        first, second = (guess // self.chars == truth // self.chars, guess % self.chars == truth % self.chars)
        return np.stack([first, second & same_alphabet], axis=1)

    def chance(self, tokenize: Tokenize) -> float | None:
        """1/n, unless a tokenizer spells characters with several tokens, some of which many characters share."""
        words = [f" {character}" for character in self._letters[-1]]
        spelled = self.unit == 1 and any(len(tokens) > 1 for tokens in tokenize(words))
        return None if spelled else 1 / self.chars

    def overlap(self, exam: Source) -> float:
        """Tasks with few short strings draw some of them twice.

        A fresh codebook makes another example of the same string, and where strings are long none is drawn twice.
        """
        if not isinstance(exam, Translations) or self.codebook is None:
            return 0.0
        if 1000 * self.count * exam.count < self.chars ** self.lengths[0]:
            return 0.0
        known = {string for start in range(0, self.count, 4096) for string in self._strings(start, 4096)}
        questions = exam._strings(0, exam.count)
        return sum(string in known for string in questions) / len(questions)

    def _strings(self, start: int, count: int) -> list[bytes]:
        drawn, _ = self.translations(np.arange(start, min(start + count, self.count)))
        return [s[:size].tobytes() for s, size in zip(drawn.strings[:, 0], drawn.lengths.tolist(), strict=True)]

    def translations(self, indices: Indices) -> tuple[Translation, Table]:
        """The strings of these examples and the tables they were translated with ([depth, n²] or one for each)."""
        strings = np.empty((len(indices), self.lengths[1]), np.uint8)
        sizes = np.empty(len(indices), np.int64)
        shape = (len(indices), self.depth, self.chars**2)
        tables = self.codebook.tables if self.codebook else np.empty(shape, np.uint16)
        for rows, first, count in _runs(indices + self.start):
            strings[rows], sizes[rows] = self._inputs(first, count)
            if self.codebook is None:
                tables[rows] = sample_tables(self.depth, self.chars, self.seed, first, count)
        return translate_batch(self.codebook or tables, strings, sizes, self.chars), tables

    def _inputs(self, first: int, count: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        if self.codebook is None or self.only is None:
            return random_inputs(self.chars, count, self.lengths, self.seed, first)
        return subset_inputs(self.codebook, *self.only, count, self.lengths, self.seed, first)

    def example(self, index: int) -> Example:
        translation, tables = self.translations(np.array([index]))
        codebook = Codebook(self.chars, tables.reshape(self.depth, -1))
        strings = codebook.in_symbols(translation.strings[0, :, : translation.lengths[0]].tolist())
        needed = translation.used()[0].tolist()
        book = [list(zip(rules, flags, strict=True)) for rules, flags in zip(codebook.rules(), needed, strict=True)]
        return self.format.example(self._task_number(index), strings, self.chain, book)

    def shelf(self, indices: Indices) -> Shelf:
        return self._shelf(indices, *self.translations(indices))

    def wrong(self, indices: Indices, words_in: NDArray[np.uint64]) -> Shelf:
        """The left sides in a random circle, each with the right side of the next one: a bijection with no right rule.

        Drawn anew for every example and level.
        """
        translation, tables = self.translations(indices)
        size = self.chars**2
        drawn = [words(int(w), "wrong rules", 0, 1, self.depth * size) for w in words_in[:, 0]]
        left = permutations(np.stack(drawn).reshape(-1, self.depth, size))
        right = np.take_along_axis(np.broadcast_to(tables, left.shape), np.roll(left, -1, axis=-1), axis=-1)
        return self._shelf(indices, translation, right, left)

    def with_images(self, indices: Indices, images: Sides) -> Shelf:
        """The same examples with other right sides in their books, [B, depth, n²]; their strings stay as they are."""
        return self._shelf(indices, self.translations(indices)[0], images)

    def _shelf(self, indices: Indices, translation: Translation, right: Sides, left: Sides | None = None) -> Shelf:
        """The shelf of these translations; the left sides of the rules are in order by default."""
        batch, layout, numbers = len(indices), self.format.layout, self.bank.numbers
        shape = (batch, self.depth, self.chars**2)
        left = np.broadcast_to(np.arange(self.chars**2), shape) if left is None else left
        tasks = [0] if self.codebook else [self._task_number(index) for index in indices.tolist()]
        preambles = numbers([self.format.preamble(task) for task in tasks])
        prompts = [self.format.prompt_template(task) for task in tasks]
        prompt = [self._slot(translation, list(places)) for places in zip(*prompts, strict=True)]
        slots = self.format.completion_template()
        completion = [self._slot(translation, [slot]) for slot in slots]
        kinds = [np.full(part.shape, CODE[slot.kind]) for slot, part in zip(slots, completion, strict=True)]
        return Shelf(
            bank=self.bank,
            preamble=np.broadcast_to(preambles[:, None], (batch, 1)),
            headings=np.broadcast_to(self._headings, (batch, self.depth)),
            pieces=self._rules(left, np.broadcast_to(right, shape)),
            needed=np.take_along_axis(translation.used(), left, axis=-1),
            after=np.full(batch, NONE, np.int32),
            keep_headings=np.full(batch, layout.keep_headings),
            prompt=np.concatenate(prompt, axis=1),
            completion=np.concatenate(completion, axis=1),
            kinds=np.concatenate(kinds, axis=1),
        )

    def _rules(self, left: Sides, right: Sides) -> Fragments:
        """Fragments of the rules left -> right of each level: [B, depth, n²]."""
        level = np.arange(self.depth)[:, None]
        rules = self._known_rules[level, left, right]
        new = np.nonzero(rules == NONE)
        if new[0].size:
            for i, x, y in np.unique(np.stack([new[1], left[new], right[new]], 1), axis=0).tolist():
                rule = self.format.rule(rule_text(self._letters[i], self._letters[i + 1], x, y))
                self._known_rules[i, x, y] = self.bank.number(self.format.layout.set_piece(rule))
            rules = self._known_rules[level, left, right]
        return rules

    def _slot(self, translation: Translation, slots: list[Slot]) -> Fragments:
        """One place of a template for the whole batch; `slots` differ between examples in their text alone."""
        slot, unit, batch = slots[0], self.unit, len(translation.lengths)
        if slot.level < 0:
            return np.broadcast_to(self.bank.numbers([each.text for each in slots])[:, None], (batch, 1))
        longest = translation.strings.shape[-1] // unit
        if slot.width and longest > slot.width:
            raise InputError(f"strings of {longest} characters do not fit into {slot.width} thoughts")
        width = slot.width or longest
        inside = np.arange(width) < translation.lengths[:, None] // unit
        if slot.kind == Kind.THOUGHT and self.chain == "silent":
            return np.where(inside | (slot.width > 0), self._think, NONE).astype(np.int32)
        string = np.minimum(translation.strings[:, slot.level], self.chars - 1).astype(np.int64)  # padding may be any
        numbers = string if unit == 1 else string[:, 0::2] * self.chars + string[:, 1::2]
        words_of = np.pad(self._words[slot.level][numbers], ((0, 0), (0, width - longest)))
        return np.where(inside, words_of, self._pad if slot.width else NONE).astype(np.int32)

    def _task_number(self, index: int) -> int:
        return 0 if self.codebook is not None else index + self.start + 1


def as_translations(source: Source) -> Translations | None:
    """The source as translations of the task; None for other examples."""
    return source if isinstance(source, Translations) else None


def _runs(numbers: NDArray[np.int64]) -> list[tuple[slice, int, int]]:
    """Runs of consecutive numbers: (rows, first number, how many). Counter-based draws are made run by run."""
    breaks = np.flatnonzero(np.diff(numbers) != 1) + 1
    runs = zip([0, *breaks.tolist()], np.split(numbers, breaks), strict=True)
    return [(slice(row, row + len(run)), int(run[0]), len(run)) for row, run in runs if len(run)]
