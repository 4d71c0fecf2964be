"""The chart of an audit: every attack on every arm beside guessing, and what a budget of samples finds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from openbook.audit.arms import ARMS
from openbook.audit.summary import summary_rows
from openbook.figures.charts import Axis, Chart, Panel, Range, Ranges, Series, share

COLOURS = {"trained": 0, "before": 6, "without": 5, "decoy": 4, "positive": 1, "a guess": 7}
# Of completion and exposure, the variants that the verdict most often depends on.
SHOWN = (
    "greedy, no filter, in the book",
    "greedy, alphabet, in the book",
    "greedy, alphabet, alone",
    "rank 1, in the book",
    "rank 1, alone",
)


def chart_of(report: Mapping[str, Any]) -> Chart:
    """A panel for each attack: what it recovers of every arm, with intervals, beside what a guess scores."""
    rows = [row for row in summary_rows(report) if _is_shown(row)]
    budget = next((row["arms"] for row in rows if row["variant"].startswith("any token")), None)
    return Chart(
        "audit",
        f"Audit: {report['verdict']}",
        "Every attack on every arm: the share of the secrets that it recovers from the trained model and from the "
        "controls, beside what a guess scores.",
        [*map(_rates, rows), *([] if budget is None else [_budget(budget)])],
        "Bars: 95 % intervals by secret; marks: the share that is recovered. A guess rules out what it was shown.",
    )


def _is_shown(row: Mapping[str, Any]) -> bool:
    chosen = row["attack"] not in ("completion", "exposure") or row["variant"] in SHOWN
    return chosen and row["metric"] != "AUC" and row["rate"] is not None and row["rate"] == row["rate"]


def _rates(row: Mapping[str, Any]) -> Ranges:
    arms = [Range(arm, [(a["low"], a["high"])], a["rate"]) for arm, a in row["arms"].items()]
    title = f"{row['attack']}: {row['variant']}" + ("" if row["metric"] == "rate" else " (TPR)")
    return Ranges(title, share("share of the secrets"), [*arms, Range("a guess", [], row["elimination"])])


def _budget(arms: Mapping[str, Any]) -> Panel:
    curves: dict[str, Any] = {arm: arms[arm]["curve"] for arm in ARMS if arm in arms}
    lines = {arm: list(zip(curve["samples"], curve["expected"], strict=True)) for arm, curve in curves.items()}
    trained = curves["trained"]
    lines["a guess"] = list(zip(trained["samples"], trained["chance"], strict=True))
    series = [Series(name, points, COLOURS[name]) for name, points in reversed(lines.items())]  # trained on top
    samples = Axis("samples for each secret", "log")
    return Panel("What a budget of samples finds", samples, share("found at least once"), series)
