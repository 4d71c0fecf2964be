"""The gradient of the soft surrogate, against finite differences and automatic differentiation."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from openbook.task import Codebook, random_inputs
from openbook.theory.surrogate import dense
from openbook.theory.surrogate.dense import backward, forward
from openbook.theory.surrogate.factored import weight_gradient
from openbook.theory.surrogate.model import SHARPNESS, context, matricize, one_dropped, shift_matrix, softmax


def test_the_soft_gradient_is_the_derivative() -> None:
    draw = np.random.default_rng(1)
    V_bxj = matricize(draw.integers(0, 3, (2, 8), dtype=np.uint8), 3)
    weights = [draw.uniform(0, 0.1, (9, 9)) for _ in range(3)]
    towards = draw.normal(size=(2, 9, 4))

    def value(ws: list[np.ndarray]) -> float:
        return float((forward([softmax(w) for w in ws], V_bxj)[0] * towards).sum())

    books = [softmax(w) for w in weights]
    _, tape = forward(books, V_bxj)
    gradients = [
        weight_gradient(P, G).sum(axis=0) for P, G in zip(books, backward(books, tape, towards, range(3)), strict=True)
    ]
    for layer in range(3):
        for x, y in ((0, 0), (4, 7), (8, 2)):
            moved = [w.copy() for w in weights]
            moved[layer][x, y] += 1e-6
            numeric = (value(moved) - value(weights)) / 1e-6
            assert numeric == pytest.approx(gradients[layer][x, y], rel=1e-3, abs=1e-6)


def test_the_gradient_is_that_of_automatic_differentiation() -> None:
    codebook = Codebook.sample(3, 4, 1)
    string = random_inputs(4, 1, (60, 60), 1)[0][0]
    C_ixk, V_xj = context(codebook, one_dropped(codebook, 1, 5)), matricize(string, 4)[0]
    W_ixk = np.random.default_rng(0).uniform(0, 0.3, C_ixk.shape)
    label_j = np.random.default_rng(1).integers(0, 16, 30)
    weights = torch.tensor(W_ixk, requires_grad=True)
    V, Q = torch.tensor(V_xj), torch.tensor(shift_matrix(4))
    for P in torch.softmax(SHARPNESS * (torch.tensor(C_ixk) + weights), dim=1):
        V = P @ ((Q @ V) * (Q.T @ V.roll(-1, dims=1)))
    expected = -torch.log(V.gather(0, torch.tensor(label_j)[None])).mean()
    expected.backward()
    label_xj = np.eye(16)[:, label_j]
    loss, gW_ixk = dense.gradient(W_ixk, C_ixk, V_xj, label_xj)
    assert loss == pytest.approx(expected.item(), rel=1e-12)
    np.testing.assert_allclose(gW_ixk, weights.grad.numpy(), atol=1e-12)
    np.testing.assert_array_equal(dense.gradient(W_ixk, C_ixk, V_xj, label_xj, [2, 1])[1], gW_ixk[[2, 1]])
