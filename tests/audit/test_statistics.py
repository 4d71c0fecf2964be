"""Statistics: known values, bounds that hold in simulations, and clusters that count once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openbook.audit.statistics import area, found_at, harmonic_share, one_sided, paired, placements, rate


def test_elimination_as_in_the_notes() -> None:
    assert harmonic_share(100) == pytest.approx(0.0519, abs=5e-5)
    assert harmonic_share(64) == pytest.approx(0.0741, abs=5e-5)
    assert harmonic_share(1) == 1


@pytest.mark.parametrize("count", [30, 64, 500])
def test_no_hits_are_an_upper_bound(count: int) -> None:
    found = rate(np.zeros(count))
    assert (found.rate, found.low) == (0, 0)
    assert found.high == pytest.approx(3 / count, rel=0.06)  # the rule of three
    assert (1 - found.high) ** count == pytest.approx(0.05)


def test_twenty_orders_of_one_secret_are_not_twenty_secrets() -> None:
    hits_s = np.random.default_rng(0).random(60) < 0.3
    once = rate(hits_s.astype(float))
    repeated = rate(np.repeat(hits_s.astype(float), 20).reshape(60, 20).mean(1))
    pretending = rate(np.repeat(hits_s.astype(float), 20))
    assert (once.low, once.high) == (repeated.low, repeated.high)
    assert pretending.high - pretending.low < (once.high - once.low) / 3


def test_one_hit_in_one_order_of_twenty_does_not_tell_more_than_none() -> None:
    for some in (1, 5, 20):
        found = rate(np.r_[some / 20, np.zeros(127)])
        assert found.high >= rate(np.zeros(128)).high and found.low <= found.rate
        missed = rate(1 - np.r_[some / 20, np.zeros(127)])
        assert missed.low <= 1 - rate(np.zeros(128)).high


def test_few_secrets_that_are_known_are_within_the_interval() -> None:
    """One secret in a hundred is known in every order, the others now and then by luck."""
    random, covered = np.random.default_rng(0), 0
    for _ in range(300):
        known = random.random(128) < 0.01
        found = rate(np.where(known, 1.0, random.binomial(20, 0.0025, 128) / 20))
        covered += found.low <= 0.01 + 0.99 * 0.0025 <= found.high
    assert covered > 0.93 * 300


def test_nan_is_not_counted() -> None:
    assert rate(np.array([1, np.nan, 0, np.nan])) == rate(np.array([1.0, 0.0]))


small = st.integers(0, 4)  # few values, so that there are ties


@given(st.lists(st.tuples(small, st.lists(small, min_size=3, max_size=3)), min_size=2, max_size=8))
def test_the_area_is_the_share_of_pairs_in_the_right_order(data: list[tuple[int, list[int]]]) -> None:
    true_s = np.array([t for t, _ in data], float)
    decoy_sk = np.array([d for _, d in data], float)
    pairs = [(t > d) + 0.5 * (t == d) for t in true_s for d in decoy_sk.reshape(-1)]
    V_s, W_s = placements(true_s, decoy_sk)
    assert V_s.mean() == pytest.approx(np.mean(pairs)) and W_s.mean() == pytest.approx(np.mean(pairs))
    found = area(V_s, W_s)
    assert 0 <= found.low <= found.rate + 1e-12 and found.rate - 1e-12 <= found.high <= 1


def test_the_areas_interval_covers_one_half_when_there_is_nothing() -> None:
    """Each secret has a level of its own, shared by its truth and its decoys: what clusters are about."""
    random, misses = np.random.default_rng(1), 0
    for _ in range(400):
        level_s = random.normal(size=40)
        true_s = level_s + random.normal(size=40)
        decoy_sk = level_s[:, None] + random.normal(size=(40, 30))
        found = area(*placements(true_s, decoy_sk))
        misses += not found.low <= 0.5 <= found.high
    assert misses / 400 < 0.08


def test_the_areas_interval_is_not_certain_of_a_perfect_score() -> None:
    found = area(*placements(np.ones(30), np.zeros((30, 10))))
    assert found.rate == found.high == 1 and 0.8 < found.low < 1
    nearly = area(*placements(np.arange(30) + 60.0, np.arange(90, dtype=float).reshape(30, 3) - 28))
    assert nearly.low < nearly.rate <= nearly.high


@pytest.mark.parametrize("decoys", [100, 1000])
def test_true_positives_at_one_percent(decoys: int) -> None:
    decoy_sk = np.arange(decoys, dtype=float).reshape(10, -1)
    allowed = decoys // 100
    true_s = np.array([decoys - allowed - 1.0, decoys - allowed - 0.5, decoys + 1.0, 0, 0, 0, 0, 0, 0, 0])
    assert found_at(true_s, decoy_sk).tolist() == [0, 1, 1, 0, 0, 0, 0, 0, 0, 0]


def test_without_a_signal_one_percent_is_found() -> None:
    random = np.random.default_rng(2)
    shares = [found_at(random.normal(size=64), random.normal(size=(64, 63))).mean() for _ in range(200)]
    assert np.mean(shares) == pytest.approx(0.01, abs=0.004)


def test_two_models_without_a_difference_differ_in_their_areas_as_often_as_said() -> None:
    """With one decoy a secret, the decoys vary as much as the truths do."""
    from openbook.audit.verdict import Measure

    def measure(random: np.random.Generator) -> Measure:
        nothing = np.full(64, 0.5)
        V_s, W_s = placements(random.standard_normal(64), random.standard_normal((64, 1)))
        return Measure("membership", "loss", "AUC", "recovery", V_s, nothing, nothing, W_s)

    random = np.random.default_rng(1)
    pairs = [(measure(random), measure(random)) for _ in range(1000)]
    alarms = sum(paired(a.paired_s, b.paired_s, one_sided(0.05)).low > 0 for a, b in pairs)
    assert alarms < 0.065 * 1000
    assert all(a.paired_s.mean() == pytest.approx(a.values_s.mean()) for a, _ in pairs)


def test_differences_are_paired() -> None:
    base_s = np.random.default_rng(3).random(50)
    found = paired(base_s + 0.1, base_s, one_sided(0.025))
    assert found.rate == pytest.approx(0.1) and 0 < found.low < 0.1 < found.high
    assert paired(base_s, base_s, 3).low <= 0  # no difference is no proof of one
    assert paired(np.array([1.0]), np.array([0.0]), 2).low == -1
    few = paired(np.r_[np.ones(2), np.zeros(62)], np.zeros(64), one_sided(0.05 / 30))
    assert few.low < 0  # two hits more than a control are luck
