import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openbook.base.randomness import Keyed, below, generator, permutations, words

seeds = st.integers(0, 2**64 - 1)


@given(seeds, st.integers(0, 2**40), st.integers(1, 30), st.integers(1, 13), st.data())
def test_the_words_of_an_item_do_not_depend_on_the_block(seed, start, items, size, data) -> None:  # type: ignore[no-untyped-def]
    block = words(seed, "a stream", start, items, size)
    assert block.shape == (items, size)
    item = data.draw(st.integers(0, items - 1))
    assert np.array_equal(words(seed, "a stream", start + item, 1, size)[0], block[item])


def test_seeds_streams_and_items_differ() -> None:
    base = words(0, "a", 0, 50, 8)
    assert len(np.unique(base)) == base.size
    assert not np.isin(words(1, "a", 0, 50, 8), base).any()
    assert not np.isin(words(0, "b", 0, 50, 8), base).any()


def test_words_are_pinned() -> None:
    """Datasets made by an earlier version must stay the same: this is Philox4x64, and not ours to change."""
    assert words(0, "input", 0, 1, 2).tolist() == [[18209473295103890196, 12100830529080807109]]


@given(seeds, st.integers(1, 65025), st.integers(1, 9))
def test_below_stays_below_and_takes_two_numbers_from_a_word(seed: int, bound: int, size: int) -> None:
    drawn = words(seed, "below", 0, 5, size)
    found = below(bound, drawn)
    assert found.shape == (5, 2 * size)
    halves = [half for word in drawn[0].tolist() for half in (word & 0xFFFFFFFF, word >> 32)]
    assert found[0].tolist() == [half * bound >> 32 for half in halves]
    assert np.array_equal(below(bound, drawn[:, 1:]), found[:, 2:])  # a block that is not contiguous


@given(seeds, st.integers(1, 300))
def test_permutations_are_permutations(seed: int, size: int) -> None:
    found = permutations(words(seed, "shuffle", 0, 3, size))
    assert np.array_equal(np.sort(found, axis=-1), np.broadcast_to(np.arange(size), (3, size)))


def test_permutations_are_uniform() -> None:
    """Six orders of three, 99.99 % point of chi-squared with 5 degrees of freedom."""
    found = permutations(words(1, "shuffle", 0, 60_000, 3))
    seen = np.unique(found @ [9, 3, 1], return_counts=True)[1]
    assert len(seen) == 6
    assert ((seen - 10_000) ** 2 / 10_000).sum() < 25.8


@pytest.mark.parametrize("other", [(1, "a", 0), (0, "b", 0), (0, "a", 1)])
def test_generators_differ_by_seed_stream_and_item(other: tuple[int, str, int]) -> None:
    mine = generator(0, "a", 0).random(5)
    assert np.array_equal(mine, generator(0, "a", 0).random(5))
    assert not np.array_equal(mine, generator(*other).random(5))


def test_keyed_words_do_not_depend_on_the_order_of_items() -> None:
    keyed = Keyed(3, "a stream")
    forward = [keyed.words(item, item + 1).tolist() for item in range(6)]
    backward = [keyed.words(item, item + 1).tolist() for item in reversed(range(6))]
    assert forward == backward[::-1]
    assert keyed.block(np.array([4, 2]), 3).tolist() == [keyed.words(4, 3).tolist(), keyed.words(2, 3).tolist()]
    assert Keyed(4, "a stream").words(0, 1).tolist() != forward[0]
