"""Samples needed and their ratio: hand-made curves with known answers."""

from __future__ import annotations

import math
from typing import Any

import pytest

from openbook.experiments.needed import Need, needed, ratio


def rows(**curves: dict[int, dict[int, float]]) -> list[dict[str, Any]]:
    """Curve -> seed -> size -> accuracy."""
    return [
        {"curve": name, "seed": seed, "samples": samples, "accuracy": accuracy}
        for name, seeds in curves.items()
        for seed, found in seeds.items()
        for samples, accuracy in found.items()
    ]


def test_a_curve_passes_between_sizes_on_the_logarithm() -> None:
    assert needed({1000: 0.1, 4000: 0.9}, 0.5).between == pytest.approx(2000)
    assert needed({4000: 0.9, 1000: 0.1}, 0.5) == needed({1000: 0.1, 4000: 0.9}, 0.5)
    found = needed({500: 0.1, 1000: 0.1, 4000: 0.9, 8000: 0.2}, 0.9)
    assert found.between == pytest.approx(4000) and (found.above, found.enough, found.width) == (1000, 4000, 4)


def test_one_that_never_passes_or_starts_above_is_known_from_one_side() -> None:
    assert needed({1000: 0.1, 4000: 0.4}, 0.5) == Need(4000, None, None)
    assert needed({1000: 0.6, 4000: 0.9}, 0.5) == Need(None, 1000, None)
    assert needed({}, 0.5) == Need(None, None, None)


def test_the_ratio_is_taken_seed_by_seed() -> None:
    slow = {0: {8000: 0.0, 16_000: 1.0}, 1: {4000: 0.0, 8000: 1.0}}
    fast = {0: {1000: 0.0, 2000: 1.0}, 1: {1000: 0.0, 2000: 1.0}}
    found = ratio(rows(slow=slow, fast=fast), "slow", "fast", 0.5)
    assert found is not None
    assert found.seeds == pytest.approx({0: 8.0, 1: 4.0})
    assert found.mean == pytest.approx(math.sqrt(32))
    assert found.low is not None and found.high is not None and found.low < 4 and found.high > 8
    assert (found.least, found.most) == (found.low, found.high)
    assert "2 seeds" in str(found)


def test_one_seed_has_no_interval_and_says_so() -> None:
    found = ratio(rows(slow={0: {10: 0.0, 40: 1.0}}, fast={0: {1: 0.0, 4: 1.0}}), "slow", "fast", 0.5)
    assert found is not None and found.low is None and str(found) == "10.0, one seed"
    assert (found.least, found.most) == (2.5, 40)  # no interval: what the sizes say


def test_where_the_slow_curve_never_arrives_there_is_a_bound() -> None:
    slow = {0: {16_000: 0.1, 32_000: 0.2}, 1: {8000: 0.1, 16_000: 1.0}}
    fast = {0: {500: 0.1, 1000: 0.9}, 1: {1000: 0.1, 2000: 0.9}}
    found = ratio(rows(slow=slow, fast=fast), "slow", "fast", 0.5)
    assert found is not None and found.mean is None and found.at_most is None
    assert found.above == pytest.approx(8000 / 2000) and str(found) == "more than 4.0, 2 of 2 seeds"


def test_a_slow_curve_that_starts_above_says_nothing_about_what_it_needs_at_least() -> None:
    fast = {seed: {1000: 0.1, 2000: 0.9} for seed in (0, 1)}
    assert ratio(rows(slow={0: {16_000: 1.0}}, fast=fast), "slow", "fast", 0.5) is None  # the other seed may need more
    alone = ratio(rows(slow={0: {16_000: 1.0}}, fast={0: fast[0]}), "slow", "fast", 0.5)
    assert alone is not None and (alone.least, alone.most) == (None, 16) and str(alone) == "at most 16.0"
    assert ratio(rows(slow={0: {16_000: 1.0}}, fast={0: {2000: 0.9}}), "slow", "fast", 0.5) is None
    found = ratio(rows(slow={0: {16_000: 0.1}, 1: {16_000: 1.0}}, fast=fast), "slow", "fast", 0.5)
    assert found is not None and str(found) == "more than 8.0, 1 of 2 seeds"
    assert found.least is None  # the other seed may need less


def test_sizes_that_differ_from_seed_to_seed_are_no_spread_of_seeds() -> None:
    slow = {0: {16: 0.1, 240: 0.7, 320: 0.95}, 1: {16: 0.1, 320: 0.95}, 2: {16: 0.1, 320: 0.95}}
    fast = {seed: {12: 0.1, 16: 0.99} for seed in range(3)}
    assert str(ratio(rows(slow=slow, fast=fast), "slow", "fast", 0.9)) == (
        "more than 1.0 and at most 26.7, 3 of 3 seeds"
    )
    wide = {seed: {16: 0.1, 320: 0.95} for seed in range(3)}
    assert str(ratio(rows(slow=wide, fast=fast), "slow", "fast", 0.9)) == "more than 1.0 and at most 26.7, 3 of 3 seeds"
    narrow = {seed: {16: 0.1, 240: 0.7, 320: 0.95} for seed in range(3)}
    found = ratio(rows(slow=narrow, fast=fast), "slow", "fast", 0.9)
    assert found is not None and found.mean == pytest.approx(19.44, abs=0.01) and found.low == pytest.approx(found.mean)
    started = {**fast, 2: {16: 0.99}}  # above from the start: what it needs is known from one side alone
    assert str(ratio(rows(slow=narrow, fast=started), "slow", "fast", 0.9)) == "more than 15.0, 3 of 3 seeds"


def test_a_bound_rests_on_the_seeds_that_were_given_the_most() -> None:
    slow = {0: {24: 0.1, 120: 0.1}, 1: {24: 0.1}, 2: {24: 0.1}}
    fast = {seed: {20: 0.1, 24: 0.9} for seed in range(3)}
    assert str(ratio(rows(slow=slow, fast=fast), "slow", "fast", 0.9)) == "more than 5.0, 1 of 3 seeds"


def test_a_bound_on_one_seed_is_none_on_all_that_the_fast_curve_has() -> None:
    fast = {seed: {10: 0.1, 12: 0.9} for seed in range(3)}
    found = ratio(rows(slow={1: {128: 0.3}}, fast=fast), "slow", "fast", 0.9)
    assert found is not None and found.least is None and str(found) == "more than 10.7, 1 of 3 seeds"


def test_nothing_is_said_without_both() -> None:
    assert ratio(rows(slow={0: {10: 1.0}}, fast={0: {10: 0.1}}), "slow", "fast", 0.5) is None
    assert ratio(rows(fast={0: {10: 1.0}}), "slow", "fast", 0.5) is None
    assert ratio(rows(slow={1: {10: 1.0}}, fast={0: {10: 1.0}}), "slow", "fast", 0.5) is None


def test_a_seed_of_the_fast_curve_that_never_arrives_is_not_left_out() -> None:
    found = rows(slow={0: {4: 0.1, 8: 0.95}, 1: {4: 0.1, 8: 0.95}}, fast={0: {2: 0.95}, 1: {2: 0.3}})
    assert ratio(found, "slow", "fast", 0.9) is None
    assert ratio([row for row in found if row["seed"] == 0], "slow", "fast", 0.9) is not None
