"""How a command answers that has measured something: tables or one JSON object, and its chart in a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cyclopts import Parameter
from rich.markup import escape

from openbook.base.console import emit_json, out, print_cells
from openbook.figures import Chart, Table, check_path, save
from openbook.figures.terminal import numbers_of

# of rows of an exam, which a command shows beside what each row is of
RATES = {
    "accuracy": "{accuracy:.3f}",
    "95 % interval": "{low:.3f} to {high:.3f}",
    "chance": "{chance:.3f}",
    "exact match": "{exact_match:.3f}",
}


@Parameter(name="*")
@dataclass(frozen=True)
class Output:
    """Where the answer goes; a command's own docstring may say more of `output.chart` and `output.json`.

    Parameters
    ----------
    chart
        Save the figure as .png, .svg or .html.
    json
        Print one JSON object instead of tables.
    """

    chart: Path | None = None
    json: bool = False

    def __post_init__(self) -> None:
        check_path(self.chart)

    def present(self, data: dict[str, Any], figures: Sequence[Chart | Table], numbers: bool = False) -> None:
        """Save the first chart where a path is given; print `data` if JSON is asked for, and else every table.

        With `numbers`, what the charts show is printed as tables, too.
        """
        if self.chart is not None:
            save(next(figure for figure in figures if isinstance(figure, Chart)), self.chart)
        if self.json:
            emit_json(data)
            return
        for table in [*figures, *(numbers_of(figures) if numbers else [])]:
            if isinstance(table, Table):
                out.print(table.title, style="bold", markup=False)
                print_cells(table.header, [[*map(escape, row)] for row in table.rows])
                out.print(f"{table.caption}\n" if table.caption else "", markup=False)


OUTPUT = Output()
