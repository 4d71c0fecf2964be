"""Statistics: known values, bounds that hold in simulations, and clusters that count once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openbook.audit.statistics import (
    area_under_curve,
    harmonic_share,
    mean_rate,
    one_sided,
    paired_difference,
    placements,
    true_positives,
)


def test_elimination_as_in_the_notes() -> None:
    assert harmonic_share(100) == pytest.approx(0.0519, abs=5e-5)
    assert harmonic_share(64) == pytest.approx(0.0741, abs=5e-5)
    assert harmonic_share(1) == 1


@pytest.mark.parametrize("count", [30, 64, 500])
def test_no_hits_are_an_upper_bound(count: int) -> None:
    result = mean_rate(np.zeros(count))
    assert (result.rate, result.low) == (0, 0)
    assert result.high == pytest.approx(3 / count, rel=0.06)  # the rule of three
    assert (1 - result.high) ** count == pytest.approx(0.05)


def test_twenty_orders_of_one_secret_are_not_twenty_secrets() -> None:
    hits_s = np.random.default_rng(0).random(60) < 0.3
    once = mean_rate(hits_s.astype(float))
    repeated = mean_rate(np.repeat(hits_s.astype(float), 20).reshape(60, 20).mean(1))
    pretending = mean_rate(np.repeat(hits_s.astype(float), 20))
    assert (once.low, once.high) == (repeated.low, repeated.high)
    assert pretending.high - pretending.low < (once.high - once.low) / 3


def test_one_hit_in_one_order_of_twenty_does_not_tell_more_than_none() -> None:
    for some in (1, 5, 20):
        result = mean_rate(np.r_[some / 20, np.zeros(127)])
        assert result.high >= mean_rate(np.zeros(128)).high and result.low <= result.rate
        missed = mean_rate(1 - np.r_[some / 20, np.zeros(127)])
        assert missed.low <= 1 - mean_rate(np.zeros(128)).high


def test_few_secrets_that_are_known_are_within_the_interval() -> None:
    """One secret in a hundred is known in every order, the others now and then by luck."""
    random, covered = np.random.default_rng(0), 0
    for _ in range(300):
        known = random.random(128) < 0.01
        result = mean_rate(np.where(known, 1.0, random.binomial(20, 0.0025, 128) / 20))
        covered += result.low <= 0.01 + 0.99 * 0.0025 <= result.high
    assert covered > 0.93 * 300


def test_nan_is_not_counted() -> None:
    assert mean_rate(np.array([1, np.nan, 0, np.nan])) == mean_rate(np.array([1.0, 0.0]))


small = st.integers(0, 4)  # few values, so that there are ties


@given(st.lists(st.tuples(small, st.lists(small, min_size=3, max_size=3)), min_size=2, max_size=8))
def test_the_area_is_the_share_of_pairs_in_the_right_order(data: list[tuple[int, list[int]]]) -> None:
    true_s = np.array([t for t, _ in data], float)
    rivals_sk = np.array([d for _, d in data], float)
    pairs = [(t > d) + 0.5 * (t == d) for t in true_s for d in rivals_sk.reshape(-1)]
    V_s, W_s = placements(true_s, rivals_sk)
    assert V_s.mean() == pytest.approx(np.mean(pairs)) and W_s.mean() == pytest.approx(np.mean(pairs))
    result = area_under_curve(V_s, W_s)
    assert 0 <= result.low <= result.rate + 1e-12 and result.rate - 1e-12 <= result.high <= 1


def test_the_areas_interval_covers_one_half_when_there_is_nothing() -> None:
    """Each secret has a level of its own, shared by its truth and its decoys: what clusters are about."""
    random, misses = np.random.default_rng(1), 0
    for _ in range(400):
        level_s = random.normal(size=40)
        true_s = level_s + random.normal(size=40)
        rivals_sk = level_s[:, None] + random.normal(size=(40, 30))
        result = area_under_curve(*placements(true_s, rivals_sk))
        misses += not result.low <= 0.5 <= result.high
    assert misses / 400 < 0.08


def test_the_areas_interval_is_not_certain_of_a_perfect_score() -> None:
    result = area_under_curve(*placements(np.ones(30), np.zeros((30, 10))))
    assert result.rate == result.high == 1 and 0.8 < result.low < 1
    nearly = area_under_curve(*placements(np.arange(30) + 60.0, np.arange(90, dtype=float).reshape(30, 3) - 28))
    assert nearly.low < nearly.rate <= nearly.high


@pytest.mark.parametrize("decoys", [100, 1000])
def test_true_positives_at_one_percent(decoys: int) -> None:
    rivals_sk = np.arange(decoys, dtype=float).reshape(10, -1)
    allowed = decoys // 100
    true_s = np.array([decoys - allowed - 1.0, decoys - allowed - 0.5, decoys + 1.0, 0, 0, 0, 0, 0, 0, 0])
    assert true_positives(true_s, rivals_sk).tolist() == [0, 1, 1, 0, 0, 0, 0, 0, 0, 0]


def test_without_a_signal_one_percent_is_found() -> None:
    random = np.random.default_rng(2)
    shares = [true_positives(random.normal(size=64), random.normal(size=(64, 63))).mean() for _ in range(200)]
    assert np.mean(shares) == pytest.approx(0.01, abs=0.004)


def test_two_models_without_a_difference_differ_in_their_areas_as_often_as_said() -> None:
    """With one decoy a secret, the decoys vary as much as the truths do."""
    from openbook.audit.verdict import Measure

    def measure(random: np.random.Generator) -> Measure:
        nothing = np.full(64, 0.5)
        V_s, W_s = placements(random.standard_normal(64), random.standard_normal((64, 1)))
        return Measure("membership", "loss", "recovery", V_s, nothing, nothing, metric="AUC", other_s=W_s)

    random = np.random.default_rng(1)
    pairs = [(measure(random), measure(random)) for _ in range(1000)]
    alarms = sum(paired_difference(a.paired_s, b.paired_s, one_sided(0.05)).low > 0 for a, b in pairs)
    assert alarms < 0.065 * 1000
    assert all(a.paired_s.mean() == pytest.approx(a.values_s.mean()) for a, _ in pairs)


def test_differences_are_paired() -> None:
    base_s = np.random.default_rng(3).random(50)
    result = paired_difference(base_s + 0.1, base_s, one_sided(0.025))
    assert result.rate == pytest.approx(0.1) and 0 < result.low < 0.1 < result.high
    assert paired_difference(base_s, base_s, 3).low <= 0  # no difference is no proof of one
    assert paired_difference(np.array([1.0]), np.array([0.0]), 2).low == -1
    few = paired_difference(np.r_[np.ones(2), np.zeros(62)], np.zeros(64), one_sided(0.05 / 30))
    assert few.low < 0  # two hits more than a control are luck
