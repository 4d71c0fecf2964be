"""Charts in docs/results are those that this code draws from the rows beside them, and the rows those it plans."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from openbook.figures import svg
from openbook.figures.charts import Chart
from openbook.paper import EXPERIMENTS
from openbook.paper.experiment import Experiment, TaughtModel
from openbook.paper.models import Models
from openbook.paper.study import load_study

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "results"
STUDIES = [load_study(file) for file in sorted((ROOT / "studies").glob("*.yaml"))]


def units(experiment: Experiment) -> list[dict[str, Any]]:
    path = FOLDER / f"{experiment.name}.json"
    return json.loads(path.read_text(encoding="utf-8")).get("units", []) if path.exists() else []


SHIPPED = [experiment for experiment in [*EXPERIMENTS.values(), *STUDIES] if units(experiment)]
DRAWN = [experiment for experiment in SHIPPED if (FOLDER / f"{experiment.name}.svg").exists()]


def test_every_study_has_its_rows_in_the_docs() -> None:
    assert STUDIES and {study.name for study in STUDIES} <= {experiment.name for experiment in SHIPPED}
    assert {Path(study.study).stem for study in STUDIES} == {study.name for study in STUDIES}


@pytest.mark.parametrize("experiment", DRAWN, ids=lambda experiment: experiment.name)
def test_a_chart_in_the_docs_is_drawn_from_the_rows_beside_it(experiment: Experiment) -> None:
    rows = [row for unit in units(experiment) for row in unit["rows"]]
    drawn = (part for part in experiment.draw(rows) if isinstance(part, Chart))
    chart = next(chart for chart in drawn if chart.name == experiment.name)
    assert (FOLDER / f"{experiment.name}.svg").read_text(encoding="utf-8") == svg(chart), "draw it again"


@pytest.mark.parametrize("experiment", SHIPPED, ids=lambda experiment: experiment.name)
def test_rows_in_the_docs_are_those_of_the_plan_and_say_what_made_them(experiment: Experiment) -> None:
    planned = [meaning(unit.to_json()) for unit in experiment.units("overnight")]
    shipped = [meaning(unit["config"]) for unit in units(experiment)]
    assert len(set(planned)) == len(planned)
    assert sorted(set(shipped)) == sorted(planned)
    assert all(unit["environment"] and unit["models"] for unit in units(experiment))


def meaning(config: dict[str, Any]) -> str:
    """A unit's config with the full settings of its models, which may be spelled in another way since."""
    models = Models(Path("models"))
    learned = [models.meaning(TaughtModel(**model)) for model in config["learned"]]
    return json.dumps({**config, "learned": learned}, sort_keys=True)
