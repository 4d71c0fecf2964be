"""The surrogate model exactly as the paper writes it: dense Q, Matrix(π) and HardMax, for the checks only.

Shapes: x bigram (n² of them), j column of a sequence (one per bigram), so V_xj is a sequence, P_xx a translation.
Slow on purpose: it is the formula under test, held against the oracle of `openbook.task`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

Matrix = NDArray[np.float64]


def shift_matrix(chars: int) -> Matrix:
    """Q = (I ⊗ 1)(1 ⊗ I)ᵀ."""
    identity, ones = np.eye(chars), np.ones((chars, 1))
    return np.kron(identity, ones) @ np.kron(ones, identity).T


def matricize(string: ArrayLike, chars: int) -> Matrix:
    """One-hot columns v(s_1, s_2), v(s_3, s_4), ...: V_xj."""
    characters = np.asarray(string, dtype=np.int64)
    return np.eye(chars * chars)[:, characters[0::2] * chars + characters[1::2]]


def read(V_xj: Matrix, chars: int) -> list[int]:
    """The string of a sequence of one-hot columns."""
    index = V_xj.argmax(axis=0)
    return np.stack([index // chars, index % chars], axis=1).reshape(-1).tolist()


def shift(V_xj: Matrix, Q_xx: Matrix) -> Matrix:
    """Shift(V)^(j) = Q V^(j) ⊙ Qᵀ V^(j+1), columns counted modulo their number."""
    return (Q_xx @ V_xj) * (Q_xx.T @ np.roll(V_xj, -1, axis=1))


def hardmax(A_xx: Matrix) -> Matrix:
    """Column-wise one-hot of the largest entry (the first one, among equals)."""
    return np.eye(A_xx.shape[0])[:, A_xx.argmax(axis=0)]


def surrogate(contexts: Sequence[Matrix], weights: Sequence[Matrix], V_xj: Matrix, Q_xx: Matrix) -> Matrix:
    """V_{i+1} = HardMax(C_i + W_i) Shift(V_i), for i = 1..d."""
    for C_xx, W_xx in zip(contexts, weights, strict=True):
        V_xj = hardmax(C_xx + W_xx) @ shift(V_xj, Q_xx)
    return V_xj


def without_column(P_xx: Matrix, column: int) -> Matrix:
    """C_(k) = W* (I - diag(e_k)): one rule dropped from the context."""
    kept = P_xx.copy()
    kept[:, column] = 0
    return kept


def squared_loss_gradient(
    level: int, P_1: Matrix, P_2: Matrix, V_xj: Matrix, target_xj: Matrix, Q_xx: Matrix
) -> Matrix:
    """∂‖V_3 - V_3*‖² / ∂P_level of the depth-2 surrogate, by the chain rule on the dense formula."""
    S_1 = shift(V_xj, Q_xx)
    V_2 = P_1 @ S_1
    ahead = np.roll(V_2, -1, axis=1)
    S_2 = (Q_xx @ V_2) * (Q_xx.T @ ahead)
    residual = 2 * (P_2 @ S_2 - target_xj)
    if level == 2:
        return residual @ S_2.T
    back = P_2.T @ residual
    from_left = Q_xx.T @ (back * (Q_xx.T @ ahead))
    from_right = np.roll(Q_xx @ (back * (Q_xx @ V_2)), 1, axis=1)
    return (from_left + from_right) @ S_1.T
