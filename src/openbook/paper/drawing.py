"""What the figures are made of: rows in groups, curves through them with their spread, tables, and axes they share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from openbook.figures.charts import Axis, Level, Panel, Series, Table, share
from openbook.paper.experiment import Json, Rows

SAMPLES = Axis("training samples, one epoch", "log", "si")
BOOK_CLOSED = share("accuracy, book closed")
BOUNDS = ("low", "high")


def grouped(rows: Iterable[Json], key: str) -> list[tuple[Any, list[Json]]]:
    """The rows of each value of a key, in the order of the values."""
    groups: dict[Any, list[Json]] = {}
    for row in rows:
        groups.setdefault(row[key], []).append(row)
    return sorted(groups.items())


def where(rows: Iterable[Json], **values: Any) -> list[Json]:
    """The rows that have these values."""
    return [row for row in rows if all(row.get(key) == value for key, value in values.items())]


def largest(rows: Rows) -> list[Json]:
    """The rows of the largest dataset."""
    return where(rows, samples=max((row["samples"] for row in rows), default=None))


def mean_by(rows: Iterable[Json], key: str, value: str = "accuracy") -> dict[Any, float]:
    """The mean of a value for each value of a key."""
    return {at: sum(row[value] for row in group) / len(group) for at, group in grouped(rows, key)}


def spread_by(rows: Iterable[Json], key: str, low: str, high: str) -> dict[Any, tuple[float, float]]:
    """From the lowest lower to the highest upper bound for each value of a key, so that seeds are not averaged away."""
    groups = grouped(rows, key)
    return {at: (min(row[low] for row in group), max(row[high] for row in group)) for at, group in groups}


def curve(
    name: str,
    colour: int,
    rows: Rows,
    x: str = "samples",
    y: str = "accuracy",
    bounds: tuple[str, str] | None = BOUNDS,
    published: bool = False,
) -> Series:
    """A curve through the mean of the rows at each `x`, with bars over all their intervals if they have bounds."""
    bars = spread_by(rows, x, *bounds).values() if bounds else ()
    return Series(name, list(mean_by(rows, x, y).items()), colour, list(bars), published)


def published_curve(name: str, colour: int, rows: Rows, x: str = "samples", y: str = "accuracy") -> list[Series]:
    """The same of rows that are not ours and have no intervals; no curve without rows."""
    return [curve(name, colour, rows, x, y, bounds=None, published=True)] if rows else []


def learning_panel(title: str, series: list[Series], chance: float, y: Axis = BOOK_CLOSED) -> Panel:
    """Accuracy by the size of the dataset, with the chance level."""
    return Panel(title, SAMPLES, y, series, [Level(chance, "chance")])


def ramp(place: int, count: int) -> int:
    """The colour of one of `count` ordered curves, from dark to bright."""
    return 100 + round(99 * place / max(1, count - 1))


# What a column, by its header, says of a row: a format such as "{accuracy:.1%}", or a function of the row.
Columns = dict[str, str | Callable[[Any], str]]


def tabled(
    name: str, title: str, rows: Iterable[Any], columns: Columns, caption: str = "", marks: Sequence[str] = ()
) -> Table:
    """A table with a line for each row."""
    cells = [
        [column.format_map(row) if isinstance(column, str) else column(row) for column in columns.values()]
        for row in rows
    ]
    return Table(name, title, list(columns), cells, caption, marks)
