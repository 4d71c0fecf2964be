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

from openbook.task.alphabet import alphabets
from openbook.task.dataset import DatasetSpec, compose, piece_words
from openbook.task.inputs import random_inputs
from openbook.task.phrasebook import Codebook, sample_tables
from openbook.task.translate import Translation, translate_batch

CHUNK = 512  # samples at once, fewer where phrasebooks are large: the arrays of a chunk should stay in the cache
CHUNK_RULES = 1 << 18

Entries = NDArray[np.int32]
NOTHING = -1  # an entry that is left out
COMMAS = ("", ", ")  # before the first piece of a section, and before the others
_ANY_TASK = 8_414_709_848_078_965_066  # stands for the number of a task; nothing else in a record looks like it
_MARK = re.compile("\ue000(.*?)\ue001")


def _mark(name: str) -> str:
    """A stand-in that no format writes itself (private-use characters)."""
    return f"\ue000{name}\ue001"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


class _Table:
    """Texts as bytes, each with a number."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}
        self._array: NDArray[np.object_] = np.empty(0, dtype=object)

    def number(self, text: str) -> int:
        return self._numbers.setdefault(text.encode(), len(self._numbers))

    def numbers(self, texts: list[str]) -> Entries:
        return np.array([self.number(text) for text in texts], dtype=np.int32)

    def __len__(self) -> int:
        return len(self._numbers)

    def array(self) -> NDArray[np.object_]:
        if len(self._array) != len(self._numbers):
            self._array = np.array(list(self._numbers), dtype=object)
        return self._array


@dataclass(frozen=True)
class _Template:
    """One side (before or after the book) of the records of one length: fixed entries, and which columns vary."""

    entries: Entries  # [columns]
    columns: NDArray[np.intp]  # which columns hold symbols ...
    levels: NDArray[np.intp]  # ... of which string ...
    places: NDArray[np.intp]  # ... at which place ...
    bases: Entries  # ... and where the entries of that alphabet begin
    task: NDArray[np.intp]  # columns that hold the number of the task


class RecordEncoder:
    """Turns sample numbers into lines of JSON."""

    def __init__(self, spec: DatasetSpec) -> None:
        self.spec = spec
        self._table = _Table()
        self._templates: dict[int, tuple[_Template, _Template]] = {}
        letters = alphabets(spec.depth, spec.chars)
        # Symbols mostly follow a blank: a second run of entries has it built in, which halves the entries to join.
        self._bare = [int(self._table.numbers(list(alphabet))[0]) for alphabet in letters]
        self._spaced = [int(self._table.numbers([f" {x}" for x in alphabet])[0]) for alphabet in letters]
        opening = [f"{_json(name)}: [" for name in spec.text.section_names()]
        self._headings = self._table.numbers([("], " if i else "{") + text for i, text in enumerate(opening)])
        self._closing = self._table.number("]}")
        if spec.codebook:
            self._pieces = self._whole_pieces(spec.codebook)
        else:
            self._left, self._right = self._half_pieces(letters)
        self.chunk = max(1, min(CHUNK, CHUNK_RULES // (spec.depth * spec.chars**2)))

    def _whole_pieces(self, codebook: Codebook) -> Entries:
        """The pieces of one codebook: [level, whether a comma comes before, whether needed, rule]."""
        texts = [[self.spec.text.rule(rule) for rule in rules] for rules in codebook.rules()]
        pieces = [[[_json({"text": t, "needed": n}) for t in level] for n in (False, True)] for level in texts]
        return np.array(
            [[[self._table.numbers([comma + p for p in ps]) for ps in level] for comma in COMMAS] for level in pieces]
        )

    def _half_pieces(self, letters: tuple[str, ...]) -> tuple[Entries, Entries]:
        """Pieces of any codebook, cut in the middle: n² left sides and n² right sides instead of n⁴ rules.

        Left sides [level, whether a comma comes before, bigram], right sides [level, whether needed, bigram].
        """
        rule = self.spec.text.rule(f"{_mark('left')} -> {_mark('right')}")
        (begin, arrow, spare_end), (_, _, needed_end) = (
            _MARK.split(_json({"text": rule, "needed": needed}))[::2] for needed in (False, True)
        )
        pairs = [[f"{a} {b}" for a in alphabet for b in alphabet] for alphabet in letters]
        number = self._table.numbers
        left = [[number([comma + begin + p + arrow for p in level]) for comma in COMMAS] for level in pairs[:-1]]
        right = [[number([p + end for p in level]) for end in (spare_end, needed_end)] for level in pairs[1:]]
        return np.array(left), np.array(right)

    def _template(self, length: int) -> tuple[_Template, _Template]:
        known = self._templates.get(length)
        if known is None:
            spec = self.spec
            strings = [[_mark(f"{i},{j}") for j in range(length)] for i in range(spec.depth + 1)]
            task = spec.task_number(0) if spec.codebook else _ANY_TASK
            line = _json(compose(spec, task, strings, _mark("book"))).replace(str(_ANY_TASK), _mark("task")) + "\n"
            before, after = line.split(f'"{_mark("book")}"')
            known = self._templates[length] = self._compile(before), self._compile(after)
        return known

    def _compile(self, text: str) -> _Template:
        entries: list[int] = []
        symbols: list[tuple[int, int, int, int]] = []
        task: list[int] = []
        constant, *rest = _MARK.split(text)
        for mark, following in zip(rest[0::2], rest[1::2], strict=True):
            spaced = mark != "task" and constant.endswith(" ")
            constant = constant[:-1] if spaced else constant
            if constant:
                entries.append(self._table.number(constant))
            if mark == "task":
                task.append(len(entries))
            else:
                level, place = map(int, mark.split(","))
                symbols.append((len(entries), level, place, (self._spaced if spaced else self._bare)[level]))
            entries.append(0)
            constant = following
        if constant:
            entries.append(self._table.number(constant))
        columns, levels, places, bases = np.array(symbols, dtype=np.intp).reshape(-1, 4).T
        return _Template(
            np.array(entries, np.int32), columns, levels, places, bases.astype(np.int32), np.array(task, np.intp)
        )

    def lines(self, start: int, count: int) -> bytes:
        """The records of samples `start .. start+count-1`, one to a line."""
        spec = self.spec
        inputs, lengths = random_inputs(spec.chars, count, spec.lengths, spec.seed, start)
        if spec.codebook:
            tables = None
            translation = translate_batch(spec.codebook, inputs, lengths)
        else:
            number = spec.codebook_number(start)
            tables = sample_tables(spec.depth, spec.chars, spec.seed, number, count)
            translation = translate_batch(tables, inputs, lengths, spec.chars)
        before, after = self._sides(translation)
        row = np.concatenate([before, self._books(translation, tables, start), after], axis=1)
        texts = self._table.array()
        if not spec.codebook:  # the numbers of the tasks follow the table
            numbers = np.array([str(spec.task_number(start + b)).encode() for b in range(count)], dtype=object)
            texts = np.concatenate([texts, numbers])
        return b"".join(texts[row[row != NOTHING]].tolist())

    def _sides(self, translation: Translation) -> tuple[Entries, Entries]:
        """What stands before and after the book: [count, columns] each."""
        groups = [(np.flatnonzero(translation.lengths == size), size) for size in np.unique(translation.lengths)]
        templates = [self._template(int(size)) for _, size in groups]  # all of them first: they add to the table
        first_task = len(self._table)
        sides = []
        for side in (0, 1):
            width = max(len(pair[side].entries) for pair in templates)
            result = np.full((len(translation.lengths), width), NOTHING, dtype=np.int32)
            for (rows, _), pair in zip(groups, templates, strict=True):
                template = pair[side]
                block = np.repeat(template.entries[None], len(rows), axis=0)
                symbols = translation.strings[rows[:, None], template.levels, template.places]
                block[:, template.columns] = symbols + template.bases
                block[:, template.task] = (first_task + rows)[:, None]
                result[rows, : block.shape[1]] = block
            sides.append(result)
        return sides[0], sides[1]

    def _books(self, translation: Translation, tables: Any, start: int) -> Entries:
        """The books: for each level its heading, then the pieces shown, in order."""
        spec = self.spec
        rules, needed, shown = shown_rules_batch(
            translation.used(), piece_words(spec, start, len(translation.lengths)), spec.unused
        )
        count, depth, places = rules.shape
        level = np.arange(depth)[:, None]
        comma = (np.arange(places) > 0).astype(np.intp)
        if tables is None:
            pieces = self._pieces[level, comma, needed, rules][..., None]
        else:
            images = np.take_along_axis(tables, rules, axis=-1)
            pieces = np.stack([self._left[level, comma, rules], self._right[level, needed, images]], axis=-1)
        pieces[~shown] = NOTHING
        headings = np.broadcast_to(self._headings[:, None], (count, depth, 1))
        book = np.concatenate([headings, pieces.reshape(count, depth, -1)], axis=2).reshape(count, -1)
        return np.concatenate([book, np.full((count, 1), self._closing, np.int32)], axis=1)

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
    if 0 < unused < 1:
        ordered = np.sort(draw, axis=-1)
        limit = np.take_along_axis(ordered, np.maximum(extra - 1, 0)[..., None], axis=-1)
        shown = used | ((draw <= limit) & (extra > 0)[..., None])
    else:
        shown = used | (unused == 1)
    place = (keys << np.uint64(32) >> np.uint64(15)) | (number << np.uint64(1)) | used
    place[~shown] = last
    place.sort(axis=-1)
    totals = (size - spare) + extra
    place = place[..., : totals.max()]
    there = np.arange(place.shape[-1]) < totals[..., None]
    rules = ((place >> np.uint64(1)) & np.uint64(0xFFFF)).astype(np.intp)
    rules[~there] = 0
    return rules, (place & np.uint64(1)).astype(np.intp), there
