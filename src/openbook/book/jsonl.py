"""Examples from a user's JSONL file, a list of records, or a Hugging Face dataset.

Every record is read once, which checks it. The examples stay in memory while their lines take less than `KEPT_BYTES`;
beyond that only the place of each line is kept, and examples are read from disk again as they are asked for. Complaints
name `file:line`.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from openbook.base.errors import InputError
from openbook.book.example import Example, Section
from openbook.book.record import example_from_record
from openbook.book.shelf import Bank, Shelf, shelve
from openbook.book.source import Source
from openbook.book.text import THINK, Kind

KEPT_BYTES = 64 * 2**20  # of lines whose examples are kept in memory
LONGEST_LINE = 16 * 2**20  # bytes; a longer line is a broken file far more often than a record
BOM = b"\xef\xbb\xbf"


class ListSource(Source):
    """Examples from any numbered collection of records."""

    def __init__(self, records: Sequence[Any], name: str = "record", think: str = THINK) -> None:
        if len(records) == 0:
            raise InputError(f"{name}: no records, so there is nothing to learn: give at least one")
        self._records, self._name = records, name
        contents, digest = _Contents(think), hashlib.sha256()
        for index in range(len(records)):  # every record is checked before anything expensive
            record = records[index]
            line = json.dumps(record, sort_keys=True, default=str).encode()
            digest.update(line)
            contents.add(example_from_record(record, self.where(index)), len(line))
        self._settle(contents, digest.hexdigest())

    def _settle(self, contents: _Contents, fingerprint: str) -> None:
        self.bank, self.think, self.fingerprint = Bank(), contents.think, fingerprint
        self.has_thoughts, self.has_books = contents.has_thoughts, contents.has_books
        self._examples = contents.examples
        self._book_order, self._book_places = contents.by_book()
        self.can_mislead = bool((self._book_places[:, 1] < len(self)).all())  # whether there are two different books

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


class _Contents:
    """What a source finds out about its records while it reads them."""

    def __init__(self, think: str) -> None:
        self.think = think
        self.has_thoughts = self.has_books = False
        self.examples: list[Example] | None = []  # None: there is too much to keep
        self._size = 0
        self._books: list[int] = []  # a hash of each example's book

    def add(self, example: Example, size: int) -> None:
        self._size += size
        if self._size > KEPT_BYTES:
            self.examples = None
        elif self.examples is not None:
            self.examples.append(example)
        text = json.dumps([[s.name, [[p.text, p.needed] for p in s.pieces]] for s in example.sections])
        self._books.append(int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little", signed=True))
        self.has_thoughts |= any(part.kind == Kind.THOUGHT or self.think in part.text for part in example.completion)
        self.has_books |= any(section.pieces for section in example.sections)

    def by_book(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The records in the order of their books, and for each the start and size of the run that has its book."""
        _, run, sizes = np.unique(self._books, return_inverse=True, return_counts=True)
        return np.argsort(run, kind="stable"), np.stack([np.cumsum(sizes) - sizes, sizes], axis=1)[run]


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
        self.path = Path(path)
        self._file: Any = None
        self.skipped: list[str] = []  # what is wrong with each line that was left out
        lines: list[tuple[int, int, int]] = []  # where a line starts, its bytes, its number
        contents, digest = _Contents(think), hashlib.sha256()
        number = start = 0
        with self.path.open("rb") as file:
            while line := file.readline(LONGEST_LINE + 1):
                number += 1
                digest.update(line)
                try:
                    if len(line) > LONGEST_LINE:
                        while not line.endswith(b"\n") and (line := file.readline(2**20)):
                            digest.update(line)
                        raise InputError(f"{self.path}:{number}: the line is longer than {LONGEST_LINE >> 20} MiB")
                    record = _parse(line, number, self.path)
                    contents.add(example_from_record(record, f"{self.path}:{number}"), len(line))
                    lines.append((start, len(line), number))
                except InputError as error:
                    if not skip_bad:
                        raise
                    self.skipped.append(str(error))
                start = file.tell()
        if not lines:
            raise InputError(f"{self.path}: no records{' that can be used' if number else ': the file is empty'}")
        self._lines = np.array(lines, dtype=np.int64)
        self._settle(contents, digest.hexdigest())

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_file": None}  # a file cannot be sent to another process, which opens its own

    def __len__(self) -> int:
        return len(self._lines)

    def where(self, index: int) -> str:
        return f"{self.path}:{self._lines[index, 2]}"

    def record(self, index: int) -> Any:
        if self._file is None:
            self._file = self.path.open("rb")
        start, length, number = self._lines[index].tolist()
        # Forked workers share one open file and its position, so nobody may move it: pread reads at an offset.
        return _parse(os.pread(self._file.fileno(), length, start), number, self.path)


def _parse(line: bytes, number: int, path: Path) -> Any:
    where = f"{path}:{number}"
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


def load_source(path: Path | str, skip_bad: bool = False, think: str = THINK) -> ListSource:
    """A JSONL file, or a folder that a Hugging Face dataset was saved to; `think` is the token of silent thoughts."""
    path = Path(path)
    if not path.exists():
        raise InputError(f"{path}: no such file: check the path")
    if not path.is_dir():
        return JsonlSource(path, skip_bad, think)
    try:
        from datasets import DatasetDict, load_from_disk
    except ImportError:
        raise InputError(f"{path} is a folder: saved datasets need `pip install openbook[datasets]`") from None
    if skip_bad:
        raise InputError(f"{path}: --skip-bad is for JSONL files; filter a saved dataset before it is saved")
    try:
        rows = load_from_disk(str(path))
    except FileNotFoundError as error:
        raise InputError(f"{path}: no saved dataset: {error}") from None
    except (ValueError, OSError) as error:  # also what JSON and Arrow say of files that were cut short
        raise InputError(f"{path}: the saved dataset is damaged: {error}") from None
    if isinstance(rows, DatasetDict):
        raise InputError(f"{path} holds several datasets: name the folder of one ({', '.join(map(str, rows))})")
    return ListSource(rows, f"{path}: row", think)
