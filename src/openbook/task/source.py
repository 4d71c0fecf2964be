"""Examples of the task: one codebook and many inputs, or a fresh codebook for every example.

The book of an example holds every rule of every level, each marked as needed or not. A shelf is built with arrays
throughout, many examples at once; `example` writes out the same thing one at a time, and tests hold them equal.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from openbook.base.errors import InputError
from openbook.base.randomness import permutations, words
from openbook.book.example import Example, Piece, Section
from openbook.book.shelf import CODE, NONE, Bank, Fragments, Shelf
from openbook.book.source import Source, Tokenize, Vocabulary
from openbook.book.text import Kind
from openbook.task.alphabet import alphabets
from openbook.task.formats import format_named
from openbook.task.inputs import check_lengths, random_inputs, subset_inputs
from openbook.task.phrasebook import Codebook, Table, sample_tables
from openbook.task.text import PAD, Chain, Slot
from openbook.task.translate import Translation, translate_batch


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
        self.format = format_named(self.text, self.depth, self.chars)
        if self.chain not in self.format.chains:
            raise InputError(f"the {self.text} format has no explicit chain of thought: use text compact or released")
        if self.only is not None and self.codebook is None:
            raise InputError("strings are restricted to rules of one codebook, but every example has its own")
        self.task = {"text": self.text, "depth": self.depth, "chars": self.chars}
        self.family, self.writable = self.format.family, self.format.writable
        self.has_thoughts = self.depth > 1
        self.one_book = self.codebook is not None
        self.fingerprint = self._fingerprint()
        self._letters = alphabets(self.depth, self.chars)
        self._tables = _FragmentTables(self)

    def _fingerprint(self) -> str:
        settings: list[object] = [self.depth, self.chars, self.count, self.lengths, self.seed]
        settings += [self.text, self.chain, self.start]
        tables = b"fresh" if self.codebook is None else self.codebook.tables.tobytes()
        settings += [] if self.only is None else [self.only]
        return hashlib.sha256(json.dumps(settings).encode() + tables).hexdigest()

    @property
    def unit(self) -> int:
        """Characters in a word of a string."""
        return self.format.unit

    def __len__(self) -> int:
        return self.count

    def where(self, index: int) -> str:
        return f"example {index + self.start}"

    def section_names(self, indices: NDArray[np.int64]) -> list[list[str]]:
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

    def translations(self, indices: NDArray[np.int64]) -> tuple[Translation, Table]:
        """The strings of these examples and the tables they were translated with ([depth, n²] or one for each)."""
        strings = np.empty((len(indices), self.lengths[1]), np.uint8)
        sizes = np.empty(len(indices), np.int64)
        tables = None if self.codebook else np.empty((len(indices), self.depth, self.chars**2), np.uint16)
        for rows, first, count in _runs(indices + self.start):
            strings[rows], sizes[rows] = self._inputs(first, count)
            if tables is not None:
                tables[rows] = sample_tables(self.depth, self.chars, self.seed, first, count)
        if self.codebook is not None:
            return translate_batch(self.codebook, strings, sizes), self.codebook.tables
        assert tables is not None
        return translate_batch(tables, strings, sizes, self.chars), tables

    def _inputs(self, first: int, count: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        if self.only is None:
            return random_inputs(self.chars, count, self.lengths, self.seed, first)
        assert self.codebook is not None
        return subset_inputs(self.codebook, *self.only, count, self.lengths, self.seed, first)

    def example(self, index: int) -> Example:
        translation, tables = self.translations(np.array([index]))
        size = int(translation.lengths[0])
        strings = [
            [self._letters[i][c] for c in translation.strings[0, i, :size].tolist()] for i in range(self.depth + 1)
        ]
        rules = Codebook(self.chars, tables.reshape(self.depth, -1)).rules()
        used = translation.used()[0]
        names = self.format.section_names()
        sections = tuple(
            Section(
                names[i],
                tuple(Piece(self.format.rule(rule), bool(used[i, x])) for x, rule in enumerate(rules[i])),
            )
            for i in range(self.depth)
        )
        number = self._task_number(index)
        return Example(
            prompt=self.format.prompt(number, strings[0]),
            completion=tuple(self.format.completion(strings, self.chain)),
            sections=sections,
            preamble=self.format.preamble(number),
            layout=self.format.layout,
        )

    def shelf(self, indices: NDArray[np.int64]) -> Shelf:
        translation, tables = self.translations(indices)
        left = np.broadcast_to(np.arange(self.chars**2), (len(indices), self.depth, self.chars**2))
        return self._tables.shelf(translation, left, np.broadcast_to(tables, left.shape), self._numbers(indices))

    def wrong(self, indices: NDArray[np.int64], words_in: NDArray[np.uint64]) -> Shelf:
        """The left sides in a random circle, each with the right side of the next one: a bijection with no right rule.

        Drawn anew for every example and level.
        """
        translation, tables = self.translations(indices)
        size = self.chars**2
        drawn = [words(int(w), "wrong rules", 0, 1, self.depth * size) for w in words_in[:, 0]]
        left = permutations(np.stack(drawn).reshape(-1, self.depth, size))
        right = np.take_along_axis(np.broadcast_to(tables, left.shape), np.roll(left, -1, axis=-1), axis=-1)
        return self._tables.shelf(translation, left, right, self._numbers(indices))

    def with_images(self, indices: NDArray[np.int64], images: NDArray[np.integer]) -> Shelf:
        """The same examples with other right sides in their books, [B, depth, n²]; their strings stay as they are."""
        translation, _ = self.translations(indices)
        left = np.broadcast_to(np.arange(self.chars**2), images.shape)
        return self._tables.shelf(translation, left, images, self._numbers(indices))

    def _task_number(self, index: int) -> int:
        return 0 if self.codebook is not None else index + self.start + 1

    def _numbers(self, indices: NDArray[np.int64]) -> list[int]:
        return [self._task_number(index) for index in indices.tolist()]


def _runs(numbers: NDArray[np.int64]) -> list[tuple[slice, int, int]]:
    """Runs of consecutive numbers: (rows, first number, how many). Counter-based draws are made run by run."""
    if len(numbers) == 0:
        return []
    breaks = np.flatnonzero(np.diff(numbers) != 1) + 1
    starts = np.concatenate([[0], breaks])
    ends = np.concatenate([breaks, [len(numbers)]])
    return [(slice(a, b), int(numbers[a]), b - a) for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]


class _FragmentTables:
    """Numbers of all fragments a format can write, looked up by level, character and rule."""

    def __init__(self, source: Translations) -> None:
        self.bank = bank = source.bank
        self.depth, self.n, self.chain, self.format = source.depth, source.chars, source.chain, source.format
        fmt, layout, letters = source.format, source.format.layout, alphabets(source.depth, source.chars)
        self.symbols = {unit: self._words(letters, unit) for unit in {s.unit for s in fmt.completion_template()}}
        self.headings = bank.numbers([layout.heading.replace("{name}", name) for name in fmt.section_names()])
        self._letters = letters
        self._rules = np.full((self.depth, self.n**2, self.n**2), NONE, np.int32)  # filled as rules are met
        self.think, self.pad = bank.number(fmt.think), bank.number(f" {PAD}")

    def _words(self, letters: tuple[str, ...], unit: int) -> Fragments:
        """Fragments of the words a string is written with: characters [d+1, n] or bigrams [d+1, n²]."""
        words_of = [["".join(word) for word in itertools.product(level, repeat=unit)] for level in letters]
        return np.stack([self.bank.numbers([f" {word}" for word in level]) for level in words_of])

    def rules(self, left: NDArray[np.intp], right: NDArray[np.integer]) -> Fragments:
        """Fragments of the rules left -> right of each level: [B, depth, n²]."""
        level = np.arange(self.depth)[:, None]
        found = self._rules[level, left, right]
        new = np.argwhere(found == NONE)
        if len(new):
            i = new[:, 1]
            for level_, x, y in np.unique(np.stack([i, left[tuple(new.T)], right[tuple(new.T)]], 1), axis=0).tolist():
                self._rules[level_, x, y] = self._new_rule(level_, x, y)
            found = self._rules[level, left, right]
        return found

    def _new_rule(self, level: int, x: int, y: int) -> int:
        n, source, target = self.n, self._letters[level], self._letters[level + 1]
        rule = f"{source[x // n]} {source[x % n]} -> {target[y // n]} {target[y % n]}"
        return self.bank.number(self.format.layout.piece.replace("{text}", self.format.rule(rule)))

    def shelf(
        self, translation: Translation, left: NDArray[np.intp], right: NDArray[np.integer], numbers: list[int]
    ) -> Shelf:
        batch = len(numbers)
        used = translation.used()
        prompt, completion, kinds = self._text(translation, numbers)
        return Shelf(
            bank=self.bank,
            preamble=np.array([[self.bank.number(self.format.preamble(number))] for number in numbers], np.int32),
            headings=np.broadcast_to(self.headings, (batch, self.depth)),
            pieces=self.rules(left, right),
            needed=np.take_along_axis(used, left, axis=-1),
            after=np.full(batch, NONE, np.int32),
            keep_headings=np.full(batch, self.format.layout.keep_headings),
            prompt=prompt,
            completion=completion,
            kinds=kinds,
        )

    def _text(self, translation: Translation, numbers: list[int]) -> tuple[Fragments, Fragments, NDArray[np.uint8]]:
        """Prompt and completion as fragments: the words of the format's templates, and a symbol for each character."""
        same = len(set(numbers)) == 1
        templates = [self.format.prompt_template(number) for number in (numbers[:1] if same else numbers)]
        prompt = [self._slot(translation, [row[k] for row in templates]) for k in range(len(templates[0]))]
        completion, kinds = [], []
        for slot in self.format.completion_template():
            fragments = self._slot(translation, [slot])
            completion.append(fragments)
            kinds.append(np.full(fragments.shape, CODE[slot.kind]))
        return np.concatenate(prompt, axis=1), np.concatenate(completion, axis=1), np.concatenate(kinds, axis=1)

    def _slot(self, translation: Translation, slots: list[Slot]) -> Fragments:
        """One place of a template for the whole batch; `slots` differ between examples in their words alone."""
        slot, batch = slots[0], len(translation.lengths)
        if slot.level < 0:
            words_of = self.bank.numbers([each.text for each in slots])
            return np.broadcast_to(words_of[:, None], (batch, 1))
        longest = translation.strings.shape[-1] // slot.unit
        if slot.width and longest > slot.width:
            raise InputError(f"strings of {longest} characters do not fit into {slot.width} thoughts")
        width = slot.width or longest
        inside = np.arange(width) < translation.lengths[:, None] // slot.unit
        if slot.kind == Kind.THOUGHT and self.chain == "silent":
            return np.where(inside | (slot.width > 0), self.think, NONE).astype(np.int32)
        string = np.minimum(translation.strings[:, slot.level], self.n - 1).astype(np.int64)  # padding is any character
        words_at = string if slot.unit == 1 else string[:, 0::2] * self.n + string[:, 1::2]
        symbols = np.pad(self.symbols[slot.unit][slot.level][words_at], ((0, 0), (0, width - longest)))
        return np.where(inside, symbols, self.pad if slot.width else NONE).astype(np.int32)
