"""The chart of the lower bound, as the command and the page draw it."""

from __future__ import annotations

import math

import pytest

from openbook.theory.lemmas.charts import decay_rows, lower_bound_chart
from openbook.theory.lemmas.parities import DEPTH


def test_the_chart_shows_what_was_counted_above_every_bound() -> None:
    rows = decay_rows()
    assert [row["depth"] for row in rows] == list(range(1, DEPTH + 1))
    chart = lower_bound_chart(rows)
    probability, tasks = ({series.name: dict(series.points) for series in panel.series} for panel in chart.panels)
    assert probability["exact (counted)"][2] == pytest.approx(5 / 54)
    assert all(
        probability["exact (counted)"][d] <= bound + 1e-12 for d, bound in probability["the paper's bound"].items()
    )
    assert tasks["exact (counted)"][3] == 39 and tasks["our construction, 2^d"][3] == 8
    for name in ("our construction, 2^d", "the paper's bound"):
        assert all(tasks["exact (counted)"][depth] >= number for depth, number in tasks[name].items()), name
    assert tasks["the paper's bound"][11] == pytest.approx(math.sqrt(3 * (9 / 7) ** 10 / math.e - 1))


def test_a_thing_has_one_colour_in_both_panels() -> None:
    chart = lower_bound_chart(decay_rows())
    colours = {(series.name, series.colour) for panel in chart.panels for series in panel.series}
    assert len(colours) == len({name for name, _ in colours}) == len({colour for _, colour in colours}) == 3
