"""`openbook exam`: the context-reliance curve of a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter
from rich.markup import escape
from rich.table import Table

from openbook.base.console import emit_json, out, progress

if TYPE_CHECKING:
    from openbook.book import Source
    from openbook.curriculum import Curriculum

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
    from openbook.base.errors import InputError
    from openbook.figures.theme import check_path
    from openbook.training.exam import examine, examine_sections
    from openbook.training.run import exam_size, reopen

    check_path(chart)
    if not open_:
        raise InputError("--open names no share of the book: give numbers from 0 to 1, or leave it out")
    if samples is not None and samples < 1:
        raise InputError(f"--samples is {samples}: examine at least one")
    if others is not None and not 0 <= others <= 1:
        raise InputError(f"--others is {others:g}: give a share from 0 to 1")
    config, model, encoder, source = reopen(
        run, data, samples, lengths, str(codebook) if isinstance(codebook, Path) else codebook
    )
    about: dict[str, Any] = {
        "samples": samples or (exam_size(config) if data is None else config.exam.samples),
        "seed": config.seed if seed is None else seed,
        "batch_size": config.exam.batch_size,
    }
    if others is not None:
        _check_others(config.curriculum, source, about["samples"])
    curriculum = config.curriculum.model_copy(update={} if others is None else {"others": others})
    what = (model, encoder, source, curriculum)
    with progress("exam", None if sections else len(open_) + 1) as advance:
        closed = examine_sections(*what, advance=advance, **about) if sections else []
        rows = examine(*what, open_, generate=generate, advance=advance, **about)
    listed = [row.as_dict() for row in rows]
    apart = [row.as_dict() for row in closed]
    if chart is not None:
        _draw(listed, chart)
    if json:
        told = {"run": str(run), "others": curriculum.others, "rows": listed}
        emit_json({**told, "sections": apart} if sections else told)
        return
    _show(listed)
    if sections:
        _show_sections(apart)


def _check_others(curriculum: Curriculum, source: Source, samples: int) -> None:
    """Refuse `--others` where it would change nothing."""
    import numpy as np

    from openbook.base.errors import InputError
    from openbook.book.shelf import NONE

    if curriculum.candidates == "all":
        raise InputError("--others: this run's book has all pieces, needed or not (curriculum.candidates)")
    shelf = source.shelf(np.arange(min(samples, len(source))))
    if not ((shelf.pieces != NONE) & ~shelf.needed).any():
        raise InputError(
            "--others: no example here has a piece that it does not need; a record marks one with "
            '{"text": ..., "needed": false}'
        )


def _show(rows: list[dict[str, Any]]) -> None:
    headers = ["book", "open", "pieces", "accuracy", "95 % interval", "chance", "exact match"]
    generated = rows[0]["generated_match"] is not None
    table = Table(*headers, *(["written"] if generated else []), box=None, header_style="bold")
    for row in rows:
        cells = [
            row["book"],
            f"{row['open']:.0%}",
            f"{row['pieces']:.1f}",
            f"{row['accuracy']:.3f}",
            f"{row['low']:.3f} to {row['high']:.3f}",
            f"{row['chance']:.3f}",
            f"{row['exact_match']:.3f}",
        ]
        table.add_row(*cells, *([f"{row['generated_match']:.3f}"] if generated else []))
    out.print(table)
    out.print(f"{rows[0]['samples']} examples; intervals are clustered by example", style="dim")
    if generated:
        out.print("written: exact matches of what the model writes by itself", style="dim")


def _show_sections(rows: list[dict[str, Any]]) -> None:
    headers = ["closed", "pieces", "accuracy", "95 % interval", "chance", "exact match", "examples"]
    table = Table(*headers, box=None, header_style="bold")
    for row in rows:
        table.add_row(
            escape(row["section"]),
            f"{row['pieces']:.1f}",
            f"{row['accuracy']:.3f}",
            f"{row['low']:.3f} to {row['high']:.3f}",
            f"{row['chance']:.3f}",
            f"{row['exact_match']:.3f}",
            str(row["samples"]),
        )
    out.print()
    out.print(table)
    out.print("one section closed, the others open", style="dim")


def _draw(rows: list[dict[str, Any]], path: Path) -> None:
    import altair as alt

    from openbook.figures.theme import PALETTE, save

    right = [row for row in rows if row["book"] == "right"]
    axis = alt.Axis(format="%", values=sorted({row["open"] for row in rows}))
    x = alt.X("open:Q", title="share of the book open", axis=axis)
    y = alt.Y("accuracy:Q", title="accuracy on the answer").scale(domain=[0, 1])
    base = alt.Chart(alt.Data(values=right)).encode(x=x)
    band = base.mark_area(opacity=0.2, color=PALETTE[0]).encode(y="low:Q", y2="high:Q")
    points = alt.OverlayMarkDef(color=PALETTE[0], size=60)
    line = base.mark_line(point=points, color=PALETTE[0], strokeWidth=3).encode(y=y)
    chance = base.mark_line(strokeDash=[4, 4], color="#8C8C8C").encode(y="chance:Q")
    misled = alt.Chart(alt.Data(values=[row for row in rows if row["book"] == "wrong"])).encode(x="open:Q")
    wrong = misled.mark_point(shape="cross", size=140, color=PALETTE[1], filled=True, opacity=1).encode(y="accuracy:Q")
    spread = misled.mark_rule(color=PALETTE[1], strokeWidth=2).encode(y="low:Q", y2="high:Q")
    title = alt.TitleParams(
        "How much the model leans on the book", subtitle="line: right book; cross: wrong book; dashes: chance"
    )
    save(alt.layer(band, line, chance, spread, wrong).properties(width=460, height=300, title=title), path)
