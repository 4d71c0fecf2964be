"""Examples from a user's JSONL file, a list of records, or a Hugging Face dataset.

A file is read once to check every record and to note where each line starts; prompts and completions are then read from
disk as they are asked for, and only the books stay in memory once they were met. Complaints name `file:line`.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
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

LONGEST_LINE = 16 * 2**20  # bytes; a longer line is a broken file far more often than a record
BOM = b"\xef\xbb\xbf"


class ListSource(Source):
    """Examples from any numbered collection of records."""

    def __init__(self, records: Sequence[Any], name: str = "record", think: str = THINK) -> None:
        if len(records) == 0:
            raise InputError(f"{name}: no records, so there is nothing to learn")
        self.bank, self.think = Bank(), think
        self._records = records
        self._name = name
        digest = hashlib.sha256()
        books = _Books(think)
        for index in range(len(records)):  # every record is checked before anything expensive
            books.add(self.example(index))
            digest.update(json.dumps(self.record(index), sort_keys=True, default=str).encode())
        self.fingerprint = digest.hexdigest()
        self._settle(books)

    def _settle(self, books: _Books) -> None:
        self.has_thoughts, self.has_books = books.has_thoughts, books.has_books
        self._book_order, self._book_places = books.sorted()
        self.can_mislead = bool((self._book_places[:, 1] < len(self)).all())  # whether there are two different books

    def record(self, index: int) -> Any:
        return self._records[index]

    def where(self, index: int) -> str:
        return f"{self._name} {index + 1}"

    def __len__(self) -> int:
        return len(self._records)

    def example(self, index: int) -> Example:
        return example_from_record(self.record(index), self.where(index))

    def wrong(self, indices: NDArray[np.int64], words: NDArray[np.uint64]) -> Shelf:
        """Each example with another one's book, drawn by its first word, without any piece that the example needs."""
        drawn = zip(indices.tolist(), self._others(indices, words[:, 0]).tolist(), strict=True)
        examples = [_misled(self.example(index), self.example(other)) for index, other in drawn]
        return shelve(self.bank, examples, self.think)

    def _others(self, indices: NDArray[np.int64], words: NDArray[np.uint64]) -> NDArray[np.int64]:
        """For every example another with a different book, uniformly: all but its own run in the order of books."""
        if not self.can_mislead:
            raise InputError("a wrong book is another record's book, but all records have the same one")
        start, size = self._book_places[indices].T
        place = (words % (len(self) - size).astype(np.uint64)).astype(np.int64)
        return self._book_order[np.where(place < start, place, place + size)]


class _Books:
    """Which records have the same book, gathered while a source is read."""

    def __init__(self, think: str) -> None:
        self.think = think
        self._hashes: list[int] = []
        self.has_thoughts = self.has_books = False

    def add(self, example: Example) -> None:
        text = json.dumps([[s.name, [[p.text, p.needed] for p in s.pieces]] for s in example.sections])
        self._hashes.append(int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little", signed=True))
        self.has_thoughts |= any(part.kind == Kind.THOUGHT or self.think in part.text for part in example.completion)
        self.has_books |= any(section.pieces for section in example.sections)

    def sorted(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The records in the order of their books, and for each the start and size of the run that has its book."""
        order = np.argsort(np.array(self._hashes, dtype=np.int64), kind="stable")
        _, run, sizes = np.unique(self._hashes, return_inverse=True, return_counts=True)
        return order, np.stack([np.cumsum(sizes) - sizes, sizes], axis=1)[run]


def _misled(example: Example, other: Example) -> Example:
    needed = {piece.text for section in example.sections for piece in section.pieces if piece.needed}
    sections = tuple(
        Section(section.name, tuple(piece for piece in section.pieces if piece.text not in needed))
        for section in other.sections
    )
    return replace(example, sections=sections)


class JsonlSource(ListSource):
    """Examples from a JSONL file, one record a line."""

    def __init__(
        self,
        path: Path | str,
        skip_bad: bool = False,
        progress: Callable[[int], None] = lambda read: None,
        think: str = THINK,
    ) -> None:
        self.path = Path(path)
        self.bank, self.think = Bank(), think
        self.skipped: list[str] = []  # what was wrong with each line left out
        lines: list[tuple[int, int, int]] = []  # where a line starts, its bytes, its number
        books = _Books(think)
        digest = hashlib.sha256()
        with self.path.open("rb") as file:
            number, position = 0, 0
            while line := file.readline(LONGEST_LINE + 1):
                number += 1
                digest.update(line)
                length = len(line)
                try:
                    if length > LONGEST_LINE:
                        length += 0 if line.endswith(b"\n") else _skip_line(file, digest)
                        raise InputError(f"{self.path}:{number}: the line is longer than {LONGEST_LINE >> 20} MiB")
                    books.add(example_from_record(_parse(line, number, self.path), f"{self.path}:{number}"))
                    lines.append((position, length, number))
                except InputError as error:
                    if not skip_bad:
                        raise
                    self.skipped.append(str(error))
                position += length
                progress(length)
        if not lines:
            raise InputError(f"{self.path}: no records{' that can be used' if number else ': the file is empty'}")
        self._lines = np.array(lines, dtype=np.int64)
        self.fingerprint = digest.hexdigest()
        self._file: Any = None
        self._settle(books)

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


def _skip_line(file: Any, digest: Any) -> int:
    """Read to the end of an overlong line without holding it; the number of bytes read."""
    read = 0
    while chunk := file.readline(2**20):
        digest.update(chunk)
        read += len(chunk)
        if chunk.endswith(b"\n"):
            break
    return read


def _parse(line: bytes, number: int, path: Path) -> Any:
    where = f"{path}:{number}"
    if number == 1 and line.startswith(BOM):
        raise InputError(f"{where}: the file starts with a byte order mark: save it as UTF-8 without BOM")
    if not line.strip():
        raise InputError(f"{where}: a blank line; JSONL has one record on every line")
    try:
        record = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise InputError(f"{where}: not UTF-8 text (byte {error.start + 1} of the line)") from None
    except json.JSONDecodeError as error:
        hint = ": this is a JSON array; write one record a line" if number == 1 and line.lstrip()[:1] == b"[" else ""
        raise InputError(f"{where}: not JSON: {error.msg} at character {error.pos + 1}{hint}") from None
    except RecursionError:
        raise InputError(f"{where}: not a record: nested too deeply") from None
    except ValueError as error:  # a number of thousands of digits
        raise InputError(f"{where}: not a record: {error}") from None
    if number == 1 and isinstance(record, list):
        raise InputError(f"{where}: the file is a JSON array, not JSONL: write one record a line")
    return record


def load_source(
    path: Path | str,
    skip_bad: bool = False,
    progress: Callable[[int], None] = lambda read: None,
    think: str = THINK,
) -> ListSource:
    """A JSONL file, or a folder that a Hugging Face dataset was saved to; `think` is the token of silent thoughts."""
    path = Path(path)
    if path.is_dir():
        try:
            from datasets import DatasetDict, load_from_disk
        except ImportError:
            raise InputError(
                f"{path} is a folder: reading a saved dataset needs `pip install openbook[datasets]`"
            ) from None
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
    if not path.exists():
        raise InputError(f"{path}: no such file")
    return JsonlSource(path, skip_bad, progress, think)
