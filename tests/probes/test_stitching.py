"""Windows that advance together give what every stitched model gives by itself, in any architecture."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from tests.tiny import FAMILIES, tiny
from torch import Tensor, nn

from openbook.base.errors import InputError
from openbook.probes.layers import decoder_layers
from openbook.probes.stitch import answer_logits, stitched_logits
from openbook.probes.stitching import Stitcher, naive_evaluations, one_stitched
from openbook.student.model import StudentForCausalLM
from openbook.student.vocabulary import student_config


def all_windows(layers: int) -> list[tuple[int, int]]:
    return [(first, last) for last in range(layers) for first in range(last + 1)]


def batch_of(vocabulary: int, rows: int, tokens: int = 24) -> dict[str, Tensor]:
    ids = torch.randint(4, vocabulary, (rows, tokens), generator=torch.Generator().manual_seed(0))
    answers = torch.zeros(rows, tokens, dtype=torch.bool)
    answers[:, -5:] = True
    answers[0, -1] = False  # rows need not have equally many
    return {"input_ids": ids, "answers": answers}


def naive(base: Any, trained: Any, window: tuple[int, int], batch: dict[str, Tensor]) -> Tensor:
    """The definition: a copy of the base model with other layers in it."""
    model = copy.deepcopy(base)
    layers = next(m for m in model.modules() if isinstance(m, nn.ModuleList) and len(m) == len(decoder_layers(model)))
    for number in range(window[0], window[1] + 1):
        layers[number] = decoder_layers(trained)[number]
    return answer_logits(model, batch)


def pair(family: str, layers: int) -> tuple[Any, Any]:
    models = tuple(tiny(family, vocabulary=40, seed=seed, layers=layers).eval() for seed in (0, 1))
    for model in models:
        if "gemma" in family:
            model.config.sliding_window = 8  # shorter than the texts, so that the two kinds of layers differ
    return models  # type: ignore[return-value]


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("family", sorted(FAMILIES))
@torch.inference_mode()
def test_every_window_is_the_stitched_model(family: str, rows: int) -> None:
    layers = 6 if family == "gemma3" else 4  # every sixth layer of Gemma 3 has full attention
    base, trained = pair(family, layers)
    if "gemma" in family:
        assert len(set(base.config.layer_types)) == 2
    before = [{name: tensor.clone() for name, tensor in model.state_dict().items()} for model in (base, trained)]
    batch = batch_of(40, rows)
    stitcher = Stitcher(decoder_layers(base), decoder_layers(trained))
    logits, windows, cost = stitched_logits(base, stitcher, batch, stitcher.changed)
    assert sorted(windows) == sorted(all_windows(layers))
    torch.testing.assert_close(logits[0], answer_logits(base, batch), rtol=1e-4, atol=1e-5)
    for number, window in enumerate(windows):
        torch.testing.assert_close(logits[1 + number], naive(base, trained, window, batch), rtol=1e-4, atol=1e-5)
    assert len({tuple(logits[k].flatten()[:8].tolist()) for k in range(len(logits))}) == len(logits)  # all differ
    assert cost.calls == 2 * layers
    assert cost.evaluations == layers + layers * (layers + 1) // 2 + (layers - 1) * layers * (layers + 1) // 6
    for model, state in zip((base, trained), before, strict=True):
        assert all(torch.equal(state[name], tensor) for name, tensor in model.state_dict().items())
        assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


@torch.inference_mode()
def test_the_student_can_be_stitched() -> None:
    models = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        model = StudentForCausalLM(student_config(2, 3, width=16, heads=2, head=8, mlp=16, lag=True)).eval()
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)  # its blocks do nothing at first
        models.append(model)
    base, trained = models
    rules = torch.randint(base.config.first_rule, base.config.vocab_size, (2, 6))
    given = torch.randint(9, 18, (2, 4))
    slots = torch.full((2, 8), 30)
    batch = {"input_ids": torch.cat([rules, given, slots], 1), "answers": torch.arange(18).expand(2, -1) >= 14}
    stitcher = Stitcher(decoder_layers(base), decoder_layers(trained))
    logits, windows, _ = stitched_logits(base, stitcher, batch, stitcher.changed)
    for number, window in enumerate(windows):
        torch.testing.assert_close(logits[1 + number], naive(base, trained, window, batch), rtol=1e-4, atol=1e-5)


@torch.inference_mode()
def test_groups_of_starts_give_the_same_windows() -> None:
    base, trained = pair("llama", 5)
    batch = batch_of(40, 2)
    stitcher = Stitcher(decoder_layers(base), decoder_layers(trained))
    whole, windows, cost = stitched_logits(base, stitcher, batch, stitcher.changed)
    groups = stitcher.groups(8)
    assert groups == [[0], [1, 2], [3, 4]] and stitcher.groups(1) == [[n] for n in range(5)]
    spent = 0
    for starts in groups:
        logits, some, part = stitched_logits(base, stitcher, batch, starts)
        assert {start for start, _ in some} == set(starts) and len(logits) <= 8
        spent += part.evaluations
        for number, window in enumerate(some):
            torch.testing.assert_close(logits[1 + number], whole[1 + windows.index(window)], rtol=1e-4, atol=1e-5)
    assert spent == cost.evaluations + 5 * (len(groups) - 1)  # each group takes the prefix with it


@torch.inference_mode()
def test_layers_that_are_equal_collapse() -> None:
    base, trained = pair("llama", 5)
    for number in (0, 2):
        decoder_layers(trained)[number].load_state_dict(decoder_layers(base)[number].state_dict())
    batch = batch_of(40, 2)
    stitcher = Stitcher(decoder_layers(base), decoder_layers(trained))
    assert stitcher.changed == [1, 3, 4]
    logits, windows, cost = stitched_logits(base, stitcher, batch, stitcher.changed)
    assert len(windows) == 6 and cost.calls == 5 + 3
    for window in all_windows(5):
        own = stitcher.canonical(window)
        row = 0 if own is None else 1 + windows.index(own)
        torch.testing.assert_close(logits[row], naive(base, trained, window, batch), rtol=1e-4, atol=1e-5)
    assert stitcher.canonical((0, 0)) is None and stitcher.canonical((0, 3)) == (1, 3)


def test_the_count_that_was_promised() -> None:
    """K = 28: 4,088 evaluations of a layer instead of 11,368."""
    base, trained = ([nn.Linear(2, 2, bias=False) for _ in range(28)] for _ in range(2))
    stitcher = Stitcher(base, trained)
    with stitcher.stitching(stitcher.changed) as state, torch.inference_mode():
        hidden = torch.ones(1, 2)
        for layer in base:
            hidden = layer(hidden)
    assert (state.cost.evaluations, state.cost.calls, len(state.windows)) == (4088, 56, 406)
    assert len(hidden) == 407 and naive_evaluations(28) == 11_368


def test_what_cannot_be_stitched_is_refused() -> None:
    layers = [nn.Linear(2, 2) for _ in range(3)]
    with pytest.raises(InputError, match="3 layers and the other 2"):
        Stitcher(layers, layers[:2])
    with pytest.raises(InputError, match="nothing to stitch"):
        Stitcher(layers, copy.deepcopy(layers))


@torch.inference_mode()
def test_one_window_by_hooks_is_the_definition_too() -> None:
    base, trained = pair("qwen3", 3)
    batch = batch_of(40, 2)
    with one_stitched(decoder_layers(base), decoder_layers(trained), (1, 2)):
        logits = answer_logits(base, batch)
    torch.testing.assert_close(logits, naive(base, trained, (1, 2), batch), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("family", ["llama", "gpt_neox", "gemma3"])
def test_layers_are_found_in_any_family(family: str) -> None:
    model = tiny(family, layers=3)
    assert [type(layer).__name__[-5:] for layer in decoder_layers(model)] == ["Layer"] * 3
    with pytest.raises(InputError, match="has no list of"):
        decoder_layers(nn.Linear(2, 2))
