"""The paper's formulas, literally: dense Q, dense matrices, automatic differentiation.

Slow on purpose. Tests hold the fast gradients equal to these, and the benchmark measures against them.

    shapes   i layer · x image (row) · k left side (column) · j position
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from openbook.theory.surrogate.model import SHARPNESS


def shift_matrix(chars: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Q = (I_n ⊗ 1_n)(1_n ⊗ I_n)ᵀ, [n², n²]."""
    eye, ones = torch.eye(chars, dtype=dtype), torch.ones(chars, 1, dtype=dtype)
    return torch.kron(eye, ones) @ torch.kron(ones, eye).T


def forward(W_ixk: Sequence[Tensor], C_ixk: Tensor, V_xj: Tensor, Q_xk: Tensor) -> Tensor:
    """V_{i+1} = softmax(25 (C_i + W_i)) (Q V_i^(j) ⊙ Qᵀ V_i^(j+1)) for every layer."""
    for C_xk, W_xk in zip(C_ixk, W_ixk, strict=True):
        shifted_xj = (Q_xk @ V_xj) * (Q_xk.T @ V_xj.roll(-1, dims=1))
        V_xj = torch.softmax(SHARPNESS * (C_xk + W_xk), dim=0) @ shifted_xj
    return V_xj


def cross_entropy(V_xj: Tensor, label_j: Tensor) -> Tensor:
    """Mean over positions of -log V[label_j, j] (the paper writes the sum; see docs/surrogate.md)."""
    return -torch.log(V_xj.gather(0, label_j[None])).mean()


def gradient(
    W_ixk: Tensor, C_ixk: Tensor, V_xj: Tensor, label_j: Tensor, Q_xk: Tensor, layers: Sequence[int] | None = None
) -> tuple[float, Tensor]:
    """Loss and its gradient for the given layers (all by default): [len(layers), n², n²]."""
    chosen = list(range(len(W_ixk))) if layers is None else list(layers)
    weights = [W_xk.detach().clone().requires_grad_(i in chosen) for i, W_xk in enumerate(W_ixk)]
    loss = cross_entropy(forward(weights, C_ixk, V_xj, Q_xk), label_j)
    grads = torch.autograd.grad(loss, [weights[i] for i in chosen])
    return float(loss.detach()), torch.stack(grads)
