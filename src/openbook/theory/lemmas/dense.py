"""The surrogate model exactly as the paper writes it: dense Q, Matrix(π) and HardMax, for the checks only.

Shapes: x bigram (n² of them), j column of a sequence (one for each bigram), so V_xj is a sequence and P_xx a
translation. Axes before these are batches.
Slow on purpose: it is the formula under test, compared with the oracle of `openbook.task`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]


@functools.cache
def shift_matrix(chars: int) -> Matrix:
    """Q = (I ⊗ 1)(1 ⊗ I)ᵀ."""
    identity, ones = np.eye(chars), np.ones((chars, 1))
    return np.kron(identity, ones) @ np.kron(ones, identity).T


def matricize(strings: NDArray[np.integer], chars: int) -> Matrix:
    """One-hot columns v(s_1, s_2), v(s_3, s_4), ...: V_xj."""
    bigrams = strings[..., 0::2].astype(np.int64) * chars + strings[..., 1::2]
    return np.eye(chars**2)[bigrams].mT


def shift(V_xj: Matrix) -> Matrix:
    """Shift(V)^(j) = Q V^(j) ⊙ Qᵀ V^(j+1), columns counted modulo their number."""
    Q_xx = shift_matrix(math.isqrt(V_xj.shape[-2]))
    return (Q_xx @ V_xj) * (Q_xx.T @ np.roll(V_xj, -1, axis=-1))


def hardmax(A_xx: Matrix) -> Matrix:
    """Column-wise one-hot of the largest entry (the first one, among equals)."""
    return np.eye(A_xx.shape[-2])[A_xx.argmax(axis=-2)].mT


def translated(books: Iterable[Matrix], V_xj: Matrix) -> Matrix:
    """V_{i+1} = P_i Shift(V_i), for i = 1..d."""
    for P_xx in books:
        V_xj = P_xx @ shift(V_xj)
    return V_xj


def surrogate(C_ixx: Matrix, W_ixx: Matrix, V_xj: Matrix) -> Matrix:
    """V_{i+1} = HardMax(C_i + W_i) Shift(V_i), for i = 1..d."""
    return translated(hardmax(C_ixx + W_ixx), V_xj)
