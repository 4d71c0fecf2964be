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


def squared_loss_gradient(level: int, P_1: Matrix, P_2: Matrix, V_xj: Matrix, target_xj: Matrix) -> Matrix:
    """∂‖V_3 - V_3*‖² / ∂P_level of the depth-2 surrogate, by the chain rule on the dense formula."""
    Q_xx = shift_matrix(math.isqrt(V_xj.shape[-2]))
    S_1 = shift(V_xj)
    V_2 = P_1 @ S_1
    here, ahead = Q_xx @ V_2, Q_xx.T @ np.roll(V_2, -1, axis=-1)
    S_2 = here * ahead
    residual = 2 * (P_2 @ S_2 - target_xj)
    if level == 2:
        return residual @ S_2.mT
    back = P_2.mT @ residual
    from_left, from_right = Q_xx.T @ (back * ahead), np.roll(Q_xx @ (back * here), 1, axis=-1)
    return (from_left + from_right) @ S_1.mT
