"""Samples needed and their ratio: hand-made curves with known answers."""

from __future__ import annotations

import math
from typing import Any

import pytest

from openbook.paper.needed import Need, needed, ratio


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
    assert {seed: times.between for seed, times in found.seeds.items()} == pytest.approx({0: 8.0, 1: 4.0})
    assert found.mean == pytest.approx(math.sqrt(32))
    assert found.low is not None and found.high is not None and found.low < 4 and found.high > 8
    assert (found.least, found.most) == (4000 / 2000, 16_000 / 1000)  # what the sizes say, however narrow the interval
    assert str(found).startswith("5.7 (") and str(found).endswith("2 seeds; by sizes 2.0 to 16.0")


def test_one_seed_has_no_interval_and_says_so() -> None:
    found = ratio(rows(slow={0: {10: 0.0, 40: 1.0}}, fast={0: {1: 0.0, 4: 1.0}}), "slow", "fast", 0.5)
    assert found.low is None and str(found) == "10.0, one seed; by sizes 2.5 to 40.0"


def test_where_the_slow_curve_never_arrives_there_is_a_bound() -> None:
    slow = {0: {16_000: 0.1, 32_000: 0.2}, 1: {8000: 0.1, 16_000: 1.0}}
    fast = {0: {500: 0.1, 1000: 0.9}, 1: {1000: 0.1, 2000: 0.9}}
    found = ratio(rows(slow=slow, fast=fast), "slow", "fast", 0.5)
    assert found.mean is None and (found.least, found.most) == (4.0, None)
    assert str(found) == "seed 0: more than 32.0; seed 1: 4.0 to 16.0"


def test_a_slow_curve_that_starts_above_says_nothing_about_what_it_needs_at_least() -> None:
    fast = {0: {1000: 0.1, 2000: 0.9}}
    alone = ratio(rows(slow={0: {16_000: 1.0}}, fast=fast), "slow", "fast", 0.5)
    assert (alone.least, alone.most) == (None, 16) and str(alone) == "less than 16.0, one seed"
    neither = ratio(rows(slow={0: {16_000: 1.0}}, fast={0: {2000: 0.9}}), "slow", "fast", 0.5)
    assert (neither.least, neither.most) == (None, None) and str(neither) == "its sizes do not tell, one seed"


def test_sizes_that_differ_from_seed_to_seed_are_no_spread_of_seeds() -> None:
    slow = {0: {16: 0.1, 240: 0.7, 320: 0.95}, 1: {16: 0.1, 320: 0.95}, 2: {16: 0.1, 320: 0.95}}
    fast = {seed: {12: 0.1, 16: 0.99} for seed in range(3)}
    found = ratio(rows(slow=slow, fast=fast), "slow", "fast", 0.9)
    assert str(found) == "seed 0: 15.0 to 26.7; seed 1: 1.0 to 26.7; seed 2: 1.0 to 26.7"
    wide = {seed: {16: 0.1, 320: 0.95} for seed in range(3)}
    assert str(ratio(rows(slow=wide, fast=fast), "slow", "fast", 0.9)) == "1.0 to 26.7, 3 seeds"
    narrow = {seed: {16: 0.1, 240: 0.7, 320: 0.95} for seed in range(3)}
    found = ratio(rows(slow=narrow, fast=fast), "slow", "fast", 0.9)
    assert found.mean == pytest.approx(19.44, abs=0.01) and found.low == pytest.approx(found.mean)
    started = {**fast, 2: {16: 0.99}}  # above from the start: what it needs is known from one side alone
    found = ratio(rows(slow=narrow, fast=started), "slow", "fast", 0.9)
    assert found.mean is None and (found.least, found.most) == (15.0, None)


def test_more_evidence_on_one_seed_takes_nothing_from_the_others() -> None:
    fast = {seed: {20: 0.1, 24: 0.9} for seed in range(2)}
    slow = {seed: {240: 0.1} for seed in range(2)}
    assert str(ratio(rows(slow=slow, fast=fast), "slow", "fast", 0.9)) == "more than 10.0, 2 seeds"
    longer = ratio(rows(slow={**slow, 1: {240: 0.1, 480: 0.2}}, fast=fast), "slow", "fast", 0.9)
    assert longer.least == 10 and str(longer) == "seed 0: more than 10.0; seed 1: more than 20.0"


@pytest.mark.parametrize(
    ("slow", "fast"),
    [([0, 1, 2], [0]), ([0], [0, 1, 2]), ([0, 1], [1, 2]), ([0, 1], [0, 1, 2]), ([1], [0])],
    ids=["fast lacks some", "slow lacks some", "one in common", "slow lacks one", "none in common"],
)
@pytest.mark.parametrize("sizes", [{40: 0.1}, {20: 0.1, 40: 0.9}, {40: 0.9}], ids=["never", "between", "at once"])
def test_seeds_that_one_curve_lacks_are_not_left_out(slow: list[int], fast: list[int], sizes: dict[int, float]) -> None:
    found = rows(slow=dict.fromkeys(slow, sizes), fast={seed: {3: 0.1, 4: 0.9} for seed in fast})
    times = ratio(found, "slow", "fast", 0.9)
    assert set(times.seeds) == {*slow, *fast} and (times.least, times.most, times.mean) == (None, None, None)


def test_nothing_is_said_without_both() -> None:
    for found in (rows(fast={0: {10: 1.0}}), rows(slow={1: {10: 1.0}})):
        assert str(ratio(found, "slow", "fast", 0.5)) == "its sizes do not tell, one seed"
    assert str(ratio([], "slow", "fast", 0.5)) == "its sizes do not tell"


def test_a_seed_of_the_fast_curve_that_never_arrives_bounds_from_one_side_alone() -> None:
    found = rows(slow={0: {4: 0.1, 8: 0.95}, 1: {4: 0.1, 8: 0.95}}, fast={0: {1: 0.1, 2: 0.95}, 1: {2: 0.3}})
    times = ratio(found, "slow", "fast", 0.9)
    assert (times.least, times.most) == (None, 8.0) and str(times) == "seed 0: 2.0 to 8.0; seed 1: less than 4.0"
