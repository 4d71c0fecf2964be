"""Examples from a user's JSONL file, a list of records, or a Hugging Face dataset.

A file is read once to check every record and to note where each line starts; examples are then read from disk as they
are asked for, so a file may be larger than memory. Complaints name `file:line`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from openbook.book.example import Example
from openbook.book.record import example_from_record
from openbook.book.shelf import Bank, Shelf, shelve
from openbook.errors import InputError

LONGEST_LINE = 16 * 2**20  # bytes; a longer line is a broken file far more often than a record
BOM = b"\xef\xbb\xbf"


class ListSource:
    """Examples from any numbered collection of records."""

    def __init__(self, records: Sequence[Any], name: str = "record") -> None:
        if len(records) == 0:
            raise InputError(f"{name}: no records, so there is nothing to learn")
        self.bank = Bank()
        self._records = records
        self._name = name
        self.fingerprint = self._fingerprint()

    def _fingerprint(self) -> str:
        digest = hashlib.sha256()
        for index in range(len(self._records)):
            self.example(index)  # every record is checked before anything expensive
            digest.update(json.dumps(self._record(index), sort_keys=True, default=str).encode())
        return digest.hexdigest()

    def _record(self, index: int) -> Any:
        return self._records[index]

    def _where(self, index: int) -> str:
        return f"{self._name} {index + 1}"

    def __len__(self) -> int:
        return len(self._records)

    def example(self, index: int) -> Example:
        return example_from_record(self._record(index), self._where(index))

    def shelf(self, indices: NDArray[np.int64]) -> Shelf:
        return shelve(self.bank, [self.example(index) for index in indices.tolist()])

    def wrong(self, indices: NDArray[np.int64], words: NDArray[np.uint64]) -> Shelf:
        """Each example with the book of another one, drawn by its first word."""
        examples = []
        for index, word in zip(indices.tolist(), words[:, 0].tolist(), strict=True):
            other = (index + 1 + word % max(1, len(self) - 1)) % len(self)
            sections = self.example(other).sections
            example = self.example(index)
            examples.append(_with_sections(example, sections))
        return shelve(self.bank, examples)


def _with_sections(example: Example, sections: Any) -> Example:
    return Example(example.prompt, example.completion, sections, example.preamble, example.layout, example.history)


class JsonlSource(ListSource):
    """Examples from a JSONL file, one record a line."""

    def __init__(
        self, path: Path | str, skip_bad: bool = False, progress: Callable[[int], None] = lambda read: None
    ) -> None:
        self.path = Path(path)
        self.bank = Bank()
        self.skipped: list[str] = []  # what was wrong with each line left out
        starts: list[tuple[int, int]] = []
        digest = hashlib.sha256()
        with self.path.open("rb") as file:
            number, position = 0, 0
            while line := file.readline(LONGEST_LINE + 1):
                number += 1
                digest.update(line)
                length = len(line)
                try:
                    if length > LONGEST_LINE:
                        length += _skip_line(file, digest)
                        raise InputError(f"{self.path}:{number}: the line is longer than {LONGEST_LINE >> 20} MiB")
                    example_from_record(_parse(line, number, self.path), f"{self.path}:{number}")
                    starts.append((position, number))
                except InputError as error:
                    if not skip_bad:
                        raise
                    self.skipped.append(str(error))
                position += length
                progress(length)
        if not starts:
            raise InputError(f"{self.path}: no records{' that can be used' if number else ': the file is empty'}")
        self._starts = np.array(starts, dtype=np.int64)
        self.fingerprint = digest.hexdigest()
        self._file: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_file": None}  # each worker opens the file for itself

    def __len__(self) -> int:
        return len(self._starts)

    def _where(self, index: int) -> str:
        return f"{self.path}:{self._starts[index, 1]}"

    def _record(self, index: int) -> Any:
        if self._file is None:
            self._file = self.path.open("rb")
        start, number = self._starts[index].tolist()
        self._file.seek(start)
        return _parse(self._file.readline(), number, self.path)


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
    if number == 1 and isinstance(record, list):
        raise InputError(f"{where}: the file is a JSON array, not JSONL: write one record a line")
    return record


def load_source(
    path: Path | str, skip_bad: bool = False, progress: Callable[[int], None] = lambda read: None
) -> ListSource:
    """A JSONL file, or a folder that a Hugging Face dataset was saved to."""
    path = Path(path)
    if path.is_dir():
        try:
            from datasets import load_from_disk
        except ImportError:
            raise InputError(
                f"{path} is a folder: reading a saved dataset needs `pip install openbook[datasets]`"
            ) from None
        try:
            return ListSource(load_from_disk(str(path)), f"{path}: row")
        except FileNotFoundError as error:
            raise InputError(f"{path}: no saved dataset: {error}") from None
    if not path.exists():
        raise InputError(f"{path}: no such file")
    return JsonlSource(path, skip_bad, progress)
