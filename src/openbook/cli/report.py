"""`openbook report`: a page of one's own runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.markup import escape

from openbook.base.console import emit_json, out, print_table
from openbook.base.errors import InputError


def report(
    *runs: Path,
    out_file: Annotated[Path, Parameter(name=["--out", "-o"])] = Path("report/index.html"),
    json: bool = False,
) -> None:
    """Put runs on one self-contained page: learning curves, exams and audits.

    Give it folders of runs, folders that hold several runs (as a sweep leaves them), and files with what
    `openbook exam --json` or `openbook audit --json` printed. Two or more runs are compared at the top of the page. A
    run that did not finish or was damaged is shown as such. The page needs no network.

        openbook report runs/facts runs/other --out report/index.html

    Parameters
    ----------
    runs
        Folders of runs and JSON files, in the order in which the page shows them.
    out_file
        The page to write; every chart is also written beside it, in `charts/`, as PNG and SVG.
    json
        Print one JSON object instead of a table.
    """
    from openbook.comparison.own_runs import write_report

    if out_file.suffix != ".html":
        raise InputError(f"{out_file}: the page is an .html file; give --out a name that ends in .html")
    if out_file.is_dir():
        raise InputError(f"{out_file} is a folder: give --out the name of a file, such as {out_file}/index.html")
    page, described = write_report(runs, out_file)
    if json:
        emit_json({"page": str(page), "runs": described})
        return
    wrong = {"what is missing or wrong": lambda row: escape(" ".join(row["notices"]))}
    print_table(described, {"run": "{source}", "state": "{status}", **wrong})
    out.print(f"the page: {page.absolute()}", soft_wrap=True, markup=False)
