"""Charts of the construction: columns recovered during training, and deviation against the scale N."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from openbook.theory.construction.efficiency import CURRICULA, Point, published_points
from openbook.theory.construction.training import Run
from openbook.theory.construction.verify import Verification


def recovery(runs: Sequence[Run]) -> Any:
    """Share of columns recovered by level against the step: a row for each update, a panel for each rate."""
    rows = [
        {
            "step": point["step"],
            "level": f"W{level + 1}",
            "recovered": share,
            "update": run.recipe.name,
            "rate": f"peak rate {run.recipe.rate:g}",
        }
        for run in runs
        for point in run.curve
        for level, share in enumerate(point["recovered_by_layer"])
    ]
    names = list(dict.fromkeys(str(row["update"]) for row in rows))
    rates = list(dict.fromkeys(row["rate"] for row in rows))
    first = runs[0]
    return (
        alt.Chart(alt.Data(values=rows))
        .mark_line(strokeWidth=2, clip=True)
        .encode(
            x=alt.X("step:Q", title="step of 32 strings"),
            y=alt.Y(
                "recovered:Q", title="columns recovered", axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1])
            ),
            color=alt.Color("level:N", title="level"),
            column=alt.Column("rate:N", sort=rates, title=None, header=alt.Header(labelFontSize=13)),
            row=alt.Row("update:N", sort=names, title=None, header=alt.Header(labelFontSize=13)),
        )
        .properties(
            width=230,
            height=170,
            title={
                "text": f"The transformer written by hand, trained on MLT({first.depth}, {first.chars})",
                "subtitle": f"columns of HardMax(W) that are the codebook's; {first.recipe.sequences:,} strings, "
                "one column of the context masked at each step",
            },
        )
    )


def deviations(result: Verification) -> Any:
    """Largest deviation from the surrogate against N: the two products that contain it, and the outputs."""
    rows = []
    for row in result.scales:
        rows += [
            {"N": row.scale, "deviation": row.shift, "what": "after the shift"},
            {"N": row.scale, "deviation": row.context, "what": "after reading the context"},
        ]
        rows += [{"N": row.scale, "deviation": value, "what": f"output, {name}"} for name, value in row.output.items()]
    names = list(dict.fromkeys(str(row["what"]) for row in rows))
    return (
        alt.Chart(alt.Data(values=rows))
        .mark_line(point=True, strokeWidth=2)
        .encode(
            x=alt.X(
                "N:Q",
                scale=alt.Scale(type="log", nice=False),
                title="scale N of the products",
                axis=alt.Axis(values=[row.scale for row in result.scales]),
            ),
            y=alt.Y(
                "deviation:Q",
                scale=alt.Scale(type="log"),
                title="largest deviation from the surrogate",
                axis=alt.Axis(format="~e", values=[10.0**-k for k in range(8)]),
            ),
            color=alt.Color("what:N", title=None, sort=names),
        )
        .properties(
            width=420,
            height=280,
            title={
                "text": f"How exact the construction is in float32, MLT({result.depth}, {result.chars})",
                "subtitle": "each level's normalisation removes most of the error of its products",
            },
        )
    )


def efficiency(points: Sequence[Point]) -> Any:
    """Closed-book accuracy against the size of the dataset: ours over the published curves of a 3B model."""
    return alt.hconcat(*(_panel(points, chars) for chars in sorted({point.chars for point in points}))).properties(
        title={
            "text": "Sample efficiency without pre-training: the transformer written by hand",
            "subtitle": [
                "solid: ours, mean of the seeds and their range; dashed: published, a 3B language model; "
                "dotted line: chance"
            ],
        }
    )


def _panel(points: Sequence[Point], chars: int) -> Any:
    """The curves of one task, with the published ones behind if there are any for it."""
    here = [point for point in points if point.chars == chars]
    ours = [
        {"curriculum": CURRICULA[p.curriculum], "samples": p.samples, "accuracy": p.accuracy, "who": "ours"}
        for p in here
    ]
    theirs = [row for row in published_points() if row["chars"] == chars]
    most = max(row["samples"] for row in ours + theirs)
    x = alt.X(
        "samples:Q",
        scale=alt.Scale(type="log", domain=[min(p.samples for p in here), most]),
        title="training samples, one epoch",
        axis=alt.Axis(format="~s", values=[10**k for k in range(2, 7)]),
    )
    y = alt.Y("accuracy:Q", title="accuracy, empty context", axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1]))
    colour = alt.Color(
        "curriculum:N", sort=list(CURRICULA.values()), title="curriculum", legend=alt.Legend(symbolOpacity=1)
    )
    base = alt.Chart(alt.Data(values=ours)).encode(x=x, color=colour)
    level = alt.Chart(alt.Data(values=[{"chance": 1 / chars}])).mark_rule(color="#888", strokeDash=[2, 3])
    behind = (
        alt.Chart(alt.Data(values=theirs))
        .mark_line(strokeDash=[4, 4], opacity=0.5, point=alt.OverlayMarkDef(size=18, opacity=0.5))
        .encode(x=x, y=y, color=colour)
    )
    spread = base.mark_rule(opacity=0.7).encode(y="min(accuracy):Q", y2="max(accuracy):Q")
    mean = base.mark_line(strokeWidth=2.5, point=alt.OverlayMarkDef(size=45)).encode(
        y=alt.Y("mean(accuracy):Q", title="accuracy, empty context", axis=alt.Axis(format="%"))
    )
    layers = [level.encode(y="chance:Q"), *([behind] if theirs else []), spread, mean]
    return alt.layer(*layers).properties(width=360, height=260, title=f"MLT({here[0].depth}, {chars})")
