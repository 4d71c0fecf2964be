"""Several runs side by side: what each was started with, what came of it, and their curves in one chart."""

from __future__ import annotations

from collections.abc import Sequence

from openbook.comparison.records import RunRecord
from openbook.figures import Axis, Chart, Level, Panel, Series, Table, share
from openbook.report.page import PageSection

NAME = "overview"
MOST_CURVES = 8  # colours of the palette
HEADER = ["run", "learned", "curriculum", "seed", "examples", "book closed", "95 %", "book open", "chance"]


def overview(runs: Sequence[RunRecord]) -> PageSection | None:
    """The runs that finished, compared; None where there are fewer than two of them."""
    compared = [(run, row) for run in runs if (row := _row(run)) is not None]
    if len(compared) < 2:
        return None
    figures: list[Chart | Table] = [Table(f"{NAME}-table", "What came of them", HEADER, [row for _, row in compared])]
    curves = [(run, curve) for run, _ in compared if len(curve := _curve(run)) > 1]
    drawn = curves[:MOST_CURVES]
    if len(drawn) > 1:
        series = [Series(run.name, curve, colour) for colour, (run, curve) in enumerate(drawn)]
        chances = {run.result.chance for run, _ in drawn if run.result}
        levels = [Level(chances.pop(), "chance")] if len(chances) == 1 else []
        ends = ", ".join(f"{run.name} ends at {curve[-1][1]:.0%}" for run, curve in drawn)
        panel = Panel("Exams during training", Axis("examples trained on"), share("accuracy"), series, levels)
        left_out = f"The first {MOST_CURVES} of {len(curves)} runs." if len(drawn) < len(curves) else ""
        figures.insert(0, Chart(f"{NAME}-curves", "With the book closed", f"{ends}.", [panel], left_out))
    story = (
        "All finished runs of this page, in its order. An interval is of one run's exam, not of runs with other seeds."
    )
    return PageSection(NAME, "The runs side by side", f"{len(compared)} runs", story, figures=figures)


def _row(run: RunRecord) -> list[str] | None:
    """The run in a line of the table; None where it has no config, no result or no exam with the book closed."""
    config, result = run.config, run.result
    if config is None or result is None:
        return None
    closed = next((row for row in result.exam if row.open == 0 and row.book == "right"), None)
    if closed is None:
        return None
    return [
        run.name,
        config.learned(),
        config.curriculum(),
        str(config.seed),
        f"{result.samples:,}",
        f"{closed.accuracy:.1%}",
        f"{closed.low:.1%} to {closed.high:.1%}",
        f"{result.open_book:.1%}",
        f"{result.chance:.1%}",
    ]


def _curve(run: RunRecord) -> list[tuple[float, float]]:
    """Examples trained on, and accuracy with the book closed."""
    if run.result is None:
        return []
    each = (run.result.positions or run.result.samples) / max(1, run.result.steps)
    return [(line.step * each, line.closed_book) for line in run.log if line.closed_book is not None]
