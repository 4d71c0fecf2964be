"""Every learner recovers the codebook, the controls do not, and what a learner needs is checked before it starts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openbook.base.errors import InputError
from openbook.task import Codebook, coverable_inputs, random_inputs, translate_batch
from openbook.theory.surrogate import descent
from openbook.theory.surrogate.learn import LearnerConfig, default_pairs, learn
from openbook.theory.surrogate.model import Surrogate, matricize, one_dropped, unmatricize
from openbook.theory.surrogate.model import context as context_of
from openbook.theory.surrogate.search import matches
from openbook.theory.surrogate.soft import initial_weights, mask_at, soft_descent
from openbook.theory.surrogate.trajectory import Trajectory


@pytest.mark.parametrize("size", [(1, 3), (3, 4), (5, 10)], ids=str)
@pytest.mark.parametrize("kind", ["coverable", "random"])
def test_search_recovers_everything_within_the_bound(size, kind):
    depth, chars = size
    run = learn(LearnerConfig("search", kind, delta=1e-4, seed=3), Codebook.sample(depth, chars, 3))
    assert run.complete and run.recovered_by_layer == [1.0] * depth
    assert run.forward_passes <= run.extra["bound"] == chars**4 * depth
    assert run.forward_passes == depth * chars**2 * (chars**2 + 1) // 2  # the images of a bijection, each once
    assert run.characters == run.forward_passes * run.length
    assert run.length == 2 * default_pairs("search", depth, chars, 1e-4)


def test_search_accepts_exactly_the_images_that_the_model_accepts():
    """Candidates judged inside the light cone against the whole hard model, one forward pass for each."""
    codebook = Codebook.sample(3, 3, 8)
    string = coverable_inputs(codebook, 1, 120, 8)[0]
    run = translate_batch(codebook, string[None])
    rules_ik = codebook.tables.astype(np.int64)
    bigram_ij = run.bigrams[0].astype(np.int64)
    label_j = rules_ik[2][bigram_ij[2]]
    for layer in range(3):
        for column in (0, 4):
            accepted = matches(rules_ik, bigram_ij, label_j, layer, column)
            C_ixk = context_of(codebook, one_dropped(codebook, layer, column))
            for image in range(9):
                W_ixk = np.zeros_like(C_ixk)
                W_ixk[layer, image, column] = 1
                output = unmatricize(Surrogate(W_ixk)(C_ixk, matricize(string, 3)))
                assert accepted[image] == (output == run.outputs).all()


@pytest.mark.parametrize("chars", [2, 3, 10])
def test_surrogate_descent_recovers_two_layers_in_three_steps_for_each_rule(chars):
    run = learn(LearnerConfig("descent", seed=1), Codebook.sample(2, chars, 1))
    assert run.complete and run.steps == 3 * chars**2
    lemma = run.extra["lemma"]
    assert lemma["largest_difference"] == 0
    assert chars == 2 or all(lemma[case] > 0 for case in descent.CASES)


@given(
    seed=st.integers(0, 300),
    chars=st.integers(2, 5),
    pairs=st.integers(2, 40),
    layer=st.integers(0, 1),
)
def test_surrogate_gradient_is_that_of_the_dense_squared_error(seed, chars, pairs, layer):
    """Against a finite difference in the effective matrix: the loss is a polynomial, so a central one is near exact."""
    codebook = Codebook.sample(2, chars, seed)
    string = random_inputs(chars, 1, (2 * pairs, 2 * pairs), seed)[0][0]
    rng = np.random.default_rng(seed)
    column, image = (int(v) for v in rng.integers(0, chars**2, 2))
    P_ixk = context_of(codebook)
    P_ixk[layer, :, column] = np.eye(chars**2)[image]
    V_bxj = matricize(string, chars)
    due = matricize(translate_batch(codebook, string[None]).outputs, chars)

    def loss(row: int, by: float) -> float:
        moved = P_ixk.copy()
        moved[layer, row, column] += by
        V = V_bxj
        for P_xk in moved:
            second, first = V.reshape(1, chars, chars, -1).sum(1), V.reshape(1, chars, chars, -1).sum(2)
            V = P_xk @ (second[:, :, None] * np.roll(first, -1, -1)[:, None]).reshape(V.shape)
        return float(((V - due) ** 2).sum())

    view = descent.TwoLayers.of(codebook, string)
    gradient_x = view.gradient(layer, column, image)
    for row in rng.integers(0, chars**2, 3):
        assert (loss(row, 1e-4) - loss(row, -1e-4)) / 2e-4 == pytest.approx(gradient_x[row], abs=1e-4)
    if layer == 0:
        target = int(codebook.tables[0, column])
        np.testing.assert_allclose(
            gradient_x, descent.closed_form(chars, image, target, *view.counts(column)), atol=1e-12
        )


def test_a_lemma_with_a_wrong_constant_is_noticed(monkeypatch):
    true_form = descent.closed_form
    monkeypatch.setattr(descent, "closed_form", lambda n, i, t, alpha, beta: true_form(n, i, t, alpha + 1, beta))
    run = learn(LearnerConfig("descent", seed=1), Codebook.sample(2, 4, 1))
    assert run.extra["lemma"]["largest_difference"] >= 2


@pytest.mark.parametrize("algorithm", ["layerwise", "full"])
@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_soft_descent_recovers_everything(algorithm, noise):
    run = learn(LearnerConfig(algorithm, noise=noise, seed=2), Codebook.sample(4, 4, 2))
    assert run.complete and run.extra["stopped"] == "recovered"
    assert run.characters == run.steps * run.length
    assert run.curve[0]["recovered"] == 0 or noise
    assert max(at for at in run.full_at() if at is not None) == run.steps


@pytest.mark.slow
@pytest.mark.parametrize("depth", [5, 10])
def test_the_papers_sizes_are_recovered(depth):
    run = learn(LearnerConfig("full", pairs=1000), Codebook.sample(depth, 10, 0))
    assert run.complete and run.steps < 10 * depth * 100


def test_full_and_layerwise_differ_only_by_tails_from_zero_weights():
    """No column but the dropped one is soft, so the other layers' gradients vanish: the same steps either way."""
    runs = [learn(LearnerConfig(algorithm, seed=5), Codebook.sample(3, 4, 5)) for algorithm in ("layerwise", "full")]
    assert runs[0].steps == runs[1].steps and runs[0].curve == runs[1].curve


