"""The lower bound drawn: how fast two random tasks stop correlating, and how many tasks are pairwise uncorrelated."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from openbook.figures.charts import Axis, Chart, Panel, Series
from openbook.theory.lemmas.parities import exact_decay, paper_bound


def decay_rows() -> list[dict[str, Any]]:
    """For each depth that is counted: the probability of correlation, the paper's bound of it, and the tasks."""
    return [
        {"depth": depth, "exact": float(chance), "tasks": parities, "bound": float(paper_bound(depth))}
        for depth, (chance, parities) in enumerate(exact_decay(), start=1)
    ]


def lower_bound_chart(rows: Sequence[dict[str, Any]]) -> Chart:
    """Two panels over depth, both logarithmic: the exact values of `decay_rows` beside the bounds."""
    depth, last = Axis("depth d"), rows[-1]
    promised = [(row["depth"], 1 / (math.e * row["bound"]) - 1) for row in rows]  # k² of the local lemma
    probability = [
        Series("exact (counted)", [(row["depth"], row["exact"]) for row in rows], 0),
        Series("the paper's bound", [(row["depth"], row["bound"]) for row in rows], 1),
    ]
    tasks = [
        Series("exact (counted)", [(row["depth"], row["tasks"]) for row in rows], 0),
        Series("our construction, 2^d", [(row["depth"], 2 ** row["depth"]) for row in rows], 2),
        Series("the paper's bound", [(d, math.sqrt(square)) for d, square in promised if square >= 1], 1),
    ]
    return Chart(
        "lower-bound",
        "Two characters: why the task is hard without the book",
        f"The chance that two random codebooks correlate falls with depth, to {last['exact']:.4f} at depth "
        f"{last['depth']}, where the paper's bound is {last['bound']:.4f}; {last['tasks']:,} tasks are then pairwise "
        "uncorrelated.",
        [
            Panel("Two random tasks correlate", depth, Axis("probability", "log"), probability),
            Panel("Pairwise uncorrelated tasks", depth, Axis("number of tasks", "log", "si"), tasks),
        ],
        "MLT(d, 2). Every output character is a parity of input bits, so both are counted exactly. Our construction is "
        "the check sq-explicit.",
    )
