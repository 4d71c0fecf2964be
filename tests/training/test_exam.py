"""The exam, sat by models whose score is known beforehand."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tests.tiny import byte_level, word_level
from torch import Tensor, nn

from openbook.base.errors import InputError
from openbook.base.intervals import wilson
from openbook.book import ListSource
from openbook.book.text import Kind
from openbook.curriculum import Curriculum, SamplingPlan, Schedule, curriculum_named
from openbook.task import Codebook
from openbook.task.source import Translations
from openbook.training.batches import items
from openbook.training.encode import Encoder
from openbook.training.exam import SHARES, Row, SectionRow, condition, correct_answers, examine, examine_sections
from openbook.training.models import make_tokenizer

WORDS = word_level()


class Scripted(nn.Module):
    """A causal LM in form: what it says next is a function of the tokens. (It may look ahead, so it can be perfect.)"""

    def __init__(self, says: Callable[[Tensor], Tensor], vocabulary: int) -> None:
        super().__init__()
        self.says, self.config = says, SimpleNamespace()
        self.head = nn.Linear(vocabulary, vocabulary, bias=False)
        self.head.weight.data = torch.eye(vocabulary)

    def get_output_embeddings(self) -> nn.Module:
        return self.head

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, use_cache: bool = False) -> Any:
        hidden = nn.functional.one_hot(self.says(input_ids), self.head.in_features).float()
        return SimpleNamespace(logits=self.head(hidden))


def peeking(ids: Tensor) -> Tensor:
    return torch.cat([ids[:, 1:], ids[:, :1]], dim=1)


def saying(word: str) -> Callable[[Tensor], Tensor]:
    token = WORDS.convert_tokens_to_ids(word)
    return lambda ids: torch.full_like(ids, token)


BOOKS = [[f"fact {letter}" for letter in "abcd"], ["fact e"], ["fact f", "fact g"]]
ANSWERS = ["a a b c", "a d", "b b b b"]


def source() -> ListSource:
    return ListSource(
        [
            {"prompt": "who is king ?", "completion": f" is {answer}", "answer": answer, "privileged_context": book}
            for answer, book in zip(ANSWERS, BOOKS, strict=True)
        ]
    )


def sit(model: nn.Module, data: Any = None, tokenizer: Any = WORDS, **options: Any) -> list[Row]:
    data = data or source()
    return examine(model, Encoder(tokenizer, data.bank), data, curriculum_named("anneal"), **options)


def test_a_perfect_model_scores_one_everywhere() -> None:
    rows = sit(Scripted(peeking, len(WORDS)))
    assert [(row.book, row.open) for row in rows] == [("right", share) for share in SHARES] + [("wrong", 1.0)]
    for row in rows:
        assert (row.accuracy, row.exact_match, row.samples) == (1.0, 1.0, 3)
        assert (row.low, row.high) == (row.exact_low, row.exact_high) == pytest.approx(wilson(3, 3))
        assert row.by_place == [1.0] * 4


def test_a_constant_model_scores_what_its_word_is_worth_and_the_best_one_chance() -> None:
    said_a, said_b, said_c = (sit(Scripted(saying(word), len(WORDS)))[0] for word in "abc")
    assert said_a.accuracy == pytest.approx((2 / 4 + 1 / 2 + 0) / 3)
    assert said_b.accuracy == pytest.approx((1 / 4 + 0 + 1) / 3)
    assert said_c.accuracy == pytest.approx((1 / 4) / 3)
    assert said_a.chance == said_b.chance == pytest.approx(max(said_a.accuracy, said_b.accuracy))
    assert said_b.exact_match == pytest.approx(1 / 3)
    assert said_b.by_place == pytest.approx([1 / 3, 1 / 3, 1, 1 / 2])
    assert 0 <= said_b.low < said_b.accuracy < said_b.high <= 1


def test_words_around_the_answer_are_not_examined() -> None:
    """`is` stands before every answer and is no part of it."""
    assert sit(Scripted(saying("is"), len(WORDS)))[0].accuracy == 0


def reading(word: str) -> nn.Module:
    """Answers while this word stands somewhere in the text, and says nothing of use else."""
    token, other = (WORDS.convert_tokens_to_ids(each) for each in (word, "e"))
    says = lambda ids: torch.where((ids == token).any(1, keepdim=True), peeking(ids), other)  # noqa: E731
    return Scripted(says, len(WORDS))


def asked(*books: dict[str, Any]) -> ListSource:
    return ListSource([{"prompt": "who is ?", "completion": " a b", "privileged_context": book} for book in books])


def sections_of(model: nn.Module, data: ListSource, window: int | None = None, **options: Any) -> dict[str, SectionRow]:
    curriculum = curriculum_named("anneal", order="given", candidates="all")
    rows = examine_sections(model, Encoder(WORDS, data.bank, window), data, curriculum, **options)
    return {row.section: row for row in rows}


def test_a_section_that_is_closed_is_missed_by_a_model_that_needs_it() -> None:
    data = asked({"first": ["fact a"], "second": ["king b"]}, {"first": ["fact a"]})
    by_section = sections_of(reading("king"), data)
    assert list(by_section) == ["first", "second"]
    first, second = by_section.values()
    assert (first.samples, second.samples, first.pieces) == (2, 1, 1)  # only one example would miss the second
    assert (first.accuracy, first.exact_match) == (0.5, 0.5)  # the example that has no second section at all
    assert (second.accuracy, second.exact_match) == (0.0, 0.0)
    with pytest.raises(InputError, match="at least one"):
        sections_of(reading("king"), data, samples=0)


def test_a_section_is_closed_by_its_name_wherever_it_stands() -> None:
    books = [{"first": ["fact a"], "second": ["king b"]}, {"second": ["king c"]}, *[{"first": ["fact a"]}] * 70]
    rare = {"first": ["fact a"], "third": ["fact d", "fact e"]}
    by_section = sections_of(reading("king"), asked(*books, rare))
    assert {name: (row.samples, row.pieces) for name, row in by_section.items()} == {
        "first": (72, 1),
        "second": (2, 1),
        "third": (1, 2),
    }
    assert by_section["second"].accuracy == 0  # in both, though it is the first section of one of them


def test_names_that_are_entries_of_a_list_are_numbered() -> None:
    by_section = sections_of(reading("king"), asked(*({f"entry {k}": ["king b"]} for k in range(25))))
    assert {name: row.samples for name, row in by_section.items()} == {"1": 25}


def test_examples_that_need_nothing_of_a_section_do_not_speak_for_it() -> None:
    def piece(needed: bool) -> dict[str, Any]:
        return {"text": "king b", "needed": needed}

    data = asked({"only": [piece(True)]}, *[{"only": [piece(False)]}] * 9)
    assert sections_of(reading("king"), data)["only"].samples == 1
    nobody = asked({"only": [piece(False)]})
    with pytest.raises(InputError, match="no section to close"):
        sections_of(reading("king"), nobody)


def test_what_did_not_fit_beside_an_open_book_is_not_opened_by_closing_a_section() -> None:
    """The window holds the first section and not the second: closing the first must not make room for it."""
    data = asked({"first": ["fact a", "fact c"], "second": ["king b", "king d"]})
    free = sections_of(reading("king"), data)
    assert free["first"].accuracy == 1 and set(free) == {"first", "second"}
    tokens = len(
        Encoder(WORDS, data.bank).encode(*SamplingPlan(data, curriculum_named("no-dropout")).at(np.arange(1))).flat_ids
    )
    short = sections_of(reading("king"), data, window=tokens - 4)
    assert set(short) == {"first"} and short["first"].accuracy == 0


def test_chance_is_one_in_n_for_the_task() -> None:
    task = Translations(2, 4, 600, Codebook.sample(2, 4), lengths=(8, 12), text="compact")
    tokenizer = make_tokenizer(task)
    letter = tokenizer.convert_tokens_to_ids(task.format.vocabulary().words[-2])  # of the last alphabet
    model = Scripted(lambda ids: torch.full_like(ids, letter), len(tokenizer))
    row = sit(model, task, tokenizer, samples=600, wrong=False)[0]
    assert row.chance == 1 / 4 and row.low < 1 / 4 < row.high
    assert row.high - row.low < 0.05 and row.exact_match < 0.01


def test_chance_is_that_of_a_token_where_characters_are_spelled_with_several() -> None:
    """The larger alphabets have Greek letters: two bytes, of which most have the first in common."""
    task = Translations(5, 10, 40, Codebook.sample(5, 10), lengths=(8, 12), text="released")
    tokenizer = byte_level()
    assert len(tokenizer(" α", add_special_tokens=False)["input_ids"]) > 1
    answers = [part.text for k in range(40) for part in task.example(k).completion if part.kind == Kind.ANSWER]
    likeliest, _ = Counter(tokenizer("".join(answers), add_special_tokens=False)["input_ids"]).most_common(1)[0]
    row = sit(Scripted(lambda ids: torch.full_like(ids, likeliest), len(tokenizer)), task, tokenizer, wrong=False)[0]
    assert row.chance == pytest.approx(row.accuracy) and row.chance > 0.2 > 1 / 10


def test_each_condition_opens_the_share_it_names() -> None:
    book = [f"fact {letter}" for letter in "abcd"]
    data = ListSource(
        [
            {"prompt": f"is {'efgh'[k]} ?", "completion": " Orm", "privileged_context": book[k:] + book[:k]}
            for k in range(4)
        ]
    )
    fact, seen = WORDS.convert_tokens_to_ids("fact"), []

    def counting(ids: Tensor) -> Tensor:
        seen.extend((ids == fact).sum(1).tolist())
        return peeking(ids)

    rows = sit(Scripted(counting, len(WORDS)), data)
    assert [row.pieces for row in rows] == [0, 1, 2, 3, 4, 0]  # all pieces are needed, so none misleads
    assert seen == [0] * 4 + [1] * 4 + [2] * 4 + [3] * 4 + [4] * 4  # and what is the closed book is not read again


def test_nothing_is_read_twice() -> None:
    """A book of one piece is open or closed, whatever the share; the rows are still those of each share alone."""
    data = ListSource(
        [{"prompt": f"who is {x} ?", "completion": " a b", "privileged_context": [f"fact {x}"]} for x in "abcdefg"]
    )
    reads: list[int] = []

    def leaning(ids: Tensor) -> Tensor:
        reads.append(len(ids))
        return torch.where((ids == WORDS.convert_tokens_to_ids("fact")).any(1, keepdim=True), peeking(ids), 0)

    model = Scripted(leaning, len(WORDS))
    together = sit(model, data, shares=SHARES)
    assert sum(reads) == 3 * len(data)  # closed, open and wrong
    apart = [sit(model, data, shares=(share,), wrong=False)[0] for share in SHARES]
    assert [row.as_dict() for row in together[:-1]] == [row.as_dict() for row in apart]
    assert [row.accuracy for row in apart] == [0, 1, 1, 1, 1]


@pytest.mark.parametrize("batch_size", [1, 3, 64])
def test_examples_that_differ_in_what_is_examined_are_not_confused(batch_size: int) -> None:
    """The same tokens, of which one record examines all and the other a part."""
    records: list[dict[str, Any]] = [{"prompt": "who ?", "completion": " a b b"}] * 2
    data = ListSource([*records, records[0] | {"answer": "b b"}])
    plan = SamplingPlan(data, curriculum_named("no-context"))
    encoder = Encoder(WORDS, data.bank)
    examples = items(encoder.encode(*plan.at(np.arange(3))), range(3))
    told: list[float] = []
    model = Scripted(saying("b"), len(WORDS))
    right = correct_answers(model, encoder, examples, data, batch_size, advance=told.append)
    assert [row.tolist() for row in right] == [[False, True, True]] * 2 + [[True, True]]
    assert sum(told) == pytest.approx(1) and len(told) == (2 if batch_size == 1 else 1)


def test_a_wrong_book_is_shown_where_there_is_one() -> None:
    shown: set[str] = set()

    def reading(ids: Tensor) -> Tensor:
        shown.update(WORDS.decode(row).split(" who")[0] for row in ids)
        return peeking(ids)

    sit(Scripted(reading, len(WORDS)), shares=(1.0,), wrong=False)
    right = shown.copy()
    rows = sit(Scripted(reading, len(WORDS)), shares=(1.0,))
    assert [row.book for row in rows] == ["right", "wrong"]
    assert len(right) == 3 and len(shown) > 3
    one = ListSource([{"prompt": "who ?", "completion": " Orm", "privileged_context": ["fact a"]}])
    assert [row.book for row in sit(Scripted(peeking, len(WORDS)), one)] == ["right"] * 5


def test_a_model_that_leans_on_the_book_shows_it_in_the_curve() -> None:
    """It answers rightly when some fact stands before it, and `d` otherwise."""
    fact, wrong = WORDS.convert_tokens_to_ids("fact"), WORDS.convert_tokens_to_ids("d")

    def leaning(ids: Tensor) -> Tensor:
        return torch.where((ids == fact).any(1, keepdim=True), peeking(ids), torch.full_like(ids, wrong))

    data = ListSource([{"prompt": "who ?", "completion": " a b", "privileged_context": ["fact a", "fact b"]}] * 6)
    rows = sit(Scripted(leaning, len(WORDS)), data)
    assert [row.accuracy for row in rows] == [0.0, 1.0, 1.0, 1.0, 1.0]
    assert [row.pieces for row in rows] == [0, 1, 1, 2, 2]  # a share is rounded to whole pieces, and says so


def test_batch_size_does_not_change_the_result() -> None:
    small, large = (sit(Scripted(saying("b"), len(WORDS)), batch_size=size) for size in (1, 64))
    assert [row.as_dict() for row in small] == [row.as_dict() for row in large]


def test_the_model_is_left_as_it_was() -> None:
    model = Scripted(peeking, len(WORDS))
    for training in (True, False):
        model.train(training)
        sit(model, shares=(0.0,))
        assert model.training is training


def test_thoughts_are_examined_as_training_left_them() -> None:
    record = {"prompt": "who ?", "completion": " a b c", "thoughts": [" a b"]}
    seen: list[str] = []

    def reading(ids: Tensor) -> Tensor:
        seen.append(WORDS.decode(ids[0]))
        return peeking(ids)

    for silence, text in (("0@0,1@0.6", "<THINK> <THINK> c"), ("0", "a b c")):
        data = ListSource([record])
        curriculum = Curriculum(silence=silence)  # type: ignore[arg-type]
        examine(Scripted(reading, len(WORDS)), Encoder(WORDS, data.bank), data, curriculum, shares=(0.0,))
        assert text in seen[-1]


def test_the_condition_keeps_the_curriculums_choice_of_pieces() -> None:
    asked = condition(curriculum_named("anneal", order="given"), 0.25)
    assert (asked.others, asked.order, asked.spread, asked.wrong) == (0.25, "given", "all", False)
    assert asked.drop == Schedule.parse(0.75)


def test_bad_exams_are_refused() -> None:
    model = Scripted(peeking, len(WORDS))
    with pytest.raises(InputError, match="between 0 and 1"):
        sit(model, shares=(0.0, 1.5))
    with pytest.raises(InputError, match="at least one"):
        sit(model, samples=0)
    silent = ListSource([{"prompt": "who ?", "completion": " a b", "thoughts": [" a b"]}])
    with pytest.raises(InputError, match="no answer tokens"):
        sit(model, silent)


def test_progress_is_told_for_every_condition() -> None:
    advanced: list[float] = []
    sit(Scripted(peeking, len(WORDS)), advance=advanced.append, batch_size=2)
    assert len(advanced) > 3 and sum(advanced) == pytest.approx(len(SHARES) + 1)


def test_rows_can_be_written_as_json() -> None:
    row = sit(Scripted(peeking, len(WORDS)))[0].as_dict()
    assert {"open", "accuracy", "low", "high", "chance", "exact_match", "f1", "normalised_match"} <= set(row)
    assert row["f1"] is None and "written" not in row  # nothing was written
    assert json.loads(json.dumps(row)) == row
