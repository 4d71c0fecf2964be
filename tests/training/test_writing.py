"""The student that writes: rules are two words of a text, which it reads in order and can be asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from openbook.book import Translations
from openbook.curriculum import Plan, curriculum_named
from openbook.task import Codebook
from openbook.task.text import PairsFormat
from openbook.training.batches import Collator, PositionDataset
from openbook.training.config import RunConfig
from openbook.training.encode import Encoder
from openbook.training.exam import examine
from openbook.training.models import make_tokenizer
from openbook.training.reading import Course, Stage, looped, passes, untied, writing_loss
from openbook.training.settings import validated
from openbook.training.student import StudentForCausalLM
from openbook.training.student_words import Geometry, student_config

DEPTH, CHARS = 2, 3
CONFIG = student_config(DEPTH, CHARS, width=16, heads=1, head=8, mlp=16, text="pairs", lag=True)
PAD, UNK, BOOK, THINK, READ = range(CONFIG.first_special, CONFIG.first_special + 5)


@pytest.fixture(scope="module")
def source() -> Translations:
    return Translations(DEPTH, CHARS, 50, Codebook.sample(DEPTH, CHARS, 1), (4, 8), text="pairs")


@pytest.fixture(scope="module")
def encoder(source: Translations) -> Encoder:
    return Encoder(make_tokenizer(source), source.bank, loss="answer")


@pytest.fixture(scope="module")
def model() -> StudentForCausalLM:
    torch.manual_seed(0)
    student = StudentForCausalLM(CONFIG)
    for parameter in student.parameters():
        parameter.data.normal_(std=0.3)
    return student.eval()


def batch_of(source: Translations, encoder: Encoder, curriculum: str = "anneal") -> dict[str, Any]:
    items = PositionDataset(Plan(source, curriculum_named(curriculum)), encoder).__getitems__([0, 1, 30])
    return Collator(encoder.tokenizer.pad_token_id, 8).pad(items)


def test_the_tokenizer_numbers_words_as_the_model_takes_them(source: Translations, encoder: Encoder) -> None:
    words = PairsFormat(DEPTH, CHARS).vocabulary()
    assert len(words) == CONFIG.vocab_size == len(encoder.tokenizer)
    assert [encoder.tokenizer.convert_tokens_to_ids(word) for word in words] == list(range(len(words)))
    assert [words[CONFIG.special(word)] for word in ("<PAD>", "<BOOK>", "<THINK>", "<READ>")] == [
        "<PAD>",
        "<BOOK>",
        "<THINK>",
        "<READ>",
    ]
    text = source.example(0).render().text
    assert "<UNK>" not in encoder.tokenizer.convert_ids_to_tokens(encoder.tokenizer(text)["input_ids"])


def test_geometry_of_a_worked_example() -> None:
    size = CHARS**2
    ids = torch.tensor([[PAD, BOOK, size, 2 * size, 2 * size, 0, READ, size, size + 1, THINK, THINK, THINK, 0, 1, PAD]])
    where = Geometry(ids, CONFIG)
    assert where.ruled[0].nonzero().flatten().tolist() == [2, 3, 4, 5]
    assert where.right[0].nonzero().flatten().tolist() == [3, 5]
    assert where.given[0].nonzero().flatten().tolist() == [7, 8]
    assert where.inside[0].nonzero().flatten().tolist() == list(range(7, 13))
    assert where.level[0, 7:13].tolist() == [0, 0, 1, 1, 2, 2]
    assert where.positions[0, 1:13].tolist() == [0, 1, 2, 3, 4, 5, 4, 8, 6, 10, 8, 12]


def test_a_word_has_the_same_vector_on_either_side_of_a_rule(model: StudentForCausalLM, encoder: Encoder) -> None:
    embedding = model.model.embed_tokens
    word = encoder.tokenizer.convert_tokens_to_ids("DE")  # of the second alphabet
    left, right = embedding(torch.tensor([[BOOK, word, word]]))[0, 1:]
    plain = embedding.character[2, 0] + embedding.character[3, 1] + embedding.level[1]
    torch.testing.assert_close(left, plain + embedding.kind[4])
    torch.testing.assert_close(right, plain + embedding.kind[1])
    torch.testing.assert_close(embedding.weight[word], plain)
    assert embedding.weight.shape == model.lm_head.weight.shape == (CONFIG.vocab_size, 16)


def test_the_book_is_read_in_order(model: StudentForCausalLM) -> None:
    """Another rule before it changes what is expected after a left word; nothing that comes later does."""
    ids = torch.tensor([[BOOK, 9, 18, 10, 19, 11, 20]])
    earlier, later = ids.clone(), ids.clone()
    earlier[0, 2], later[0, 4] = 21, 22
    with torch.inference_mode():
        plain, after, before = (model(input_ids=x).logits for x in (ids, earlier, later))
        short = model(input_ids=ids[:, :4]).logits
        followed = model(input_ids=torch.cat([ids, torch.tensor([[READ, 9, 10, THINK, THINK, THINK]])], 1)).logits
    assert (plain[0, 3] - after[0, 3]).abs().max() > 1e-4
    torch.testing.assert_close(plain[0, :4], before[0, :4], rtol=0, atol=0)
    torch.testing.assert_close(plain[0, :4], short[0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(plain[0], followed[0, :7], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_changes_nothing(side: str, source: Translations, encoder: Encoder, model: StudentForCausalLM) -> None:
    ids = batch_of(source, encoder)["input_ids"][:1]
    ids = ids[:, ids[0] != PAD]
    padding = ids.new_full((1, 3), PAD)
    padded = torch.cat([padding, ids] if side == "left" else [ids, padding], 1)
    with torch.inference_mode():
        alone, beside = model(input_ids=ids).logits, model(input_ids=padded).logits
    beside = beside[:, 3:] if side == "left" else beside[:, :-3]
    torch.testing.assert_close(beside, alone, rtol=1e-4, atol=1e-5)


def test_answers_are_not_fed_back(source: Translations, encoder: Encoder, model: StudentForCausalLM) -> None:
    batch = batch_of(source, encoder)
    other = torch.where(batch["answers"], (batch["input_ids"] + 1) % CHARS**2, batch["input_ids"])
    with torch.inference_mode():
        before, after = (model(input_ids=x).logits for x in (batch["input_ids"], other))
    assert torch.equal(before, after)


def test_the_exam_judges_characters_and_generation_agrees_with_teacher_forcing(
    source: Translations, encoder: Encoder, model: StudentForCausalLM
) -> None:
    rows = examine(model, encoder, source, curriculum_named("anneal"), (0.0, 1.0), samples=20, generate=True)
    for row in rows:
        assert row.chance == 1 / CHARS and row.generated_match == row.exact_match


def test_it_is_saved_and_loaded_like_any_model(
    source: Translations, encoder: Encoder, model: StudentForCausalLM, tmp_path: Path
) -> None:
    model.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    ids = batch_of(source, encoder)["input_ids"]
    with torch.inference_mode():
        assert torch.equal(model(input_ids=ids).logits, loaded(input_ids=ids).logits)
    config = validated(RunConfig, {"model": {"path": str(tmp_path)}})
    assert config.task is not None and (config.task.text, config.task.depth, config.task.chars) == ("pairs", 2, 3)
    assert config.training.loss == "answer" and config.training.optimizer == "muon"


@pytest.mark.parametrize("levels", [1, 2, 3])
def test_a_batch_says_what_the_oracle_says(levels: int) -> None:
    """Rules read off the words of the book translate the given string into what the slots are to know."""
    course = Course(3, 4, seed=2, text="pairs")
    config = student_config(3, 4, text="pairs")
    size, batch = 16, course.batch(Stage(levels, 0.25, (4, 8)), 5, 6, 0.0)
    where = Geometry(batch.ids, config)
    for row in range(6):
        words = batch.ids[row, where.ruled[row]]
        block, bigram = words // size, (words % size).numpy()
        level_of = ((block - 1) % 4).numpy()  # the output's words come first
        assert (level_of[1::2] == level_of[0::2] + 1).all()
        table = {(level_of[k], bigram[k]): bigram[k + 1] for k in range(0, len(words), 2)}
        given = batch.ids[row, where.given[row]].numpy()
        level, string = int(given[0]) // size - 1, given % size
        for i in range(levels):
            characters = np.stack([string // 4, string % 4], 1).reshape(-1)
            looked_up = np.roll(characters, -1).reshape(-1, 2)
            string = np.array([table[level + i, a * 4 + b] for a, b in looked_up])
            assert (batch.wanted[row, i].numpy() == np.stack([string // 4, string % 4], 1)).all()
        assert int(batch.output[row]) // size == (level + levels + 1) % 4
        assert (batch.ids[row, batch.slots[row].reshape(-1)] == config.special("<THINK>")).all()


def test_untying_changes_nothing_and_the_whole_model_agrees_with_the_passes() -> None:
    model = looped(CONFIG, seed=0)
    for parameter in model.parameters():
        parameter.data.normal_(std=0.3)
    batch = Course(DEPTH, CHARS, seed=0, text="pairs").batch(Stage(DEPTH, 0.25, (6, 6)), 0, 4, 0.0)
    apart = untied(model, spare=8)
    with torch.inference_mode():
        known = passes(model, batch).known[-1]
        states = passes(apart, batch).states
        logits = apart(input_ids=batch.ids).logits
    rows = torch.arange(4)[:, None]
    at_slots = logits[rows, batch.slots[:, -1]][..., : CHARS**2].log_softmax(-1).unflatten(-1, (CHARS, CHARS))
    apart_logp = known.log_softmax(-1)
    together = apart_logp[..., 0, :, None] + apart_logp[..., 1, None, :]
    torch.testing.assert_close(at_slots, together, rtol=1e-4, atol=1e-4)
    assert torch.isfinite(writing_loss(apart, batch, states))


def test_the_writing_loss_is_what_it_says() -> None:
    """It is small for a model that knows left sides early and writes the answer's words, and only then."""
    model = looped(CONFIG, seed=0)
    batch = Course(DEPTH, CHARS, seed=0, text="pairs").batch(Stage(DEPTH, 0.25, (6, 6)), 0, 4, 0.0)
    embedding, where = model.model.embed_tokens, Geometry(batch.ids, CONFIG)
    with torch.no_grad():
        embedding.scale.fill_(400.0)
        early, late = torch.zeros(2, *batch.ids.shape, 16).unbind()
        left = batch.ids.roll(1, 1) % CHARS**2
        early[where.right] = (embedding.character[0][left // CHARS] + embedding.character[1][left % CHARS])[where.right]
        following = torch.zeros_like(batch.ids)
        rows = torch.arange(len(batch.ids))[:, None]
        wanted = batch.wanted[:, -1]
        following[rows, batch.slots[:, -1]] = batch.output[:, None] + wanted[..., 0] * CHARS + wanted[..., 1]
        late = model.lm_head.weight[following] * 16
        right = writing_loss(model, batch, [early, late])
        assert right < 0.35 * writing_loss(model, batch, [-early, late])
        assert right < 0.35 * writing_loss(model, batch, [early, late.flip(1)])
