"""Greedy writing: the same as one example at a time, but with less work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.tiny import byte_level, chatting, tiny, word_level

from openbook.book import ListSource
from openbook.book.load import load_source
from openbook.curriculum import SamplingPlan, curriculum_named
from openbook.training import writing
from openbook.training.batches import Item, items
from openbook.training.encode import Encoder
from openbook.training.exam import examine
from openbook.training.models import load
from openbook.training.writing import BEYOND, answers_in_place, end_tokens, write, written_part

WORDS = word_level()


def encoded(data: ListSource, tokenizer: Any = WORDS, **options: Any) -> tuple[Encoder, list[Item]]:
    encoder = Encoder(tokenizer, data.bank, **options)
    plan = SamplingPlan(data, curriculum_named("no-context"))
    return encoder, items(encoder.encode(*plan.at(np.arange(len(data)))), range(len(data)))


def questions(*prompts: str, answer: str = " a b c d") -> ListSource:
    return ListSource([{"prompt": prompt, "completion": answer} for prompt in prompts])


def alone(model: Any, prompt: np.ndarray, count: int, ends: list[int]) -> list[int]:
    """Greedy choice one token after another, without a cache, up to an end token."""
    ids, said = torch.tensor(prompt)[None], []
    for _ in range(count):
        said.append(int(model(input_ids=ids).logits[0, -1].argmax()))
        if said[-1] in ends:
            break
        ids = torch.cat([ids, torch.tensor([[said[-1]]])], dim=1)
    return said


@pytest.mark.parametrize(("loss", "before", "written"), [("answer", "a b", "c"), ("completion", "a", "b c d")])
def test_what_is_to_be_written_is_not_shown_and_nothing_after_it_either(loss: Any, before: str, written: str) -> None:
    data = ListSource([{"prompt": "a", "completion": " b c d", "answer": "c"}])
    plan = SamplingPlan(data, curriculum_named("no-context"))
    encoded = Encoder(WORDS, data.bank, loss=loss).encode(*plan.at(np.arange(1)))
    (item,) = items(encoded, [0])
    own = written_part(item)
    assert WORDS.decode(item.ids[: own.start], skip_special_tokens=True) == before
    assert WORDS.decode(item.ids[own], skip_special_tokens=True) == written


@pytest.mark.parametrize("family", ["llama", "gpt_neox", "gemma3"])
@pytest.mark.parametrize("batch_size", [1, 2, 16])
def test_it_is_what_each_prompt_gives_alone(family: str, batch_size: int) -> None:
    data = questions("who is king ?", "a", "who is king ?", "a b c d e f g h", "queen Ilva is", "b")
    model = tiny(family, len(WORDS), layers=2)
    encoder, examples = encoded(data)
    parts = [written_part(item) for item in examples]
    expected = [
        alone(model, item.ids[: part.start], part.stop - part.start + BEYOND, [])
        for item, part in zip(examples, parts, strict=True)
    ]
    model.generation_config.eos_token_id = end = expected[0][5]  # some of them end early
    ends = end_tokens(model, encoder)
    assert end in ends and WORDS.eos_token_id in ends
    told: list[float] = []
    written = write(model, encoder, examples, batch_size, told.append)
    for (row, text), whole in zip(written, expected, strict=True):
        said = whole[: next((k for k, token in enumerate(whole) if token in ends), len(whole))]
        assert row[: len(said)].tolist() == said
        assert text == WORDS.decode(said, skip_special_tokens=True)
    assert sum(told) == pytest.approx(1) and len(told) == -(-5 // batch_size)  # one prompt is there twice


def test_writing_ends_when_every_row_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    model, (encoder, examples) = tiny(vocabulary=len(WORDS)), encoded(questions("a", "b", answer=" a" * 40))
    monkeypatch.setattr(model, "forward", _only(WORDS.convert_tokens_to_ids("king"), until=5, then=WORDS.eos_token_id))
    written = write(model, encoder, examples, 16)
    assert [text for _, text in written] == ["king " * 4 + "king"] * 2
    assert {len(row) for row, _ in written} == {6}  # and not 41 + BEYOND


def _only(token: int, until: int, then: int) -> Any:
    from transformers.modeling_outputs import CausalLMOutputWithPast

    calls = []

    def forward(input_ids: torch.Tensor, **_: Any) -> Any:
        calls.append(1)
        said = token if len(calls) <= until else then
        logits = torch.nn.functional.one_hot(torch.full_like(input_ids, said), len(WORDS)).float()
        return CausalLMOutputWithPast(logits=logits)

    return forward


def test_a_chat_template_ends_a_turn_with_its_own_token() -> None:
    tokenizer, model = chatting(), tiny()
    encoder, _ = encoded(questions("Who?"), tokenizer)
    model.generation_config.eos_token_id = None
    assert tokenizer.convert_tokens_to_ids("<|im_end|>") in end_tokens(model, encoder)
    plain, _ = encoded(questions("Who?"), byte_level())
    assert end_tokens(model, plain) == [byte_level().eos_token_id]


def test_no_more_is_written_than_the_window_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model with vectors for so many places cannot go beyond them."""
    counts: list[int] = []
    real = writing.generate
    monkeypatch.setattr(writing, "generate", lambda *a: counts.append(a[3]) or real(*a))
    encoder, examples = encoded(questions("who is king ?"))
    model = tiny(vocabulary=len(WORDS))
    for window in (512, len(examples[0].ids) + 2, len(examples[0].ids)):
        model.config.max_position_embeddings = window
        write(model, encoder, examples, 4)
    own = written_part(examples[0])
    longest = own.stop - own.start
    assert counts == [longest + BEYOND, longest + 2, longest]


