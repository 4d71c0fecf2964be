"""Studies: a file of runs is an experiment, and one that says something else is refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.paper import rows as made

from openbook.base.errors import InputError
from openbook.figures.charts import Chart, Table
from openbook.paper.models import Models
from openbook.paper.reproduce import complete, plan_reproduction
from openbook.paper.study import load_study

STUDY = """
name: rates
title: At other rates
story: Does the rate matter?
scale: smoke
defaults: {reader: null, chars: 3, samples: 32}
runs:
  - curve: anneal
    seeds: [0, 1]
    settings:
      {curriculum: anneal, exam.samples: 16,
       task.text: composite, task.depth: 2, task.chars: 3, task.lengths: [4, 6]}
    grid: {training.matrix_learning_rate: [0.01, null]}
    labels: {passes: 1}
columns: {rate: training.matrix_learning_rate}
panels:
  - {title: At the end, x: rate}
"""


def load(text: str, tmp_path: Path) -> Any:
    (tmp_path / "study.yaml").write_text(text)
    return load_study(tmp_path / "study.yaml")


def test_a_line_is_a_run_for_each_seed_and_value_and_null_leaves_the_setting_as_it_is(tmp_path: Path) -> None:
    study = load(STUDY, tmp_path)
    units = study.units("smoke")
    assert study.units("overnight") == [] and study.command("smoke").startswith("openbook reproduce --study ")
    given = [(unit.config["seed"], unit.learned[0].settings.get("training.matrix_learning_rate")) for unit in units]
    assert given == [(0, 0.01), (0, None), (1, 0.01), (1, None)]
    assert all(unit.config["passes"] == 1 and unit.learned[0].settings["task.codebook"] == seed
               for unit, (seed, _) in zip(units, given, strict=True))  # fmt: skip
    configs = [Models(tmp_path).config(unit.learned[0]) for unit in units]
    assert {config.samples for config in configs} == {32}


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("curve: anneal", "curve: annealed", "curve"),
        ("seeds: [0, 1]", "sedes: [0, 1]", "sedes"),
        ("scale: smoke", "scale: big", "scale"),
        ("title: At other rates\n", "", "title"),
        ("x: rate}", "x: rate, z: 1}", "z"),
        ("runs:", "lines:", "runs"),
        ("name: rates", "name: ../rates", "name"),
    ],
)
def test_a_study_that_says_something_else_is_refused_by_name(old: str, new: str, words: str, tmp_path: Path) -> None:
    assert old in STUDY
    with pytest.raises(InputError, match=words):
        load(STUDY.replace(old, new), tmp_path)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"absent\.yaml"):
        load_study(tmp_path / "absent.yaml")


def test_a_study_cannot_take_the_name_of_an_experiment(tmp_path: Path) -> None:
    study = load(STUDY.replace("name: rates", "name: gap"), tmp_path)
    with pytest.raises(InputError, match="'gap' is an experiment of the paper: rename the study"):
        plan_reproduction([], "smoke", tmp_path / "out", studies=[study])


def test_without_panels_a_study_has_the_charts_of_the_main_figure_and_always_its_table(tmp_path: Path) -> None:
    plain = load(STUDY[: STUDY.index("panels:")], tmp_path)
    drawn = plain.draw(made.rates())
    assert drawn[0].name == "rates" and "rates-costs" in {part.name for part in drawn}
    (table,) = (part for part in load(STUDY, tmp_path).draw(made.rates()) if isinstance(part, Table))
    assert len(table.rows) == len(made.rates()) and "rate" in table.header
    assert plain.claims(made.rates()) == []


def test_rows_that_are_left_out_of_the_chart_stay_in_the_table(tmp_path: Path) -> None:
    study = load(STUDY + "only: {rate: 0.012}\n", tmp_path)
    chart, table = study.draw(made.rates())
    assert isinstance(chart, Chart) and isinstance(table, Table)
    assert {x for series in chart.panels[0].series for x, _ in series.points} == {0.012}
    assert len(table.rows) == len(made.rates())
    (alone,) = study.draw([row for row in made.rates() if row["rate"] != 0.012])
    assert isinstance(alone, Table)


@pytest.mark.slow
def test_a_study_is_run_by_workers_and_its_rows_have_its_columns(tmp_path: Path) -> None:
    study = load(STUDY.replace("seeds: [0, 1]", "seeds: [0]"), tmp_path)
    planned = plan_reproduction([], "smoke", tmp_path / "out", studies=[study])
    outcome = complete(planned, processes=1)
    assert outcome.failed == {} and outcome.units == {"rates": 2} and outcome.page.exists()
    rows = planned.results(study).rows
    assert rows[0]["rate"] == 0.01 and all({"last_loss", "passes"} <= set(row) for row in rows)
    assert planned.missing() == []
