import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import BY_HAND, CASES
from tests.strategies import codebooks, codebooks_and_strings, sizes, strings

from openbook.base.errors import InputError
from openbook.task import Codebook, translate, translate_batch
from openbook.task.phrasebook import sample_tables
from openbook.task.translate import check_string, dependencies, invert_batch, output


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_oracle_and_batch_obey_the_cases(case) -> None:  # type: ignore[no-untyped-def]
    assert tuple(output(translate(case.codebook, case.string))) == case.output
    assert tuple(translate_batch(case.codebook, [case.string]).outputs[0]) == case.output


def test_a_wrong_case_would_be_noticed() -> None:
    case = BY_HAND[1]
    other = Codebook(3, np.arange(9)[None])
    assert tuple(output(translate(other, case.string))) != case.output


@st.composite
def batches(draw: st.DrawFn) -> tuple[int, int, int, list[list[int]]]:
    depth, chars = draw(sizes)
    return depth, chars, draw(st.integers(0, 2**32)), draw(st.lists(strings(chars), min_size=1, max_size=6))


def _padded(batch: list[list[int]], chars: int) -> tuple[np.ndarray, list[int]]:
    longest = max(map(len, batch))
    return np.array([row + [chars - 1] * (longest - len(row)) for row in batch]), [len(row) for row in batch]


@given(batches())
def test_batch_equals_oracle_under_one_codebook_and_under_fresh_ones(batch) -> None:  # type: ignore[no-untyped-def]
    depth, chars, seed, rows = batch
    padded, lengths = _padded(rows, chars)
    codebook = Codebook.sample(depth, chars, seed)
    _assert_equal_to_oracle(translate_batch(codebook, padded, lengths), [codebook] * len(rows), rows)
    tables = sample_tables(depth, chars, seed, 0, len(rows))
    _assert_equal_to_oracle(translate_batch(tables, padded, lengths), [Codebook(chars, t) for t in tables], rows)


