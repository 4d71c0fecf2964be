"""Loads data from whatever holds it: a path, a Hugging Face dataset, a list of records, or a source."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from openbook.base.errors import InputError
from openbook.book.jsonl import ListSource, load_source
from openbook.book.source import Source
from openbook.book.text import THINK


def load(data: Any, *, split: str = "train", skip_bad: bool = False, think: str = THINK) -> Source:
    """The examples of a JSONL file, of a Hugging Face dataset (an object, its folder or its hub name), or of records.

    `split` names the part of a dataset that has several; `skip_bad` leaves out lines of a file that cannot be read.
    """
    if isinstance(data, Source):
        return data
    if isinstance(data, str | Path):
        return _from_name(str(data), split, skip_bad, think)
    if isinstance(data, dict) and hasattr(data, "num_rows"):  # a DatasetDict, whose package need not be there
        return ListSource(_part(data, split), f"{split} record", think)
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


def _part(parts: Any, split: str) -> Any:
    if split not in parts:
        raise InputError(f"there is no split '{split}' ({', '.join(parts)}): name one of them")
    return parts[split]


def _from_name(name: str, split: str, skip_bad: bool, think: str) -> Source:
    path = Path(name)
    looks_like_hub = not path.exists() and name.count("/") == 1 and not path.suffix and not name.startswith((".", "~"))
    if not looks_like_hub:
        return load_source(path, skip_bad, think=think)
    try:
        from datasets import load_dataset
    except ImportError:
        raise InputError(f"{name}: datasets from the hub need `pip install openbook[datasets]`") from None
    try:
        return ListSource(load_dataset(name, split=split), f"{name}: row", think)
    except (OSError, ValueError) as error:
        first = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise InputError(f"{name}: there is no such file, and the hub does not give a dataset: {first}") from None
