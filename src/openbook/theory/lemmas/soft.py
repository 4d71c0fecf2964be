"""The soft surrogate without context (softmax at temperature 1/25) and its gradient, for the learner without a book.

Shapes: t string, j column, x bigram; V_tjx is a batch of sequences, P_xx a translation
(P_txx where each string has its own).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from openbook.base.randomness import generator
from openbook.task import Codebook, random_inputs, translate_batch
from openbook.task.phrasebook import Table
from openbook.theory.lemmas.dense import shift_matrix

Array = NDArray[np.float64]
Tape = list[tuple[Array, Array, Array]]
SHARPNESS = 25.0  # one over the temperature


def one_hot(strings: NDArray[np.uint8], chars: int) -> Array:
    """V_tjx of a batch of strings."""
    index = strings[:, 0::2].astype(np.int64) * chars + strings[:, 1::2]
    return np.eye(chars * chars)[index]


def softmax(W_xx: Array) -> Array:
    """Column-wise softmax of 25·W, of one matrix or of a batch."""
    raised = np.exp(SHARPNESS * (W_xx - W_xx.max(axis=-2, keepdims=True)))
    return raised / raised.sum(axis=-2, keepdims=True)


def forward(books: Sequence[Array], V_tjx: Array, Q_xx: Array) -> tuple[Array, Tape]:
    """V_{i+1} = P_i (Q V_i ⊙ Qᵀ V_i^(+1)), columns turned into rows; keeps what backward needs."""
    tape: Tape = []
    for P_xx in books:
        here_tjx = V_tjx @ Q_xx.T
        next_tjx = np.roll(V_tjx, -1, axis=1) @ Q_xx
        S_tjx = here_tjx * next_tjx
        tape.append((here_tjx, next_tjx, S_tjx))
        V_tjx = S_tjx @ np.swapaxes(P_xx, -1, -2)
    return V_tjx, tape


def backward(books: Sequence[Array], tape: Tape, G_tjx: Array, Q_xx: Array) -> list[Array]:
    """∂/∂P_i for every string: a list of [t, x, x], given ∂/∂V_{d+1} = G."""
    gradients = []
    for P_xx, (here_tjx, next_tjx, S_tjx) in zip(reversed(books), reversed(tape), strict=True):
        gradients.append(np.swapaxes(G_tjx, 1, 2) @ S_tjx)
        G_tjx = G_tjx @ P_xx
        G_tjx = (G_tjx * next_tjx) @ Q_xx + np.roll((G_tjx * here_tjx) @ Q_xx.T, 1, axis=1)
    return gradients[::-1]


def through_softmax(P_xx: Array, G_xx: Array) -> Array:
    """∂/∂W from ∂/∂P of P = softmax(25·W); works on a batch of gradients too."""
    return SHARPNESS * P_xx * (G_xx - (G_xx * P_xx).sum(axis=-2, keepdims=True))


def vanilla_descent(tables: Table, rates: Array, steps: int, pairs: int, seed: int, every: int = 50) -> Array:
    """Gradient descent on fresh strings with no context, many codebooks side by side: their accuracy at the end.

    `tables` is [t, depth, n²] and `rates` their learning rates [t]. Weights start at U(0, 0.1) (at zero every gradient
    but the last layer's vanishes) and are clipped to [0, 1] after each step; the loss is the mean cross-entropy of
    output bigrams. Accuracy is that of the hard model on 100 test strings; a codebook that is right on all of them
    keeps its 1.
    """
    runs, depth, size = tables.shape
    chars = round(size**0.5)
    Q_xx = shift_matrix(chars)
    draw = generator(seed, "theory vanilla")
    weights = [draw.uniform(0, 0.1, (runs, size, size)) for _ in range(depth)]
    length = 2 * max(depth, 4)
    test = random_inputs(chars, 100, (length, length), seed, stream="theory vanilla test")[0]
    V_test = one_hot(test, chars)
    right = np.stack([one_hot(translate_batch(Codebook(chars, own), test).outputs, chars).argmax(2) for own in tables])
    accuracy = np.zeros(runs)
    for step in range(steps):
        strings = random_inputs(chars, runs, (2 * pairs, 2 * pairs), seed, step * runs, "theory vanilla")[0]
        label = one_hot(translate_batch(tables, strings, chars=chars).outputs, chars)
        books = [softmax(W_txx) for W_txx in weights]
        predicted, tape = forward(books, one_hot(strings, chars), Q_xx)
        gradients = backward(books, tape, -label / np.maximum(predicted, 1e-12) / pairs, Q_xx)
        for W_txx, P_txx, G_txx in zip(weights, books, gradients, strict=True):
            W_txx -= rates[:, None, None] * through_softmax(P_txx, G_txx)
            np.clip(W_txx, 0, 1, out=W_txx)
        if step % every == every - 1:
            for run in np.flatnonzero(accuracy < 1):
                hard = [np.eye(size)[:, W_txx[run].argmax(axis=0)] for W_txx in weights]
                accuracy[run] = (forward(hard, V_test, Q_xx)[0].argmax(axis=2) == right[run]).mean()
            if (accuracy == 1).all():
                break
    return accuracy
