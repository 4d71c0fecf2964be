"""Charts of the surrogate's results, from the rows that the commands also print."""

from __future__ import annotations

from typing import Any

import altair as alt

from openbook.surrogate.gradient import ACROSS_BATCH, Study
from openbook.surrogate.trajectory import Trajectory

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
            x=alt.X("step:Q", title="step", axis=alt.Axis(format="~s")),
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
            f"Strings of {study.pairs:,} bigrams. Left: rules dropped from the first phrasebook, by strings in a batch.",
            f"Right: from the first k phrasebooks, in batches of {ACROSS_BATCH}. Dashed: chance.",
        ],
        offset=14,
    )
    both = [column("batch", "batch", "batch"), column("phrasebooks", "phrasebooks", "phrasebooks k")]
    return alt.hconcat(*both, title=title, spacing=40).resolve_scale(color="independent")
