"""The student that writes: rules are words of a text, which it reads in order and can be asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from openbook.base.errors import InputError
from openbook.curriculum import SamplingPlan, curriculum_named
from openbook.student.course import Course, Stage
from openbook.student.model import StudentForCausalLM
from openbook.student.reading import looped, passes, untied, writing_loss
from openbook.student.vocabulary import SPECIAL, Geometry, StudentConfig, student_config
from openbook.task import Codebook
from openbook.task.formats import LettersFormat, PairsFormat
from openbook.task.source import Translations
from openbook.training.batches import Collator, PositionDataset
from openbook.training.encode import Encoder
from openbook.training.exam import examine
from openbook.training.models import make_tokenizer
from openbook.training.resolve import resolve

DEPTH, CHARS = 2, 3
TEXTS = ("pairs", "letters")


def config_of(text: str) -> StudentConfig:
    return student_config(DEPTH, CHARS, width=16, heads=1, head=8, mlp=16, text=text, lag=True)


def tokens(config: StudentConfig, text: str) -> torch.Tensor:
    """Words by their numbers, special words by name, as one row: `<BOOK> 9 18`."""
    return torch.tensor([[config.special(word) if word in SPECIAL else int(word) for word in text.split()]])


@pytest.fixture(scope="module", params=TEXTS)
def text(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def source(text: str) -> Translations:
    return Translations(DEPTH, CHARS, 50, Codebook.sample(DEPTH, CHARS, 1), (4, 8), text=text)


@pytest.fixture(scope="module")
def encoder(source: Translations) -> Encoder:
    return Encoder(make_tokenizer(source), source.bank, loss="answer")


@pytest.fixture(scope="module")
def model(text: str) -> StudentForCausalLM:
    torch.manual_seed(0)
    student = StudentForCausalLM(config_of(text))
    for parameter in student.parameters():
        parameter.data.normal_(std=0.3)
    return student.eval()


def batch_of(source: Translations, encoder: Encoder, curriculum: str = "anneal") -> dict[str, Any]:
    items = PositionDataset(SamplingPlan(source, curriculum_named(curriculum)), encoder).__getitems__([0, 1, 30])
    return Collator(encoder.tokenizer.pad_token_id, 8).pad(items)


def test_the_tokenizer_numbers_words_as_the_model_takes_them(source: Translations, encoder: Encoder) -> None:
    words, config = source.format.vocabulary().words, config_of(source.text)  # type: ignore[union-attr]
    assert len(words) == config.vocab_size == len(encoder.tokenizer)
    assert [encoder.tokenizer.convert_tokens_to_ids(word) for word in words] == list(range(len(words)))
    assert [words[config.special(word)] for word in SPECIAL] == list(SPECIAL)
    text = source.example(0).render().text
    assert "<UNK>" not in encoder.tokenizer.convert_ids_to_tokens(encoder.tokenizer(text)["input_ids"])


def test_words_are_bigrams_or_characters_those_of_the_output_first() -> None:
    assert PairsFormat(DEPTH, CHARS).vocabulary().words[:10] == [*(a + b for a in "GHI" for b in "GHI"), "AA"]
    assert LettersFormat(DEPTH, CHARS).vocabulary().words == [*"GHIABCDEF", *SPECIAL]
    assert LettersFormat(DEPTH, CHARS).rule("A B -> D E") == "A B D E"


@pytest.mark.parametrize(("kind", "word", "characters"), [("pairs", 9 + 7, [2, 1]), ("letters", 3 + 2, [2])])
def test_a_word_is_its_characters(kind: str, word: int, characters: list[int]) -> None:
    config = config_of(kind)
    assert config.characters(torch.tensor([word])).tolist() == [characters]
    assert config.words(torch.tensor([characters])).tolist() == [word % config.alphabet]


def test_geometry_of_a_worked_example() -> None:
    config = config_of("pairs")
    ids = tokens(config, "<PAD> <BOOK> 9 18 18 0 <READ> 9 10 <THINK> <THINK> <THINK> 0 1 <PAD>")
    where = Geometry(ids, config)
    assert where.ruled[0].nonzero().flatten().tolist() == [2, 3, 4, 5]
    assert where.right[0].nonzero().flatten().tolist() == [3, 5]
    assert where.given[0].nonzero().flatten().tolist() == [7, 8]
    assert where.inside[0].nonzero().flatten().tolist() == list(range(7, 13))
    assert where.level[0, 7:13].tolist() == [0, 0, 1, 1, 2, 2]
    assert where.positions[0, 1:13].tolist() == [0, 1, 2, 3, 4, 5, 4, 8, 6, 10, 8, 12]


def test_geometry_of_letters_both_of_a_bigram_stand_at_one_place() -> None:
    config = config_of("letters")
    string, thoughts = "3 4 5 3", " ".join(["<THINK>"] * 5)
    ids = tokens(config, f"<PAD> <BOOK> 3 4 6 7 6 7 0 1 <READ> {string} {thoughts} 0 1 2 <PAD>")
    where = Geometry(ids, config)
    assert where.ruled[0].nonzero().flatten().tolist() == list(range(2, 10))
    assert where.right[0].nonzero().flatten().tolist() == [4, 5, 8, 9]
    assert where.half[0, 2:10].tolist() == [0, 1] * 4
    assert where.given[0].nonzero().flatten().tolist() == list(range(11, 15))
    assert where.inside[0].nonzero().flatten().tolist() == list(range(11, 23))
    assert where.level[0, 11:23].tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert where.place[0, 11:23].tolist() == [0, 0, 1, 1] * 3
    assert where.half[0, 11:23].tolist() == [0, 1] * 6
    assert where.first[0, 11:23].tolist() == [True, True, False, False] * 3
    assert where.last[0, 11:23].tolist() == [False, False, True, True] * 3
    assert where.positions[0, 1:11].tolist() == list(range(10))
    assert where.positions[0, 11:23].tolist() == [4, 4, 8, 8, 6, 6, 10, 10, 8, 8, 12, 12]


def test_a_string_of_half_a_bigram_is_refused() -> None:
    config = config_of("letters")
    with pytest.raises(InputError, match=r"3 characters .* even number"):
        Geometry(tokens(config, "<BOOK> <READ> 3 4 5 <THINK>"), config)


def test_a_word_has_the_same_vector_on_either_side_of_a_rule(model: StudentForCausalLM, encoder: Encoder) -> None:
    """Beside it stands which side that is, and for a character whether it is the first or the second there."""
    embedding, config = model.model.embed_tokens, model.config
    letters = config.unit == 1
    word = encoder.tokenizer.convert_tokens_to_ids("D" if letters else "DE")  # of the second alphabet
    vectors = embedding(tokens(config, f"<BOOK> {word} {word} {word} {word}"))[0, 1:]
    plain = embedding.character[2, 0] + embedding.level[1] + (0 if letters else embedding.character[3, 1])
    sides = embedding.kind[[4, 4, 1, 1] if letters else [4, 1, 4, 1]]
    halves = embedding.half_of[[0, 1, 0, 1]] if letters else 0
    torch.testing.assert_close(vectors, plain + sides + halves)
    torch.testing.assert_close(embedding.weight[word], plain)
    assert embedding.weight.shape == model.lm_head.weight.shape == (config.vocab_size, 16)


def test_the_book_is_read_in_order(model: StudentForCausalLM) -> None:
    """Another rule before it changes what is expected after a left word; nothing that comes later does."""
    ids = tokens(model.config, "<BOOK> 3 6 4 7 5 8 3 6")
    earlier, later = ids.clone(), ids.clone()
    earlier[0, 2], later[0, 4] = 8, 6
    string = tokens(model.config, "<READ> 3 4 <THINK> <THINK> <THINK>")
    with torch.inference_mode():
        plain, after, before = (model(input_ids=x).logits for x in (ids, earlier, later))
        short = model(input_ids=ids[:, :4]).logits
        followed = model(input_ids=torch.cat([ids, string], 1)).logits
    assert (plain[0, 3] - after[0, 3]).abs().max() > 1e-4
    torch.testing.assert_close(plain[0, :4], before[0, :4], rtol=0, atol=0)
    torch.testing.assert_close(plain[0, :4], short[0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(plain[0], followed[0, :9], rtol=1e-4, atol=1e-5)


def test_a_word_in_place_of_another_is_asked_as_if_it_stood_there(model: StudentForCausalLM) -> None:
    """With the text before it read once; also behind the end of what was read."""
    ids = tokens(model.config, "<BOOK> 3 4 6 7 4 5 7 8 5")
    with torch.inference_mode():
        cache = model(input_ids=ids[:, :8], use_cache=True).past_key_values
        places = torch.tensor([[8, 8]])
        mask = torch.zeros(1, 1, 2, 10)
        mask[0, 0, 0, 9] = mask[0, 0, 1, 8] = float("-inf")  # they do not see each other
        results = model(
            input_ids=torch.tensor([[6, 8]]),
            text=ids[:, :8],
            position_ids=places,
            attention_mask=mask,
            past_key_values=cache,
            use_cache=True,
        ).logits[0]
        for word, logits in zip((6, 8), results, strict=True):
            ids[0, 8] = word
            torch.testing.assert_close(logits, model(input_ids=ids).logits[0, 8], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_changes_nothing(side: str, source: Translations, encoder: Encoder, model: StudentForCausalLM) -> None:
    ids = batch_of(source, encoder)["input_ids"][:1]
    pad = model.config.special("<PAD>")
    ids = ids[:, ids[0] != pad]
    padding = ids.new_full((1, 3), pad)
    padded = torch.cat([padding, ids] if side == "left" else [ids, padding], 1)
    with torch.inference_mode():
        alone, beside = model(input_ids=ids).logits, model(input_ids=padded).logits
    beside = beside[:, 3:] if side == "left" else beside[:, :-3]
    torch.testing.assert_close(beside, alone, rtol=1e-4, atol=1e-5)


def test_answers_are_not_fed_back(source: Translations, encoder: Encoder, model: StudentForCausalLM) -> None:
    batch = batch_of(source, encoder)
    other = torch.where(batch["answers"], (batch["input_ids"] + 1) % model.config.alphabet, batch["input_ids"])
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
    config = resolve({"model": {"path": str(tmp_path)}})
    assert config.task is not None and (config.task.text, config.task.depth, config.task.chars) == (source.text, 2, 3)
    assert config.training.loss == "answer" and config.training.optimizer == "muon"


@pytest.mark.parametrize("levels", [1, 2, 3])
def test_a_batch_says_what_the_oracle_says(text: str, levels: int) -> None:
    """Rules read off the words of the book translate the given string into what the slots are to know."""
    course = Course(3, 4, seed=2, text=text)
    config = student_config(3, 4, text=text)
    size, batch = config.alphabet, course.batch(Stage(levels, 0.25, (4, 8)), 5, 6, 0.0)
    where = Geometry(batch.ids, config)
    for row in range(6):
        words = batch.ids[row, where.ruled[row]].reshape(-1, 4 // config.unit)
        level_of = (words // size - 1) % 4  # the output's words come first
        sides = level_of.unflatten(1, (2, -1))
        assert (sides[:, 1] == sides[:, 0] + 1).all()
        rules = config.characters(words).flatten(1).tolist()
        table = {(int(i), a, b): [c, d] for i, (a, b, c, d) in zip(level_of[:, 0], rules, strict=True)}
        given = batch.ids[row, where.given[row]]
        level, string = int(given[0]) // size - 1, config.characters(given).flatten().numpy()
        for i in range(levels):
            looked_up = np.roll(string, -1).reshape(-1, 2)
            each = looked_up.repeat(2 // config.unit, 0)  # a word of a bigram looks up all of it
            assert (batch.shifted[row, i].numpy() == each).all()
            string = np.array([table[level + i, a, b] for a, b in looked_up.tolist()]).reshape(-1)
            assert (batch.wanted[row, i].numpy().reshape(-1) == string).all()
        assert int(batch.output[row]) // size == (level + levels + 1) % 4
        assert (batch.ids[row, batch.slots[row].reshape(-1)] == config.special("<THINK>")).all()


def test_untying_changes_nothing_and_the_whole_model_agrees_with_the_passes(text: str) -> None:
    model = looped(config_of(text), seed=0)
    for parameter in model.parameters():
        parameter.data.normal_(std=0.3)
    batch = Course(DEPTH, CHARS, seed=0, text=text).batch(Stage(DEPTH, 0.25, (6, 6)), 0, 4, 0.0)
    apart = untied(model, spare=8)
    with torch.inference_mode():
        known = passes(model, batch).known[-1]
        states = passes(apart, batch).states
        logits = apart(input_ids=batch.ids).logits
    rows = torch.arange(4)[:, None]
    at_slots = logits[rows, batch.slots[:, -1]][..., : model.config.alphabet].log_softmax(-1)
    first, *second = known.log_softmax(-1).unbind(-2)
    together = (first[..., :, None] + second[0][..., None, :]).flatten(-2) if second else first
    torch.testing.assert_close(at_slots, together, rtol=1e-4, atol=1e-4)
    assert torch.isfinite(writing_loss(apart, batch, states))


def test_the_writing_loss_is_what_it_says(text: str) -> None:
    """It is small for a model that knows left sides early and writes the answer's words, and only then."""
    model, config = looped(config_of(text), seed=0), config_of(text)
    batch = Course(DEPTH, CHARS, seed=0, text=text).batch(Stage(DEPTH, 0.25, (6, 6)), 0, 4, 0.0)
    embedding, where = model.model.embed_tokens, Geometry(batch.ids, config)
    with torch.no_grad():
        embedding.scale.fill_(400.0)
        early, late = torch.zeros(2, *batch.ids.shape, 16).unbind()
        left = torch.arange(batch.ids.shape[1]) - where.half - 2 // config.unit  # where the left side of a rule begins
        a, b = (
            config.characters(batch.ids.gather(1, (left + k // config.unit).clamp(0)))[..., k % config.unit]
            for k in (0, 1)
        )
        early[where.right] = (embedding.character[0][a] + embedding.character[1][b])[where.right]
        following = torch.zeros_like(batch.ids)
        rows = torch.arange(len(batch.ids))[:, None]
        following[rows, batch.slots[:, -1]] = batch.output[:, None] + config.words(batch.wanted[:, -1])
        late = model.lm_head.weight[following] * 16
        right = writing_loss(model, batch, [early, late])
        assert right < 0.35 * writing_loss(model, batch, [-early, late])
        assert right < 0.35 * writing_loss(model, batch, [early, late.flip(1)])
