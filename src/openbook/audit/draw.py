"""Charts of an audit: every attack on every arm beside chance, and the budget of samples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from openbook.audit.arms import ARMS
from openbook.figures.theme import PALETTE

# Trained in the strongest colour, controls quiet, the positive control as a warning.
COLOURS = {
    "trained": PALETTE[0],
    "before": "#B0B0B0",
    "without": "#7A7A7A",
    "decoy": PALETTE[4],
    "positive": PALETTE[1],
}
# One variant of each attack: those that the verdict most often hangs on.
SHOWN = (
    "greedy, no filter, in the book",
    "greedy, alphabet, in the book",
    "greedy, alphabet, alone",
    "rank 1, in the book",
    "rank 1, alone",
)


def _points(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    points = []
    for row in report["attacks"]:
        if row["rate"] is None or row["rate"] != row["rate"]:
            continue
        if row["name"] in ("completion", "exposure") and row["variant"] not in SHOWN:
            continue
        if row["metric"] == "AUC":
            continue
        what = f"{row['variant']} (TPR)" if row["metric"] != "rate" else row["variant"]
        keys = ("arm", "rate", "low", "high", "elimination", "chance")
        points.append({"label": f"{row['name']}: {what}", "attack": row["name"], **{k: row[k] for k in keys}})
    return points


def overview(report: Mapping[str, Any]) -> Any:
    """Rates of every attack on every arm with their intervals; a black tick is what guessing scores."""
    import altair as alt

    points = _points(report)
    order = list(dict.fromkeys(point["label"] for point in points))
    arms = [arm for arm in ARMS if any(point["arm"] == arm for point in points)]
    colour = alt.Color("arm:N", title="model", sort=arms).scale(domain=arms, range=[COLOURS[arm] for arm in arms])
    y = alt.Y("label:N", sort=order, title=None, axis=alt.Axis(labelLimit=340))
    offset = alt.YOffset("arm:N", sort=arms)
    data = alt.Data(values=points)
    x = alt.X("rate:Q", title="share of the secrets", axis=alt.Axis(format="%")).scale(domain=[0, 1])
    rules = alt.Chart(data).mark_rule(strokeWidth=2).encode(y=y, yOffset=offset, x="low:Q", x2="high:Q", color=colour)
    dots = alt.Chart(data).mark_point(filled=True, size=45, opacity=1).encode(y=y, yOffset=offset, x=x, color=colour)
    guess = (
        alt.Chart(alt.Data(values=[point for point in points if point["arm"] == arms[0]]))
        .mark_tick(color="black", thickness=2, height=26)
        .encode(y=y, x="elimination:Q")
    )
    title = alt.TitleParams(
        f"Audit: {report['verdict']}",
        subtitle="dots: what an attack recovers, with 95 % intervals by secret; black: guessing, with elimination",
    )
    return alt.layer(rules, dots, guess).properties(width=420, height=alt.Step(9), title=title)


def budget_curve(report: Mapping[str, Any]) -> Any | None:
    """The chance of at least one hit in n samples, for every arm; None if the attack was not run."""
    import altair as alt

    points, guess = [], []
    for row in report["attacks"]:
        if row["name"] == "budget" and row["variant"].startswith("any token"):
            curve = row["curve"]
            for n, expected, chance in zip(curve["samples"], curve["expected"], curve["chance"], strict=True):
                points.append({"arm": row["arm"], "samples": n, "expected": expected})
                guess.append({"samples": n, "expected": chance})
    if not points:
        return None
    arms = [arm for arm in ARMS if any(point["arm"] == arm for point in points)]
    points.sort(key=lambda point: -arms.index(point["arm"]))  # the trained model on top
    colour = alt.Color("arm:N", title="model", sort=arms).scale(domain=arms, range=[COLOURS[arm] for arm in arms])
    x = alt.X("samples:Q", title="samples for each secret").scale(type="log")
    y = alt.Y("expected:Q", title="found at least once", axis=alt.Axis(format="%")).scale(domain=[0, 1])
    lines = alt.Chart(alt.Data(values=points)).mark_line(strokeWidth=3).encode(x=x, y=y, color=colour)
    dashes = (
        alt.Chart(alt.Data(values=guess[: len(guess) // len(arms)]))
        .mark_line(color="black", strokeDash=[4, 4])
        .encode(x=x, y=y)
    )
    title = alt.TitleParams("What a budget of samples finds", subtitle="dashes: guessing among the candidates")
    return alt.layer(lines, dashes).properties(width=420, height=200, title=title)


def charts(report: Mapping[str, Any]) -> Any:
    """Both, one below the other."""
    import altair as alt

    curve = budget_curve(report)
    return overview(report) if curve is None else alt.vconcat(overview(report), curve)
