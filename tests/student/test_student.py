"""The student: a vocabulary of parts, causal slots, and an ordinary Llama in between."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaModel

import openbook
from openbook.base.errors import InputError
from openbook.curriculum import SamplingPlan, curriculum_named
from openbook.student.model import StudentForCausalLM
from openbook.student.vocabulary import Geometry, student_config
from openbook.task import Codebook
from openbook.task.formats import CompositeFormat
from openbook.task.source import Translations
from openbook.training.batches import Collator, PositionDataset
from openbook.training.encode import Encoder
from openbook.training.exam import examine
from openbook.training.models import make_tokenizer

DEPTH, CHARS = 2, 3


@pytest.fixture(scope="module")
def source() -> Translations:
    return Translations(DEPTH, CHARS, 50, Codebook.sample(DEPTH, CHARS, 1), (4, 8), text="composite")


@pytest.fixture(scope="module")
def encoder(source: Translations) -> Encoder:
    return Encoder(make_tokenizer(source), source.bank, loss="answer")


@pytest.fixture(scope="module")
def model() -> StudentForCausalLM:
    torch.manual_seed(0)
    student = StudentForCausalLM(student_config(DEPTH, CHARS, width=16, heads=1, head=8, mlp=16, lag=True))
    for parameter in student.parameters():  # outputs start at zero; random ones, so that every path matters
        parameter.data.normal_(std=0.3)
    return student.eval()


def batch_of(source: Translations, encoder: Encoder, curriculum: str = "anneal") -> dict[str, Any]:
    items = PositionDataset(SamplingPlan(source, curriculum_named(curriculum)), encoder).__getitems__([0, 1, 30])
    return Collator(encoder.tokenizer.pad_token_id, 8).pad(items)


def test_the_tokenizer_numbers_words_as_the_model_takes_them(source: Translations, encoder: Encoder) -> None:
    words = CompositeFormat(DEPTH, CHARS).vocabulary().words
    config = student_config(DEPTH, CHARS)
    assert len(words) == config.vocab_size == len(encoder.tokenizer)
    assert [encoder.tokenizer.convert_tokens_to_ids(word) for word in words] == list(range(len(words)))
    assert words[config.first_rule] == "AA>DD"
    assert words[config.pad_token_id or 0] == "<PAD>"


def test_targets_are_output_bigrams_and_the_answer_alone_carries_loss(source: Translations, encoder: Encoder) -> None:
    batch = batch_of(source, encoder)
    labels = batch["labels"][batch["labels"] != -100]
    assert (labels < CHARS**2).all()
    translation, _ = source.translations(np.array([0, 1, 30]))
    assert len(labels) == translation.lengths.sum() // 2


def test_geometry_of_a_worked_example() -> None:
    config = student_config(DEPTH, CHARS, lag=True)
    size, rule, think = CHARS**2, config.first_rule, (config.pad_token_id or 0) + 3
    book = think - 1
    ids = torch.tensor([[book, rule, rule + 5, size, size + 1, think, think, think, 0, 1, config.pad_token_id]])
    where = Geometry(ids, config)
    assert where.inside[0].tolist() == [False] * 3 + [True] * 6 + [False] * 2
    assert where.level[0, 3:9].tolist() == [0, 0, 1, 1, 2, 2]
    assert where.first[0].tolist() == [False] * 3 + [True, False] * 3 + [False] * 2
    assert where.last[0].tolist() == [False] * 3 + [False, True] * 3 + [False] * 2
    assert where.positions[0].tolist() == [0, 0, 0, 4, 8, 6, 10, 8, 12, 0, 0]


def test_a_rule_is_the_sum_of_its_parts(model: StudentForCausalLM) -> None:
    embedding, config = model.model.embed_tokens, model.config
    tokenizer = make_tokenizer(Translations(DEPTH, CHARS, 1, text="composite"))
    a, b, c, d = 1, 2, 0, 1  # BC>DE at the first level
    token = tokenizer.convert_tokens_to_ids("BC>DE")
    characters = embedding.character
    expected = characters[0, a] + characters[1, b] + characters[2, c] + characters[3, d]
    expected = expected + embedding.level[1] + embedding.kind[1]
    torch.testing.assert_close(embedding(torch.tensor([[token]]))[0, 0], expected)
    assert config.vocab_size == len(tokenizer)


def test_between_embedding_and_head_stands_a_stock_llama(
    source: Translations, encoder: Encoder, model: StudentForCausalLM
) -> None:
    """Its weights in a `LlamaModel` that knows nothing of students, which is given vectors, positions and a mask."""
    ids = batch_of(source, encoder, "no-dropout")["input_ids"]
    shape = {key: value for key, value in model.config.to_dict().items() if key in LlamaConfig().to_dict()}
    stock = LlamaModel(LlamaConfig(**{**shape, "architectures": None, "model_type": "llama"})).eval()
    weights = {name: value for name, value in model.model.state_dict().items() if not name.startswith("embed_tokens")}
    assert set(stock.state_dict()) - set(weights) == {"embed_tokens.weight"}
    stock.load_state_dict(weights, strict=False)
    where = Geometry(ids, model.config)
    with torch.inference_mode():
        hidden = stock(
            inputs_embeds=model.model.embed_tokens(ids),
            position_ids=where.positions,
            attention_mask=where.mask(torch.float32),
        ).last_hidden_state
        answers = ~where.padding
        torch.testing.assert_close(
            model.lm_head(hidden)[answers], model(input_ids=ids).logits[answers], atol=1e-5, rtol=1e-5
        )


def test_rules_all_have_position_zero_and_matter(
    source: Translations, encoder: Encoder, model: StudentForCausalLM
) -> None:
    ids = batch_of(source, encoder, "no-dropout")["input_ids"][:1]
    is_rule = ids[0] >= model.config.first_rule
    assert (Geometry(ids, model.config).positions[0, is_rule] == 0).all()
    rules = is_rule.nonzero()[:, 0]
    changed = ids.clone()
    changed[0, rules[0]] = ids[0, rules[0]] ^ 1
    with torch.inference_mode():
        before, after = (model(input_ids=x).logits[:, rules[-1] + 1 :] for x in (ids, changed))
    assert (before - after).abs().max() > 1e-3


def test_answers_are_not_fed_back(source: Translations, encoder: Encoder, model: StudentForCausalLM) -> None:
    batch = batch_of(source, encoder)
    ids, answers = batch["input_ids"], batch["answers"]
    other = torch.where(answers, (ids + 1) % CHARS**2, ids)
    with torch.inference_mode():
        before, after = (model(input_ids=x, attention_mask=batch["attention_mask"]).logits for x in (ids, other))
    assert torch.equal(before, after)


def test_later_tokens_do_not_reach_back(source: Translations, encoder: Encoder, model: StudentForCausalLM) -> None:
    ids = batch_of(source, encoder, "no-dropout")["input_ids"][:1]
    given = Geometry(ids, model.config).given[0].nonzero()[:, 0]
    changed = ids.clone()
    changed[0, given[-1]] = ids[0, given[-1]] ^ 1
    with torch.inference_mode():
        before, after = (model(input_ids=x).logits for x in (ids, changed))
    torch.testing.assert_close(before[:, : given[-1]], after[:, : given[-1]], rtol=0, atol=0)
    assert (before[:, given[-1] :] - after[:, given[-1] :]).abs().max() > 1e-3


def test_a_rule_sees_only_itself(source: Translations, encoder: Encoder, model: StudentForCausalLM) -> None:
    """Another rule before it changes nothing about what becomes of a rule; a string sees the difference."""
    states: list[Tensor] = []
    handle = model.model.layers[-1].register_forward_hook(lambda *call: states.append(call[-1]))
    ids = batch_of(source, encoder)["input_ids"][:1]
    rules = (ids[0] >= model.config.first_rule).nonzero()[:, 0]
    assert len(rules) > 2
    changed = ids.clone()
    changed[0, rules[0]] = model.config.first_rule + (ids[0, rules[0]] - model.config.first_rule + 1) % CHARS**4
    with torch.inference_mode():
        model(input_ids=ids)
        model(input_ids=changed)
    handle.remove()
    before, after = states
    assert torch.equal(before[:, rules[1:]], after[:, rules[1:]])
    strings = Geometry(ids, model.config).inside
    assert not torch.allclose(before[strings], after[strings], atol=1e-4)


def test_leaving_out_what_a_rule_does_not_see_changes_nothing(
    source: Translations, encoder: Encoder, model: StudentForCausalLM
) -> None:
    """Output and gradients are those of the stock attention over the same mask."""
    ids = batch_of(source, encoder)["input_ids"]
    assert Geometry(ids, model.config).alone > 3
    results: list[list[Tensor]] = []
    for attention in (model.config._attn_implementation, "sdpa"):
        stock = copy.deepcopy(model)
        stock.set_attn_implementation(attention)
        logits = stock(input_ids=ids).logits
        logits.square().sum().backward()
        results.append([logits, *(weight.grad for weight in stock.parameters() if weight.grad is not None)])
    assert len(results[0]) > 10
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_changes_nothing(side: str, source: Translations, encoder: Encoder, model: StudentForCausalLM) -> None:
    ids = batch_of(source, encoder)["input_ids"][:1]
    ids = ids[:, ids[0] != model.config.pad_token_id]
    padding = ids.new_full((1, 3), model.config.pad_token_id)
    padded = torch.cat([padding, ids] if side == "left" else [ids, padding], 1)
    with torch.inference_mode():
        alone = model(input_ids=ids).logits
        beside = model(input_ids=padded).logits[:, 3:] if side == "left" else model(input_ids=padded).logits[:, :-3]
    torch.testing.assert_close(beside, alone, rtol=1e-4, atol=1e-5)


def test_it_is_saved_and_loaded_like_any_model(
    source: Translations, encoder: Encoder, model: StudentForCausalLM, tmp_path: Path
) -> None:
    model.save_pretrained(tmp_path)
    assert not list(tmp_path.glob("*.bin")) and (tmp_path / "model.safetensors").exists()
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    batch = batch_of(source, encoder)
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
    with torch.inference_mode():
        assert torch.equal(model(**inputs).logits, loaded(**inputs).logits)


def test_the_exam_judges_characters(source: Translations, encoder: Encoder, model: StudentForCausalLM) -> None:
    rows = examine(model, encoder, source, curriculum_named("anneal"), (0.0, 1.0), samples=20)
    assert all(row.chance == 1 / CHARS for row in rows)


@pytest.mark.parametrize("name", ["student-3-8", "writer-2-8"])
def test_a_reader_that_ships_writes_the_answers_it_is_examined_on(name: str) -> None:
    """With the book open nearly all strings are right, with it closed none; generation says the same as the exam."""
    path = Path(openbook.__file__).parent / "checkpoints" / name / "model"
    reader = AutoModelForCausalLM.from_pretrained(path).eval()
    task = {key: getattr(reader.config, key) for key in ("depth", "chars", "text")}
    source = Translations(
        **task, count=12, codebook=Codebook.sample(task["depth"], task["chars"], 99), lengths=(20, 24)
    )
    encoder = Encoder(make_tokenizer(source), source.bank, loss="answer")
    closed, opened = examine(
        reader, encoder, source, curriculum_named("anneal"), (0.0, 1.0), False, samples=12, generate=True
    )
    assert closed.generated_match == closed.exact_match == 0
    assert opened.generated_match == opened.exact_match >= 0.75


def test_embeddings_from_outside_are_refused(model: StudentForCausalLM) -> None:
    with pytest.raises(InputError, match="input_ids"):
        model(inputs_embeds=torch.zeros(1, 2, 16))


def test_the_composite_format_has_no_explicit_chain() -> None:
    with pytest.raises(InputError, match="explicit"):
        Translations(2, 3, 5, text="composite", chain="explicit")
