"""`openbook theory`: every claim of the paper, checked."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.markup import escape
from rich.table import Table

from openbook.base.console import emit_json, out, progress
from openbook.figures.theme import check_path, save
from openbook.theory.lemmas import SECTIONS, Result, select
from openbook.theory.lemmas.check import Check

FAILED = 1


def theory(
    *,
    only: Annotated[list[str] | None, Parameter(negative="", consume_multiple=True)] = None,
    list_checks: Annotated[bool, Parameter(name="--list", negative="")] = False,
    seed: int = 0,
    chart: Path | None = None,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Check every lemma and theorem of the paper by machine: claim, method, measured value and verdict.

    Where the paper slips, the corrected statement is checked and a remark says what was wrong. The exit code is 1 if
    any check fails.

    Example: `openbook theory --only correlation-decay sq-explicit`

    Parameters
    ----------
    only
        Run this check alone; repeat for several.
    list_checks
        Name the checks and what they claim, without running them.
    seed
        Seed of the checks that draw random codebooks or inputs.
    chart
        Draw the lower bound (exact, the paper's, ours) to this file: .png, .svg or .html.
    json
        One JSON object on standard output.
    """
    check_path(chart)
    chosen = select(only)
    if list_checks:
        _list(chosen, json)
        return 0
    results: list[Result] = []
    with progress("checking", len(chosen)) as advance:
        for one in chosen:
            advance(0, note=one.name)
            results.append(one.run(seed=seed))
            advance()
    if chart is not None:
        from openbook.theory.lemmas.charts import lower_bound_chart

        save(lower_bound_chart(), chart)
    failed = [result for result in results if not result.holds]
    if json:
        emit_json(
            {
                "checks": [result.to_json() for result in results],
                "hold": len(results) - len(failed),
                "fail": len(failed),
                "seconds": round(sum(result.seconds for result in results), 2),
                "seed": seed,
            }
        )
    else:
        _show(results, in_full=bool(only))
    return FAILED if failed else 0


def _list(chosen: list[Check], json: bool) -> None:
    if json:
        emit_json({"checks": [one.to_json() for one in chosen]})
        return
    table = Table("check", "claim, and where the paper makes it", box=None, pad_edge=False)
    for section, checks in SECTIONS.items():
        members = [one for one in checks if one in chosen]
        if members:
            table.add_row(f"[bold]{section}[/bold]")
        for one in members:
            table.add_row(one.name, f"{escape(one.claim)}\n[dim]{one.paper}[/dim]")
    out.print(table)


def _verdict(result: Result) -> str:
    return "[green]holds[/green]" if result.holds else "[bold red]FAILS[/bold red]"


def _show(results: list[Result], in_full: bool) -> None:
    """A table in the order of the paper, then the remarks; a few checks asked for by name are shown in full."""
    if in_full:
        for result in results:
            _show_one(result)
    else:
        table = Table("check", "claim, and what was measured", "verdict", box=None, pad_edge=False)
        done = {result.check.name: result for result in results}
        for section, checks in SECTIONS.items():
            table.add_row(f"[bold]{section}[/bold]")
            for one in checks:
                result = done[one.name]
                found = f"[cyan]{escape(result.outcome.measured)}[/cyan] [dim]({one.method})[/dim]"
                table.add_row(one.name, f"{escape(one.claim)}\n{found}", _verdict(result))
        out.print(table)
        out.print("\n[bold]Remarks[/bold] (slips of the paper are checked as corrected)")
        for result in results:
            if result.check.remark:
                out.print(f"[bold]{result.check.name}[/bold]: {escape(result.check.remark)}")
    held = sum(result.holds for result in results)
    seconds = sum(result.seconds for result in results)
    out.print(f"\n{held} of {len(results)} checks hold ({seconds:.1f} s)")


def _show_one(result: Result) -> None:
    one = result.check
    table = Table.grid(padding=(0, 2))
    table.add_row("[bold]check[/bold]", f"[bold]{one.name}[/bold]")
    table.add_row("claim", escape(one.claim))
    table.add_row("in the paper", one.paper)
    table.add_row("method", one.method)
    table.add_row("", escape(one.function.__doc__ or ""))
    table.add_row("measured", escape(result.outcome.measured))
    if one.remark:
        table.add_row("remark", escape(one.remark))
    table.add_row("verdict", f"{_verdict(result)} ({result.seconds:.2f} s)")
    out.print(table)
    out.print()
