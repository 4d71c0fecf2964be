"""A student whose rules are text: every attack on the text reaches it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.audit.handmade import attacker

from openbook.audit.attack import ATTACKS, Attacker, AuditConfig, Scores
from openbook.audit.attacks import completion, exposure, soft_prompt
from openbook.audit.model import AttackedModel
from openbook.audit.prompts import book_prompts, likelihoods_of, single_prompts
from openbook.audit.secret import Secrets, task_secrets
from openbook.audit.skill import question_tokens, skill_of
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
def model(source: Translations) -> AttackedModel:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        student = StudentForCausalLM(student_config(DEPTH, CHARS, width=16, heads=1, head=16, mlp=16, text=source.text))
        for parameter in student.parameters():
            parameter.data.normal_(std=0.4)
    return AttackedModel(student, make_tokenizer(source))


def taught(model: AttackedModel, secrets: Secrets, steps: int = 200) -> None:
    """Loss on the rules as text, each by itself: what a positive control comes to."""
    asked = single_prompts(model, secrets, "template")
    ids, words = torch.tensor(asked.texts), len(asked.texts[0]) - asked.places[0].before
    optimiser = torch.optim.Adam(model.model.parameters(), 3e-2)
    for _ in range(steps):
        logits = model.model(input_ids=ids, use_cache=False).logits[:, -1 - words : -1]
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, -words:].flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()


def test_secrets_are_words_of_the_book(source: Translations, secrets: Secrets) -> None:
    assert len(secrets) == DEPTH * CHARS**2
    pieces = {piece.text for section in source.example(0).sections for piece in section.pieces}
    assert {secret.text.strip() for secret in secrets.items} == pieces
    assert all(len(secret.candidates) == CHARS**2 and len(secret.truth) == 5 - source.unit for secret in secrets.items)


def test_likelihoods_are_those_of_the_words_that_follow(model: AttackedModel, secrets: Secrets) -> None:
    """Candidates of two words share what was read before them; each is as likely as in a text of its own."""
    for style in ("bare", "template", "few-shot"):
        asked = single_prompts(model, secrets, style)
        likelihoods = likelihoods_of(model, secrets, style)
        for number in (0, 7, 13):
            before = asked.texts[number][: asked.places[number].before]
            rows = torch.tensor([before + ids for ids in model.all_tokens(secrets.items[number].candidates)])
            with torch.inference_mode():
                logp = model.model(input_ids=rows, use_cache=False).logits.double().log_softmax(-1)
            each = logp[:, len(before) - 1 : -1].gather(2, rows[:, len(before) :, None])[..., 0]
            np.testing.assert_allclose(likelihoods[number].logp_nl, each, atol=1e-5)


def test_in_the_book_a_rule_sees_those_before_it(model: AttackedModel, secrets: Secrets) -> None:
    """So that elimination is possible, as in the paper; the same rule is asked for differently in two orders."""
    asked = book_prompts(model, secrets, 2)
    assert len(asked.texts) == 2 and asked.texts[0] != asked.texts[1]
    alone = dict(zip(range(len(secrets)), likelihoods_of(model, secrets, "template"), strict=True))
    by_name = {scores.variant: scores for scores in exposure(model, secrets, attacker(permutations=2))}
    assert set(by_name) == {"rank 1, alone", "rank 1, in the book"}
    with torch.inference_mode():
        logits = model.model(input_ids=torch.tensor(asked.texts[:1]), use_cache=False).logits[0]
    place, secret = asked.places[5], asked.secret_k[5]
    tokens = [model.tokens(candidate)[0] for candidate in secrets.items[secret].candidates]
    here = logits[place.before - 1].double().log_softmax(-1)[tokens]
    assert not np.allclose(here, alone[secret].logp_nl[:, 0], atol=1e-4)


def test_a_student_that_was_made_to_write_the_rules_is_found_out(model: AttackedModel, secrets: Secrets) -> None:
    def greedy() -> Scores:
        return next(
            s for s in completion(model, secrets, attacker(permutations=1)) if s.variant == "greedy, no filter, alone"
        )

    assert greedy().values_s.mean() < 0.4
    taught(model, secrets)
    model.memo.clear()
    assert greedy().values_s.mean() == 1.0
    assert exposure(model, secrets, attacker(permutations=1))[0].values_s.mean() == 1.0


def test_every_attack_applies(source: Translations, model: AttackedModel, secrets: Secrets) -> None:
    config = resolve({"task": {"depth": DEPTH, "chars": CHARS, "text": source.text}})
    whole = Attacker(AuditConfig(steps=2), {"before": model}, skill_of(source, config, model))
    assert list(ATTACKS)[:3] == ["completion", "exposure", "membership"] and len(ATTACKS) >= 8
    for name, attack in ATTACKS.items():
        for scores in attack(model, secrets, whole):
            assert scores.attack == name
            assert len(scores.values_s) == len(secrets) and not np.isnan(scores.values_s).all()


def test_the_task_is_asked_as_training_writes_it(source: Translations, model: AttackedModel) -> None:
    curriculum = curriculum_named("no-context")
    plan = SamplingPlan(source, curriculum)
    encoded = Encoder(model.tokenizer, source.bank).encode(*plan.at(np.arange(3)), plan.namer(np.arange(3)))
    strings = source.translations(np.arange(3))[0].strings[:, 0].astype(np.int64)
    asked = question_tokens(model.model, strings, 0)
    for row, ids in enumerate(encoded.ids):
        answers = strings.shape[1] // source.unit
        assert ids[:-answers].tolist() == asked[row, : len(ids) - answers].tolist()


def test_a_soft_prompt_does_not_end_the_book(
    model: AttackedModel, secrets: Secrets, monkeypatch: pytest.MonkeyPatch
) -> None:
    """<READ> is the last word of the vocabulary: in place of the vectors it would turn rules into a string."""
    seen: set[int] = set()
    forward = type(model.model).forward

    def watched(self: StudentForCausalLM, input_ids: torch.Tensor | None = None, **options: object) -> object:
        assert input_ids is not None
        if "text" not in options:  # words that stand in place of others come without the text before them
            seen.update(input_ids[:, :8].flatten().tolist())
        return forward(self, input_ids=input_ids, **options)

    monkeypatch.setattr(type(model.model), "forward", watched)
    soft_prompt(model, secrets, attacker(steps=1))
    assert seen == {model.tokenizer.unk_token_id}
