"""Reading each rule of a batch once: the same model, the same loss, the same gradients, fewer tokens."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from openbook.curriculum import SamplingPlan, curriculum_named
from openbook.student.model import StudentForCausalLM
from openbook.student.packing import Packing
from openbook.student.vocabulary import Geometry, student_config
from openbook.task import Codebook
from openbook.task.source import Translations
from openbook.training.batches import Collator, PositionDataset
from openbook.training.encode import Encoder
from openbook.training.models import make_tokenizer
from openbook.training.targets import summed_loss, target_logits

Batches = Callable[[str, list[int]], dict[str, Tensor]]


@pytest.fixture(scope="module")
def batches() -> Batches:
    source = Translations(3, 4, 100, Codebook.sample(3, 4, 1), (4, 12), text="composite")
    encoder = Encoder(make_tokenizer(source), source.bank, loss="answer")

    def of(curriculum: str, positions: list[int]) -> dict[str, Tensor]:
        items = PositionDataset(SamplingPlan(source, curriculum_named(curriculum)), encoder).__getitems__(positions)
        return Collator(encoder.tokenizer.pad_token_id, 64).pad(items)

    return of


@pytest.fixture
def model() -> StudentForCausalLM:
    torch.manual_seed(0)
    student = StudentForCausalLM(student_config(3, 4, width=16, heads=2, head=8, mlp=16, lag=True))
    for parameter in student.parameters():
        parameter.data.normal_(std=0.3)
    return student


def packed(batch: dict[str, Tensor], model: StudentForCausalLM) -> Packing:
    where = Geometry(batch["input_ids"], model.config)
    return Packing(batch["input_ids"], where.apart, where.padding, where.mask(torch.float32))


def result(model: StudentForCausalLM, batch: dict[str, Tensor]) -> list[Tensor]:
    model.zero_grad()
    loss = summed_loss(*target_logits(model, batch))
    loss.backward()
    return [loss.detach(), *(weight.grad.clone() for weight in model.parameters() if weight.grad is not None)]


@pytest.mark.parametrize(
    ("curriculum", "positions"),
    [("no-dropout", [*range(12)]), ("anneal", [*range(0, 100, 9)]), ("wrong-context", [3, 4]), ("no-dropout", [7])],
)
def test_loss_and_gradients_are_those_of_the_plain_layout(
    curriculum: str, positions: list[int], batches: Batches, model: StudentForCausalLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Packing] = []
    init = Packing.__init__
    monkeypatch.setattr(Packing, "__init__", lambda self, *of: (made.append(self), init(self, *of))[-1])
    batch = batches(curriculum, positions)
    ours = result(model.train(), batch)
    assert len(made) == 1
    plain = result(model.eval(), batch)
    assert len(made) == 1  # the exam and the probes have the plain layout
    assert len(ours) == len(plain) > 20
    for mine, theirs in zip(ours, plain, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4 * float(theirs.abs().max()))


def test_logits_are_in_their_places(batches: Batches, model: StudentForCausalLM) -> None:
    batch = batches("anneal", [0, 40, 95])
    text = batch["input_ids"] != model.config.pad_token_id
    with torch.no_grad():
        ours = model.train()(input_ids=batch["input_ids"]).logits
        plain = model.eval()(input_ids=batch["input_ids"]).logits
    assert ours.shape == plain.shape and not text.all()
    torch.testing.assert_close(ours[text], plain[text], rtol=1e-4, atol=1e-4)


def test_every_rule_stands_in_the_row_once_and_every_string_is_there(
    batches: Batches, model: StudentForCausalLM
) -> None:
    batch = batches("no-dropout", [*range(30)])
    ids = batch["input_ids"]
    packing = packed(batch, model)
    row = packing.row(ids[..., None])[0, :, 0]
    rules = ids[ids >= model.config.first_rule]
    assert sorted(row[: packing.rules].tolist()) == sorted({*rules.tolist(), model.config.special("<BOOK>")})
    assert len(rules) > 5 * packing.rules
    strings = ids[(ids < model.config.first_rule) & (ids != model.config.pad_token_id)]
    assert row[packing.rules :].tolist() == [i for i in strings.tolist() if i != model.config.special("<BOOK>")]
    text = ids != model.config.pad_token_id
    assert torch.equal(packing.batch(row[None, :, None])[..., 0][text], ids[text])


def test_without_a_book_or_with_stock_attention_nothing_is_packed(
    batches: Batches, model: StudentForCausalLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("packed")

    monkeypatch.setattr(Packing, "__init__", refuse)
    result(model.train(), batches("no-context", [1, 2, 3]))
    stock = copy.deepcopy(model)
    stock.set_attn_implementation("sdpa")  # knows nothing of rows that hold many examples
    result(stock, batches("no-dropout", [1, 2, 3]))
    with pytest.raises(AssertionError, match="packed"):
        result(model, batches("no-dropout", [1, 2, 3]))


def test_who_asks_for_more_than_logits_gets_it(batches: Batches, model: StudentForCausalLM) -> None:
    """States are of the batch as it was given, not of the row that training lays it out in."""
    ids = batches("no-dropout", [1, 2, 3])["input_ids"]
    states = model.train()(input_ids=ids, output_hidden_states=True).hidden_states
    assert len(states) == 7 and all(state.shape[:2] == ids.shape for state in states)
