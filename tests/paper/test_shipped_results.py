"""Charts in docs/results are those that this code draws from the rows beside them.

Where one is not, this draws them all again:

    python -c "from pathlib import Path; from openbook.paper.page import redraw; redraw(Path('docs/results'))"
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from openbook.figures import Chart, svg
from openbook.paper import EXPERIMENTS, Experiment
from openbook.paper.models import Models

FOLDER = Path(__file__).parents[2] / "docs" / "results"
SHIPPED = [one for one in EXPERIMENTS if all((FOLDER / f"{one.name}.{kind}").exists() for kind in ("json", "svg"))]


def units(experiment: Experiment) -> list[dict[str, Any]]:
    return json.loads((FOLDER / f"{experiment.name}.json").read_text(encoding="utf-8")).get("units", [])


@pytest.mark.parametrize("experiment", [one for one in SHIPPED if units(one)], ids=lambda one: one.name)
def test_a_chart_in_the_docs_is_drawn_from_the_rows_beside_it(experiment: Experiment) -> None:
    rows = [row for unit in units(experiment) for row in unit["rows"]]
    chart = next(one for one in experiment.draw(rows) if isinstance(one, Chart) and one.name == experiment.name)
    assert (FOLDER / f"{experiment.name}.svg").read_text(encoding="utf-8") == svg(chart), (
        "draw it again (see the top of this file)"
    )


@pytest.mark.parametrize("experiment", [one for one in SHIPPED if units(one)], ids=lambda one: one.name)
def test_rows_in_the_docs_are_those_of_the_plan_and_say_what_made_them(experiment: Experiment) -> None:
    planned = [unit.config for unit in experiment.configs("overnight")]
    shipped = units(experiment)
    assert sorted(told(unit["config"]) for unit in shipped) == sorted(told(config) for config in planned)
    assert all(unit["environment"] and unit["models"] for unit in shipped)


def told(config: dict[str, Any]) -> str:
    """What a unit is about, and what the settings of its models come to, which may be spelled in another way since."""
    models = Models(Path("models"))
    meant = {**config, "learned": [models.meaning(spec) for spec in config["learned"]]}
    return json.dumps(meant, sort_keys=True)
