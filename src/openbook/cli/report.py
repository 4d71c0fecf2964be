"""`openbook report`: a page of one's own runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.markup import escape
from rich.table import Table

from openbook.base.console import emit_json, out
from openbook.base.errors import InputError


def report(
    *runs: Path,
    out_file: Annotated[Path, Parameter(name=["--out", "-o"])] = Path("report/index.html"),
    json: bool = False,
) -> None:
    """Put runs on one self-contained page: learning curves, context reliance, audit.

    Takes folders of runs or of several runs (a sweep's), and files that `openbook exam --json` or `openbook audit
    --json` printed. Two runs and more are compared first. A run that did not finish or was damaged is shown as such.

        openbook report runs/facts runs/other --out report/index.html

    Parameters
    ----------
    runs
        Folders of runs and JSON files, in the order of the page.
    out_file
        The page; its charts are written beside it as PNG and SVG.
    json
        One JSON object on standard output.
    """
    from openbook.comparison.own_runs import write_report

    if out_file.suffix != ".html":
        raise InputError(f"{out_file}: the page is an .html file")
    if out_file.is_dir():
        raise InputError(f"{out_file} is a folder: name a file")
    page, described = write_report(runs, out_file)
    if json:
        emit_json({"page": str(page), "runs": described})
        return
    table = Table("run", "state", "what is missing or wrong", box=None, header_style="bold")
    for row in described:
        table.add_row(escape(row["source"]), row["status"], escape(" ".join(row["notices"])))
    out.print(table)
    out.print(f"the page: {page.absolute()}", soft_wrap=True, markup=False)
