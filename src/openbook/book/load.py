"""Loads examples from whatever holds them: a JSONL file, a list of records, or a Hugging Face dataset.

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


def load(data: Any, *, split: str = "train", skip_bad: bool = False, think: str = THINK) -> Source:
    """The examples of a JSONL file, of a Hugging Face dataset (an object, its folder or its hub name), or of records.

    `split` names the part of a dataset that has several; `skip_bad` leaves out lines of a file that cannot be read.
    """
    if isinstance(data, Source):
        return data
    if isinstance(data, str | Path):
        name, path = str(data), Path(data)
        may_be_path = path.exists() or path.suffix or name.startswith((".", "~"))
        if name.count("/") == 1 and not may_be_path:
            return _from_hub(name, split, think)
        return load_source(path, skip_bad, think)
    if isinstance(data, dict) and hasattr(data, "num_rows"):  # a DatasetDict, whose package need not be there
        if split not in data:
            raise InputError(f"there is no split '{split}' ({', '.join(data)}): name one of them")
        return ListSource(data[split], f"{split} record", think)
    if hasattr(data, "__iter__") and not hasattr(data, "__getitem__"):
        raise InputError(
            "this dataset is a stream, and examples are drawn by number: load it without streaming=True, or write it "
            "to a JSONL file"
        )
    if not isinstance(data, Sequence) and not hasattr(data, "__len__"):
        raise InputError(
            f"cannot load examples from {type(data).__name__}: give a path, a dataset or a list of records"
        )
    return ListSource(data, "record", think)


def record_count(path: Path | str) -> int:
    """About how many records a file or a saved dataset has: its lines are counted, and not checked."""
    if not Path(path).is_file():
        return len(load(str(path)))
    with Path(path).open("rb") as file:
        return sum(bool(line.strip()) for line in file)


def load_source(path: Path | str, skip_bad: bool = False, think: str = THINK) -> ListSource:
    """A JSONL file, or a folder that a Hugging Face dataset was saved to; `think` is the token of silent thoughts."""
    path = Path(path)
    if not path.exists():
        raise InputError(f"{path}: no such file: check the path")
    if not path.is_dir():
        return JsonlSource(path, skip_bad, think)
    datasets = _datasets(f"{path} is a folder: saved datasets")
    if skip_bad:
        raise InputError(f"{path}: --skip-bad is for JSONL files; filter a saved dataset before it is saved")
    try:
        rows = datasets.load_from_disk(str(path))
    except FileNotFoundError as error:
        raise InputError(f"{path}: no saved dataset: {error}") from None
    except (ValueError, OSError) as error:  # also what JSON and Arrow say of files that were cut short
        raise InputError(f"{path}: the saved dataset is damaged: {error}") from None
    if isinstance(rows, datasets.DatasetDict):
        raise InputError(f"{path} holds several datasets: name the folder of one ({', '.join(map(str, rows))})")
    return ListSource(rows, f"{path}: row", think)


def _from_hub(name: str, split: str, think: str) -> ListSource:
    datasets = _datasets(f"{name}: datasets from the hub")
    try:
        return ListSource(datasets.load_dataset(name, split=split), f"{name}: row", think)
    except (OSError, ValueError) as error:
        first = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise InputError(f"{name}: there is no such file, and the hub does not give a dataset: {first}") from None


def _datasets(what: str) -> Any:
    """The package that reads Hugging Face datasets, which need not be there."""
    try:
        import datasets
    except ImportError:
        raise InputError(f"{what} need `pip install openbook[datasets]`") from None
    return datasets
