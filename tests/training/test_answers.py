"""Answers as texts: what is compared, and how."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openbook.base.intervals import clustered
from openbook.book.record import example_from_record
from openbook.training.answers import Written, normalised, token_f1, written_rates, written_to

TEXTS = st.text(alphabet="aAb .,-Thé 日+", max_size=12)


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("  The  Grey Sea. ", "grey sea"),
        ("N'Djamena", "ndjamena"),
        ("an answer, a «quote» – and the rest…", "answer quote and rest"),
        ("23 Days", "23 days"),
        ("ÉTÉ", "été"),
        ("A", "a"),  # the first choice of four is no article
        ("The.", "the"),
        ("+", "+"),
        ("...", "..."),
        ("", ""),
    ],
)
def test_what_normalisation_leaves(text: str, plain: str) -> None:
    assert normalised(text) == plain


@pytest.mark.parametrize(
    ("written", "reference", "f1"),
    [
        ("The cook", "cook", 1.0),
        ("23 days of leave", "23 days", 2 * (2 / 4) * 1 / (2 / 4 + 1)),
        ("days days", "days", 2 * (1 / 2) * 1 / (1 / 2 + 1)),  # a word counts as often as it stands there
        ("none", "23 days", 0.0),
        ("", "23 days", 0.0),
        ("", "", 1.0),
    ],
)
def test_f1_is_that_of_words(written: str, reference: str, f1: float) -> None:
    assert token_f1(written, reference) == pytest.approx(f1)


@given(TEXTS, TEXTS)
def test_f1_is_symmetric_and_one_where_the_texts_match(one: str, other: str) -> None:
    assert 0 <= token_f1(one, other) == token_f1(other, one) <= 1
    assert token_f1(one, one) == 1
    if normalised(one) == normalised(other):
        assert token_f1(one, other) == 1
    assert normalised(normalised(one)) == normalised(one)


def compared(record: dict[str, Any], text: str) -> Written:
    return written_to(example_from_record({"prompt": "?", **record}), text)


def test_all_of_a_completion_is_compared_unless_it_names_its_answer() -> None:
    whole = compared({"completion": " 23 days"}, " 23 Days.\n")
    assert (whole.reference, whole.text, whole.exact, whole.match, whole.f1) == ("23 days", "23 Days.", False, True, 1)
    assert compared({"completion": " 23 days"}, " 23 days").exact


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (" Downstream of Tamsen, so: the Grey Sea.", "the Grey Sea"),
        ("It flows past Osk, so: the Grey Sea.", "the Grey Sea"),  # other thoughts, the same last words
        ("so: no, so: the Red Sea", "the Red Sea"),
        ("also: the Red Sea", "also: the Red Sea"),  # a word is not found inside another one
        ("the Grey Sea", "the Grey Sea"),
        ("", ""),
    ],
)
def test_an_answer_is_found_after_the_words_that_stand_before_it(text: str, answer: str) -> None:
    record = {"completion": " Downstream of Tamsen, so: the Grey Sea.", "answer": "the Grey Sea"}
    assert compared(record, text).answer == answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (" is Paris", "Paris"),
        ("Paris", "Paris"),
        ("This is what is meant", "This is what is meant"),  # an ordinary word stands in too many answers
        ("island", "island"),
    ],
)
def test_a_single_word_is_looked_for_at_the_start_alone(text: str, answer: str) -> None:
    assert compared({"completion": " is Paris", "answer": "Paris"}, text).answer == answer


def test_a_decimal_point_is_not_the_full_stop_after_an_answer() -> None:
    record = {"completion": "It is 3.5.", "answer": "3.5"}
    assert compared(record, "It is 3.5.").exact and not compared(record, "It is 3.6.").match


def test_rates_have_intervals_clustered_by_example() -> None:
    answers = [compared({"completion": "23 days"}, text) for text in ("23 days", "23 Days!", "23", "none")]
    rates = written_rates(answers)
    assert (rates["f1"], rates["f1_low"], rates["f1_high"]) == clustered([1, 1, 2 / 3, 0])
    assert rates["normalised_match"] == 0.5 and rates["normalised_low"] < 0.5 < rates["normalised_high"]
    assert answers[1].as_dict() == {
        "question": "?",
        "reference": "23 days",
        "written": "23 Days!",
        "normalised_match": True,
        "f1": 1.0,
    }
