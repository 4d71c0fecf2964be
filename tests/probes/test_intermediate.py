"""Linear probes read what is planted and nothing else; the lens is the model's own head."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tests.tiny import FAMILIES, tiny

from openbook.base.errors import InputError
from openbook.probes.intermediate import bigram_hits, intermediate_map, labelled, probe_accuracy
from openbook.probes.layers import lens_at
from openbook.probes.subject import Subject
from openbook.task import translate

Make = Callable[..., Subject]


@pytest.mark.parametrize("family", sorted(FAMILIES))
@torch.inference_mode()
def test_the_lens_on_the_last_layer_is_the_model(family: str) -> None:
    model = tiny(family, vocabulary=40, layers=3).eval()
    ids = torch.arange(4, 20).reshape(2, 8)
    places = torch.tensor([[1, 5, 6], [0, 3, 7]])
    lens = lens_at(model, ids, places)
    own = model(input_ids=ids).logits[torch.arange(2)[:, None], places]
    assert lens.shape == (3, 2, 3, 40)
    torch.testing.assert_close(lens[-1], own, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(lens[0], own)
    assert not any(module._forward_hooks for module in model.modules())


def test_a_probe_reads_what_is_planted() -> None:
    """Layer 1 holds string 0 at place 0 in a random direction, and nothing anywhere else."""
    random = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 5, (400, 2, 3, 2), generator=random)  # N, Q, I, U
    states = torch.randn(2, 400, 2, 24, generator=random)
    for unit in range(2):
        directions = 3 * torch.randn(5, 24, generator=random)
        states[1, :, 0] += directions[labels[:, 0, 0, unit]]
    accuracy = probe_accuracy(states, labels.numpy(), 200, 5)
    assert accuracy.shape == (2, 2, 3)
    assert accuracy[1, 0, 0] > 0.9
    accuracy[1, 0, 0] = 0.2
    assert np.abs(accuracy - 0.2).max() < 0.1


def test_labels_are_the_characters_of_the_place(subject: Make) -> None:
    one = subject(length=8)
    rows = one.encoded(*one.shelf(5))
    slots, labels = labelled(one.translations, rows)
    codebook = one.translations.codebook
    assert codebook is not None
    inputs = one.translations.translations(np.arange(5))[0].inputs
    for n in range(5):
        levels = translate(codebook, inputs[n].tolist())
        strings = [level.string for level in levels] + [[c for pair in levels[-1].images for c in pair]]
        for q, place in enumerate(slots.place_q):
            assert labels[n, q, :, 0].tolist() == [string[place] for string in strings]


def test_a_lens_counts_bigrams_of_the_strings_own_alphabet() -> None:
    """Three strings of one bigram: (0, 1), (2, 2), (1, 0), of alphabets 1, 2 and, for the output, 0."""
    wanted = torch.tensor([[0, 1], [2, 2], [1, 0]])[None, None]

    def hits(guess: int, has_levels: bool) -> list[float]:
        return bigram_hits(torch.full((1, 1, 1, 1), guess), wanted, 3, has_levels)[0, 0, 0].tolist()

    assert hits(9 + 1, True) == [1, 0, 0] and hits(18 + 8, True) == [0, 1, 0] and hits(3, True) == [0, 0, 1]
    assert hits(18 + 7, True) == [0, 0.5, 0]
    assert hits(8, True) == [0, 0, 0]  # the characters of s_2 in the alphabet of the output
    assert hits(8, False) == [0, 1, 0]  # a head of one alphabet cannot tell


def test_maps_of_a_model(subject: Make) -> None:
    result = intermediate_map(subject(length=8), samples=64)
    assert (result.fitted_on, result.judged_on, result.chance, result.layers) == (32, 32, 0.25, 3)
    assert [string.name for string in result.sections] == ["s_1", "s_2", "s_3"]
    for string in result.sections:
        assert string.map.shape == string.control.shape == (4, 16) and string.lens.shape == (3, 16)
        assert ((string.map >= 0) & (string.map <= 1)).all()
    first, second, _ = result.sections
    assert first.own_places is None  # the input has no places of its own
    assert second.own_places is not None
    own = [place["string"] == 2 for place in result.places]
    assert sum(own) == 8
    np.testing.assert_allclose(second.own_places, second.map[:, own].mean(1))


def test_bad_input_is_refused_before_any_forward_pass(subject: Make) -> None:
    one = subject(length=8)

    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("a forward pass was made")

    one.model.forward = never
    with pytest.raises(InputError, match="at least four"):
        intermediate_map(one, samples=3)
    with pytest.raises(InputError, match="between 0 and 1"):
        intermediate_map(one, samples=8, open_book=1.5)
