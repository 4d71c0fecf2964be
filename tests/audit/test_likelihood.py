"""Shared prefixes change nothing: every likelihood is that of a pass of its own over the whole text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.tiny import FAMILIES, byte_level, tiny
from transformers import AutoModelForCausalLM, BloomConfig, MptConfig

from openbook.audit import likelihood
from openbook.audit.likelihood import Place, Tree, candidate_likelihoods, next_logits
from openbook.audit.model import AttackedModel
from openbook.base.errors import InputError

TEXTS = [tuple(range(5, 19)), (7, 9, 3), tuple(range(40, 16, -2))]  # within the sliding window of 16 that two have
PLACES = [Place(0, 4), Place(1, 1), Place(0, 14), Place(2, 9), Place(1, 3), Place(0, 11)]
PAIRS = [(a, b) for a in (50, 51, 52) for b in (60, 61, 62)]
WORDS = [(50,), (50, 61), (50, 61, 62, 63), (70, 71), (50, 61, 99)]  # shares prefixes, differs in length
CANDIDATES = [PAIRS, WORDS, PAIRS, WORDS, PAIRS, [(5,), (6,)]]


def attacked(family: str = "llama") -> AttackedModel:
    return AttackedModel(tiny(family, layers=2), byte_level())


def alone(
    model: torch.nn.Module, prefix: tuple[int, ...], candidate: tuple[int, ...]
) -> tuple[list[float], list[float]]:
    """Log-probabilities of a candidate's tokens by one pass of its own, and their Min-K%++ scores."""
    ids = torch.tensor([[*prefix, *candidate]])
    with torch.inference_mode():
        logp = torch.log_softmax(model(input_ids=ids).logits[0, len(prefix) - 1 : -1].double(), -1)
    own = logp[torch.arange(len(candidate)), torch.tensor(candidate)]
    mean = (logp.exp() * logp).sum(-1)
    spread = ((logp - mean[:, None]).square() * logp.exp()).sum(-1).sqrt()
    return own.tolist(), ((own - mean) / spread).tolist()


@pytest.mark.parametrize("family", list(FAMILIES))
def test_candidates_of_many_places_as_if_each_had_its_own_pass(family: str) -> None:
    model = attacked(family)
    likelihoods = candidate_likelihoods(model, TEXTS, PLACES, CANDIDATES)
    for place, candidates, got in zip(PLACES, CANDIDATES, likelihoods, strict=True):
        for n, candidate in enumerate(candidates):
            logp, z = alone(model.model, TEXTS[place.row][: place.before], candidate)
            size = len(candidate)
            assert got.logp_nl[n, :size] == pytest.approx(logp, abs=2e-4)
            assert got.z_nl[n, :size] == pytest.approx(z, abs=2e-3)
            assert np.isnan(got.logp_nl[n, size:]).all()
            assert got.total_n[n] == pytest.approx(sum(logp), abs=5e-4)


def test_the_size_of_a_pass_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    model = attacked()
    before = candidate_likelihoods(model, TEXTS, PLACES, CANDIDATES)
    monkeypatch.setattr(likelihood, "MASK_ENTRIES", 1)
    monkeypatch.setattr(likelihood, "TRUNK_TOKENS", 1)
    for a, b in zip(before, candidate_likelihoods(model, TEXTS, PLACES, CANDIDATES), strict=True):
        np.testing.assert_allclose(a.logp_nl, b.logp_nl, atol=1e-5)


def test_many_candidates_of_many_texts_are_read_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    model = attacked()
    many = [(a, b, c) for a in range(50, 60) for b in range(60, 66) for c in range(70, 73)]  # 70 nodes
    texts = [tuple(range(5, 12))] * 6
    places = [Place(row, 7) for row in range(6)]
    whole = candidate_likelihoods(model, texts, places, [many] * 6)
    limits = {"MASK_ENTRIES": 40 * (7 + 40), "LOGITS": 40 * model.vocabulary}
    for name, limit in limits.items():
        monkeypatch.setattr(likelihood, name, limit)
    shapes = []
    forward = model.model.forward

    def seen(*args: Any, **options: Any) -> Any:
        if options.get("past_key_values") is not None:
            shapes.append(options["attention_mask"].shape)
        return forward(*args, **options)

    monkeypatch.setattr(model.model, "forward", seen)
    for a, b in zip(whole, candidate_likelihoods(model, texts, places, [many] * 6), strict=True):
        np.testing.assert_allclose(a.logp_nl, b.logp_nl, atol=1e-5)
    assert len(shapes) >= 12 and max(shape.numel() for shape in shapes) <= limits["MASK_ENTRIES"]
    assert max(shape[0] * shape[2] for shape in shapes) <= 40


@pytest.mark.parametrize("shape", [BloomConfig, MptConfig])
def test_a_model_that_does_not_go_by_places_is_refused(shape: Any) -> None:
    torch.manual_seed(0)
    size = {"vocab_size": 700, "hidden_size": 16, "n_layer": 2, "n_layers": 2, "n_head": 2, "n_heads": 2, "d_model": 16}
    model = AutoModelForCausalLM.from_config(shape(**size, initializer_range=1.0))
    with pytest.raises(InputError, match="ALiBi"):
        candidate_likelihoods(AttackedModel(model, byte_level()), TEXTS, PLACES, CANDIDATES)


def test_n_nodes_not_n_squared_passes() -> None:
    assert len(Tree(PAIRS)) == 3  # the first characters; the second ones are only looked up
    assert len(Tree([(a, b) for a in range(10) for b in range(10)])) == 10


def test_logits_in_front_of_what_stands_in_the_text() -> None:
    model = attacked()
    places, sizes = [Place(0, 4), Place(2, 9), Place(0, 10)], [2, 3, 1]
    seen = {}
    for spots, logits in next_logits(model, TEXTS, places, sizes):
        for (place, offset), row in zip(spots, logits, strict=True):
            seen[place, offset] = row
    assert set(seen) == {(k, offset) for k, size in enumerate(sizes) for offset in range(size)}
    for (k, offset), row in seen.items():
        text, end = TEXTS[places[k].row], places[k].before + offset
        with torch.inference_mode():
            expected = model.model(input_ids=torch.tensor([text[:end]])).logits[0, -1]
        torch.testing.assert_close(row, expected, atol=1e-4, rtol=1e-3)


def test_a_sliding_window_bounds_the_text() -> None:
    assert attacked("mistral").window == 16 and attacked("llama").window is None
    assert AttackedModel(tiny("mistral"), byte_level(), window=8).window == 8