def test_a_long_prompt_does_not_cut_the_writing_of_a_short_one(monkeypatch: pytest.MonkeyPatch) -> None:
    records = [("a " * 40, " b"), ("a", " b" * 30)]
    encoder, examples = encoded(ListSource([{"prompt": ask, "completion": answer} for ask, answer in records]))
    model = tiny(vocabulary=len(WORDS))
    model.config.max_position_embeddings = len(examples[0].ids)
    asked: list[tuple[int, int]] = []
    real = writing.generate
    monkeypatch.setattr(writing, "generate", lambda *a: asked.append((max(map(len, a[2])), a[3])) or real(*a))
    write(model, encoder, examples, 4)
    assert len(asked) == 2 and all(prompt + count <= len(examples[0].ids) for prompt, count in asked)
    assert asked[0][1] >= 31


def test_a_model_without_an_end_writes_as_much_as_the_reference_has() -> None:
    tokenizer, model = word_level.__wrapped__(), tiny(vocabulary=len(WORDS))
    tokenizer.eos_token = model.generation_config.eos_token_id = None
    encoder, examples = encoded(questions("who is king ?"), tokenizer)
    ((row, _),) = write(model, encoder, examples, 4)
    assert len(row) == 4


def test_a_model_that_was_not_taught_to_end_is_compared_on_as_much_as_the_reference_has() -> None:
    """Its loss is on the answer alone, so what comes after it is anything."""
    data = ListSource([{"prompt": f"who {x} ?", "completion": " a" * n} for x, n in (("a", 1), ("b", 6))])
    encoder, examples = encoded(data, loss="answer")
    model = tiny(vocabulary=len(WORDS))
    model.generation_config.eos_token_id = None
    written = write(model, encoder, examples, 4)
    assert [len(text.split()) for _, text in written] == [1, 6] and {len(row) for row, _ in written} == {6}


def test_an_answer_is_in_its_place_or_not() -> None:
    data = ListSource([{"prompt": "who ?", "completion": " is a b", "answer": "a b"}])
    _, (item,) = encoded(data)
    own = item.ids[written_part(item)]
    assert answers_in_place(item, own)
    assert answers_in_place(item, np.array([0, *own[1:], 7, 7]))  # other words before it, and more after it
    assert not answers_in_place(item, np.array([*own[1:], 0]))
    assert not answers_in_place(item, own[:1])


def test_rows_of_an_exam_have_what_was_written() -> None:
    data = ListSource(
        [{"prompt": "who ?", "completion": " a b", "privileged_context": [f"fact {x}"]} for x in "abcdef"]
    )
    model = tiny(vocabulary=len(WORDS))
    row, *others = examine(model, Encoder(WORDS, data.bank), data, curriculum_named("anneal"), generate=True)
    assert len(row.written) == 6 and {answer.question for answer in row.written} == {"who ?"}
    assert row.written[0].reference == "a b"
    assert row.f1 == pytest.approx(np.mean([answer.f1 for answer in row.written]))
    for each in (row, *others):
        assert each.f1 is not None and each.f1_low <= each.f1 <= each.f1_high and each.generated_match is not None
    assert "written" not in row.as_dict()


@pytest.mark.real_model
def test_a_real_model_writes_what_it_is_sure_of() -> None:
    """Led token by token or writing by itself, SmolLM2 has whole answers right in the same cases."""
    model, tokenizer = load("smollm2-135m")
    data = load_source(Path(__file__).parents[2] / "examples" / "handbook" / "held-out.jsonl")
    encoder = Encoder(tokenizer, data.bank)
    rows = examine(model, encoder, data, curriculum_named("anneal"), (0.0, 1.0), wrong=False, samples=10, generate=True)
    for row in rows:
        assert row.generated_match == row.exact_match
        assert all(not answer.text or "<|" not in answer.text for answer in row.written)
    closed, opened = rows
    assert opened.f1 is not None and closed.f1 is not None and opened.f1 > closed.f1
