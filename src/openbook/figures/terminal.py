"""How a command ends that has measured a figure: its chart in a file, its tables on the terminal or one JSON object."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from rich.table import Table as RichTable

from openbook.base.console import emit_json, out
from openbook.figures.charts import Axis, Chart, Panel, Table
from openbook.figures.theme import save

FORMATS = {"percent": ".1%", "number": ".3g", "si": ",.0f"}
NARROW = 3  # a table of so many curves has room for their intervals


def present(figures: Sequence[Chart | Table], data: dict[str, Any], path: Path | None, json: bool) -> None:
    """Save the first chart where a path is given; print `data` if JSON is asked for, and else every table."""
    if path is not None:
        save(next(figure for figure in figures if isinstance(figure, Chart)), path)
    if json:
        emit_json(data)
        return
    for table in figures:
        if isinstance(table, Table):
            out.print(rich_table(table))
            if table.caption:
                out.print(table.caption, markup=False)


def rich_table(table: Table) -> RichTable:
    """A table of text for the terminal: columns of words to the left, of numbers to the right, no word cut off."""
    shown = RichTable(title=table.title, title_justify="left", box=None, header_style="bold", pad_edge=False)
    for place, name in enumerate(table.header):
        cells = [row[place] for row in table.rows]
        longest = max(len(word) for word in " ".join([name, *cells, "-"]).split())
        justify: Literal["left", "right"] = "left" if any(cell[:1].isalpha() for cell in cells) else "right"
        shown.add_column(name, justify=justify, min_width=longest)
    for row in table.rows:
        shown.add_row(*row)
    return shown


def numbers_of(figures: Sequence[Chart | Table]) -> list[Table]:
    """A table for each panel of curves: a row for each place on the axis, a column for each curve of our own."""
    charts = [figure for figure in figures if isinstance(figure, Chart)]
    return [_numbers(panel) for chart in charts for panel in chart.panels if isinstance(panel, Panel)]


def _numbers(panel: Panel) -> Table:
    ours = [series for series in panel.series if not series.published]
    cells = {(x, series.name): _written(y, panel.y) for series in ours for x, y in series.points}
    if len(ours) <= NARROW:
        for series in ours:
            for (x, _), (low, high) in zip(series.points, series.spread, strict=False):
                cells[x, series.name] += f" ({_written(low, panel.y)} to {_written(high, panel.y)})"
    rows = [
        [_written(place, panel.x), *(cells.get((place, series.name), "") for series in ours)]
        for place in sorted({x for x, _ in cells})
    ]
    levels = [f"; {level.label}: {_written(level.value, panel.y)}" for level in panel.levels]
    return Table("", panel.title + "".join(levels), [panel.x.label, *(series.name for series in ours)], rows)


def _written(value: float, axis: Axis) -> str:
    return format(value, FORMATS[axis.form])
