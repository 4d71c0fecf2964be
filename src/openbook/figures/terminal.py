"""How a command ends that has measured a figure: its chart in a file, its tables on the terminal or one JSON object."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from rich.table import Table as RichTable

from openbook.base.console import emit_json, out
from openbook.figures.charts import Chart, Table
from openbook.figures.theme import save


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
    shown = RichTable(title=table.title, title_justify="left")
    for place, name in enumerate(table.header):
        cells = [row[place] for row in table.rows]
        longest = max(len(word) for word in " ".join([name, *cells, "-"]).split())
        justify: Literal["left", "right"] = "left" if any(cell[:1].isalpha() for cell in cells) else "right"
        shown.add_column(name, justify=justify, min_width=longest)
    for row in table.rows:
        shown.add_row(*row)
    return shown
