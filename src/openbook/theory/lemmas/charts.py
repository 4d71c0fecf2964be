"""The lower bound drawn: how fast two random tasks stop correlating, and how many tasks are pairwise uncorrelated."""

from __future__ import annotations

import math
from typing import Any

from openbook.figures.theme import PALETTE
from openbook.theory.lemmas.decay import exact_decay, paper_bound


def lower_bound_chart() -> Any:
    """Two panels over depth, both logarithmic: exact values beside the paper's bounds."""
    import altair as alt

    exact = exact_decay()
    probability, tasks = [], []
    for depth, (chance, parities) in enumerate(exact, start=1):
        bound = float(paper_bound(depth))
        probability += [
            {"depth": depth, "value": float(chance), "what": "exact (counted)"},
            {"depth": depth, "value": bound, "what": "paper's bound"},
        ]
        tasks += [
            {"depth": depth, "value": parities, "what": "exact (counted)"},
            {"depth": depth, "value": 2**depth, "what": "our construction, 2^d"},
        ]
        promised = 1 / (math.e * bound) - 1
        if promised >= 1:
            tasks.append({"depth": depth, "value": math.sqrt(promised), "what": "paper's bound"})
    depths = list(range(1, len(exact) + 1))
    order = ["exact (counted)", "our construction, 2^d", "paper's bound"]
    colour = alt.Color(
        "what:N",
        title=None,
        sort=order,
        scale=alt.Scale(domain=order, range=[PALETTE[0], PALETTE[2], PALETTE[1]]),
        legend=alt.Legend(orient="bottom", direction="horizontal"),
    )

    def panel(rows: list[dict[str, Any]], title: str, axis: str, powers: range, form: str) -> Any:
        ticks = [10.0**power for power in powers]
        return (
            alt.Chart(alt.Data(values=rows), title=title)
            .mark_line(point=alt.OverlayMarkDef(size=45), strokeWidth=2)
            .encode(
                x=alt.X("depth:Q", title="depth d", axis=alt.Axis(values=depths, labelFlush=False)),
                y=alt.Y(
                    "value:Q",
                    title=axis,
                    scale=alt.Scale(type="log", domain=[ticks[0], ticks[-1]]),
                    axis=alt.Axis(format=form, values=ticks),
                ),
                color=colour,
                tooltip=["what:N", "depth:Q", alt.Tooltip("value:Q", format=".4~g")],
            )
            .properties(width=330, height=280)
        )

    return alt.hconcat(
        panel(probability, "Two random tasks of MLT(d, 2) correlate", "probability", range(-3, 1), "~g"),
        panel(tasks, "Pairwise uncorrelated tasks of MLT(d, 2)", "number of tasks", range(7), ","),
        spacing=50,
    )
