"""Records as bytes, many at once: the fast twin of `openbook.task.dataset.record`.

Every text that can occur in a record (a symbol, a rule, a heading, the words between them) is kept once in a table. A
batch of records is then an array of table entries, put together by NumPy, and one `join` writes it:

    row      [constant | s_1 ... | constant | heading, piece, piece, ... | constant | answer ... | newline]
    entries  [      17 |  0 3 .. |       21 |     88,   1204,   977, ... |       25 |   40 41 .. |      26]

The constants are not written down here. A template is the oracle's own record with marks in place of what varies, cut
at the marks, one for each length of string; so formats can change without this file knowing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from openbook.book.shelf import NONE, Bank
from openbook.book.shelf import Fragments as Entries
from openbook.task.alphabet import alphabets
from openbook.task.dataset import DatasetSpec, as_record, piece_words
from openbook.task.inputs import random_inputs
from openbook.task.phrasebook import Table, sample_tables
from openbook.task.translate import Translation, translate_batch

CHUNK = 512  # samples at once, fewer where phrasebooks are large: the arrays of a chunk should stay in the cache
CHUNK_RULES = 1 << 18

ANY_TASK = 8_414_709_848_078_965_066  # stands for the number of a task; nothing else in a record looks like it
BOOK = "\ue000book\ue001"  # stand-ins for what varies, which no format writes itself (private-use characters)
SYMBOL = re.compile("( ?)\ue000(\\d+),(\\d+)\ue001")  # of a string, at a place
MARK = re.compile(f'( ?\ue000\\d+,\\d+\ue001|"{BOOK}"|{ANY_TASK})')


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


@dataclass(frozen=True)
class _Template:
    """The record of a string length: its fixed entries, and the columns of those that vary."""

    entries: Entries  # [columns]
    book: int  # how many columns stand before the book
    symbols: NDArray[np.intp]  # [symbols, 4]: column, whether a blank is in front, which string, which place in it
    tasks: list[int]  # columns that hold the number of the task


class RecordEncoder:
    """Turns sample numbers into lines of JSON."""

    def __init__(self, spec: DatasetSpec) -> None:
        self.spec = spec
        self.chunk = max(1, min(CHUNK, CHUNK_RULES // (spec.depth * spec.chars**2)))
        self.texts = Bank()  # of all entries
        self._bytes: NDArray[np.object_] = np.empty(0, dtype=object)
        self._templates: dict[int, _Template] = {}
        letters = np.array([list(alphabet) for alphabet in alphabets(spec.depth, spec.chars)], dtype=object)
        # Symbols mostly follow a blank: a second run of entries has it built in, which halves the entries to join.
        self._symbols = self._numbers(np.stack([letters, " " + letters]))
        names = [f"{_json(name)}: [" for name in spec.text.section_names()]
        self._headings = self._numbers(["{" + names[0], *("], " + name for name in names[1:])])
        self._closing = self.texts.number("]}")
        left, right = self._halves(letters)
        if spec.codebook:  # the rules that occur are few enough to have an entry each
            images = right[np.arange(spec.depth)[:, None, None], [[0], [1]], spec.codebook.tables[:, None]]
            self._pieces = self._numbers(left[:, :, None] + images[:, None])
        else:
            self._left, self._right = self._numbers(left), self._numbers(right)

    def _numbers(self, texts: Any) -> Entries:
        """The entries of an array of texts."""
        array = np.array(texts, dtype=object)
        return self.texts.numbers(array.reshape(-1).tolist()).reshape(array.shape)

    def _halves(self, letters: NDArray[np.object_]) -> tuple[NDArray[np.object_], NDArray[np.object_]]:
        """Pieces of any codebook, cut in the middle: n² left sides and n² right sides instead of n⁴ rules.

        Left sides [level, whether a comma comes before, bigram], right sides [level, whether needed, bigram].
        """
        rule = self.spec.text.rule("\ue000 \ue000 -> \ue000 \ue000")
        spare, needed = (_json({"text": rule, "needed": needed}).split("\ue000") for needed in (False, True))

        def bigrams(between: str) -> NDArray[np.object_]:
            return (letters[:, :, None] + between + letters[:, None]).reshape(len(letters), 1, -1)

        begins = np.array([[spare[0]], [", " + spare[0]]], dtype=object)
        ends = np.array([[spare[4]], [needed[4]]], dtype=object)
        return begins + bigrams(spare[1])[:-1] + spare[2], bigrams(spare[3])[1:] + ends

    def _template(self, length: int) -> _Template:
        if length not in self._templates:
            spec = self.spec
            strings = [[f"\ue000{i},{j}\ue001" for j in range(length)] for i in range(spec.depth + 1)]
            example = spec.text.example(spec.task_number(0) if spec.codebook else ANY_TASK, strings, spec.chain)
            line = _json({**as_record(spec, example), "privileged_context": BOOK}) + "\n"
            parts = [part for part in MARK.split(line) if part]
            symbols = [(column, SYMBOL.fullmatch(part)) for column, part in enumerate(parts)]
            self._templates[length] = _Template(
                self._numbers(["" if MARK.fullmatch(part) else part for part in parts]),
                parts.index(f'"{BOOK}"'),
                np.array([(column, len(mark[1]), int(mark[2]), int(mark[3])) for column, mark in symbols if mark]),
                [column for column, part in enumerate(parts) if part == str(ANY_TASK)],
            )
        return self._templates[length]

    def lines(self, start: int, count: int) -> bytes:
        """The records of samples `start .. start+count-1`, one to a line."""
        spec = self.spec
        inputs, lengths = random_inputs(spec.chars, count, spec.lengths, spec.seed, start)
        if spec.codebook:
            tables = spec.codebook.tables
        else:
            tables = sample_tables(spec.depth, spec.chars, spec.seed, spec.codebook_number(start), count)
        translation = translate_batch(spec.codebook or tables, inputs, lengths, spec.chars)
        rows = self._rows(translation, self._books(translation, tables, start))
        if len(self._bytes) != len(self.texts):
            self._bytes = np.array([text.encode() for text in self.texts.texts], dtype=object)
        entries = self._bytes
        if not spec.codebook:  # the numbers of the tasks follow the texts
            numbers = [str(spec.task_number(start + b)).encode() for b in range(count)]
            entries = np.concatenate([entries, np.array(numbers, dtype=object)])
        return b"".join(entries[rows[rows != NONE]].tolist())

    def _rows(self, translation: Translation, books: Entries) -> Entries:
        """The entries of each record: what stands before its book, the book, and what stands after it."""
        lengths = translation.lengths
        templates = {length: self._template(length) for length in np.unique(lengths).tolist()}  # these add to the texts
        book = max(template.book for template in templates.values())
        after = book + books.shape[1]
        width = after + max(len(template.entries) - template.book - 1 for template in templates.values())
        result = np.full((len(lengths), width), NONE, dtype=np.int32)
        result[:, book:after] = books
        for length, template in templates.items():
            rows = np.flatnonzero(lengths == length)
            block = np.repeat(template.entries[None], len(rows), axis=0)
            column, blank, level, place = template.symbols.T
            block[:, column] = self._symbols[blank, level, translation.strings[rows[:, None], level, place]]
            block[:, template.tasks] = (len(self.texts) + rows)[:, None]
            result[rows, : template.book] = block[:, : template.book]
            result[rows, after : after + block.shape[1] - template.book - 1] = block[:, template.book + 1 :]
        return result

    def _books(self, translation: Translation, tables: Table, start: int) -> Entries:
        """The books: for each level its heading, then the pieces shown, in order."""
        spec = self.spec
        rules, needed, shown = shown_rules_batch(
            translation.used(), piece_words(spec, start, len(translation.lengths)), spec.unused
        )
        count, depth, places = rules.shape
        level = np.arange(depth)[:, None]
        comma = (np.arange(places) > 0).astype(np.intp)
        if spec.codebook:
            pieces = self._pieces[level, comma, needed, rules][..., None]
        else:
            images = np.take_along_axis(tables, rules, axis=-1)
            pieces = np.stack([self._left[level, comma, rules], self._right[level, needed, images]], axis=-1)
        pieces[~shown] = NONE
        headings = np.broadcast_to(self._headings[:, None], (count, depth, 1))
        book = np.concatenate([headings, pieces.reshape(count, depth, -1)], axis=2).reshape(count, -1)
        return np.pad(book, ((0, 0), (0, 1)), constant_values=self._closing)

    def chunks(self, done: int = 0) -> Iterator[tuple[int, bytes]]:
        """(number of records, their lines) for the whole dataset after its first `done` records."""
        for begin in range(done, self.spec.samples, self.chunk):
            count = min(self.chunk, self.spec.samples - begin)
            yield count, self.lines(self.spec.start + begin, count)


def shown_rules_batch(
    used: NDArray[np.bool_], keys: NDArray[np.uint64], unused: float
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.bool_]]:
    """`dataset.shown_rules` for [count, depth, chars²] at once: rules in order, whether needed, and which are there.

    A rule's number and flag ride in the low bits of its random half-word, so one plain sort orders everything.
    """
    size = used.shape[-1]
    number = np.arange(size, dtype=np.uint64)
    last = np.uint64(2**64 - 1)
    spare = size - used.sum(axis=-1)
    extra = (unused * spare + 1e-9).astype(np.int64)
    draw = (keys >> np.uint64(32) << np.uint64(16)) | number
    draw[used] = last
    limit = np.take_along_axis(np.sort(draw, axis=-1), np.maximum(extra - 1, 0)[..., None], axis=-1)
    shown = used | ((draw <= limit) & (extra > 0)[..., None])
    place = (keys << np.uint64(32) >> np.uint64(15)) | (number << np.uint64(1)) | used
    place[~shown] = last
    place.sort(axis=-1)
    totals = (size - spare) + extra
    place = place[..., : totals.max()]
    there = np.arange(place.shape[-1]) < totals[..., None]
    rules = ((place >> np.uint64(1)) & np.uint64(0xFFFF)).astype(np.intp)
    rules[~there] = 0
    return rules, (place & np.uint64(1)).astype(np.intp), there
