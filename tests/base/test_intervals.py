"""Intervals for rates."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openbook.base.intervals import Z95, clustered, mean_interval, student, wilson


def test_wilson_gives_the_textbook_numbers() -> None:
    assert wilson(8, 10) == pytest.approx((0.4902, 0.9433), abs=1e-4)
    assert wilson(0, 10) == pytest.approx((0.0, 0.2775), abs=1e-4)
    assert wilson(10, 10) == pytest.approx((0.7225, 1.0), abs=1e-4)
    assert wilson(0, 0) == (0.0, 1.0)


def test_wilson_ends_at_one_where_every_trial_hits() -> None:
    assert all(wilson(trials, trials)[1] == 1.0 and wilson(0, trials)[0] == 0.0 for trials in range(1, 300))


@given(st.integers(1, 500), st.data())
def test_wilson_holds_its_share_and_narrows_with_more_trials(trials: int, data: st.DataObject) -> None:
    hits = data.draw(st.integers(0, trials))
    low, high = wilson(hits, trials)
    assert 0 <= low <= hits / trials + 1e-12 and hits / trials - 1e-12 <= high <= 1
    narrow = wilson(4 * hits, 4 * trials)
    assert narrow[1] - narrow[0] < high - low


def test_a_cluster_counts_once_however_much_is_inside() -> None:
    rates = [1.0, 0.0, 1.0, 1.0]
    mean, low, high = clustered(rates)
    assert mean == 0.75
    # between 0 and 1 the spread of the mean is that of trials, up to the unbiased estimate of the variance
    assert (low, high) == pytest.approx(wilson(0.75 * 3, 3, student(Z95, 3)), abs=1e-9)


def test_without_spread_there_are_as_many_trials_as_clusters() -> None:
    assert clustered([1.0] * 10)[1:] == pytest.approx(wilson(10, 10))
    third = clustered([1 / 3] * 3)  # whose computed variance is rounding, not evidence
    assert third[1:] == pytest.approx(wilson(1, 3))
    assert third[2] - third[1] > 0.5


def test_no_cluster_and_one() -> None:
    mean, low, high = clustered([])
    assert math.isnan(mean) and (low, high) == (0.0, 1.0)
    assert clustered([0.5]) == (0.5, *wilson(0.5, 1))


def test_intervals_cover_the_truth_as_often_as_they_say() -> None:
    random = np.random.default_rng(0)
    truth = random.beta(4, 2, (400, 60))  # each example has a rate of its own
    rates = random.binomial(20, truth) / 20
    covered = [low <= 4 / 6 <= high for _, low, high in map(clustered, rates)]
    assert 0.91 < np.mean(covered) < 0.99


@pytest.mark.parametrize("clusters", [2, 4, 16])
def test_few_clusters_cover_as_often_too(clusters: int) -> None:
    random = np.random.default_rng(1)
    rates = random.beta(6, 6, (2000, clusters))
    covered = [low <= 0.5 <= high for _, low, high in map(clustered, rates)]
    assert np.mean(covered) > 0.93


@pytest.mark.parametrize(
    ("degrees", "known"), [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (11, 2.201), (29, 2.045), (255, 1.9693)]
)
def test_quantiles_of_students_t_are_the_tables(degrees: int, known: float) -> None:
    assert student(Z95, degrees) == pytest.approx(known, rel=2e-3)
    if degrees == 11:
        assert student(3.2905, degrees) == pytest.approx(4.437, rel=5e-3)


def test_a_few_measurements_have_the_interval_of_students_t() -> None:
    mean, low, high = mean_interval([1.0, 2.0, 3.0])
    assert (mean, low, high) == pytest.approx((2.0, 2 - 4.303 / math.sqrt(3), 2 + 4.303 / math.sqrt(3)), abs=1e-3)
    assert mean_interval([5.0]) == (5.0, -math.inf, math.inf)


@pytest.mark.parametrize("count", [2, 3, 10, 30])
def test_it_covers_the_truth_as_often_as_it_says(count: int) -> None:
    drawn = np.random.default_rng(0).normal(size=(2000, count))
    held = np.mean([low <= 0 <= high for _, low, high in map(mean_interval, drawn)])
    assert 0.935 <= held <= 0.985