@pytest.mark.parametrize("kind", ["vanilla", "wrong"])
def test_controls_fail_where_the_context_would_have_sufficed(kind):
    codebook = Codebook.sample(4, 4, 2)
    string = coverable_inputs(codebook, 1, 320, 2)[0]
    helped, _ = soft_descent(codebook, string, initial_weights(codebook, 0.1, 2), 2000, "full")
    assert helped.complete
    run, _ = soft_descent(codebook, string, initial_weights(codebook, 0.1, 2), helped.steps, kind, seed=2)
    assert not run.complete and run.recovered < 0.3 and run.extra["stopped"] == "budget"


def test_a_budget_that_ends_early_gives_a_marked_partial_result():
    run = learn(LearnerConfig("full", steps=40, seed=2), Codebook.sample(4, 4, 2))
    assert run.steps == 40 and not run.complete and run.extra["stopped"] == "budget"
    assert run.to_json()["complete"] is False and None in run.full_at()


def test_masks_go_round_rules_then_layers():
    assert [mask_at(step, 2, 4) for step in (0, 3, 4, 7, 8)] == [(0, 0), (0, 3), (1, 0), (1, 3), (0, 0)]


def test_full_at_wants_a_layer_to_stay_full():
    run = Trajectory("full", 2, 2, 8)
    for step, held in enumerate([[0, 0], [1, 0], [1, 1], [0, 1], [1, 1]]):
        run.steps = run.forward_passes = 10 * step
        run.record(np.array([[bool(v)] * 4 for v in held]))
    assert run.full_at() == [40, 20]


@pytest.mark.parametrize(
    ("config", "depth", "complaint"),
    [
        (LearnerConfig("search", "random", pairs=10), 2, r"never uses the rules for \(0, "),
        (LearnerConfig("layerwise", "random", pairs=10), 2, "not coverable"),
        (LearnerConfig("descent"), 3, "depth 2"),
        (LearnerConfig("full", steps=0), 2, "budget is 0 steps"),
        (LearnerConfig("full", rate=-1.0), 2, "learning rate"),
        (LearnerConfig("full", noise=-0.1), 2, "standard deviation"),
        (LearnerConfig("search", delta=1.5), 2, "delta is 1.5"),
        (LearnerConfig("search", pairs=0), 2, "0 bigrams"),
    ],
)
def test_what_cannot_be_learned_is_refused(config, depth, complaint):
    with pytest.raises(InputError, match=complaint):
        learn(config, Codebook.sample(depth, 4, 0))


def test_descent_needs_small_weights():
    codebook = Codebook.sample(2, 3, 0)
    with pytest.raises(InputError, match="within 1/2"):
        descent.descend(codebook, coverable_inputs(codebook)[0], np.full((2, 9, 9), 0.7))


@pytest.mark.parametrize(
    "work",
    [
        lambda codebook, string: descent.descend(codebook, string, np.zeros((2, 4, 9))),
        lambda codebook, string: soft_descent(codebook, string, np.zeros((1, 9, 9)), 10, "full"),
        lambda codebook, string: soft_descent(codebook, string, np.zeros((2, 9)), 10, "wrong"),
    ],
)
def test_weights_of_another_shape_are_refused(work):
    codebook = Codebook.sample(2, 3, 0)
    with pytest.raises(InputError, match=r"give it the shape \(2, 9, 9\)"):
        work(codebook, coverable_inputs(codebook)[0])
