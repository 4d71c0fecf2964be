"""The main figure's charts, from hand-made rows."""

from __future__ import annotations

from typing import Any

from tests.experiments import rows as made

from openbook.experiments.figures import Chart
from openbook.experiments.sample_efficiency import draw


def test_costs_are_in_seconds_of_the_processor_only_where_every_run_has_them() -> None:
    def axes(rows: list[dict[str, Any]]) -> list[str]:
        (chart,) = (chart for chart in draw(rows) if chart.name == "sample-efficiency-costs")
        assert isinstance(chart, Chart)
        return [panel.x.label for panel in chart.panels]

    rows = made.efficiency()
    assert axes(rows) == ["tokens trained on, books included", "CPU seconds of training"]
    rows[0]["cpu_seconds"] = None  # written by an earlier version
    assert axes(rows)[1] == "seconds of training, by the clock"
