"""The advice for a run that learned nothing."""

from __future__ import annotations

from typing import Any

import pytest

from openbook.curriculum import curriculum_named
from openbook.training.outcome import GUESS, advice

CHANCE = 0.125
READ_ONCE = [{"step": 1, "loss": 3.0}, {"step": 10, "closed_book": 0.12, "open_book": 0.9}]


def advice_for(closed_book: float, open_book: float, name: str = "anneal", course: Any = ()) -> str | None:
    return advice(closed_book, open_book, CHANCE, course, curriculum_named(name))


@pytest.mark.parametrize("name", ["anneal", "patient", "fixed:0.2", "no-context", "no-dropout", "wrong-context"])
def test_a_run_that_learned_gets_no_advice(name: str) -> None:
    assert advice_for(CHANCE + GUESS + 0.01, 0.9, name) is None
    assert advice_for(CHANCE + GUESS - 0.01, 0.9, name) is not None


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("no-dropout", "never closes the book"),
        ("no-context", "never opens the book"),
        ("wrong-context", "misleads"),
        ("anneal", "has not learned by heart"),
        ("fixed:0.2", "has not learned by heart"),
    ],
)
def test_the_curriculum_is_named_where_it_is_the_reason(name: str, why: str) -> None:
    assert why in str(advice_for(CHANCE, 0.9, name))


def test_reading_that_was_lost_is_told_from_reading_that_never_was() -> None:
    lost = str(advice_for(CHANCE, CHANCE, course=READ_ONCE))
    assert "at 0.900 after step 10" in lost and "lower rate" in lost
    assert "cannot read" in str(advice_for(CHANCE, CHANCE, course=READ_ONCE[:1]))


@pytest.mark.parametrize("chance", [0.96, 1.0])
def test_where_nearly_all_answers_are_the_same_a_run_that_is_always_right_has_learned(chance: float) -> None:
    assert advice(1.0, 1.0, chance, (), curriculum_named("anneal")) is None
    assert chance == 1 or advice(chance, chance, chance, (), curriculum_named("anneal")) is not None
    assert "it reads" in str(advice(chance / 2, 1.0, chance, (), curriculum_named("anneal")))
    read_once = [{"open_book": 1.0, "step": 10}]
    assert "reads no more" in str(advice(0.5, 0.5, chance, read_once, curriculum_named("anneal")))
