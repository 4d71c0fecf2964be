"""The fast gradients equal those of the paper's dense formulas."""

from __future__ import annotations

import numpy as np
import pytest

from openbook.task import Codebook, random_inputs
from openbook.theory.surrogate import dense
from openbook.theory.surrogate.cone import ConeDescent
from openbook.theory.surrogate.model import Surrogate, context, matricize, one_dropped

SIZES = [(1, 3, 20), (2, 3, 20), (3, 3, 1), (3, 4, 30), (5, 5, 60), (3, 10, 200), (10, 4, 40)]


def learned_weights(codebook: Codebook, seed: int) -> np.ndarray:
    """Weights as in the middle of training: some columns right, some contradicting the context, most untouched."""
    rng = np.random.default_rng(seed)
    C_ixk = context(codebook)
    touched = rng.random((codebook.depth, 1, codebook.chars**2)) < 0.3
    wrong = (rng.random(C_ixk.shape) < 0.05) * rng.random(C_ixk.shape)
    right = C_ixk * rng.random((codebook.depth, 1, codebook.chars**2))
    return np.clip(touched * (wrong + right), 0, 1)


def setting(depth: int, chars: int, pairs: int, trained: bool, seed: int) -> tuple[ConeDescent, np.ndarray, float]:
    """A cone with one rule out of the context, and the dense loss and gradient for it."""
    codebook = Codebook.sample(depth, chars, seed)
    string = random_inputs(chars, 1, (2 * pairs, 2 * pairs), seed)[0][0]
    W_ixk = learned_weights(codebook, seed) if trained else Surrogate.zeros(depth, chars).W_ixk
    cone = ConeDescent(codebook, string, W_ixk)
    layer = seed % depth
    column = int(cone.bigram_ij[layer, 0])
    cone.refresh(layer, np.array([column]), in_context=False)
    loss, gradient = dense.gradient(
        W_ixk,
        context(codebook, one_dropped(codebook, layer, column)),
        matricize(string, chars)[0],
        np.eye(chars**2)[:, cone.label_j],
    )
    return cone, gradient, float(loss)


def gather(found, like: np.ndarray) -> np.ndarray:
    whole = np.zeros_like(like)
    for layer, columns, gW_xk in found:
        whole[layer][:, columns] = gW_xk
    return whole


@pytest.mark.parametrize("trained", [False, True], ids=["zero", "trained"])
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("seed", [1, 2])
def test_factored_and_cone_equal_the_dense_gradient(size, trained, seed):
    cone, expected, loss = setting(*size, trained, seed)
    scale = np.abs(expected).max()
    exact_loss, exact = cone.exact_gradient(range(size[0]))
    assert exact_loss == pytest.approx(loss, rel=1e-9, abs=1e-9)
    np.testing.assert_allclose(gather(exact, expected), expected, atol=1e-9 * scale)
    inside = cone.gradient(range(size[0]))
    assert inside is not None
    assert inside[0] == pytest.approx(loss, rel=1e-5, abs=1e-7)
    np.testing.assert_allclose(gather(inside[1], expected), expected, atol=1e-5 * scale)


def test_layerwise_is_the_same_gradient_for_one_layer():
    cone, expected, _ = setting(5, 5, 60, True, 2)
    inside = cone.gradient([2])
    assert inside is not None and [layer for layer, _, _ in inside[1]] == [2]
    np.testing.assert_allclose(gather(inside[1], expected)[2], expected[2], atol=1e-5 * np.abs(expected[2]).max())


def test_a_confidently_wrong_column_is_not_left_to_the_cone():
    """Its labels are as unlikely as the tails that the cone neglects, so the step must take the exact way."""
    codebook = Codebook.sample(3, 4, 1)
    string = random_inputs(4, 1, (60, 60), 1)[0][0]
    column = 5
    W_ixk = Surrogate.zeros(3, 4).W_ixk
    W_ixk[0, (codebook.tables[0, column] + 1) % 16, column] = 1
    cone = ConeDescent(codebook, string, W_ixk)
    assert (cone.bigram_ij[0] == column).any()
    cone.refresh(0, np.array([column]), in_context=False)
    assert cone.gradient(range(3)) is None
    cone.refresh(0, np.array([column]))
    cone.step(0, column, rate=1.0, full=True)
    assert cone.exact_steps == 1


def test_a_step_is_one_step_of_the_dense_algorithm():
    """Twenty steps of Algorithm 5 through the cone and through the dense formulas end in the same weights."""
    codebook = Codebook.sample(3, 3, 4)
    string = random_inputs(3, 1, (80, 80), 4)[0][0]
    cone = ConeDescent(codebook, string, Surrogate.zeros(3, 3).W_ixk)
    W_ixk = np.zeros((3, 9, 9))
    for step in range(20):
        layer, column = step % 3, step % 9
        cone.step(layer, column, 100.0, full=True)
        C_ixk = context(codebook, one_dropped(codebook, layer, column))
        gradient = dense.gradient(W_ixk, C_ixk, matricize(string, 3)[0], np.eye(9)[:, cone.label_j])[1]
        W_ixk = (W_ixk - 100 * gradient).clip(0, 1)
    np.testing.assert_allclose(cone.W_ixk, W_ixk, atol=1e-4)
    assert cone.W_ixk.max() == 1
