"""Loads data from whatever holds it: a path, a Hugging Face dataset, a list of records, or a source."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from openbook.base.errors import InputError
from openbook.book.jsonl import JsonlSource, ListSource
from openbook.book.source import Source
from openbook.book.text import THINK


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
