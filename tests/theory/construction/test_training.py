"""The trainability experiment on a small task, and the pieces it is made of."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from openbook.base.errors import InputError
from openbook.task import Codebook, random_inputs
from openbook.theory.construction.training import Learner, Recipe, accuracy, held, rate_at, train

SMALL = Recipe(sequences=6400, length=8)


@pytest.fixture(scope="module")
def codebook() -> Codebook:
    return Codebook.sample(2, 3, seed=2)


@pytest.mark.parametrize("update", ["layerwise", "full"])
def test_masking_one_rule_at_a_time_teaches_the_codebook(codebook: Codebook, update: str) -> None:
    run = train(codebook, dataclasses.replace(SMALL, update=update))
    assert run.recovered == 1
    assert run.closed_book > 0.95
    steps = [point["step"] for point in run.curve]
    assert steps == sorted(set(steps)) and steps[-1] == SMALL.steps


def test_nothing_is_learned_for_the_closed_book_when_nothing_is_masked(codebook: Codebook) -> None:
    """The control: columns may look recovered, but the transformer cannot use them."""
    assert train(codebook, dataclasses.replace(SMALL, masked=False, rate=1e-3)).closed_book < 0.6


@pytest.mark.parametrize("update", ["layerwise", "full"])
def test_a_column_that_is_never_hidden_need_not_be_recovered(codebook: Codebook, update: str) -> None:
    """Few steps hide few columns if all strings of a step share one, and nearly all if each string has its own."""
    few = dataclasses.replace(SMALL, sequences=320, update=update)
    shared, own = (train(codebook, dataclasses.replace(few, each_string=each)) for each in (False, True))
    assert shared.hidden < 0.6 and own.hidden == 1
    assert train(codebook, dataclasses.replace(few, masked=False)).hidden == 0
    assert 0 <= shared.recovered_of_hidden <= 1


def test_a_mask_for_each_string_teaches_the_codebook(codebook: Codebook) -> None:
    run = train(codebook, dataclasses.replace(SMALL, each_string=True))
    assert run.recovered == run.recovered_of_hidden == 1 and run.closed_book > 0.95


def test_same_seed_same_weights(codebook: Codebook) -> None:
    short = dataclasses.replace(SMALL, sequences=320)
    first, again, other = (train(codebook, dataclasses.replace(short, seed=s)).weights for s in (1, 1, 2))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(first, other, strict=True))


def test_layerwise_leaves_the_other_levels_alone() -> None:
    learner = Learner(3, 2, Recipe(update="layerwise"))
    before = [weight.detach().clone() for weight in learner.weights]
    loss = sum((weight.square().sum() for weight in learner.weights), torch.zeros(()))
    learner.step(loss, [1], rate=0.1)
    moved = [not torch.equal(a, b) for a, b in zip(before, learner.weights, strict=True)]
    assert moved == [False, True, False]


def test_a_small_penalty_takes_a_whole_step_of_adam_and_a_shrinkage_does_not() -> None:
    """Adam divides by the size of the gradient: a weight that only ℓ1 pulls at moves by the rate, however small ℓ1."""
    moved = {}
    for shrink in (False, True):
        learner = Learner(1, 2, Recipe(shrink=shrink, sparsity=1e-4))
        before = learner.weights[0].detach().clone()
        learner.step((0.0 * learner.weights[0].square()).sum(), [0], rate=1e-3)
        moved[shrink] = float((before - learner.weights[0].detach()).abs().mean())
    assert moved[False] == pytest.approx(1e-3, rel=1e-2)
    assert moved[True] == pytest.approx(1e-7, rel=5e-2)


def test_a_gradient_that_is_not_finite_stops_before_the_update() -> None:
    learner = Learner(1, 2, Recipe())
    before = learner.weights[0].detach().clone()
    with pytest.raises(InputError, match="not finite"):
        learner.step((learner.weights[0] * float("inf")).sum(), [0], rate=0.1)
    assert torch.equal(before, learner.weights[0])


def test_a_tie_is_not_recovered(codebook: Codebook) -> None:
    matrices = list(torch.from_numpy(codebook.matrices()))
    assert held(matrices, codebook).mean(1).tolist() == [1.0, 1.0]
    assert held([torch.zeros(9, 9)] * 2, codebook).mean(1).tolist() == [0.0, 0.0]
    matrices[1] = matrices[1].clone()
    matrices[1][:, 0] = 1.0
    assert held(matrices, codebook).mean(1).tolist() == [1.0, pytest.approx(8 / 9)]


def test_accuracy_is_of_characters_and_ignores_padding(codebook: Codebook) -> None:
    strings, lengths = random_inputs(3, 200, (2, 10), seed=5)
    assert accuracy(list(torch.from_numpy(codebook.matrices())), codebook, strings, lengths) == 1
    other = Codebook.sample(2, 3, seed=9)
    assert accuracy(list(torch.from_numpy(other.matrices())), codebook, strings, lengths) < 0.6


def test_rate_warms_up_and_ends_at_a_tenth() -> None:
    recipe = Recipe(rate=1.0, warmup=100)
    assert max(rate_at(recipe, step, 10) for step in range(10)) == 1.0  # a short run reaches its peak too
    rates = np.array([rate_at(recipe, step, 1600) for step in range(1600)])
    assert rates[0] == pytest.approx(0.01)
    assert rates.argmax() in (99, 100) and rates.max() == pytest.approx(1.0)
    assert rates[-1] == pytest.approx(0.1, abs=1e-3)
    assert (np.diff(rates[100:]) <= 0).all()


@pytest.mark.parametrize("bad", [{"length": 7}, {"sequences": 3}, {"rate": 0.0}])
def test_bad_recipes_are_refused(codebook: Codebook, bad: dict) -> None:
    with pytest.raises(InputError):
        train(codebook, dataclasses.replace(SMALL, **bad))
