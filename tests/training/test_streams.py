"""The quick way through a student must be the stock layers under their mask."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from openbook.book import Translations
from openbook.curriculum import Plan, curriculum_named
from openbook.task import Codebook
from openbook.training.batches import Collator, PositionDataset
from openbook.training.encode import Encoder
from openbook.training.models import make_tokenizer
from openbook.training.student import Geometry, StudentForCausalLM, student_config


@pytest.fixture
def model() -> StudentForCausalLM:
    torch.manual_seed(0)
    model = StudentForCausalLM(student_config(3, 4, width=16, heads=2, head=8, mlp=24, lag=True))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


@pytest.fixture(params=["one codebook", "a codebook each"])
def ids(request: pytest.FixtureRequest) -> Tensor:
    """Strings of several lengths with parts of their books, padded on the right."""
    codebook = None if request.param == "a codebook each" else Codebook.sample(3, 4, 7)
    source = Translations(3, 4, 24, codebook, (6, 14), text="composite")
    tokenizer = make_tokenizer(source)
    items = PositionDataset(Plan(source, curriculum_named("anneal")), Encoder(tokenizer, source.bank, chat=False))
    return Collator(tokenizer.pad_token_id, 24).pad(items.__getitems__(list(range(24))))["input_ids"]


def watched(model: StudentForCausalLM, run: Callable[[], Tensor]) -> tuple[Tensor, int]:
    """What `run` returns when a hook sits on a layer, which makes the model call its layers; and how often it did."""
    calls = []
    handle = model.model.layers[0].register_forward_hook(lambda *_: calls.append(1))
    try:
        return run(), len(calls)
    finally:
        handle.remove()


def strings_of(model: StudentForCausalLM, ids: Tensor) -> Tensor:
    return Geometry(ids, model.config).inside


def test_hidden_states_and_gradients_are_those_of_the_stock_layers(model: StudentForCausalLM, ids: Tensor) -> None:
    inside = strings_of(model, ids)
    weight = torch.randn(int(inside.sum()), 16, generator=torch.Generator().manual_seed(1))

    def loss() -> Tensor:
        return (model.model(input_ids=ids).last_hidden_state[inside] * weight).sum()

    quick = loss()
    quick_gradients = torch.autograd.grad(quick, list(model.parameters()), allow_unused=True)
    stock, calls = watched(model, loss)
    stock_gradients = torch.autograd.grad(stock, list(model.parameters()), allow_unused=True)
    assert calls == 1
    assert quick.item() == pytest.approx(stock.item(), rel=1e-4)
    for one, other in zip(quick_gradients, stock_gradients, strict=True):
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            assert torch.allclose(one, other, rtol=1e-3, atol=1e-4 * float(other.abs().max()))


def test_a_rule_sees_only_itself(model: StudentForCausalLM, ids: Tensor) -> None:
    """Another rule in front of it changes nothing about what becomes of a rule; a string sees the difference."""
    states: list[Tensor] = []
    handle = model.model.layers[-1].register_forward_hook(lambda *call: states.append(call[-1].detach()))
    row = int(Geometry(ids, model.config).before.sum(1).argmax())
    one = ids[row : row + 1]
    rules = np.flatnonzero(one[0].numpy() >= model.config.first_rule)
    assert len(rules) > 2
    changed = one.clone()
    changed[0, rules[0]] = model.config.first_rule + (one[0, rules[0]] - model.config.first_rule + 1) % 64
    try:
        with torch.no_grad():
            model.model(input_ids=one)
            model.model(input_ids=changed)
    finally:
        handle.remove()
    before, after = states[0][0], states[1][0]
    assert torch.equal(before[rules[1:]], after[rules[1:]])
    assert not torch.allclose(before[strings_of(model, one)[0]], after[strings_of(model, one)[0]], atol=1e-4)


def test_without_rules_there_is_still_a_string(model: StudentForCausalLM) -> None:
    """A closed book is a book mark and nothing else."""
    source = Translations(3, 4, 4, Codebook.sample(3, 4, 7), (8, 8), text="composite")
    encoder = Encoder(make_tokenizer(source), source.bank, chat=False)
    items = PositionDataset(Plan(source, curriculum_named("no-context")), encoder).__getitems__([0, 1])
    ids = torch.tensor(np.stack([item.ids for item in items]), dtype=torch.long)
    inside = strings_of(model, ids)
    with torch.no_grad():
        quick = model.model(input_ids=ids).last_hidden_state[inside]
        stock, _ = watched(model, lambda: model.model(input_ids=ids).last_hidden_state[inside])
    assert torch.allclose(quick, stock, atol=1e-5)
