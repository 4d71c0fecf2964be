"""`openbook ask`: questions to a run, with the book closed and open."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from openbook.cli import main
from openbook.training.ask import book_for
from openbook.training.reopen import reopen

FACTS = Path(__file__).parents[2] / "examples" / "facts.jsonl"


def test_what_was_learned_is_answered(learned: Path, told: Any) -> None:
    record = json.loads(FACTS.read_text().splitlines()[0])
    answers = [told("ask", learned, record["prompt"], *flag)[0] for flag in ([], ["--open"])]
    assert [answer["open"] for answer in answers] == [False, True]
    assert answers[0]["answer"] == record["completion"].strip()
    assert answers[0]["question"] == record["prompt"]


def test_questions_are_read_line_by_line(
    learned: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    record = json.loads(FACTS.read_text().splitlines()[0])
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{record['prompt']}\n{record['prompt']}\n\nnot asked\n"))
    assert main(["ask", str(learned)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 2 and said[0] == said[1]


def test_what_cannot_be_asked_is_refused(learned: Path, refused: Any, tmp_path: Path) -> None:
    assert "has at least one" in refused("ask", learned, "Who?", "--max-new-tokens", 0)
    assert "needs a question" in refused("ask", learned, "--json")


def test_the_open_book_is_that_of_the_question_or_all_of_them(learned: Path) -> None:
    opened = reopen(learned)
    record = json.loads(FACTS.read_text().splitlines()[0])
    own = [piece for pieces in book_for(opened, record["prompt"]).values() for piece in pieces]
    everything = [piece for pieces in book_for(opened, "What else?").values() for piece in pieces]
    assert 0 < len(own) < len(everything) == len(set(everything)) and set(own) <= set(everything)
