"""The soft surrogate without context (softmax at temperature 1/25) and its gradient, for the learner without a book.

Shapes: t string, j column, x bigram; V_tjx is a batch of sequences, P_xx a translation
(P_txx where each string has its own).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from openbook.base.randomness import generator
from openbook.task import Codebook, random_inputs, translate_batch
from openbook.task.phrasebook import Table
from openbook.theory.lemmas.dense import matricize, shift_matrix
from openbook.theory.surrogate.factored import weight_gradient
from openbook.theory.surrogate.model import softmax

Array = NDArray[np.float64]
Tape = list[tuple[Array, Array, Array]]


def one_hot(strings: NDArray[np.uint8], chars: int) -> Array:
    """V_tjx of a batch of strings."""
    return matricize(strings, chars).mT


def forward(books: Sequence[Array], V_tjx: Array) -> tuple[Array, Tape]:
    """V_{i+1} = P_i (Q V_i ⊙ Qᵀ V_i^(+1)), columns turned into rows; keeps what backward needs."""
    Q_xx = shift_matrix(math.isqrt(V_tjx.shape[-1]))
    tape: Tape = []
    for P_xx in books:
        here_tjx, next_tjx = V_tjx @ Q_xx.T, np.roll(V_tjx, -1, axis=1) @ Q_xx
        S_tjx = here_tjx * next_tjx
        tape.append((here_tjx, next_tjx, S_tjx))
        V_tjx = S_tjx @ P_xx.mT
    return V_tjx, tape


def backward(books: Sequence[Array], tape: Tape, G_tjx: Array) -> list[Array]:
    """∂/∂P_i for every string: a list of [t, x, x], given ∂/∂V_{d+1} = G."""
    Q_xx = shift_matrix(math.isqrt(G_tjx.shape[-1]))
    gradients = []
    for P_xx, (here_tjx, next_tjx, S_tjx) in zip(reversed(books), reversed(tape), strict=True):
        gradients.append(G_tjx.mT @ S_tjx)
        G_tjx = G_tjx @ P_xx
        G_tjx = (G_tjx * next_tjx) @ Q_xx + np.roll((G_tjx * here_tjx) @ Q_xx.T, 1, axis=1)
    return gradients[::-1]


def vanilla_descent(tables: Table, rates: Array, steps: int, pairs: int, seed: int, every: int = 50) -> Array:
    """Gradient descent on fresh strings with no context, many codebooks side by side: their accuracy at the end.

    `tables` is [t, depth, n²] and `rates` their learning rates [t]. Weights start at U(0, 0.1) (at zero every gradient
    but the last layer's vanishes) and are clipped to [0, 1] after each step; the loss is the mean cross-entropy of
    output bigrams. Accuracy is that of the hard model on 100 test strings; a codebook that is right on all of them
    keeps its 1.
    """
    runs, depth, size = tables.shape
    chars = math.isqrt(size)
    draw = generator(seed, "theory vanilla")
    weights = [draw.uniform(0, 0.1, (runs, size, size)) for _ in range(depth)]
    test = random_inputs(chars, 100, (2 * max(depth, 4),) * 2, seed, stream="theory vanilla test")[0]
    V_test = one_hot(test, chars)
    right = np.stack([one_hot(translate_batch(Codebook(chars, own), test).outputs, chars).argmax(2) for own in tables])
    accuracy = np.zeros(runs)
    for step in range(steps):
        strings = random_inputs(chars, runs, (2 * pairs, 2 * pairs), seed, step * runs, "theory vanilla")[0]
        label = one_hot(translate_batch(tables, strings, chars=chars).outputs, chars)
        books = [softmax(W_txx) for W_txx in weights]
        predicted, tape = forward(books, one_hot(strings, chars))
        gradients = backward(books, tape, -label / np.maximum(predicted, 1e-12) / pairs)
        for W_txx, P_txx, G_txx in zip(weights, books, gradients, strict=True):
            W_txx -= rates[:, None, None] * weight_gradient(P_txx, G_txx)
            np.clip(W_txx, 0, 1, out=W_txx)
        if step % every == every - 1:
            for run in np.flatnonzero(accuracy < 1):
                hard = [np.eye(size)[:, W_txx[run].argmax(axis=0)] for W_txx in weights]
                accuracy[run] = (forward(hard, V_test)[0].argmax(axis=2) == right[run]).mean()
            if (accuracy == 1).all():
                break
    return accuracy
