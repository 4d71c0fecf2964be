"""The surrogate model: the paper's idealised transformer for multi-level translation, in its hard and soft forms.

A string of bigrams is a matrix of one-hot columns; a layer shifts it and multiplies by an effective matrix,

    V_{i+1} = max(C_i + W_i) · Shift(V_i),        C_i in context, W_i in the weights,

where max is the column-wise hard-max (the model of the theorems) or softmax(25 · ) (the one that is trained).
Everything here is the paper's formulas, literally, for reading and checking; `factored.py` and `cone.py` compute the
same thing fast.

    shapes   b batch · i layer (0..d-1) · x bigram as an image (row) · k bigram as a left side (column)
             j position of a bigram · a c characters · m columns of the context-augmented input (d·n² + L/2)
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from openbook.base.errors import InputError
from openbook.task import Codebook

Floats = NDArray[Any]  # float64 unless something says otherwise
Mask = NDArray[np.bool_]

SHARPNESS = 25.0  # one over the softmax temperature (appendix "Approximated Latent Model for GD")


def check_shape(name: str, shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    """Refuse an array of another shape than is expected."""
    if shape != expected:
        raise InputError(f"{name} has shape {shape}: give it the shape {expected}")


def matricize(strings: ArrayLike, chars: int) -> Floats:
    """One-hot columns of a batch of strings: [batch, length] -> V_bxj [batch, n², length / 2]."""
    strings_bl = np.atleast_2d(np.asarray(strings, dtype=np.int64))
    length = strings_bl.shape[-1]
    if length == 0 or length % 2:
        raise InputError(f"strings have {length} characters: give an even number, 2 or more")
    if strings_bl.min(initial=0) < 0 or strings_bl.max(initial=0) >= chars:
        raise InputError(f"a string has a character outside the alphabet: give numbers from 0 to {chars - 1}")
    index_bj = strings_bl[..., 0::2] * chars + strings_bl[..., 1::2]
    return (index_bj[..., None, :] == np.arange(chars**2)[:, None]).astype(np.float64)


def unmatricize(V_bxj: Floats) -> NDArray[np.int64]:
    """The most likely string of each batch item: [batch, length]. The inverse of `matricize` on one-hot columns."""
    chars = round(V_bxj.shape[1] ** 0.5)
    index_bj = V_bxj.argmax(1)
    return np.stack([index_bj // chars, index_bj % chars], axis=-1).reshape(len(V_bxj), -1)


@functools.cache
def shift_matrix(chars: int) -> Floats:
    """Q = (I_n ⊗ 1_n)(1_n ⊗ I_n)ᵀ, [n², n²]."""
    eye, ones = np.eye(chars), np.ones((chars, 1))
    return np.kron(eye, ones) @ np.kron(ones, eye).T


def shift(V_bxj: Floats) -> Floats:
    """Shift(V)^(j) = Q V^(j) ⊙ Qᵀ V^(j+1), columns counted modulo their number.

    Entry (a, c) is (second character of bigram j is a) · (first character of bigram j+1 is c).
    """
    Q_xk = shift_matrix(math.isqrt(V_bxj.shape[-2]))
    return (Q_xk @ V_bxj) * (Q_xk.T @ np.roll(V_bxj, -1, axis=-1))


def hardmax(A: Floats) -> Floats:
    """Binary column-stochastic matrices: each column one-hot at its largest entry (the first, if several tie)."""
    return (np.arange(A.shape[-2])[:, None] == A.argmax(-2)[..., None, :]).astype(A.dtype)


def softmax(A: Floats) -> Floats:
    """Column-wise softmax(25 A), the differentiable stand-in for `hardmax`."""
    E = np.exp(SHARPNESS * (A - A.max(-2, keepdims=True)))
    return E / E.sum(-2, keepdims=True)


def context(codebook: Codebook, dropped: ArrayLike | None = None) -> Floats:
    """C_i = Matrix(π_i) with the columns of dropped rules zeroed: C_ixk [d, n², n²].

    `dropped` is a mask [d, n²] of rules taken out of the context; none by default.
    """
    C_ixk = codebook.matrices().astype(np.float64)
    if dropped is not None:
        mask_ik = np.asarray(dropped, dtype=bool)
        check_shape("the mask of dropped rules", mask_ik.shape, codebook.tables.shape)
        C_ixk = C_ixk * ~mask_ik[:, None, :]
    return C_ixk


def one_dropped(codebook: Codebook, layer: int, column: int) -> Mask:
    """The mask of Algorithms 2 to 5: exactly one rule of one layer is out of the context."""
    if not 0 <= layer < codebook.depth or not 0 <= column < codebook.chars**2:
        raise InputError(
            f"there is no rule {column} in layer {layer}: give a layer from 0 to {codebook.depth - 1} "
            f"and a rule from 0 to {codebook.chars**2 - 1}"
        )
    mask = np.zeros(codebook.tables.shape, dtype=bool)
    mask[layer, column] = True
    return mask


def translated(P_ixk: Iterable[Floats], V_bxj: Floats) -> Floats:
    """V_{i+1} = P_i Shift(V_i), for i = 1..d."""
    for P_xk in P_ixk:
        V_bxj = P_xk @ shift(V_bxj)
    return V_bxj


@dataclass(frozen=True)
class Surrogate:
    """SURR-MLT with weights W_ixk [d, n², n²]."""

    W_ixk: Floats

    @classmethod
    def zeros(cls, depth: int, chars: int) -> Surrogate:
        return cls(np.zeros((depth, chars**2, chars**2)))

    def __call__(self, C_ixk: Floats, V_bxj: Floats, hard: bool = True) -> Floats:
        """V_{d+1} = SURR_W(C_1, .., C_d, V_1), for a batch of embedding matrices."""
        check_shape("the context", C_ixk.shape, self.W_ixk.shape)
        return translated((hardmax if hard else softmax)(C_ixk + self.W_ixk), V_bxj)

    def augmented(self, X_bxm: Floats, hard: bool = True) -> Floats:
        """The same on the context-augmented input [C_1, .., C_d, V_i] -> [C_1, .., C_d, V_{i+1}], layer by layer.

        The paper's formula writes X_i (e_i ⊗ I) + W_i for the effective matrix; equality needs the max around it.
        """
        depth, size, _ = self.W_ixk.shape
        cut = depth * size
        if X_bxm.ndim != 3 or X_bxm.shape[1] != size or X_bxm.shape[2] <= cut:
            raise InputError(
                f"the augmented input has shape {X_bxm.shape}: give it the shape [batch, {size}, {cut} + L/2]"
            )
        largest = hardmax if hard else softmax
        contexts, take = np.split(np.eye(X_bxm.shape[-1]), [cut], axis=1)  # block matrices that choose columns
        for W_xk, choose in zip(self.W_ixk, np.split(contexts, depth, axis=1), strict=True):
            V_bxj = largest(X_bxm @ choose + W_xk) @ shift(X_bxm @ take)
            X_bxm = X_bxm @ contexts @ contexts.T + V_bxj @ take.T
        return X_bxm


def augment(C_ixk: Floats, V_bxj: Floats) -> Floats:
    """X_1 = [C_1, .., C_d, V_1], the context as columns before the input's."""
    columns = np.concatenate(list(C_ixk), axis=1)
    return np.concatenate([np.broadcast_to(columns, (len(V_bxj), *columns.shape)), V_bxj], axis=2)


