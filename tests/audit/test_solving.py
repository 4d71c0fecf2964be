"""Inversion: the oracle's answers give the codebook away up to names, and nothing but answers is needed."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from tests.audit.handmade import shifted, small_task
from tests.tiny import tiny

from openbook.audit.model import AttackedModel
from openbook.audit.skill import TextTask
from openbook.audit.solving import guessed, recovered_rules, solve, unshifted
from openbook.book.text import Kind
from openbook.curriculum import SamplingPlan, curriculum_named
from openbook.task import Codebook, translate_batch
from openbook.training.encode import Encoder
from openbook.training.exam import condition
from openbook.training.models import make_tokenizer


def oracle(codebook: Codebook, wrong: float = 0.0, seed: int = 0):
    random = np.random.default_rng(seed)
    asked = []

    def ask(x_bp: np.ndarray) -> np.ndarray:
        asked.append(len(x_bp))
        strings = unshifted(x_bp, codebook.chars).astype(np.uint8)
        answer = translate_batch(codebook, strings).strings[:, -1].astype(np.int64)
        answer = answer[:, 0::2] * codebook.chars + answer[:, 1::2]
        noise = random.random(answer.shape) < wrong
        return np.where(noise, random.integers(codebook.chars**2, size=answer.shape), answer)

    ask.asked = asked  # type: ignore[attr-defined]
    return ask


def test_shifting_back_and_forth() -> None:
    strings = np.random.default_rng(0).integers(8, size=(5, 12))
    assert (unshifted(shifted(strings, 8), 8) == strings).all()


@pytest.mark.parametrize(
    ("depth", "chars", "pairs"), [(1, 8, 2), (1, 3, 4), (1, 3, 10), (2, 2, 10), (2, 8, 2), (3, 8, 10), (4, 4, 6)]
)
def test_all_rules_up_to_names(depth: int, chars: int, pairs: int) -> None:
    codebook = Codebook.sample(depth, chars, seed=5)
    ask = oracle(codebook)
    levels, last = solve(ask, depth, chars, pairs)
    assert recovered_rules(levels, last, codebook).mean() == 1.0
    assert sum(ask.asked) <= depth * 12 * chars**2 * max(1, pairs)


def test_a_few_wrong_answers_do_little_harm_and_guesses_recover_nothing() -> None:
    codebook = Codebook.sample(2, 8)
    assert recovered_rules(*solve(oracle(codebook, wrong=0.05), 2, 8, 4), codebook).mean() > 0.9
    lost = recovered_rules(*solve(oracle(codebook, wrong=1.0), 2, 8, 4), codebook).mean()
    chance = guessed(codebook, 4).mean()  # naming classes after the fact helps a guesser
    assert 1 / 64 < chance < 0.15 and lost == pytest.approx(chance, abs=0.06)


def test_relabelled_codebooks_behave_the_same() -> None:
    """The statement of the module: names in between cannot be told, (n!)² of them for each alphabet in between."""
    codebook, n = Codebook.sample(2, 3, seed=1), 3
    random = np.random.default_rng(2)
    first, second = random.permutation(n), random.permutation(n)
    pi, rho = codebook.tables.astype(np.int64)
    other_pi = first[pi // n] * n + second[pi % n]
    other_rho = np.empty_like(rho)
    x = np.arange(n * n)
    other_rho[second[x // n] * n + first[x % n]] = rho
    other = Codebook(n, np.stack([other_pi, other_rho]).astype(np.uint16))
    strings = random.integers(n, size=(50, 8)).astype(np.uint8)
    assert other != codebook and math.factorial(n) ** 2 == 36
    assert (translate_batch(codebook, strings).strings[:, -1] == translate_batch(other, strings).strings[:, -1]).all()


@pytest.mark.parametrize("text", ["released", "compact"])
def test_the_question_is_that_of_an_exam_with_the_book_closed(text: str) -> None:
    """The released text keeps the headings of a book that is closed."""
    source = small_task(depth=2, text=text)
    model = AttackedModel(tiny(), make_tokenizer(source))
    encoder = Encoder(model.tokenizer, source.bank)
    plan = SamplingPlan(source, condition(curriculum_named("no-context"), 0.0))
    encoded = encoder.encode(*plan.at(np.array([0])))
    letters = {letter: k for k, letter in enumerate(source.codebook.alphabets()[0])}  # type: ignore[union-attr]
    string = next(part.text for part in source.example(0).parts() if part.kind == Kind.PROMPT)
    characters = [letters[word] for word in re.findall(r"\b[A-Z]\b", string)]
    assert source.codebook is not None
    asked = TextTask(source.codebook, 2, source=source, frame=encoder.frame).question(model, characters)
    end = encoded.ids[0].tolist()[len(asked) :]
    assert [*asked, *end] == encoded.ids[0].tolist()
    answer = next(part.text for part in source.example(0).completion if part.kind == Kind.ANSWER)
    assert model.tokenizer.decode(end).strip().startswith(answer.strip())
