"""An experiment of a file outside the package: it is planned, run by workers and judged like any other."""

from __future__ import annotations

from pathlib import Path

import pytest

from openbook.base.registry import PLUGINS, load_plugin
from openbook.paper import EXPERIMENTS
from openbook.paper.reproduce import plan_reproduction, run_missing

PLUGIN = """
from openbook.figures.charts import Table
from openbook.paper import EXPERIMENTS
from openbook.paper.experiment import Experiment, Unit
from openbook.report.claims import unmeasured


def units(scale):
    return [Unit({"sides": sides}, seconds=0.1) for sides in (2, 6)]


def run(config, models):
    return [{"sides": config["sides"], "ones": 1 / config["sides"]}]


def draw(rows):
    return [Table("dice", "Dice", ["sides"], [[str(row["sides"])] for row in rows])] if rows else []


def claims(rows):
    return [unmeasured("Dice are fair.", "none", "nothing")]


EXPERIMENTS.register("dice")(Experiment("dice", "Dice", "nowhere", "Is chance fair?", units, run, draw, claims))
"""


def test_an_experiment_of_a_plugin_is_run_by_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PLUGINS, "")
    file = tmp_path / "dice.py"
    file.write_text(PLUGIN)
    load_plugin(file)
    try:
        planned = plan_reproduction(["dice"], "smoke", tmp_path / "out")
        events = [event for event, _ in run_missing(planned.missing(), 1, tmp_path / "out")]
        assert [event.kind for event in events] == ["started", "done"] * 2
        assert [row["sides"] for row in planned.results(EXPERIMENTS["dice"]).rows] == [2, 6]
    finally:
        EXPERIMENTS.remove("dice")
