"""Exact gradients of the soft surrogate through marginals of n numbers instead of distributions over n² bigrams.

Shift only ever reads two marginals of a column of V, so they are all the state there is. With u_j = (first, second),
the marginals of bigram j, a layer is

    o_j = second_j ⊗ first_{j+1}  (n²),     u'_j = M_iᵀ o_j,     M_i[k] = marginals of column k of P_i  (n² × 2n)

which costs 2n³ per position instead of n⁴. At the last layer the loss reads one row of P_d, that of the label.
Nothing is cut off: the numbers are those of the dense formulas.

    shapes   s string · j position · i layer · x image (row) · k left side (column) · a character
             u marginals (2n: those of the first character, then of the second) · r strings and positions together
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from openbook.surrogate.model import SHARPNESS, Floats

Indices = NDArray[np.int64]
SMALLEST = 1e-30  # a label's probability never counts as less: its logarithm stays finite


def marginals(P_xk: Floats) -> Floats:
    """M_ku: for each column of P, how likely each first and each second character of the image is."""
    chars = round(P_xk.shape[0] ** 0.5)
    P_aak = P_xk.reshape(chars, chars, -1)
    return np.ascontiguousarray(np.concatenate([P_aak.sum(1), P_aak.sum(0)]).T)


def one_hot_marginals(index: Indices, chars: int, dtype: type = np.float64) -> Floats:
    """Marginals of bigrams that are known: [.., 2n]."""
    eye: Floats = np.eye(chars, dtype=dtype)
    return np.concatenate([eye[index // chars], eye[index % chars]], axis=-1)


def weight_gradient(P_xk: Floats, G_xk: Floats) -> Floats:
    """Through the softmax: dL/dW = 25 P ⊙ (G - 1 (1ᵀ (P ⊙ G))), with G = dL/dP."""
    return SHARPNESS * P_xk * (G_xk - (P_xk * G_xk).sum(0))


def spread(gM_ku: Floats) -> Floats:
    """dL/dP from dL/dM: G[(a, c), k] = gM[k, a] + gM[k, n + c]."""
    chars = gM_ku.shape[1] // 2
    first_ka, second_ka = gM_ku[:, :chars], gM_ku[:, chars:]
    return (first_ka[:, :, None] + second_ka[:, None, :]).reshape(len(gM_ku), -1).T


@dataclass(frozen=True)
class Pass:
    """A forward pass: what the backward pass needs of it, and the probability given to each label."""

    U_isju: list[Floats]
    O_isjk: list[Floats]
    chance_sj: Floats

    @property
    def loss(self) -> float:
        """Mean cross-entropy over all positions of all strings."""
        return float(-np.log(np.maximum(self.chance_sj, SMALLEST)).mean())


def forward(P_ixk: Floats, M_iku: Floats, U_sju: Floats, label_sj: Indices) -> Pass:
    """Run the soft model on strings given by their marginals."""
    strings, pairs, width = U_sju.shape
    chars = width // 2
    states: list[Floats] = [U_sju]
    outers: list[Floats] = []
    for i in range(len(P_ixk)):
        U_sju = states[-1]
        next_sja = np.roll(U_sju[:, :, :chars], -1, axis=1)
        O_sjk: Floats = (U_sju[:, :, chars:, None] * next_sja[:, :, None, :]).reshape(strings, pairs, chars**2)
        outers.append(O_sjk)
        if i < len(P_ixk) - 1:
            states.append((O_sjk.reshape(-1, chars**2) @ M_iku[i]).reshape(strings, pairs, width))
    rows_sjk = P_ixk[-1].take(label_sj.reshape(-1), axis=0).reshape(O_sjk.shape)
    return Pass(states, outers, np.einsum("sjk,sjk->sj", rows_sjk, O_sjk))


def backward(run: Pass, P_ixk: Floats, M_iku: Floats, label_sj: Indices, layers: Sequence[int]) -> dict[int, Floats]:
    """dL/dP_i for the layers asked for, summed over strings with the loss the mean over all positions."""
    strings, pairs, width = run.U_isju[0].shape
    chars, size, last = width // 2, (width // 2) ** 2, len(P_ixk) - 1
    wanted: dict[int, Floats] = {}
    pull_sj = -1 / (np.maximum(run.chance_sj, SMALLEST) * run.chance_sj.size)
    label_r = label_sj.reshape(-1)
    if last in layers:
        order = np.argsort(label_r, kind="stable")
        rows_rk = run.O_isjk[last].reshape(-1, size)[order] * pull_sj.reshape(-1, 1)[order]
        G_xk: Floats = np.zeros((size, size), dtype=rows_rk.dtype)
        present, starts = np.unique(label_r[order], return_index=True)
        G_xk[present] = np.add.reduceat(rows_rk, starts, axis=0)
        wanted[last] = G_xk
    gO_sjk = P_ixk[last].take(label_r, axis=0).reshape(strings, pairs, size) * pull_sj[..., None]
    for i in range(last, min(layers), -1):
        U_sju = run.U_isju[i]
        gO_sjaa = gO_sjk.reshape(strings, pairs, chars, chars)
        next_sja = np.roll(U_sju[:, :, :chars], -1, axis=1)
        second_sja = np.einsum("sjab,sjb->sja", gO_sjaa, next_sja)
        first_sja = np.einsum("sjab,sja->sjb", gO_sjaa, U_sju[:, :, chars:])
        gU_ru = np.concatenate([np.roll(first_sja, 1, axis=1), second_sja], axis=-1).reshape(-1, width)
        if i - 1 in layers:
            wanted[i - 1] = spread(run.O_isjk[i - 1].reshape(-1, size).T @ gU_ru)
        gO_sjk = (gU_ru @ M_iku[i - 1].T).reshape(strings, pairs, size)
    return wanted