def _assert_equal_to_oracle(found, codebooks, rows) -> None:  # type: ignore[no-untyped-def]
    used = found.used()
    assert used.shape == (len(rows), codebooks[0].depth, codebooks[0].chars ** 2)
    for b, (codebook, row) in enumerate(zip(codebooks, rows, strict=True)):
        levels = translate(codebook, row)
        assert found.inputs[b, : len(row)].tolist() == row
        assert found.outputs[b, : len(row)].tolist() == output(levels)
        for i, level in enumerate(levels):
            indices = [a * codebook.chars + c for a, c in level.bigrams]
            assert found.strings[b, i, : len(row)].tolist() == level.string
            assert found.bigrams[b, i, : len(row) // 2].tolist() == indices
            assert np.flatnonzero(used[b, i]).tolist() == sorted(set(indices))


@given(codebooks_and_strings())
def test_inverse_at_every_level(pair: tuple[Codebook, list[int]]) -> None:
    codebook, string = pair
    found = translate_batch(codebook, [string])
    for level in range(codebook.depth + 1):
        assert invert_batch(codebook, found.strings[:, level], level=level)[0].tolist() == string


@given(batches())
def test_inverse_of_strings_of_different_lengths(batch) -> None:  # type: ignore[no-untyped-def]
    depth, chars, seed, rows = batch
    padded, lengths = _padded(rows, chars)
    codebook = Codebook.sample(depth, chars, seed)
    back = invert_batch(codebook, translate_batch(codebook, padded, lengths).outputs, lengths)
    assert [row[:size].tolist() for row, size in zip(back, lengths, strict=True)] == rows


@given(codebooks_and_strings())
def test_the_inverse_phrasebook_undoes_a_level(pair: tuple[Codebook, list[int]]) -> None:
    """The bigrams of a level come back from its images under the inverse phrasebook."""
    codebook, string = pair
    for level, book in zip(translate(codebook, string), codebook.phrasebooks, strict=True):
        assert [book.inverse()(*image) for image in level.images] == level.bigrams


@given(codebooks_and_strings(), st.integers(0, 20))
def test_circular_invariance_by_an_even_number_of_positions(pair: tuple[Codebook, list[int]], k: int) -> None:
    codebook, string = pair
    turn = (2 * k) % len(string)
    turned = output(translate(codebook, string[turn:] + string[:turn]))
    straight = output(translate(codebook, string))
    assert turned == straight[turn:] + straight[:turn]


def test_an_odd_turn_is_no_symmetry() -> None:
    codebook = Codebook.sample(2, 8)
    string = [0, 1, 2, 3, 4, 5, 6, 7]
    turned = output(translate(codebook, string[1:] + string[:1]))
    straight = output(translate(codebook, string))
    assert turned != straight[1:] + straight[:1]


@given(codebooks(), st.data())
def test_outputs_do_not_depend_on_other_characters(codebook: Codebook, data: st.DataObject) -> None:
    string = data.draw(strings(codebook.chars, st.integers(codebook.depth, codebook.depth + 6)))
    position = data.draw(st.integers(0, len(string) - 1))
    needed = dependencies(codebook.depth, position, len(string))
    assert len(needed) == 2 * codebook.depth
    others = data.draw(strings(codebook.chars, st.just(len(string) // 2)))
    mixed = [char if place in needed else others[place] for place, char in enumerate(string)]
    assert output(translate(codebook, mixed))[position] == output(translate(codebook, string))[position]


@pytest.mark.parametrize("depth", [1, 2, 3, 5])
def test_outputs_depend_on_every_one_of_the_2d_characters(depth: int) -> None:
    """Change one needed character in many strings: some output changes. Any other character never changes it."""
    length, chars, position = 2 * depth + 4, 4, 3
    codebook = Codebook.sample(depth, chars, seed=depth)
    inputs = np.random.default_rng(0).integers(0, chars, (2000, length))
    before = translate_batch(codebook, inputs).outputs[:, position]
    moved = set()
    for place in range(length):
        changed = inputs.copy()
        changed[:, place] = (changed[:, place] + 1) % chars
        if (translate_batch(codebook, changed).outputs[:, position] != before).any():
            moved.add(place)
    assert sorted(moved) == dependencies(depth, position, length)
    assert len(moved) == 2 * depth


def test_dependencies_wrap_around_in_short_strings() -> None:
    assert dependencies(3, 0, 4) == [0, 1, 2, 3]
    assert dependencies(1, 3, 4) == [0, 3]


@pytest.mark.parametrize(("depth", "chars", "length"), [(3, 2, 6), (4, 3, 4), (2, 4, 4)])
def test_uniform_inputs_make_every_intermediate_string_uniform(depth: int, chars: int, length: int) -> None:
    """Exhaustive: over all inputs, each level takes every string exactly once."""
    every = np.array(list(itertools.product(range(chars), repeat=length)))
    found = translate_batch(Codebook.sample(depth, chars, seed=3), every)
    weights = chars ** np.arange(length)
    for level in range(depth + 1):
        codes = (found.strings[:, level] * weights).sum(1)
        assert np.array_equal(np.sort(codes), np.arange(chars**length))


@pytest.mark.parametrize(
    ("string", "message"),
    [
        ([], "empty"),
        ([0, 1, 2], "3 characters, an odd number"),
        ([0, 8], "character 2 is 8, outside the alphabet 0..7"),
        ([-1, 0], "character 1 is -1"),
    ],
)
def test_strings_without_a_translation_are_refused(string: list[int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_string(string, 8)


@pytest.mark.parametrize(
    ("strings_", "lengths", "message"),
    [
        ([[0, 1, 2]], None, "even length"),
        ([0, 1], None, "even length"),
        ([[0, 1]], [1], "lengths must be even"),
        ([[0, 1]], [4], "between 2 and 2"),
        ([[0, 1]], [2, 2], "as many lengths"),
        ([[0, 1], [0, 256]], None, "string 1, character 2 is 256"),
        ([[0, -1]], None, "string 0, character 2 is -1"),
        ([[0.0, 1.0]], None, "not float64"),
    ],
)
def test_batches_without_a_translation_are_refused(strings_, lengths, message) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InputError, match=message):
        translate_batch(Codebook.sample(1, 8), np.array(strings_), lengths)


def test_fresh_tables_must_fit_the_batch() -> None:
    with pytest.raises(InputError, match=r"3 strings need tables \[3, depth, 16\]"):
        translate_batch(sample_tables(2, 4, 0, 0, 2), np.zeros((3, 4), int))


def test_a_level_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InputError, match="level 3 does not exist"):
        invert_batch(Codebook.sample(2, 4), [[0, 1]], level=3)
