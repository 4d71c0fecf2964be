"""Where the truth is known the probes find it: both maps are exactly diagonal."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from openbook.base.errors import InputError
from openbook.probes.known import SurrogateStack, known_perturb_map, known_stitch_map
from openbook.task import Codebook
from openbook.theory.surrogate.model import Surrogate, context, matricize

KINDS: Any = ["construction", "surrogate"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_level_is_kept_in_its_own_layer(kind: Any) -> None:
    depth = 4
    result = known_stitch_map(kind, depth, 3, samples=8)
    assert result.layer_calls == 2 * depth
    for level, section in enumerate(result.sections):
        assert section.smallest_windows == [(level + 1, level + 1)]
        for first in range(depth):
            for last in range(first, depth):
                if first <= level <= last:
                    assert section.map[first, last] == 1.0
                else:
                    assert section.map[first, last] < 0.6
        assert section.trained == 1.0 and section.reader < 0.6


@pytest.mark.parametrize("kind", KINDS)
def test_a_level_is_read_in_its_own_layer(kind: Any) -> None:
    depth = 4
    result = known_perturb_map(kind, depth, 4, rules=2, samples=12, length=12)
    for level, section in enumerate(result.sections):
        assert section.first_layer == section.first_large_layer == level + 1
        assert (section.map[:level] == 0).all()
        assert (section.map[level:].max(1) > 0.1).all()
        assert section.control.max() < 1e-6  # a rule that is not used changes nothing but rounding


def test_the_surrogate_as_a_stack_is_the_surrogate() -> None:
    codebook = Codebook.sample(3, 3, 1)
    strings = np.random.default_rng(0).integers(0, 3, (4, 10))
    dropped = np.random.default_rng(1).random((3, 9)) < 0.3
    C = context(codebook, dropped)
    W = np.random.default_rng(2).random((3, 9, 9)) / 3
    stack = SurrogateStack(3, 3)
    stack.store(torch.from_numpy(W))
    outputs = stack(torch.from_numpy(C), strings)
    np.testing.assert_array_equal(outputs.mT.numpy(), Surrogate(W)(C, matricize(strings, 3)))


def test_bad_input_is_refused() -> None:
    with pytest.raises(InputError, match="at least two"):
        known_stitch_map("surrogate", 2, 3, samples=1)
    with pytest.raises(InputError, match=r"string \d+ shows \d+ used rules of section 'level 1'"):
        known_perturb_map("surrogate", 2, 3, rules=6, samples=4, length=4)
    with pytest.raises(InputError, match="use at least 1"):
        known_perturb_map("surrogate", 2, 3, rules=0, samples=4)
