"""The main figure's charts, from hand-made rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.paper import rows as made

from openbook.figures.charts import Chart, Table
from openbook.paper import sample_efficiency
from openbook.paper.efficiency_charts import draw
from openbook.paper.efficiency_claims import claims
from openbook.paper.models import Models, taught_student
from openbook.training.folder import RunFolder


def test_a_size_that_was_enough_by_luck_is_not_where_a_curve_arrives() -> None:
    rows = made.efficiency(anneal={1000: 0.95, 2000: 0.3, 4000: 0.97})
    (fewer,) = (claim for claim in claims(rows) if "10x less" in claim.claim)
    assert fewer.numbers["annealing reaches it at"] == 4000


def test_costs_are_in_seconds_of_the_processor_only_where_every_run_has_them() -> None:
    def axes(rows: list[dict[str, Any]]) -> list[str]:
        (chart,) = (chart for chart in draw(rows, "sample-efficiency") if chart.name == "sample-efficiency-costs")
        assert isinstance(chart, Chart)
        return [panel.x.label for panel in chart.panels]

    rows = made.efficiency()
    assert axes(rows) == ["tokens trained on, books included", "CPU seconds of training"]
    rows[0]["cpu_seconds"] = None  # written by an earlier version
    assert axes(rows)[1] == "seconds of training, by the clock"


def test_a_run_that_was_interrupted_has_no_seconds_but_tokens() -> None:
    rows = made.efficiency()
    for row in rows:
        row["resumed_from"] = 3 if row["curve"] == "anneal" else 0
    (chart,) = (chart for chart in draw(rows, "sample-efficiency") if chart.name == "sample-efficiency-costs")
    assert isinstance(chart, Chart)
    labels = [{series.name for series in panel.series} for panel in chart.panels]
    assert labels[0] - labels[1] == {"Annealing dropout"}


def test_alphabets_are_different_tasks() -> None:
    """Ten characters learned at other sizes change nothing about the eight; each has its claims, table and costs."""
    eight = made.efficiency()
    ten = [{**row, "chars": 10, "chance": 0.1, "accuracy": 0.1, "low": 0.09, "high": 0.11} for row in eight]
    alone = {claim.claim: claim for claim in claims(eight)}
    both = {claim.claim: claim for claim in claims([*ten, *eight])}
    assert len(both) == 2 * len(alone)
    for said, claim in alone.items():
        assert both[f"{said} (8 characters)"].numbers == claim.numbers
    assert both["Annealing learns the fastest, followed by fixed dropout. (10 characters)"].verdict == "fails"
    drawn = {item.name: item for item in draw([*ten, *eight], "sample-efficiency")}
    assert {"sample-efficiency-8-table", "sample-efficiency-10-table", "sample-efficiency-8-costs"} <= set(drawn)
    (table,) = (item for item in draw(eight, "sample-efficiency") if isinstance(item, Table))
    same = drawn["sample-efficiency-8-table"]
    assert isinstance(same, Table) and same.rows == table.rows


def test_what_is_said_of_the_figure_is_about_annealing_even_where_plain_fine_tuning_has_more_samples() -> None:
    chart = draw(made.efficiency(no_context={4000: 0.2, 64_000: 0.9}), "sample-efficiency")[0]
    assert isinstance(chart, Chart) and "Annealing" in chart.alt and "4,000 samples" in chart.alt


def test_what_is_said_of_the_figure_is_about_the_size_that_the_curves_share() -> None:
    chart = draw(made.efficiency(anneal={1000: 0.2, 4000: 0.97, 8000: 1.0}), "sample-efficiency")[0]
    assert isinstance(chart, Chart) and "4,000 samples" in chart.alt and "8,000" not in chart.alt


def test_fixed_dropout_at_chance_does_not_decide_the_order() -> None:
    first = {claim.claim: claim.verdict for claim in claims(made.efficiency(fixed={4000: 0.124}))}
    assert first["Annealing learns the fastest, followed by fixed dropout."] == "unclear"


def test_tokens_are_those_that_the_run_counted(tmp_path: Path) -> None:
    models, model = Models(tmp_path), taught_student("anneal", 100)
    run = RunFolder.create(models.place(model), models.config(model).model_dump(mode="json"), {})
    closed = {"open": 0, "accuracy": 0.5, "low": 0.4, "high": 0.6, "chance": 0.125, "exact_match": 0.0}
    run.finish({"exam": [closed], "accuracy": {"open_book": 1.0}, "seconds": 2.0, "steps": 7, "tokens": 12_345})
    (row,) = sample_efficiency.run(sample_efficiency.unit("anneal", 100, 0, 8, model).config, models)
    assert (row["tokens"], row["accuracy"], row["curve_by_step"]) == (12_345, 0.5, [])
