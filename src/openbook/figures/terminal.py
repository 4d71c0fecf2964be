"""How a command ends that has measured a figure: its chart in a file, its tables on the terminal or one JSON object."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.markup import escape

from openbook.base.console import emit_json, out, print_cells
from openbook.figures import save
from openbook.figures.charts import Chart, Panel, Table

FORMATS = {"percent": ".1%", "number": ".3g", "si": ",.0f"}
NARROW, WIDE = 3, 6  # a table of at most so many curves has room for their intervals, or for decimals of percentages


def present(figures: Sequence[Chart | Table], data: dict[str, Any], path: Path | None, json: bool) -> None:
    """Save the first chart where a path is given; print `data` if JSON is asked for, and else every table."""
    if path is not None:
        save(next(figure for figure in figures if isinstance(figure, Chart)), path)
    if json:
        emit_json(data)
        return
    for table in figures:
        if isinstance(table, Table):
            out.print(table.title, style="bold", markup=False)
            print_cells(table.header, [[*map(escape, row)] for row in table.rows])
            out.print(f"{table.caption}\n" if table.caption else "", markup=False)


def numbers_of(figures: Sequence[Chart | Table]) -> list[Table]:
    """A table for each panel of curves: a row for each place on the axis, a column for each curve of our own."""
    charts = [figure for figure in figures if isinstance(figure, Chart)]
    return [_numbers(panel) for chart in charts for panel in chart.panels if isinstance(panel, Panel)]


def _numbers(panel: Panel) -> Table:
    ours = [series for series in panel.series if not series.published]
    x_format, y_format = FORMATS[panel.x.form], FORMATS[panel.y.form]
    if len(ours) > WIDE:
        y_format = y_format.replace(".1%", ".0%")
    cells = {(x, series.name): format(y, y_format) for series in ours for x, y in series.points}
    if len(ours) <= NARROW:
        for series in ours:
            for (x, _), (low, high) in zip(series.points, series.spread, strict=False):
                cells[x, series.name] += f" ({low:{y_format}}-{high:{y_format}})"
    rows = [
        [format(place, x_format), *(cells.get((place, series.name), "") for series in ours)]
        for place in sorted({x for x, _ in cells})
    ]
    levels = [f"; {level.label}: {level.value:{y_format}}" for level in panel.levels]
    return Table("", panel.title + "".join(levels), [panel.x.label, *(series.name for series in ours)], rows)
