"""Charts of the surrogate's results, from the rows that the commands also print."""

from __future__ import annotations

from math import isfinite
from typing import Any

import altair as alt

from openbook.figures.theme import PALETTE
from openbook.theory.surrogate.censored import span
from openbook.theory.surrogate.gap import GapStudy
from openbook.theory.surrogate.gradient import ACROSS_BATCH, Study
from openbook.theory.surrogate.trajectory import Trajectory

NAMES = {
    "search": "search",
    "descent": "surrogate gradient descent",
    "layerwise": "layer-wise descent",
    "full": "full-parameter descent",
    "vanilla": "descent without context",
    "wrong": "descent with wrong context",
}


def recovery(run: Trajectory) -> Any:
    """Share of rules held by each layer against steps, as in the paper's figure."""
    rows = [
        {"step": point["step"], "layer": layer + 1, "recovered": share}
        for point in run.curve
        for layer, share in enumerate(point["by_layer"])
    ]
    ending = "all rules recovered" if run.complete else f"stopped with {run.recovered:.1%} of the rules recovered"
    title = alt.TitleParams(
        f"MLT({run.depth}, {run.chars}): {NAMES[run.algorithm]}",
        subtitle=f"{ending} after {run.forward_passes:,} forward passes on one input of {run.length:,} characters",
    )
    return (
        alt.Chart(alt.Data(values=rows), title=title, width=560, height=300)
        .mark_line(strokeWidth=1.8, interpolate="step-after")
        .encode(
            x=alt.X("step:Q", title="step", axis=alt.Axis(format=",d")),
            y=alt.Y("recovered:Q", title="share of rules in the weights", axis=alt.Axis(format="%")).scale(
                domain=[0, 1]
            ),
            color=alt.Color("layer:O", title="layer", scale=alt.Scale(scheme="viridis")),
        )
    )


METRICS = {
    "paper": "largest entry is the rule (the paper's definition)",
    "released": "right sign at the rule (the released code)",
}


def gradient_accuracy(study: Study, rows: list[dict[str, Any]]) -> Any:
    """Four panels: the two measures, over batch size and over phrasebooks."""

    def panel(metric: str, kind: str, key: str, legend: str, chance: float) -> Any:
        values = [{**row, "accuracy": row[metric]} for row in rows if row["panel"] == kind]
        base = alt.Chart(alt.Data(values=values), width=330, height=220, title=alt.TitleParams(METRICS[metric]))
        lines = base.mark_line(point=alt.OverlayMarkDef(size=22), strokeWidth=1.6).encode(
            x=alt.X("rate:Q", title="drop rate", axis=alt.Axis(format="%")).scale(domainMin=0),
            y=alt.Y("accuracy:Q", title="gradient prediction accuracy", axis=alt.Axis(format="%")).scale(domain=[0, 1]),
            color=alt.Color(f"{key}:O", title=legend, scale=alt.Scale(scheme="viridis")),
        )
        rule = alt.Chart(alt.Data(values=[{"chance": chance}])).mark_rule(strokeDash=[4, 4], color="#888")
        return rule.encode(y="chance:Q") + lines

    def column(kind: str, key: str, legend: str) -> Any:
        return alt.vconcat(
            panel("paper", kind, key, legend, 1 / study.chars**2), panel("released", kind, key, legend, 0.5)
        ).resolve_scale(color="shared")

    title = alt.TitleParams(
        f"Does the gradient of a dropped rule point at it? MLT({study.depth}, {study.chars})",
        subtitle=[
            f"Strings of {study.pairs:,} bigrams. Left: rules dropped from the first phrasebook, by batch size.",
            f"Right: from the first k phrasebooks, in batches of {ACROSS_BATCH}. Dashed: chance.",
        ],
        offset=14,
    )
    both = [column("batch", "batch", "batch"), column("phrasebooks", "phrasebooks", "phrasebooks k")]
    return alt.hconcat(*both, title=title, spacing=40).resolve_scale(color="independent")


ARMS = {
    "vanilla": "no context: descent, best learning rate",
    "enhanced": "context-enhanced: descent (Algorithm 5)",
    "search": "context-enhanced: search (Algorithm 2)",
}


def gap(study: GapStudy, rows: list[dict[str, Any]], found: list[dict[str, Any]]) -> Any:
    """Characters needed against depth, one panel for each alphabet size: runs, medians with intervals, stopped runs."""
    runs, medians = [], []
    for row in rows:
        shared = {"chars": row["chars"], "depth": row["depth"], "arm": ARMS[row["arm"]]}
        top = row["censored_at"]
        for value in row["characters"]:
            finished = isfinite(value)
            runs.append({**shared, "characters": value if finished else top, "run": "done" if finished else "stopped"})
        if isfinite(row["median"]):
            high = row["high"] if isfinite(row["high"]) else top
            medians.append({**shared, "characters": row["median"], "low": row["low"], "high": high})
    domain = list(ARMS.values())
    colour = alt.Color(
        "arm:N",
        title=None,
        legend=alt.Legend(symbolOpacity=1),
        scale=alt.Scale(domain=domain, range=[PALETTE[1], PALETTE[0], PALETTE[2]]),
    )
    x = alt.X("depth:Q", title="depth d", axis=alt.Axis(tickMinStep=1, format="d")).scale(
        domain=[0.5, 2 * study.depth + 0.5], nice=False
    )
    y = alt.Y("characters:Q", title="characters of input until learned", axis=alt.Axis(format="~s")).scale(type="log")

    def panel(chars: int) -> Any:
        here = [row for row in runs if row["chars"] == chars]
        points = alt.Chart(alt.Data(values=here)).encode(x=x, y=y, color=colour)
        dots = points.transform_filter("datum.run == 'done'").mark_circle(size=14, opacity=0.3)
        stopped = points.transform_filter("datum.run == 'stopped'").mark_point(
            shape="triangle-up", size=40, opacity=0.6, yOffset=-6
        )
        middle = alt.Chart(alt.Data(values=[row for row in medians if row["chars"] == chars])).encode(x=x, color=colour)
        bars = middle.mark_rule(strokeWidth=1.5).encode(y=alt.Y("low:Q"), y2="high:Q")
        line = middle.mark_line(point=alt.OverlayMarkDef(size=45), strokeWidth=2).encode(y=y)
        growths = {fit["arm"]: fit for fit in found if fit["chars"] == chars}
        says = []
        if fit := growths.get("vanilla"):
            says.append(f"no context: × {fit['growth']:.2g} for each level ({span(fit['low'], fit['high'], '.2g')})")
        if fit := growths.get("enhanced"):
            says.append(f"descent with context: like d to the power {fit['power_of_d']:.2f}")
        title = alt.TitleParams(f"n = {chars} characters", subtitle=says)
        return alt.layer(dots, stopped, bars, line, title=title, width=250, height=300)

    title = alt.TitleParams(
        "Without context every level multiplies the input needed; with context it grows like a power of d",
        subtitle=[
            f"Medians of {study.seeds} codebooks with 95 % intervals. Dots are runs, triangles are runs stopped by the "
            f"budget of {study.budget:,} characters.",
            "No context is drawn up to the first depth at which no run succeeds.",
        ],
        offset=12,
    )
    charts = [panel(chars) for chars in sorted({row["chars"] for row in rows})]
    return alt.hconcat(*charts, title=title, spacing=30).configure_legend(orient="bottom", direction="vertical")
