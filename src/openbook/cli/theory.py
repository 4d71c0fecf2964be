"""`openbook theory`: every claim of the paper, checked."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Annotated

from cyclopts import Parameter
from rich.markup import escape
from rich.table import Table

from openbook.base.console import emit_json, out, print_cells, progress
from openbook.cli.output import OUTPUT, Output
from openbook.figures import save
from openbook.theory.lemmas import Check, Result, select
from openbook.theory.lemmas.charts import decay_rows, lower_bound_chart

FAILED = 1
VERDICT = {True: "[green]holds[/green]", False: "[bold red]FAILS[/bold red]"}


def theory(
    *,
    only: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    list_checks: Annotated[bool, Parameter(name="--list")] = False,
    seed: int = 0,
    output: Output = OUTPUT,
) -> int:
    """Check every lemma and theorem of the paper by machine: claim, method, measured value and verdict.

    Where the paper slips, the corrected statement is checked and a remark says what was wrong. The exit code is 1 if
    any check fails.

    Example: `openbook theory --only correlation-decay sq-explicit`

    Parameters
    ----------
    only
        Run only the checks of these names, and show them in full.
    list_checks
        List the checks and what they claim, without running them.
    seed
        Seed of the checks that draw random codebooks or inputs.
    output.chart
        Draw the lower bound (exact, the paper's, ours) to this file: .png, .svg or .html.
    output.json
        Print one JSON object on standard output.
    """
    checks = select(only)
    if list_checks:
        if output.json:
            emit_json({"checks": [check.to_json() for check in checks]})
        else:
            _show(["claim, and where the paper makes it"], checks, [[f"[dim]{check.paper}[/dim]"] for check in checks])
        return 0
    results: list[Result] = []
    with progress("checking", len(checks)) as advance:
        for check in checks:
            advance(0, note=check.name)
            results.append(check.run(seed=seed))
            advance()
    if output.chart is not None:
        save(lower_bound_chart(decay_rows()), output.chart)
    held, seconds = sum(result.holds for result in results), round(sum(result.seconds for result in results), 2)
    failed = len(results) - held
    if output.json:
        rows = [result.to_json() for result in results]
        emit_json({"checks": rows, "hold": held, "fail": failed, "seconds": seconds, "seed": seed})
    else:
        _show_in_full(results) if only else _show_all(results)
        out.print(f"\n{held} of {len(results)} checks hold ({seconds:.1f} s)")
    return FAILED if failed else 0


def _show(columns: Sequence[str], checks: Sequence[Check], cells: Sequence[Sequence[str]]) -> None:
    """Print the checks by section; the first cell of each check stands below its claim, the others in columns."""
    rows: list[list[str]] = []
    for section, members in itertools.groupby(zip(checks, cells, strict=True), key=lambda member: member[0].section):
        rows.append([f"[bold]{section}[/bold]", *[""] * len(columns)])
        rows += [[check.name, f"{escape(check.claim)}\n{below}", *others] for check, (below, *others) in members]
    print_cells(["check", *columns], rows)


def _show_all(results: Sequence[Result]) -> None:
    """A table in the order of the paper, then the remarks."""
    cells = [
        [f"[cyan]{escape(result.outcome.measured)}[/cyan] [dim]({result.check.method})[/dim]", VERDICT[result.holds]]
        for result in results
    ]
    _show(["claim, and what was measured", "verdict"], [result.check for result in results], cells)
    out.print("\n[bold]Remarks[/bold] (where the paper slips, the corrected statement is checked)")
    for result in results:
        if result.check.remark:
            out.print(f"[bold]{result.check.name}[/bold]: {escape(result.check.remark)}")


def _show_in_full(results: Sequence[Result]) -> None:
    """Everything that is known of each check, one after another."""
    for result in results:
        check, table = result.check, Table.grid(padding=(0, 2))
        table.add_row("[bold]check[/bold]", f"[bold]{check.name}[/bold]")
        texts = {"claim": check.claim, "in the paper": check.paper, "method": f"{check.method}\n{check.how}"}
        texts |= {"measured": result.outcome.measured, "remark": check.remark}
        for label, text in texts.items():
            if text:
                table.add_row(label, escape(text))
        table.add_row("verdict", f"{VERDICT[result.holds]} ({result.seconds:.2f} s)")
        out.print(table, "")
