"""Published numbers, read from small files of the package. They are others', and drawn behind ours as such."""

from __future__ import annotations

import csv
import functools
from importlib import resources
from typing import Any


@functools.cache
def published(name: str) -> list[dict[str, Any]]:
    """The rows of a published figure or table; what looks like a number is one, an empty cell is None."""
    text = resources.files(__name__).joinpath(f"{name}.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
    return [{key: _value(cell) for key, cell in row.items()} for row in rows]


def _value(cell: str) -> Any:
    if cell == "":
        return None
    for kind in (int, float):
        try:
            return kind(cell)
        except ValueError:
            continue
    return cell
