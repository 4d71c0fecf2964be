"""The handbook's questions are fair: every fact is taught, no question comes twice, guessing does not pay."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import openbook as ob

FOLDER = Path(__file__).parents[2] / "examples" / "handbook"
PARTS = ("train", "held-out")
FACTS = 40
COMMON = 0.06  # what the most common answer may score


def read(part: str) -> list[dict[str, Any]]:
    return list(ob.records(ob.load(str(FOLDER / f"{part}.jsonl"))))


def pieces(record: Mapping[str, Any], *, needed: bool) -> frozenset[str]:
    book = record["privileged_context"].values()
    return frozenset(piece["text"] for section in book for piece in section if piece["needed"] is needed)


def words(text: str) -> str:
    """Small letters and digits alone, so that a word can be looked for as a whole."""
    return f" {' '.join(re.findall(r'[a-z0-9]+', text.lower()))} "


def bare(answer: str) -> str:
    return re.sub(r"^ ((in|on|at) )?((the|a) )?", " ", words(answer))


@pytest.fixture(scope="module")
def handbook() -> dict[str, list[dict[str, Any]]]:
    return {part: read(part) for part in PARTS}


def test_there_are_forty_facts_and_each_is_asked_in_both_files(handbook) -> None:
    shown = {fact for part in PARTS for r in handbook[part] for k in (True, False) for fact in pieces(r, needed=k)}
    assert len(shown) == FACTS
    for part, least in (("train", 2), ("held-out", 1)):
        alone = Counter(
            fact for r in handbook[part] if len(pieces(r, needed=True)) == 1 for fact in pieces(r, needed=True)
        )
        assert set(alone) == shown and min(alone.values()) >= least


def test_no_question_is_in_both_files_and_no_pair_of_facts(handbook) -> None:
    asked = [words(r["prompt"]) for part in PARTS for r in handbook[part]]
    assert len(asked) == len(set(asked)) == 160
    needed = [pieces(r, needed=True) for part in PARTS for r in handbook[part]]
    pairs = [facts for facts in needed if len(facts) > 1]
    assert len(pairs) == len(set(pairs)) == 40 and {len(facts) for facts in needed} == {1, 2}


@pytest.mark.parametrize("part", PARTS)
def test_an_answer_is_in_the_facts_it_needs_and_nowhere_else(handbook, part: str) -> None:
    for record in handbook[part]:
        answer = bare(record["completion"])
        assert any(answer in words(fact) for fact in pieces(record, needed=True)), record["prompt"]
        assert not any(answer in words(fact) for fact in pieces(record, needed=False)), record["prompt"]
        assert answer not in words(record["prompt"]), record["prompt"]


@pytest.mark.parametrize("part", PARTS)
def test_answers_are_short_and_the_most_common_one_scores_little(handbook, part: str) -> None:
    answers = Counter(r["completion"] for r in handbook[part])
    assert max(answers.values()) < COMMON * answers.total()
    assert all(re.fullmatch(r"\S+( \S+){0,5}(?<![.])", answer) for answer in answers)
