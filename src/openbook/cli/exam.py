"""`openbook exam`: the context-reliance curve of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from openbook.base.console import emit_json, out, print_table, progress
from openbook.cli.output import RATES
from openbook.figures import Chart, check_path, save

Shares = Annotated[list[float], Parameter(name="--open", negative="", consume_multiple=True)]


def exam(
    run: Path,
    *,
    data: Path | None = None,
    samples: int | None = None,
    lengths: tuple[int, int] | None = None,
    codebook: int | Literal["fresh"] | Path | None = None,
    open_: Shares = [0.0, 0.25, 0.5, 0.75, 1.0],  # noqa: B006 - cyclopts shows the default
    others: float | None = None,
    sections: bool = False,
    generate: bool = False,
    chart: Path | None = None,
    seed: int | None = None,
    json: bool = False,
) -> None:
    """Examine a run with the book closed, half open, open, and wrong.

    Next-token accuracy on the answer, its interval (clustered by example) and its chance level, and exact match, for
    each share of the book that is open. The task is examined on strings drawn apart from those of training.

        openbook exam runs/learn --chart reliance.png
        openbook exam runs/learn --sections

    Parameters
    ----------
    run
        Folder that `openbook learn` or `openbook prepare` left, or a reader that comes with openbook.
    data
        JSONL file to examine on, instead of the run's own.
    samples
        Examples; as many as the run's config says by default.
    lengths
        Shortest and longest string of the task, to see how far beyond its training a model goes.
    codebook
        Another codebook of the task (a seed, a file, or fresh): does the model still read a book it does not know?
    open_
        Shares of the book to open.
    others
        Share of the pieces that an example does not need that are in its book as well; as the run's curriculum says
        by default.
    sections
        Also close one section at a time and leave the others open: which of them the model knows by heart.
    generate
        Also let the model write its completions greedily and compare them (slower).
    chart
        Save the curve as PNG, SVG or HTML.
    seed
        Seed of the choice of open pieces.
    json
        One JSON object on standard output.
    """
    from openbook.api import Run

    check_path(chart)
    result = Run(run).exam(
        data,
        shares=open_,
        samples=samples,
        seed=seed,
        lengths=lengths,
        codebook=str(codebook) if isinstance(codebook, Path) else codebook,
        others=others,
        sections=sections,
        generate=generate,
        bar=progress,
    )
    rows = [row.as_dict() for row in result.rows]
    by_section = [row.as_dict() for row in result.sections]
    if chart is not None:
        save(reliance_chart(rows), chart)
    if json:
        emit_json(
            {"run": str(run), "others": result.others, "rows": rows, **({"sections": by_section} if sections else {})}
        )
        return
    _show(rows)
    if sections:
        _show_sections(by_section)


def _show(rows: list[dict[str, Any]]) -> None:
    columns = {"book": "{book}", "open": "{open:.0%}", "pieces": "{pieces:.1f}", **RATES}
    caption = f"{rows[0]['samples']} examples; intervals are clustered by example"
    if rows[0]["generated_match"] is not None:
        columns["written"] = "{generated_match:.3f}"
        caption += "\nwritten: exact matches of what the model writes by itself"
    print_table(rows, columns, caption)


def _show_sections(rows: list[dict[str, Any]]) -> None:
    out.print()
    columns = {"closed": "{section}", "pieces": "{pieces:.1f}", **RATES, "examples": "{samples}"}
    print_table(rows, columns, "one section closed, the others open")


def reliance_chart(rows: list[dict[str, Any]]) -> Chart:
    """Accuracy against the share of the book that is open, with the right book and with a wrong one."""
    from openbook.comparison.own_runs import reliance
    from openbook.comparison.records import ExamRow

    panel = reliance([ExamRow(**row) for row in rows])
    points = ", ".join(f"{y:.0%} at {x:.0%}" for x, y in panel.series[0].points)
    title = "How much the model leans on the book"
    return Chart("reliance", title, f"Accuracy by the share that is open: {points}.", [panel])
