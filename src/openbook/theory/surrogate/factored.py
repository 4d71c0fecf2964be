"""Exact gradients of the soft surrogate through marginals of n numbers instead of distributions over n² bigrams.

Shift only ever reads two marginals of a column of V, so they are all the state there is. With u_j = (first, second),
the marginals of bigram j, a layer is

    o_j = second_j ⊗ first_{j+1}  (n²),     u'_j = M_iᵀ o_j,     M_i[k] = marginals of column k of P_i  (n² × 2n)

which costs 2n³ per position instead of n⁴. At the last layer the loss reads one row of P_d, that of the label.
Nothing is cut off: the numbers are those of the dense formulas. Positions are the last axis, so that every product
runs along contiguous memory.

    shapes   s string · j position · i layer · x image (row) · k left side (column) · a character
             u marginals (2n: those of the first character, then of the second)
             matrices are shared by all strings, [i, x, k], or each string has its own, [i, s, x, k]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from openbook.task import Translation
from openbook.theory.surrogate.model import SHARPNESS, Floats, softmax

Indices = NDArray[np.int64]
SMALLEST = 1e-30  # a label's probability never counts as less: its logarithm stays finite


def marginals(P_xk: Floats) -> Floats:
    """M_ku: for each column of P, how likely each first and each second character of the image is."""
    chars = round(P_xk.shape[-2] ** 0.5)
    P_aak = P_xk.reshape(*P_xk.shape[:-2], chars, chars, -1)
    M_ku = np.empty((*P_xk.shape[:-2], P_xk.shape[-1], 2 * chars), dtype=P_xk.dtype)
    M_ku[..., :chars] = P_aak.sum(-2).swapaxes(-1, -2)
    M_ku[..., chars:] = P_aak.sum(-3).swapaxes(-1, -2)
    return M_ku


def input_and_labels(translation: Translation) -> tuple[Indices, Indices]:
    """The bigrams of inputs and of outputs, [s, j] each."""
    ends = (translation.inputs.astype(np.int64), translation.outputs.astype(np.int64))
    start_sj, label_sj = (string[:, 0::2] * translation.chars + string[:, 1::2] for string in ends)
    return start_sj, label_sj


def one_hot_marginals(index_sj: Indices, chars: int) -> Floats:
    """Marginals of bigrams that are known: [s, 2n, j]."""
    letters_a = np.arange(chars)[:, None]
    halves = [index_sj[:, None] // chars == letters_a, index_sj[:, None] % chars == letters_a]
    return np.concatenate(halves, axis=1).astype(np.float64)


def weight_gradient(P_xk: Floats, G_xk: Floats) -> Floats:
    """Through the softmax: dL/dW = 25 P ⊙ (G - 1 (1ᵀ (P ⊙ G))), with G = dL/dP."""
    return SHARPNESS * P_xk * (G_xk - (P_xk * G_xk).sum(-2, keepdims=True))


def spread(gM_ku: Floats) -> Floats:
    """dL/dP from dL/dM: G[(a, c), k] = gM[k, a] + gM[k, n + c]."""
    chars = gM_ku.shape[-1] // 2
    first_ka, second_ka = gM_ku[..., :chars], gM_ku[..., chars:]
    G_kx = (first_ka[..., :, None] + second_ka[..., None, :]).reshape(*gM_ku.shape[:-1], chars**2)
    return G_kx.swapaxes(-1, -2)


def outer(U_suj: Floats) -> Floats:
    """Shift: the second character of bigram j with the first of bigram j+1, [s, n², j]."""
    strings, width, pairs = U_suj.shape
    chars = width // 2
    next_saj = np.roll(U_suj[:, :chars], -1, axis=-1)
    return (U_suj[:, chars:, None] * next_saj[:, None]).reshape(strings, chars**2, pairs)


@dataclass(frozen=True)
class Pass:
    """A forward pass: marginals before each layer, and the probability given to each label."""

    U_isuj: list[Floats]
    chance_sj: Floats

    @property
    def loss_s(self) -> Floats:
        """Mean cross-entropy over the positions of each string."""
        return -np.log(np.maximum(self.chance_sj, SMALLEST)).mean(1)


def _label_rows(P_xk: Floats, label_sj: Indices) -> Floats:
    """The row of P that each label reads: [s, k, j]."""
    if P_xk.ndim == 3:
        return np.take_along_axis(P_xk.swapaxes(-1, -2), label_sj[:, None], axis=2)
    return P_xk.T.take(label_sj, axis=1).swapaxes(0, 1)


def forward(P_ixk: Floats, M_iku: Floats, U_suj: Floats, label_sj: Indices) -> Pass:
    """Run the soft model on strings given by their marginals."""
    states = [U_suj]
    for M_ku in M_iku[:-1]:
        states.append(M_ku.swapaxes(-1, -2) @ outer(states[-1]))
    chance_sj = np.einsum("skj,skj->sj", _label_rows(P_ixk[-1], label_sj), outer(states[-1]))
    return Pass(states, chance_sj)


def backward(run: Pass, P_ixk: Floats, M_iku: Floats, label_sj: Indices, layers: Sequence[int]) -> dict[int, Floats]:
    """dL/dP_i of each string's own mean loss, for the layers asked for: [s, x, k] each."""
    strings, width, pairs = run.U_isuj[0].shape
    chars, last, wanted = width // 2, len(P_ixk) - 1, {}
    pull_sj = -1 / (np.maximum(run.chance_sj, SMALLEST) * pairs)
    if last in layers:
        is_label_sxj = (label_sj[:, None] == np.arange(chars**2)[:, None]) * pull_sj[:, None]
        wanted[last] = is_label_sxj @ outer(run.U_isuj[last]).swapaxes(1, 2)
    gO_skj = _label_rows(P_ixk[-1], label_sj) * pull_sj[:, None]
    for i in range(last - 1, min(layers) - 1, -1):
        U_suj, gO_saaj = run.U_isuj[i + 1], gO_skj.reshape(strings, chars, chars, pairs)
        gU_suj = np.empty_like(U_suj)
        gU_suj[:, chars:] = np.einsum("sabj,sbj->saj", gO_saaj, np.roll(U_suj[:, :chars], -1, axis=-1))
        gU_suj[:, :chars] = np.roll(np.einsum("sabj,saj->sbj", gO_saaj, U_suj[:, chars:]), 1, axis=-1)
        if i in layers:
            wanted[i] = spread(outer(run.U_isuj[i]) @ gU_suj.swapaxes(1, 2))
        if i > min(layers):
            gO_skj = M_iku[i] @ gU_suj
    return wanted


def string_gradients(P_ixk: Floats, translation: Translation, layers: Sequence[int]) -> dict[int, Floats]:
    """dL/dP_i of the mean loss of each string of a translation, for the layers asked for: [s, x, k] each."""
    start_sj, label_sj = input_and_labels(translation)
    M_iku, U_suj = marginals(P_ixk), one_hot_marginals(start_sj, translation.chars).astype(P_ixk.dtype)
    return backward(forward(P_ixk, M_iku, U_suj, label_sj), P_ixk, M_iku, label_sj, layers)


def clipped_step(W_isxk: Floats, C_isxk: Floats | float, translation: Translation, rate: float | Floats) -> Floats:
    """W <- clip(W - rate · dL/dW, 0, 1) in all layers, where each string has its own weights: [i, s, x, k]."""
    P_isxk = softmax(C_isxk + W_isxk)
    G_isxk = string_gradients(P_isxk, translation, range(len(P_isxk)))
    steps_isxk = [rate * weight_gradient(P_sxk, G_isxk[i]) for i, P_sxk in enumerate(P_isxk)]
    return np.clip(W_isxk - np.stack(steps_isxk), 0, 1)
