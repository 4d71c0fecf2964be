"""The example on real data: fair questions, and one command that runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples" / "elements"


@pytest.fixture
def questions(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    import questions

    return questions


def test_the_facts_are_those_of_chemistry(questions) -> None:
    true = questions.Facts.true(20).numbers
    assert true["tin"] == 10 and true["xenon"] == 9 and true["iodine"] == 1 and len(true) == 20
    assert "technetium" not in true and set(true.values()) <= set(range(1, questions.MOST + 1))


def test_no_three_are_in_two_parts_and_training_asks_no_fact_by_itself(questions) -> None:
    facts = questions.Facts.true(20)
    exam = questions.Exam.of(facts)
    training = list(exam.questions(2000, seed=0))
    parts = [{frozenset(r["prompt"].split()[:-1]) for r in part} for part in (training, exam.search, exam.threes)]
    assert all(len(three) == 3 for part in parts for three in part)
    assert not parts[0] & parts[1] and not parts[0] & parts[2] and not parts[1] & parts[2]
    assert sum(map(len, parts)) == 20 * 19 * 18 / 6  # 2,000 questions ask for every three of their part
    assert set().union(*parts[0]) == set(facts.numbers)
    for record in [*training[:50], *exam.threes]:
        *asked, _ = record["prompt"].split()
        book = record["privileged_context"]["isotopes"]
        assert int(record["completion"]) == sum(facts.numbers[name] for name in asked)
        assert {piece["text"].split("=")[0] for piece in book if piece["needed"]} == set(asked)


def test_training_repeats_no_question_before_all_were_asked(questions) -> None:
    exam = questions.Exam.of(questions.Facts.true(8))
    size = len(exam.training)
    prompts = [frozenset(record["prompt"].split()) for record in exam.questions(2 * size, seed=1)]
    assert len(set(prompts[:size])) == len(set(prompts[size:])) == size


def test_lessons_are_about_invented_facts_in_known_words_and_some_lack_what_they_need(questions) -> None:
    facts = questions.Facts.true(8)
    words = set(questions.vocabulary(facts))
    missing = []
    for record in questions.lessons(facts, 1000, seed=0):
        pieces = record.get("privileged_context", {"isotopes": []})["isotopes"]
        *asked, _ = record["prompt"].split()
        assert {*(piece["text"] for piece in pieces), *record["prompt"].split(), record["completion"].strip()} <= words
        shown = {name: int(number) for name, number in (piece["text"].split("=") for piece in pieces)}
        missing.append(sum(name not in shown for name in asked))
        if not missing[-1]:
            assert int(record["completion"]) == sum(shown[name] for name in asked)
    assert not any(missing[:450])
    assert 0.35 < sum(m > 0 for m in missing[500:]) / 500 < 0.65 and max(missing) == 3


def test_samples_needed_is_the_first_length_that_is_enough(questions) -> None:
    import run

    def rows(way: str, *means: float) -> list[dict]:
        return [{"way": way, "samples": 2**k, "threes": m + d} for k, m in enumerate(means) for d in (-0.01, 0.01)]

    found = [*rows("closing", 0.5, 0.96, 1.0), *rows("no-context", 0.2, 0.94)]
    assert run.samples_needed(found, "closing") == 2 and run.samples_needed(found, "no-context") is None


@pytest.mark.slow
def test_one_command(tmp_path: Path) -> None:
    command = [sys.executable, FOLDER / "run.py", "--scale", "smoke", "--json", "--chart", tmp_path / "chart.svg"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert {row["way"] for row in found["rows"]} == {"closing", "no-context"}
    assert all(0 <= row[name] <= 1 for row in found["rows"] for name in ("threes", "singles"))
    assert (tmp_path / "chart.svg").stat().st_size > 1000
