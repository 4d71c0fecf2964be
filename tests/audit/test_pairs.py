"""A student whose rules are text: every attack on the text reaches it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from openbook.audit.attack import Scores
from openbook.audit.completion import Completion
from openbook.audit.composite import rows_of
from openbook.audit.context import books, likelihoods, prompts
from openbook.audit.exposure import Exposure
from openbook.audit.run import ATTACKS, Settings, attacks_for
from openbook.audit.secret import task_secrets
from openbook.audit.softprompt import SoftPrompt
from openbook.audit.subject import Subject
from openbook.book import Translations
from openbook.curriculum import Plan, curriculum_named
from openbook.task import Codebook
from openbook.training.config import RunConfig
from openbook.training.encode import Encoder
from openbook.training.models import make_tokenizer
from openbook.training.settings import validated
from openbook.training.student import StudentForCausalLM
from openbook.training.student_words import student_config

DEPTH, CHARS = 2, 3
CODEBOOK = Codebook.sample(DEPTH, CHARS, seed=4)
SOURCE = Translations(DEPTH, CHARS, 20, CODEBOOK, lengths=(6, 6), text="pairs")
SECRETS = task_secrets(SOURCE)


@pytest.fixture
def subject() -> Subject:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = StudentForCausalLM(student_config(DEPTH, CHARS, width=16, heads=1, head=16, mlp=16, text="pairs"))
        for parameter in model.parameters():
            parameter.data.normal_(std=0.4)
    return Subject(model, make_tokenizer(SOURCE))


def taught(subject: Subject, steps: int = 80) -> None:
    """Loss on the rules as text, each by itself: what a positive control comes to."""
    asked = prompts(subject, SECRETS, "template")
    ids = torch.tensor(asked.texts)
    optimiser = torch.optim.Adam(subject.model.parameters(), 3e-2)
    for _ in range(steps):
        logits = subject.model(input_ids=ids, use_cache=False).logits[:, -2]
        loss = torch.nn.functional.cross_entropy(logits, ids[:, -1])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()


def test_secrets_are_words_of_the_book() -> None:
    assert len(SECRETS) == DEPTH * CHARS**2
    pieces = {piece.text for section in SOURCE.example(0).sections for piece in section.pieces}
    assert {secret.text.strip() for secret in SECRETS.items} == pieces
    assert all(len(secret.candidates) == CHARS**2 and len(secret.truth) == 3 for secret in SECRETS.items)


def test_likelihoods_are_those_of_the_next_word(subject: Subject) -> None:
    for secret, found in zip(SECRETS.items, likelihoods(subject, SECRETS, "template"), strict=True):
        ids = torch.tensor([subject.prompt("<BOOK>", secret.known)])
        with torch.inference_mode():
            logp = subject.model(input_ids=ids, use_cache=False).logits[0, -1].double().log_softmax(-1)
        tokens = [subject.tokens(candidate)[0] for candidate in secret.candidates]
        np.testing.assert_allclose(found.total_n, logp[tokens], atol=1e-5)


def test_in_the_book_a_rule_sees_those_before_it(subject: Subject) -> None:
    """So that elimination is possible, as in the paper; the same rule is asked for differently in two orders."""
    asked = books(subject, SECRETS, 2)
    assert len(asked.texts) == 2 and asked.texts[0] != asked.texts[1]
    alone = dict(zip(range(len(SECRETS)), likelihoods(subject, SECRETS, "template"), strict=True))
    by_name = {scores.variant: scores for scores in Exposure(2)(subject, SECRETS)}
    assert set(by_name) == {"rank 1, alone", "rank 1, in the book"}
    with torch.inference_mode():
        logits = subject.model(input_ids=torch.tensor(asked.texts[:1]), use_cache=False).logits[0]
    place, secret = asked.places[5], asked.secret_k[5]
    tokens = [subject.tokens(candidate)[0] for candidate in SECRETS.items[secret].candidates]
    here = logits[place.before - 1].double().log_softmax(-1)[tokens]
    assert not np.allclose(here, alone[secret].total_n, atol=1e-4)


def test_a_student_that_was_made_to_write_the_rules_is_found_out(subject: Subject) -> None:
    def greedy() -> Scores:
        return next(s for s in Completion(1)(subject, SECRETS) if s.variant == "greedy, no filter, alone")

    assert greedy().values_s.mean() < 0.4
    taught(subject)
    subject.memo.clear()
    assert greedy().values_s.mean() == 1.0
    assert Exposure(1)(subject, SECRETS)[0].values_s.mean() == 1.0


def test_every_attack_applies(subject: Subject) -> None:
    config = validated(RunConfig, {"task": {"depth": DEPTH, "chars": CHARS, "text": "pairs"}})
    found = attacks_for(Settings(steps=2), config, SOURCE, subject, {"before": subject})
    assert [attack.name for attack in found] == list(ATTACKS)
    for attack in found:
        for scores in attack(subject, SECRETS):
            assert len(scores.values_s) == len(SECRETS) and not np.isnan(scores.values_s).all()


def test_the_task_is_asked_as_training_writes_it(subject: Subject) -> None:
    curriculum = curriculum_named("no-context")
    plan = Plan(SOURCE, curriculum)
    encoded = Encoder(subject.tokenizer, SOURCE.bank).encode(*plan.at(np.arange(3)), plan.namer(np.arange(3)))
    strings = SOURCE.translations(np.arange(3))[0].strings[:, 0].astype(np.int64)
    asked = rows_of(subject.model, strings, 0)
    for row, ids in enumerate(encoded.ids):
        answers = strings.shape[1] // 2
        assert ids[:-answers].tolist() == asked[row, : len(ids) - answers].tolist()


def test_a_soft_prompt_does_not_end_the_book(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    """<READ> is the last word of the vocabulary: in place of the vectors it would turn rules into a string."""
    seen: set[int] = set()
    forward = type(subject.model).forward

    def watched(self: StudentForCausalLM, input_ids: torch.Tensor | None = None, **options: object) -> object:
        assert input_ids is not None
        seen.update(input_ids[:, :8].flatten().tolist())
        return forward(self, input_ids=input_ids, **options)

    monkeypatch.setattr(type(subject.model), "forward", watched)
    SoftPrompt(steps=1)(subject, SECRETS)
    assert seen == {subject.tokenizer.unk_token_id}
