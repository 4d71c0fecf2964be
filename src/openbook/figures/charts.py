"""What charts say, not how they look: panels of curves and heatmaps, and tables. `openbook.report` draws them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

Number = float | int | None
Format = Literal["percent", "number", "si"]


@dataclass(frozen=True)
class Axis:
    """One axis of a panel. The domain follows the data where it is not given."""

    label: str
    scale: Literal["linear", "log"] = "linear"
    form: Format = "number"
    low: float | None = None
    high: float | None = None


def share(label: str) -> Axis:
    """An axis from 0 to 100 %."""
    return Axis(label, form="percent", low=0.0, high=1.0)


@dataclass(frozen=True)
class Series:
    """A curve: points (x, y), and intervals where they are known. `published` are numbers of others, drawn behind."""

    name: str
    points: Sequence[tuple[float, float]]
    colour: int = 0  # place in the palette: the same thing has the same colour in every chart
    spread: Sequence[tuple[float, float]] = ()  # low and high of each point
    published: bool = False


@dataclass(frozen=True)
class Level:
    """A horizontal line to compare with: chance, a bound."""

    value: float
    label: str


@dataclass(frozen=True)
class Panel:
    """Curves over one pair of axes."""

    title: str
    x: Axis
    y: Axis
    series: Sequence[Series]
    levels: Sequence[Level] = ()


@dataclass(frozen=True)
class Heatmap:
    """A matrix in colours, first row at the top; None is an empty cell."""

    title: str
    values: Sequence[Sequence[Number]]
    x: str
    y: str
    columns: Sequence[str]
    rows: Sequence[str]
    low: float = 0.0
    high: float = 1.0
    form: Format = "percent"
    published: bool = False
    outlined: Sequence[tuple[int, int]] = ()  # cells (row, column) that the map is read for
    groups: Sequence[tuple[str, int]] = ()  # (name, number of columns) of the groups that columns belong to


@dataclass(frozen=True)
class Range:
    """A row of `Ranges`: stretches of the axis, and a place on it that is marked."""

    name: str
    stretches: Sequence[tuple[float, float]]
    mark: float | None = None


@dataclass(frozen=True)
class Ranges:
    """Named rows of stretches over one axis, such as the layers that hold each section."""

    title: str
    x: Axis
    rows: Sequence[Range]
    published: bool = False


@dataclass(frozen=True)
class Chart:
    """Panels that belong together, under one title. `alt` tells in words what is to be seen."""

    name: str  # of its files
    title: str
    alt: str
    panels: Sequence[Panel | Heatmap | Ranges]
    caption: str = ""
    legend: bool = True  # False: the caption says which curve is which


@dataclass(frozen=True)
class Table:
    """A table as it is shown: text in cells. `marks` are verdicts of rows, drawn as badges in a last column."""

    name: str
    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    marks: Sequence[str] = field(default=())
