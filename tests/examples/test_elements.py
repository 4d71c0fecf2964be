"""The example on real data: fair questions, and one command that runs."""

from __future__ import annotations

import json
import os
import random
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
    assert true["hydrogen"] == 1 and true["carbon"] == 6 and true["calcium"] == 20 and len(true) == 20


def test_no_pair_is_in_two_parts_and_training_asks_no_fact_by_itself(questions) -> None:
    facts = questions.Facts.true(20)
    exam = questions.Exam.of(facts)
    asked = [{frozenset(r["prompt"].split()[0:3:2]) for r in part} for part in (exam.training, exam.search, exam.pairs)]
    assert all(len(pair) == 2 for part in asked for pair in part)
    assert not asked[0] & asked[1] and not asked[0] & asked[2] and not asked[1] & asked[2]
    assert sum(map(len, asked)) == 20 * 19 / 2
    assert set().union(*asked[0]) == set(facts.numbers)  # yet every fact is needed in training
    for record in exam.pairs:
        (one, two), book = record["prompt"].split()[0:3:2], record["privileged_context"]["protons"]
        assert int(record["completion"]) == facts.numbers[one] + facts.numbers[two]
        assert {piece["text"].split("=")[0] for piece in book if piece["needed"]} == {one, two}


def test_invented_facts_have_the_form_of_the_true_ones_and_their_words(questions) -> None:
    facts = questions.Facts.true(8)
    words = set(questions.vocabulary(facts))
    invented = [facts.invented(random.Random(seed)) for seed in range(20)]
    assert all(sorted(world.numbers.values()) == sorted(facts.numbers.values()) for world in invented)
    assert len({tuple(world.numbers.values()) for world in invented}) == 20
    for record in questions.lessons(facts, 50, 0, single=0.5):
        texts = [piece["text"] for piece in record["privileged_context"]["protons"]]
        assert {*texts, *record["prompt"].split(), record["completion"].strip()} <= words


@pytest.mark.slow
def test_one_command(tmp_path: Path) -> None:
    command = [sys.executable, FOLDER / "run.py", "--scale", "smoke", "--json", "--chart", tmp_path / "chart.svg"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert {row["way"] for row in found["rows"]} == {"anneal", "no-context"}
    assert all(0 <= row[name] <= 1 for row in found["rows"] for name in ("pairs", "singles"))
    assert (tmp_path / "chart.svg").stat().st_size > 1000
