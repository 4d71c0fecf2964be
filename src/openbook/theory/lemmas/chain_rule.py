"""The gradient of the surrogate with respect to its translations, by the chain rule on the dense formula.

Shapes: t string, j column, x bigram; V_tjx is a batch of sequences, P_xx a translation
(P_txx where each string has its own). Sequences have their columns in rows here, unlike in `dense`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from openbook.theory.lemmas.dense import Matrix, matricize, shift_matrix

Tape = list[tuple[Matrix, Matrix, Matrix]]


def one_hot(strings: NDArray[np.uint8], chars: int) -> Matrix:
    """V_tjx of a batch of strings."""
    return matricize(strings, chars).mT


def forward(books: Sequence[Matrix], V_tjx: Matrix) -> tuple[Matrix, Tape]:
    """V_{i+1} = P_i (Q V_i ⊙ Qᵀ V_i^(+1)), columns turned into rows; keeps what backward needs."""
    Q_xx = shift_matrix(math.isqrt(V_tjx.shape[-1]))
    tape: Tape = []
    for P_xx in books:
        here_tjx, next_tjx = V_tjx @ Q_xx.T, np.roll(V_tjx, -1, axis=-2) @ Q_xx
        S_tjx = here_tjx * next_tjx
        tape.append((here_tjx, next_tjx, S_tjx))
        V_tjx = S_tjx @ P_xx.mT
    return V_tjx, tape


def backward(books: Sequence[Matrix], tape: Tape, G_tjx: Matrix) -> list[Matrix]:
    """∂/∂P_i for every string: a list of [t, x, x], given ∂/∂V_{d+1} = G."""
    Q_xx = shift_matrix(math.isqrt(G_tjx.shape[-1]))
    gradients = []
    for P_xx, (here_tjx, next_tjx, S_tjx) in zip(reversed(books), reversed(tape), strict=True):
        gradients.append(G_tjx.mT @ S_tjx)
        G_tjx = G_tjx @ P_xx
        G_tjx = (G_tjx * next_tjx) @ Q_xx + np.roll((G_tjx * here_tjx) @ Q_xx.T, 1, axis=-2)
    return gradients[::-1]
