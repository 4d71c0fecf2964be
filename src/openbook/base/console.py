"""How commands speak: readable tables on a terminal, or one JSON object on standard output and nothing else there."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)

Bar = Callable[[str, int], AbstractContextManager[Callable[..., None]]]  # what work is told to show its progress with


def emit_json(data: Any) -> None:
    """Print the one JSON object of a `--json` command. NaN is written as null, so that any parser can read it."""
    sys.stdout.write(json.dumps(plain(data), ensure_ascii=False, allow_nan=False) + "\n")


def plain(value: Any) -> Any:
    """Arrays and NumPy scalars as lists and numbers, NaN and infinity as None."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    return value


def print_table(rows: Iterable[Any], columns: Mapping[str, str | Callable[[Any], str]], caption: str = "") -> None:
    """Print a line for each row, and below what it is.

    A column, by its header, is a format such as "{accuracy:.1%}", or a function of the row that may give rich's markup.
    """

    def cell(row: Any, column: str | Callable[[Any], str]) -> str:
        return escape(column.format_map(row)) if isinstance(column, str) else column(row)

    print_cells(list(columns), [[cell(row, column) for column in columns.values()] for row in rows], caption)


def print_cells(header: Sequence[str], cells: Sequence[Sequence[str]], caption: str = "") -> None:
    """Print a table in rich's markup: columns of words to the left, of numbers to the right, nothing cut off."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for place, name in enumerate(header):
        is_text = any(Text.from_markup(row[place]).plain[:1].isalpha() for row in cells)
        table.add_column(escape(name), justify="left" if is_text else "right", overflow="fold")
    for row in cells:
        table.add_row(*row)
    out.print(table)
    if caption:
        out.print(caption, style="dim", markup=False)


@contextmanager
def no_bar(description: str, total: int) -> Iterator[Callable[..., None]]:
    """No progress bar."""
    yield lambda *_, **__: None


@contextmanager
def progress(description: str, total: float | None) -> Iterator[Any]:
    """A progress bar with the time left, on standard error; yields `advance(amount=1, note=None)`.

    Nothing is drawn where nobody looks: a log or a pipe gets no control characters.
    """
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bars:
        bar = bars.add_task(description, total=total, note="")

        def advance(amount: float = 1, note: str | None = None) -> None:
            fields: dict[str, Any] = {} if note is None else {"note": note}
            bars.update(bar, advance=amount, **fields)

        yield advance
