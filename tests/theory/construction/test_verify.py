"""What `construct verify` measures, and that it notices what is wrong."""

from __future__ import annotations

import pytest
import torch

from openbook.base.errors import InputError
from openbook.task import random_inputs
from openbook.theory.construction import ConstructedTransformer
from openbook.theory.construction.layers import Gated, Mlp, RelativeAttention
from openbook.theory.construction.verify import at_scale, check_divisions, count, disagreements, lemma, verify


def layer(model: ConstructedTransformer, level: int, name: str) -> RelativeAttention | Mlp:
    gated = getattr(model.levels[level], name)
    assert isinstance(gated, Gated)
    assert isinstance(gated.layer, RelativeAttention | Mlp)
    return gated.layer


def test_the_construction_passes() -> None:
    result = verify(2, 3, strings=60, codebooks=4)
    assert result["holds"]
    assert result["mismatches"] == 0
    assert result["strings"] >= 60
    assert {mode["name"] for mode in result["modes"]} == {"full context", "empty context", "mixed"}
    assert result["deviation"] < 1e-3


def test_strings_are_at_least_as_many_as_asked_for_and_at_least_one() -> None:
    done: list[int] = []
    assert verify(1, 2, strings=10, codebooks=3, advance=done.append)["strings"] == 18 == sum(done)
    with pytest.raises(InputError, match="give at least 1 of both"):
        verify(1, 2, strings=10, codebooks=0)


@pytest.mark.parametrize(
    ("name", "weight"),
    [("shift_attention", "value_hkk"), ("shift_mlp", "outer_ku"), ("translate_attention", "query_hkk")],
)
def test_one_wrong_weight_is_noticed(name: str, weight: str) -> None:
    model = ConstructedTransformer(2, 3)
    broken = getattr(layer(model, 1, name), weight)
    place = tuple(broken.nonzero()[0].tolist())
    broken[place] = -broken[place]
    assert sum(mode["mismatches"] for mode in check_divisions(model, codebooks=6, each=10, seed=0)) > 0


def test_strings_are_compared_in_parts_and_none_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []

    def noted(chars: int, count: int, lengths: tuple[int, int], seed: int, start: int) -> object:
        drawn.extend(range(start, start + count))
        return random_inputs(chars, count, lengths, seed, start)

    monkeypatch.setattr("openbook.theory.construction.verify.random_inputs", noted)
    monkeypatch.setattr("openbook.theory.construction.verify.CHUNK", 4)
    modes = check_divisions(ConstructedTransformer(2, 3), codebooks=1, each=10, seed=0)
    assert [mode["strings"] for mode in modes] == [10, 10, 10] and drawn == list(range(30))


def test_larger_scales_bring_the_products_closer_until_rounding_does_not() -> None:
    shift = {scale: at_scale(1, 3, scale, seed=0)["shift"] for scale in (10.0, 100.0, 3000.0)}
    assert shift[10] > 50 * shift[100]  # O(N⁻²)
    assert shift[3000] > 10 * shift[10] / 300**2  # float32 has left the law, by how much depends on the machine


@pytest.mark.parametrize(("depth", "chars"), [(1, 2), (3, 4)])
def test_sizes_are_the_lemmas(depth: int, chars: int) -> None:
    counts = count(ConstructedTransformer(depth, chars))
    assert counts == lemma(depth, chars)
    assert set(counts["heads"]) <= {1, 2, 3}


def test_disagreement_is_shown() -> None:
    """A little of another codebook in the weights is harmless, as much as the context is not."""
    model = ConstructedTransformer(3, 4)
    rows = disagreements(model, seed=0)
    assert rows[0]["characters_as_context"] > 0.95
    assert rows[-1]["characters_as_context"] < 0.9
    assert rows[-1]["deviation"] > 0.1


def test_nothing_of_a_run_stays_in_the_weights_of_the_next() -> None:
    model = ConstructedTransformer(2, 3)
    first = check_divisions(model, 2, 5, seed=0)
    model.store(torch.rand(2, 9, 9))
    assert check_divisions(model, 2, 5, seed=0) == first
