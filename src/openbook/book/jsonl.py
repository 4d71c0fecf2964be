"""Examples from a user's JSONL file, a list of records, or a Hugging Face dataset.

Every record is read once, which checks it. The examples stay in memory while their lines take less than `KEPT_BYTES`;
beyond that only the place of each line is kept, and examples are read from disk again as they are asked for. Complaints
name `file:line`.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from openbook.base.errors import InputError
from openbook.base.files import file_hash
from openbook.book.record import example_from_record
from openbook.book.shelf import Bank, Shelf, shelve
from openbook.book.source import Source
from openbook.book.text import THINK, Example, Kind, Section

KEPT_BYTES = 64 * 2**20  # of lines whose examples are kept in memory
LONGEST_LINE = 16 * 2**20  # bytes; a longer line is a broken file far more often than a record
BOM = b"\xef\xbb\xbf"


class ListSource(Source):
    """Examples from any numbered collection of records."""

    has_thoughts = has_books = False

    def __init__(self, records: Sequence[Any], name: str = "record", think: str = THINK) -> None:
        if len(records) == 0:
            raise InputError(f"{name}: no records, so there is nothing to learn: give at least one")
        self._records, self._name = records, name
        self._read(self._checked(), think)

    def _checked(self) -> Iterator[tuple[Example, bytes]]:
        """Every example with its line; all are checked before anything expensive."""
        for index in range(len(self._records)):
            record = self._records[index]
            line = json.dumps(record, sort_keys=True, default=str).encode()
            yield example_from_record(record, self.where(index)), line

    def _read(self, examples: Iterable[tuple[Example, bytes]], think: str) -> None:
        """Find out what is asked about the examples as a whole."""
        self.bank, self.think = Bank(), think
        kept, books = [], []  # examples, and a hash of the book of each
        room, digest = KEPT_BYTES, hashlib.sha256()
        for example, line in examples:
            digest.update(line)
            room -= len(line)
            if room >= 0:
                kept.append(example)
            book = json.dumps([[s.name, [[p.text, p.needed] for p in s.pieces]] for s in example.sections])
            books.append(int.from_bytes(hashlib.sha256(book.encode()).digest()[:8], "little", signed=True))
            self.has_thoughts |= any(part.kind == Kind.THOUGHT or think in part.text for part in example.completion)
            self.has_books |= any(section.pieces for section in example.sections)
        self._examples = kept if room >= 0 else None
        self.fingerprint = digest.hexdigest()
        # The records in the order of their books, and for each the start and size of the run that has its book.
        _, run, sizes = np.unique(books, return_inverse=True, return_counts=True)
        self._book_order = np.argsort(run, kind="stable")
        self._book_places = np.stack([np.cumsum(sizes) - sizes, sizes], axis=1)[run]
        self.can_mislead = len(sizes) > 1

    def __len__(self) -> int:
        return len(self._records)

    def record(self, index: int) -> Any:
        return self._records[index]

    def where(self, index: int) -> str:
        return f"{self._name} {index + 1}"

    def example(self, index: int) -> Example:
        if self._examples is not None:
            return self._examples[index]
        return example_from_record(self.record(index), self.where(index))

    def wrong(self, indices: NDArray[np.int64], words: NDArray[np.uint64]) -> Shelf:
        """Each example with another one's book, drawn by its first word, without any piece that the example needs."""
        drawn = zip(indices.tolist(), self._others(indices, words[:, 0]).tolist(), strict=True)
        examples = [_misled(self.example(index), self.example(other)) for index, other in drawn]
        return shelve(self.bank, examples, self.think)

    def _others(self, indices: NDArray[np.int64], words: NDArray[np.uint64]) -> NDArray[np.int64]:
        """For every example another with a different book, uniformly: all but its own run in the order of books."""
        if not self.can_mislead:
            raise InputError(
                "a wrong book is another record's book, but all records have the same one: leave out the wrong book"
            )
        start, size = self._book_places[indices].T
        place = (words % (len(self) - size).astype(np.uint64)).astype(np.int64)
        return self._book_order[np.where(place < start, place, place + size)]


def _misled(example: Example, other: Example) -> Example:
    """The example with the book of another, without the pieces that it needs."""
    needed = {piece.text for section in example.sections for piece in section.pieces if piece.needed}
    sections = (
        Section(section.name, tuple(piece for piece in section.pieces if piece.text not in needed))
        for section in other.sections
    )
    return replace(example, sections=tuple(sections))


class JsonlSource(ListSource):
    """Examples from a JSONL file, one record a line."""

    def __init__(self, path: Path | str, skip_bad: bool = False, think: str = THINK) -> None:
        self.path, self._skip_bad = Path(path), skip_bad
        self.skipped: list[str] = []  # what is wrong with each line that was left out
        self._read(self._checked(), think)
        self.fingerprint = file_hash(self.path)  # with the lines that were left out

    def _checked(self) -> Iterator[tuple[Example, bytes]]:
        places = []  # where a line starts, its bytes, its number
        for number, start, line in _lines(self.path):
            try:
                example = example_from_record(_parse(line, number, self.path), f"{self.path}:{number}")
            except InputError as error:
                if not self._skip_bad:
                    raise
                self.skipped.append(str(error))
            else:
                places.append((start, len(line), number))
                yield example, line
        if not places:
            raise InputError(f"{self.path}: no records{' that can be used' if self.skipped else ': the file is empty'}")
        self._places = np.array(places, dtype=np.int64)

    def __len__(self) -> int:
        return len(self._places)

    def where(self, index: int) -> str:
        return f"{self.path}:{self._places[index, 2]}"

    def record(self, index: int) -> Any:
        start, length, number = self._places[index].tolist()
        with self.path.open("rb") as file:  # anew each time: forked workers would share its position
            file.seek(start)
            return _parse(file.read(length), number, self.path)


def _lines(path: Path) -> Iterator[tuple[int, int, bytes]]:
    """The number, the start and the bytes of every line; of one that is too long only the first."""
    with path.open("rb") as file:
        for number in itertools.count(1):
            start = file.tell()
            if not (line := file.readline(LONGEST_LINE + 1)):
                return
            yield number, start, line
            while line and not line.endswith(b"\n"):
                line = file.readline(2**20)


def _parse(line: bytes, number: int, path: Path) -> Any:
    where = f"{path}:{number}"
    if len(line) > LONGEST_LINE:
        raise InputError(f"{where}: the line is longer than {LONGEST_LINE >> 20} MiB")
    if number == 1 and line.startswith(BOM):
        raise InputError(f"{where}: the file starts with a byte order mark: save it as UTF-8 without BOM")
    if number == 1 and line.lstrip().startswith(b"["):
        raise InputError(f"{where}: the file is a JSON array, not JSONL: write one record a line")
    if not line.strip():
        raise InputError(f"{where}: a blank line: remove it, JSONL has one record on every line")
    try:
        return json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise InputError(f"{where}: not UTF-8 text (byte {error.start + 1} of the line): save it as UTF-8") from None
    except json.JSONDecodeError as error:
        raise InputError(f"{where}: not JSON: {error.msg} at character {error.pos + 1}") from None
    except RecursionError:
        raise InputError(f"{where}: not a record: nested too deeply") from None
    except ValueError as error:  # a number of thousands of digits
        raise InputError(f"{where}: not a record: {error}") from None
