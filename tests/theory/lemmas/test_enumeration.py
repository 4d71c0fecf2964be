"""Enumerations are complete and in order, and agree with the oracle and the definition of correlation."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from openbook.task import Codebook
from openbook.task.translate import output, translate
from openbook.theory.lemmas.enumeration import (
    agreement,
    all_codebooks,
    all_maps,
    all_strings,
    largest_agreement,
    not_bijective,
    numbers,
    translate_all,
)


@pytest.mark.parametrize("length, chars", [(1, 2), (4, 2), (3, 3)])
def test_strings_are_enumerated_in_counting_order(length: int, chars: int) -> None:
    strings = all_strings(length, chars)
    assert strings.tolist() == [list(string) for string in itertools.product(range(chars), repeat=length)]
    assert numbers(strings, chars).tolist() == list(range(chars**length))


def test_all_codebooks_are_translated_as_by_the_oracle() -> None:
    tables, strings = all_codebooks(2)[::91], all_strings(4)
    assert len(all_codebooks(2)) == len(np.unique(all_codebooks(2).reshape(-1, 8), axis=0)) == 24**2
    levels = translate_all(tables, strings)
    for table, of_table in zip(tables, levels, strict=True):
        for string, states in zip(strings.tolist(), of_table.tolist(), strict=True):
            steps = translate(Codebook(2, table), string)
            assert states == [*(step.string for step in steps), output(steps)]


def test_rows_that_are_no_permutation_are_counted() -> None:
    assert not_bijective(all_maps()) == 0
    assert not_bijective(np.array([[0, 1, 2], [0, 1, 1], [1, 2, 3], [2, 0, 1]])) == 2


def test_agreement_is_the_definition_of_correlation() -> None:
    f, g = all_strings(3)[:, 0], all_strings(3)[:, 0] & all_strings(3)[:, 1]
    equal = int((f == g).sum())
    assert agreement(f[None], g[None])[0, 0] == abs(equal - (8 - equal)) == 4
    assert largest_agreement(np.stack([f, g])) == 4 and largest_agreement(all_strings(3).T) == 0
