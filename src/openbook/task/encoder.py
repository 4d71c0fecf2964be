"""Records as bytes, many at once: the fast twin of `openbook.task.dataset.record`.

NumPy looks up the words of all strings and the pieces of all books in tables, and a template puts them together:

    template  {"prompt": "Now please ... is:%(0)s.", ..., "privileged_context": %(book)s, ... "answer": "%(7)s"}
    0          B H C A
    book      {"level 1": [{"text": " A B -> K L;", "needed": true}, ...]}

The templates are not written down here. A template is the oracle's own record with marks in place of what varies, and
then fields in place of the marks, one for each length of string; so formats can change without this file knowing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from openbook.task.alphabet import alphabets
from openbook.task.dataset import DatasetSpec, as_record, piece_words
from openbook.task.inputs import random_inputs
from openbook.task.phrasebook import Table, sample_tables
from openbook.task.translate import Translation, translate_batch

Texts = NDArray[np.object_]

CHUNK = 512  # samples at once, fewer where phrasebooks are large: the arrays of a chunk should stay in the cache
CHUNK_RULES = 1 << 18

ANY_TASK = 8_414_709_848_078_965_066  # stands for the number of a task; nothing else in a record looks like it
BOOK = "\ue000book\ue001"  # stand-ins for what varies, which no format writes itself (private-use characters)
SYMBOL = re.compile("( ?)\ue000(\\d+),(\\d+)\ue001")  # of a string, at a place
SYMBOLS = re.compile(f"(?:{SYMBOL.pattern})+")


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


_encoded: Any = np.frompyfunc(str.encode, 1, 1)


class RecordEncoder:
    """Turns sample numbers into lines of JSON."""

    def __init__(self, spec: DatasetSpec) -> None:
        self.spec = spec
        self.chunk = max(1, min(CHUNK, CHUNK_RULES // (spec.depth * spec.chars**2)))
        self._templates: dict[int, tuple[bytes, dict[bytes, NDArray[np.intp]]]] = {}
        letters = np.array([list(alphabet) for alphabet in alphabets(spec.depth, spec.chars)], dtype=object)
        self._symbols = _encoded(np.stack([letters, " " + letters]))  # mostly they follow a blank
        names = [f"{_json(name)}: [" for name in spec.text.section_names()]
        self._headings = _encoded(np.array(["{" + names[0], *("], " + name for name in names[1:])], dtype=object))
        self._left, self._right = map(_encoded, self._halves(letters))
        if spec.codebook:  # the rules that occur are few enough to have a text each
            images = self._right[np.arange(spec.depth)[:, None, None], [[0], [1]], spec.codebook.tables[:, None]]
            self._pieces = self._left[:, :, None] + images[:, None]

    def _halves(self, letters: Texts) -> tuple[Texts, Texts]:
        """Pieces of any codebook, cut in the middle: n² left sides and n² right sides instead of n⁴ rules.

        Left sides [level, whether a comma comes before, bigram], right sides [level, whether needed, bigram].
        """
        rule = self.spec.text.rule("\ue000 \ue000 -> \ue000 \ue000")
        spare, needed = (_json({"text": rule, "needed": needed}).split("\ue000") for needed in (False, True))

        def bigrams(between: str) -> Texts:
            return (letters[:, :, None] + between + letters[:, None]).reshape(len(letters), 1, -1)

        begins = np.array([[spare[0]], [", " + spare[0]]], dtype=object)
        ends = np.array([[spare[4]], [needed[4]]], dtype=object)
        return begins + bigrams(spare[1])[:-1] + spare[2], bigrams(spare[3])[1:] + ends

    def _template(self, length: int) -> tuple[bytes, dict[bytes, NDArray[np.intp]]]:
        """The record of a string length with fields for what varies, and the symbols of each field that is a string.

        Of a symbol: whether a blank is in front, which string, and which place in it; [3, symbols].
        """
        if length not in self._templates:
            spec = self.spec
            strings = [[f"\ue000{i},{j}\ue001" for j in range(length)] for i in range(spec.depth + 1)]
            example = spec.text.example(spec.task_number(0) if spec.codebook else ANY_TASK, strings, spec.chain)
            line = _json({**as_record(spec, example), "privileged_context": BOOK}).replace("%", "%%") + "\n"
            line = line.replace(f'"{BOOK}"', "%(book)b]}").replace(str(ANY_TASK), "%(task)d")
            fields: dict[bytes, NDArray[np.intp]] = {}
            while run := SYMBOLS.search(line):
                name = str(len(fields))
                symbols = [(len(blank), int(i), int(j)) for blank, i, j in SYMBOL.findall(run[0])]
                fields[name.encode()] = np.array(symbols).T
                line = line.replace(run[0], f"%({name})b")
            self._templates[length] = line.encode(), fields
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
        books = self._books(translation, tables, start)
        records = [b""] * count
        for length in np.unique(lengths).tolist():
            rows = np.flatnonzero(lengths == length)
            template, fields = self._template(length)
            strings = [
                self._symbols[blank, level, translation.strings[rows[:, None], level, place]].tolist()
                for blank, level, place in fields.values()
            ]
            for row, *symbols in zip(rows.tolist(), *strings, strict=True):
                values = dict(zip(fields, map(b"".join, symbols), strict=True))
                records[row] = template % {**values, b"book": books[row], b"task": spec.task_number(start + row)}
        return b"".join(records)

    def _books(self, translation: Translation, tables: Table, start: int) -> list[bytes]:
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
        pieces[~shown] = b""
        headings = np.broadcast_to(self._headings[:, None], (count, depth, 1))
        book = np.concatenate([headings, pieces.reshape(count, depth, -1)], axis=2).reshape(count, -1)
        return [b"".join(texts) for texts in book.tolist()]

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
