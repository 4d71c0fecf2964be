"""Parities, against truth tables and full enumeration."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openbook.task import Codebook, translate_batch
from openbook.task.phrasebook import sample_tables
from openbook.theory.lemmas.correlation import level_parities
from openbook.theory.lemmas.enumeration import (
    all_codebooks,
    all_strings,
)
from openbook.theory.lemmas.parities import collision, collision_probability, output_parities, parities


@given(st.integers(0, 10_000), st.integers(1, 4), st.integers(1, 4))
@settings(max_examples=30, deadline=None)
def test_parities_say_what_the_truth_table_says(seed: int, depth: int, pairs: int) -> None:
    length = 2 * pairs
    tables = sample_tables(depth, 2, seed, 0, 1)
    masks = parities(tables, length)[0, depth]
    strings = all_strings(length)
    outputs = translate_batch(Codebook(2, tables[0]), strings).outputs
    for j in range(length):
        parity = np.array([sum(int(bit) for k, bit in enumerate(row) if masks[j] >> k & 1) % 2 for row in strings])
        assert len(set((parity ^ outputs[:, j]).tolist())) == 1  # equal, or complemented throughout


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_counting_merges_the_same_parities_as_enumeration(depth: int) -> None:
    *_, counts = output_parities(depth)
    first = parities(all_codebooks(depth), 2 * depth)[:, depth, 0]
    assert counts.sum() == 3 * 6 ** (depth - 1)
    assert len(counts) == len(np.unique(first))
    assert collision_probability(counts) == collision(first, first)
    *_, (one, _, _) = level_parities(depth)
    assert collision(one, one) == collision(first, first)
