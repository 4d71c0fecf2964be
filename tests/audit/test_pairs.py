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
from openbook.audit.secret import Secrets, task_secrets
from openbook.audit.softprompt import SoftPrompt
from openbook.audit.subject import Subject
from openbook.curriculum import SamplingPlan, curriculum_named
from openbook.student.model import StudentForCausalLM
from openbook.student.vocabulary import student_config
from openbook.task import Codebook
from openbook.task.source import Translations
from openbook.training.encode import Encoder
from openbook.training.models import make_tokenizer
from openbook.training.resolve import resolve

DEPTH, CHARS = 2, 3
CODEBOOK = Codebook.sample(DEPTH, CHARS, seed=4)


@pytest.fixture(params=["pairs", "letters"])
def source(request: pytest.FixtureRequest) -> Translations:
    return Translations(DEPTH, CHARS, 20, CODEBOOK, lengths=(6, 6), text=request.param)


@pytest.fixture
def secrets(source: Translations) -> Secrets:
    return task_secrets(source)


@pytest.fixture
def subject(source: Translations) -> Subject:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = StudentForCausalLM(student_config(DEPTH, CHARS, width=16, heads=1, head=16, mlp=16, text=source.text))
        for parameter in model.parameters():
            parameter.data.normal_(std=0.4)
    return Subject(model, make_tokenizer(source))


def taught(subject: Subject, secrets: Secrets, steps: int = 200) -> None:
    """Loss on the rules as text, each by itself: what a positive control comes to."""
    asked = prompts(subject, secrets, "template")
    ids, words = torch.tensor(asked.texts), len(asked.texts[0]) - asked.places[0].before
    optimiser = torch.optim.Adam(subject.model.parameters(), 3e-2)
    for _ in range(steps):
        logits = subject.model(input_ids=ids, use_cache=False).logits[:, -1 - words : -1]
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, -words:].flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()


def test_secrets_are_words_of_the_book(source: Translations, secrets: Secrets) -> None:
    assert len(secrets) == DEPTH * CHARS**2
    pieces = {piece.text for section in source.example(0).sections for piece in section.pieces}
    assert {secret.text.strip() for secret in secrets.items} == pieces
    assert all(len(secret.candidates) == CHARS**2 and len(secret.truth) == 5 - source.unit for secret in secrets.items)


def test_likelihoods_are_those_of_the_words_that_follow(subject: Subject, secrets: Secrets) -> None:
    """Candidates of two words share what was read before them; each is as likely as in a text of its own."""
    for style in ("bare", "template", "few-shot"):
        asked = prompts(subject, secrets, style)
        found = likelihoods(subject, secrets, style)
        for number in (0, 7, 13):
            before = asked.texts[number][: asked.places[number].before]
            rows = torch.tensor([before + ids for ids in subject.all_tokens(secrets.items[number].candidates)])
            with torch.inference_mode():
                logp = subject.model(input_ids=rows, use_cache=False).logits.double().log_softmax(-1)
            each = logp[:, len(before) - 1 : -1].gather(2, rows[:, len(before) :, None])[..., 0]
            np.testing.assert_allclose(found[number].logp_nl, each, atol=1e-5)


def test_in_the_book_a_rule_sees_those_before_it(subject: Subject, secrets: Secrets) -> None:
    """So that elimination is possible, as in the paper; the same rule is asked for differently in two orders."""
    asked = books(subject, secrets, 2)
    assert len(asked.texts) == 2 and asked.texts[0] != asked.texts[1]
    alone = dict(zip(range(len(secrets)), likelihoods(subject, secrets, "template"), strict=True))
    by_name = {scores.variant: scores for scores in Exposure(2)(subject, secrets)}
    assert set(by_name) == {"rank 1, alone", "rank 1, in the book"}
    with torch.inference_mode():
        logits = subject.model(input_ids=torch.tensor(asked.texts[:1]), use_cache=False).logits[0]
    place, secret = asked.places[5], asked.secret_k[5]
    tokens = [subject.tokens(candidate)[0] for candidate in secrets.items[secret].candidates]
    here = logits[place.before - 1].double().log_softmax(-1)[tokens]
    assert not np.allclose(here, alone[secret].logp_nl[:, 0], atol=1e-4)


def test_a_student_that_was_made_to_write_the_rules_is_found_out(subject: Subject, secrets: Secrets) -> None:
    def greedy() -> Scores:
        return next(s for s in Completion(1)(subject, secrets) if s.variant == "greedy, no filter, alone")

    assert greedy().values_s.mean() < 0.4
    taught(subject, secrets)
    subject.memo.clear()
    assert greedy().values_s.mean() == 1.0
    assert Exposure(1)(subject, secrets)[0].values_s.mean() == 1.0


def test_every_attack_applies(source: Translations, subject: Subject, secrets: Secrets) -> None:
    config = resolve({"task": {"depth": DEPTH, "chars": CHARS, "text": source.text}})
    found = attacks_for(Settings(steps=2), config, source, subject, {"before": subject})
    assert [attack.name for attack in found] == list(ATTACKS)
    for attack in found:
        for scores in attack(subject, secrets):
            assert len(scores.values_s) == len(secrets) and not np.isnan(scores.values_s).all()


def test_the_task_is_asked_as_training_writes_it(source: Translations, subject: Subject) -> None:
    curriculum = curriculum_named("no-context")
    plan = SamplingPlan(source, curriculum)
    encoded = Encoder(subject.tokenizer, source.bank).encode(*plan.at(np.arange(3)), plan.namer(np.arange(3)))
    strings = source.translations(np.arange(3))[0].strings[:, 0].astype(np.int64)
    asked = rows_of(subject.model, strings, 0)
    for row, ids in enumerate(encoded.ids):
        answers = strings.shape[1] // source.unit
        assert ids[:-answers].tolist() == asked[row, : len(ids) - answers].tolist()


def test_a_soft_prompt_does_not_end_the_book(
    subject: Subject, secrets: Secrets, monkeypatch: pytest.MonkeyPatch
) -> None:
    """<READ> is the last word of the vocabulary: in place of the vectors it would turn rules into a string."""
    seen: set[int] = set()
    forward = type(subject.model).forward

    def watched(self: StudentForCausalLM, input_ids: torch.Tensor | None = None, **options: object) -> object:
        assert input_ids is not None
        if "text" not in options:  # words that stand in place of others come without the text before them
            seen.update(input_ids[:, :8].flatten().tolist())
        return forward(self, input_ids=input_ids, **options)

    monkeypatch.setattr(type(subject.model), "forward", watched)
    SoftPrompt(steps=1)(subject, secrets)
    assert seen == {subject.tokenizer.unk_token_id}
