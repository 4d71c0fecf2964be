"""The gradient of the soft surrogate, against finite differences."""

from __future__ import annotations

import numpy as np
import pytest

from openbook.theory.lemmas.chain_rule import backward, forward, one_hot
from openbook.theory.surrogate.factored import weight_gradient
from openbook.theory.surrogate.model import softmax


def test_the_soft_gradient_is_the_derivative() -> None:
    draw = np.random.default_rng(1)
    strings = draw.integers(0, 3, (2, 8), dtype=np.uint8)
    weights = [draw.uniform(0, 0.1, (9, 9)) for _ in range(3)]
    towards = draw.normal(size=(2, 4, 9))

    def value(ws: list[np.ndarray]) -> float:
        return float((forward([softmax(w) for w in ws], one_hot(strings, 3))[0] * towards).sum())

    books = [softmax(w) for w in weights]
    _, tape = forward(books, one_hot(strings, 3))
    gradients = [weight_gradient(P, G).sum(axis=0) for P, G in zip(books, backward(books, tape, towards), strict=True)]
    for layer in range(3):
        for x, y in ((0, 0), (4, 7), (8, 2)):
            moved = [w.copy() for w in weights]
            moved[layer][x, y] += 1e-6
            numeric = (value(moved) - value(weights)) / 1e-6
            assert numeric == pytest.approx(gradients[layer][x, y], rel=1e-3, abs=1e-6)
