import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.strategies import codebooks

from openbook.base.errors import InputError
from openbook.task import Codebook, coverable_inputs, random_inputs, subset_inputs, translate_batch
from openbook.task.inputs import coverage_length, missing_rules


@given(st.integers(2, 30), st.integers(0, 2**64 - 1), st.integers(0, 10**12), st.integers(1, 40), st.data())
def test_sample_i_is_the_same_whatever_the_batch(chars: int, seed: int, start: int, count: int, data) -> None:  # type: ignore[no-untyped-def]
    inputs, lengths = random_inputs(chars, count, (4, 20), seed, start)
    begin = data.draw(st.integers(0, count - 1))
    end = data.draw(st.integers(begin + 1, count))
    some, sizes = random_inputs(chars, end - begin, (4, 20), seed, start + begin)
    assert np.array_equal(some, inputs[begin:end])
    assert np.array_equal(sizes, lengths[begin:end])


def test_characters_and_lengths_are_uniform() -> None:
    """Chi-squared below its 99.99 % point, for single characters at every place and for the lengths."""
    inputs, lengths = random_inputs(5, 50_000, (2, 10), seed=4)
    for place in range(10):
        seen = np.bincount(inputs[:, place], minlength=5)
        assert ((seen - 10_000) ** 2 / 10_000).sum() < 23.5  # 4 degrees of freedom
    assert sorted(set(lengths.tolist())) == [2, 4, 6, 8, 10]
    seen = np.bincount(lengths)[2::2]
    assert ((seen - 10_000) ** 2 / 10_000).sum() < 23.5


def test_other_seeds_give_other_strings() -> None:
    assert not np.array_equal(random_inputs(8, 3, seed=0)[0], random_inputs(8, 3, seed=1)[0])


@pytest.mark.parametrize(
    ("lengths", "message"),
    [((0, 4), "at least 2"), ((6, 4), "at most the longest"), ((3, 5), "odd length"), ((4, 7), "odd length")],
)
def test_bad_lengths_are_refused(lengths: tuple[int, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        random_inputs(8, 1, lengths)


@given(codebooks(), st.data())
def test_subset_inputs_use_only_the_subset(codebook: Codebook, data: st.DataObject) -> None:
    level = data.draw(st.integers(0, codebook.depth - 1))
    rules = data.draw(st.sets(st.integers(0, codebook.chars**2 - 1), min_size=1))
    inputs, lengths = subset_inputs(codebook, level, sorted(rules), 20, (2, 12), seed=3)
    used = translate_batch(codebook, inputs, lengths).used()
    assert set(np.flatnonzero(used[:, level].any(0)).tolist()) <= rules


def test_subset_inputs_use_all_of_the_subset_and_are_free_elsewhere() -> None:
    codebook = Codebook.sample(3, 4, seed=1)
    rules = [1, 5, 6, 11]
    inputs, lengths = subset_inputs(codebook, 1, rules, 200, (8, 20), seed=2)
    used = translate_batch(codebook, inputs, lengths).used().any(0)
    assert np.flatnonzero(used[1]).tolist() == rules
    assert used[2].all()
    again, _ = subset_inputs(codebook, 1, rules, 5, (8, 20), seed=2, start=100)
    assert np.array_equal(again, inputs[100:105])


@pytest.mark.parametrize(("level", "rules"), [(3, [0]), (-1, [0]), (0, []), (0, [16]), (0, [-1])])
def test_subsets_that_do_not_exist_are_refused(level: int, rules: list[int]) -> None:
    with pytest.raises(InputError):
        subset_inputs(Codebook.sample(3, 4), level, rules, 1)


@pytest.mark.parametrize(("depth", "chars"), [(1, 2), (3, 4), (5, 6)])
def test_coverable_inputs_use_every_rule(depth: int, chars: int) -> None:
    codebook = Codebook.sample(depth, chars, seed=9)
    found = coverable_inputs(codebook, count=3)
    assert found.shape == (3, coverage_length(depth, chars))
    assert translate_batch(codebook, found).used().all()
    assert len({row.tobytes() for row in found}) == 3


def test_missing_rules_are_named() -> None:
    codebook = Codebook(2, np.arange(4)[None])
    assert missing_rules(codebook, [0, 0, 0, 1]).tolist() == [[0, 1], [0, 3]]  # looks up (0,0) and (1,0)


def test_lengths_too_short_to_cover_are_refused() -> None:
    with pytest.raises(InputError, match="use at least 128"):
        coverable_inputs(Codebook.sample(2, 8), length=100)
    with pytest.raises(InputError, match=r"0 of 1000 uniform strings.*use"):
        coverable_inputs(Codebook.sample(2, 8), length=128)
