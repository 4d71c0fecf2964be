"""The gradient of the surrogate with respect to its translations, by the chain rule on the paper's dense formulas.

Slow on purpose. The lemmas are checked with it, tests hold the fast gradients equal to it, and the benchmark measures
against it.

    shapes   b string · i layer · x image (row) · k left side (column) · j position
             P_xk is one translation, or each string has its own
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from openbook.theory.surrogate.factored import SMALLEST, weight_gradient
from openbook.theory.surrogate.model import Floats, shift_matrix, softmax

Tape = list[tuple[Floats, Floats]]


def forward(P_ixk: Sequence[Floats] | Floats, V_bxj: Floats) -> tuple[Floats, Tape]:
    """V_{i+1} = P_i (Q V_i^(j) ⊙ Qᵀ V_i^(j+1)) for every layer; keeps what backward needs."""
    Q_xk = shift_matrix(math.isqrt(V_bxj.shape[-2])).astype(V_bxj.dtype)
    tape: Tape = []
    for P_xk in P_ixk:
        tape.append((Q_xk @ V_bxj, Q_xk.T @ np.roll(V_bxj, -1, axis=-1)))
        V_bxj = P_xk @ np.multiply(*tape[-1])
    return V_bxj, tape


def backward(P_ixk: Sequence[Floats] | Floats, tape: Tape, G_bxj: Floats, layers: Sequence[int]) -> list[Floats]:
    """∂/∂P_i for every string, [b, x, k], for each of the given layers, given ∂/∂V_{d+1} = G."""
    Q_xk = shift_matrix(math.isqrt(G_bxj.shape[-2])).astype(G_bxj.dtype)
    found = {}
    for i in reversed(range(min(layers), len(P_ixk))):
        here_bxj, next_bxj = tape[i]
        if i in layers:
            found[i] = G_bxj @ (here_bxj * next_bxj).mT
        G_bxj = P_ixk[i].mT @ G_bxj
        G_bxj = Q_xk.T @ (G_bxj * next_bxj) + np.roll(Q_xk @ (G_bxj * here_bxj), 1, axis=-1)
    return [found[i] for i in layers]


def gradient(
    W_ixk: Floats, C_ixk: Floats | float, V_bxj: Floats, label_bxj: Floats, layers: Sequence[int] | None = None
) -> tuple[Floats, Floats]:
    """The soft model's mean cross-entropy for every string, and its gradient in W_i for the given layers: [i, b, x, k].

    Labels are one-hot columns. The paper writes the sum over positions instead of the mean (see docs/surrogate.md).
    """
    P_ixk, chosen = softmax(C_ixk + W_ixk), list(range(len(W_ixk)) if layers is None else layers)
    output_bxj, tape = forward(P_ixk, V_bxj)
    G_bxj = -label_bxj / np.maximum(output_bxj, SMALLEST) / V_bxj.shape[-1]
    gW_ixk = weight_gradient(P_ixk[chosen], np.stack(backward(P_ixk, tape, G_bxj, chosen)))
    return -np.log((label_bxj * output_bxj).sum(-2)).mean(-1), gW_ixk
