"""Charts of the surrogate's results, from the rows that the commands also print."""

from __future__ import annotations

from typing import Any

import altair as alt

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
