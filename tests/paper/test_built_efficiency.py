"""The main figure with the hand-built transformer: its grid of units, its worker pool and its published curves."""

from __future__ import annotations

import pytest

from openbook.base.errors import InputError
from openbook.paper.built_efficiency import EXPERIMENT, NAMES, grid, measure
from openbook.paper.curricula import CURVES
from openbook.paper.efficiency_charts import published_rows


@pytest.mark.parametrize("scale", ["smoke", "laptop", "overnight", "paper"])
def test_a_scale_is_the_grid_without_sizes_of_its_own(scale) -> None:
    units = grid(scale)
    assert units == EXPERIMENT.units(scale)
    assert {unit.config["curve"] for unit in units} == set(NAMES)
    assert len({str(unit.config) for unit in units}) == len(units)


def test_sizes_and_curves_can_be_asked_for() -> None:
    units = grid("laptop", chars=[8, 8], samples=[1000, 20_000], seeds=2, curves=["anneal", "no-context"])
    assert {(unit.config["chars"], unit.config["depth"]) for unit in units} == {(8, 5)} and len(units) == 2 * 2 * 2
    assert {unit.config["seed"] for unit in units} == {0, 1}


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"seeds": 0}, "at least 1"),
        ({"chars": [1]}, "at least 2"),
        ({"samples": [0]}, "at least 1"),
        ({"curves": ["aneal"]}, "did you mean 'anneal'"),
    ],
)
def test_a_bad_grid_is_refused(options: dict, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        grid("laptop", **options)


@pytest.mark.slow
def test_units_that_are_trained_side_by_side_give_sorted_rows() -> None:
    done: list[int] = []
    units = grid("smoke", samples=[96, 64], curves=["no-context", "anneal"])
    rows = measure(units, 2, lambda samples, note: done.append(samples))
    assert [(row["curve"], row["samples"]) for row in rows] == [
        ("anneal", 64),
        ("anneal", 96),
        ("no-context", 64),
        ("no-context", 96),
    ]
    assert sorted(done) == [64, 64, 96, 96]
    assert all(0 <= row["accuracy"] <= 1 and row["chance"] == 1 / 3 for row in rows)


@pytest.mark.slow
def test_a_unit_that_cannot_be_trained_is_named() -> None:
    with pytest.raises(InputError, match=r"training on 64 samples \(anneal\): .*255"):
        measure(grid("smoke", chars=[1000], curves=["anneal"]), 1, lambda *_, **__: None)


def test_published_rows_are_of_the_curves_that_are_drawn() -> None:
    rows = published_rows(NAMES)
    assert {row["curriculum"] for row in rows} == {CURVES[name].published for name in NAMES}
    best = next(r for r in rows if (r["chars"], r["curriculum"], r["samples"]) == (8, "Annealing Dropout", 50_000))
    assert best["accuracy"] == 1.0
