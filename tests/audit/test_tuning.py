"""Relearning and soft prompts: fair halves, the model left as it was, and elimination subtracted."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from tests.audit.handmade import attacker, small_task
from tests.tiny import tiny
from torch import nn

from openbook.audit.attacks import completion, relearning, soft_prompt
from openbook.audit.model import AttackedModel
from openbook.audit.secret import Secret, Secrets, task_secrets
from openbook.audit.tuning import Practice, remaining, tune, two_folds, vectors_in_place
from openbook.training.models import make_tokenizer

SOURCE = small_task(depth=2)
SECRETS = task_secrets(SOURCE)


def attacked(seed: int = 0) -> AttackedModel:
    tokenizer = make_tokenizer(SOURCE)
    return AttackedModel(tiny(vocabulary=len(tokenizer), seed=seed, hidden=32), tokenizer)


def test_each_secret_is_held_out_once() -> None:
    folds = two_folds(SECRETS, range(18), seed=0)
    for known, held in folds:
        assert sorted(known + held) == list(range(18)) and 8 <= len(known) <= 10
    assert folds[0][0] == folds[1][1] and two_folds(SECRETS, range(18), 0) == folds != two_folds(SECRETS, range(18), 1)
    lonely = Secrets(tuple(Secret(f"g{k}", "a", " b", (" b", " c")) for k in range(6)), "data")
    assert sorted(map(len, two_folds(lonely, range(6), 0)[0])) == [3, 3]


def test_what_is_known_is_ruled_out() -> None:
    left = remaining(SECRETS, known=[1, 2, 3, 10], number=0)
    assert len(left) == 6 and SECRETS.items[0].index in left  # a rule of the other level rules out nothing
    free = Secrets(SECRETS.items, "data")
    assert len(remaining(free, [1, 2, 3], 0)) == 9


@pytest.mark.parametrize("attack", [relearning, soft_prompt])
def test_the_model_is_left_as_it_was(attack) -> None:
    model = attacked()
    before = copy.deepcopy(model.model.state_dict())
    (scores,) = attack(model, SECRETS, attacker(steps=3))
    assert all(torch.equal(value, model.model.state_dict()[name]) for name, value in before.items())
    assert all(parameter.requires_grad and parameter.grad is None for parameter in model.model.parameters())
    assert not model.model.get_input_embeddings()._forward_hooks
    known = {len(known) for known, _ in two_folds(SECRETS, range(18), 0)}
    # nine candidates without the four or five of its level that are known
    assert set(np.round(1 / scores.elimination_s).tolist()) <= {4.0, 5.0} and known <= {8, 9, 10}
    assert not np.isnan(scores.values_s).any() and (scores.chance_s == pytest.approx(1 / 9))


def test_practice_teaches_what_was_practised() -> None:
    model = attacked()
    known = list(range(9))
    rates = []
    for steps in (0, 80):
        twin = model.copy()
        tune(list(twin.model.parameters()), Practice(SECRETS, seed=0).loss_of_step(twin, known), steps, 1e-2)
        scores = completion(twin, SECRETS.subset(known), attacker(permutations=1))
        rates.append(next(s for s in scores if s.variant == "sampled, no filter, alone").values_s.mean())
    assert rates[1] > 10 * rates[0] and rates[1] > 0.3


def test_a_soft_prompt_takes_the_place_of_its_placeholders_only() -> None:
    model = tiny()
    vectors = nn.Parameter(torch.randn(2, 16))
    embed = model.get_input_embeddings()
    plain = embed(torch.tensor([[5, 5, 9], [5, 8, 9]]))
    with vectors_in_place(model, vectors, placeholder=5):
        torch.testing.assert_close(embed(torch.tensor([[5, 5, 9]]))[0, :2], vectors)
        torch.testing.assert_close(embed(torch.tensor([[5, 5, 9]]))[0, 2], plain[0, 2])
        torch.testing.assert_close(embed(torch.tensor([[5, 8, 9]])), plain[1:])  # no placeholders, no change
        model(input_ids=torch.tensor([[5, 5, 9]])).logits.sum().backward()
    assert vectors.grad is not None and vectors.grad.abs().sum() > 0
    torch.testing.assert_close(embed(torch.tensor([[5, 5, 9]])), plain[:1])