def recovered(W_ixk: Floats, codebook: Codebook) -> Mask:
    """Which rules the weights hold: [d, n²], true where π*(k) is the *only* largest entry of column k of W_i.

    A tie is not knowledge: an argmax would call whichever row comes first right or wrong by its number.
    """
    rows = codebook.tables.astype(np.int64)[:, None, :]
    right_ik = np.take_along_axis(W_ixk, rows, axis=1)[:, 0]
    return (W_ixk >= right_ik[:, None, :]).sum(1) == 1


def icl_witness(W_ixk: Floats) -> tuple[int, int, int] | None:
    """A rule (layer, left side k, image x) that the weights overrule even when it is in context, or None.

    No rule is overruled exactly when every column of every W_i spreads (max - min) by less than 1, which the paper's
    ‖W_i‖ < 1/2 implies: then max(Matrix(π_i) + W_i) = Matrix(π_i) for every codebook.
    """
    spread_ik = W_ixk.max(1) - W_ixk.min(1)
    if (spread_ik < 1).all():
        return None
    layer, column = (int(v) for v in np.argwhere(spread_ik >= 1)[0])
    return layer, column, int(W_ixk[layer, :, column].argmin())


def is_icl_capable(W_ixk: Floats) -> bool:
    """Strong ICL-capability: with all phrasebooks in context, any codebook is translated exactly."""
    return icl_witness(W_ixk) is None


def is_task_capable(W_ixk: Floats, codebook: Codebook) -> bool:
    """Strong task-capability by the lemma's condition: max(W_i) = Matrix(π*_i) for all i, with nothing in context.

    Sufficient, not necessary: renaming the characters between two layers gives other weights for the same map.
    """
    return bool(recovered(W_ixk, codebook).all())
