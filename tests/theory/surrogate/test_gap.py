"""The gap: vanilla runs that end when they can translate, stopped runs that stay marked, and honest fits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from openbook.base.errors import InputError
from openbook.task import Codebook, random_inputs
from openbook.theory.surrogate.censored import censored_line, growth, is_identified, median_interval, span
from openbook.theory.surrogate.gap import GapGrid, exam, fits, measure, vanilla, with_context
from openbook.theory.surrogate.model import context

TINY = GapGrid(chars=(2,), depth=3, seeds=6, budget=4000)


def test_the_exam_accepts_other_weights_for_the_same_map_and_nothing_less():
    """Renaming the characters between two layers changes the weights but not the translation."""
    codebook = Codebook.sample(2, 3, 0)
    rename = np.array([2, 0, 1])
    pairs = np.arange(9)
    renamed = rename[pairs // 3] * 3 + rename[pairs % 3]
    other = np.stack([renamed[codebook.tables[0]], codebook.tables[1][np.argsort(renamed)]])
    # between the layers Shift pairs the same renamed characters, so layer 2 undoes the renaming
    broken = other.copy()
    broken[1, [0, 1]] = broken[1, [1, 0]]
    tables = np.stack([codebook.tables] * 3)
    W_isxk = np.stack([np.eye(9)[:, table] for pair in (codebook.tables, other, broken) for table in pair])
    W_isxk = W_isxk.reshape(3, 2, 9, 9).swapaxes(0, 1)
    strings = np.repeat(random_inputs(3, 1, (400, 400), 0)[0], 3, axis=0)
    assert exam(W_isxk, tables, strings, 3).tolist() == [True, True, False]
    np.testing.assert_array_equal(W_isxk[:, 0], context(codebook))


def test_vanilla_learns_one_level_and_is_stopped_by_its_budget_at_many():
    assert np.isfinite(vanilla(1, 2, 4, 2000, 0)).all()
    assert np.isinf(vanilla(8, 4, 3, 2000, 0, rates=(0.1,))).all()


def test_context_needs_little_more_for_each_level():
    shallow, deep = (np.median(with_context("enhanced", depth, 2, 4, 0)) for depth in (2, 8))
    assert np.isfinite(deep) and deep < 16 * shallow


def test_measure_marks_stopped_runs_and_goes_twice_as_deep_with_context():
    rows = measure(TINY)
    assert {(row["arm"], row["depth"]) for row in rows if row["arm"] != "vanilla"} == {
        (arm, depth) for arm in ("enhanced", "search") for depth in range(1, 7)
    }
    for row in rows:
        assert row["recovered"] == sum(np.isfinite(row["characters"]))
        assert row["arm"] != "vanilla" or all(np.isinf(v) or v <= 4000 for v in row["characters"])
    by_arm = {fit["arm"]: fit for fit in fits(rows)}
    assert by_arm["vanilla"]["growth"] > by_arm["enhanced"]["growth"] > 1
    assert 1 < by_arm["search"]["power_of_d"] < 1.4  # d log d


def test_median_interval_covers_and_keeps_infinity():
    assert median_interval(np.array([1.0, 2.0, 3.0])) == (2.0, 1.0, 3.0)
    assert median_interval(np.array([1.0, np.inf, np.inf])) == (np.inf, 1.0, np.inf)
    rng = np.random.default_rng(0)
    inside = [(low <= 0 <= high) for _, low, high in (median_interval(rng.normal(size=10)) for _ in range(2000))]
    assert 0.95 <= np.mean(inside) <= 0.99  # ranks 2 and 9 of 10: 97.9 %


def test_a_censored_fit_finds_the_slope_that_ignoring_the_censoring_misses():
    rng = np.random.default_rng(1)
    x = np.repeat(np.arange(1.0, 6), 200)
    y = 1 + 2 * x + rng.normal(size=x.size)
    limit = np.full(x.size, np.exp(8.0))
    values = np.where(y > 8, np.inf, np.exp(y))
    assert censored_line(x, values, limit)[1] == pytest.approx(2, abs=0.08)
    slope, low, high = growth(x, values, limit)
    assert low < slope < high and low < 2.05 and high > 1.95
    naive = censored_line(x, np.minimum(values, limit), limit)[1]
    assert naive < 1.7


def test_where_runs_ended_at_one_depth_only_no_growth_is_made_up():
    done, stopped = [128.0] * 6, [np.inf] * 6
    x = np.repeat([2.0, 3.0], 6)
    assert not is_identified(x, np.array(done + stopped)) and is_identified(x, np.array([*done, 1500.0, *stopped[1:]]))
    point = {"arm": "vanilla", "chars": 2, "runs": 6, "censored_at": 1600.0}
    rows = [{**point, "depth": 2, "characters": done}, {**point, "depth": 3, "characters": stopped}]
    assert fits(rows) == []
    rows[1]["characters"] = [1500.0, *stopped[1:]]  # one run of six: resamples without it could come from any slope
    (fit,) = fits(rows)
    assert fit["low"] < fit["growth"] < fit["high"] == np.inf
    assert span(fit["low"], fit["high"], ".0f").endswith(" or more") and span(2, 3.5) == "2.00 to 3.50"


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"chars": ()}, "no alphabet size"),
        ({"chars": (1,)}, "chars is 1"),
        ({"depth": 0}, "depth is 0"),
        ({"seeds": 5}, "6 or more"),
        ({"chars": (2, 2)}, "name each once"),
        ({"budget": 10}, "budget of 10"),
    ],
)
def test_what_cannot_be_measured_is_refused(change, complaint):
    with pytest.raises(InputError, match=complaint):
        measure(replace(TINY, **change))
