"""Gradients of the soft surrogate inside the light cone of its soft columns.

With a column in context its softmax is one-hot to within about n² e⁻²⁵, so a position that looks up only such columns
is known beforehand: it holds the oracle's bigram. A distribution starts where a *soft* column is looked up (one
dropped from the context, or one whose weights contradict the context) and spreads one position to the left with each
layer. Only these cells are computed, with the exact effective matrices, and only soft columns get a gradient: that of
any other column is smaller by its tail.

What is neglected is the tail (below `TAIL`) of columns outside the cone. It would show where a label is less likely
than the tails that could reach it, so a pass in which some label has probability below `FLOOR` is refused (None) and
the caller computes it with `factored.py`.

    shapes   c cell of the cone (a position of one layer) · i layer · x image (row) · k left side (column)
             a character · u marginals (2n) · j position
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from openbook.surrogate.factored import (
    Indices,
    backward,
    forward,
    marginals,
    one_hot_marginals,
    spread,
    weight_gradient,
)
from openbook.surrogate.model import SHARPNESS, Floats, Mask, recovered, softmax
from openbook.task import Codebook, translate_batch

TAIL = 1e-8  # a column whose probability outside its largest entry is above this is soft
FLOOR = 1e-5  # labels less likely than this make the neglected tails matter


@dataclass
class Layer:
    """Cells of one layer of the cone, and what the backward pass needs of them."""

    cells: Indices  # positions, ascending
    first: Indices  # row of `Layer.U` below for the first character of position j+1, or -1
    second: Indices  # the same for the second character of position j
    F_ca: Floats
    S_ca: Floats
    O_ck: Floats
    U_cu: Floats | None  # marginals of the cells' images; the last layer needs none


class Trainer:
    """The soft surrogate on one fixed string, one rule at a time out of the context (Algorithms 4 and 5).

    Keeps the effective matrices of the full context up to date column by column, so that a step touches only what
    its mask and its update change.
    """

    def __init__(self, codebook: Codebook, string: np.ndarray, W_ixk: Floats) -> None:
        self.codebook, self.chars, self.depth = codebook, codebook.chars, codebook.depth
        self.fallbacks = 0  # steps in which the cone was refused
        self.rules_ik: Indices = codebook.tables.astype(np.int64)
        run = translate_batch(codebook, np.asarray(string)[None])
        self.bigram_ij: Indices = run.bigrams[0].astype(np.int64)
        self.label_j: Indices = np.take_along_axis(self.rules_ik, self.bigram_ij, axis=1)[-1]
        self.start_j: Indices = run.inputs[0, 0::2].astype(np.int64) * self.chars + run.inputs[0, 1::2]
        self.pairs = self.label_j.size
        self.eye = np.eye(self.chars)
        self.W_ixk = np.array(W_ixk, dtype=np.float64)
        self.P_ixk = np.empty_like(self.W_ixk)
        self.M_iku = np.empty((self.depth, self.chars**2, 2 * self.chars))
        self.soft_ik: Mask = np.zeros(self.rules_ik.shape, dtype=bool)
        self.held_ik: Mask = recovered(self.W_ixk, codebook)
        for i in range(self.depth):
            self.refresh(i, np.arange(self.chars**2))

    def refresh(self, layer: int, columns: Indices, in_context: bool = True) -> None:
        """Recompute the effective columns after their weights, or their context, changed."""
        A_xk = self.W_ixk[layer][:, columns].copy()
        if in_context:
            A_xk[self.rules_ik[layer, columns], np.arange(columns.size)] += 1
        P_xk = softmax(A_xk, SHARPNESS)
        self.P_ixk[layer][:, columns] = P_xk
        self.M_iku[layer, columns] = marginals(P_xk)
        P_xk[self.rules_ik[layer, columns], np.arange(columns.size)] = 0  # what is left is the tail: no cancellation
        self.soft_ik[layer, columns] = P_xk.sum(0) > TAIL

    def _forward(self) -> tuple[list[Layer | None], Floats | None]:
        """The cone's layers and the probability of each label inside it; None where the cone has not begun."""
        chars = self.chars
        layers: list[Layer | None] = []
        inside_j = np.zeros(self.pairs, dtype=bool)
        row_j = np.zeros(self.pairs, dtype=np.int64)
        U_cu: Floats | None = None
        layer: Layer | None = None
        for i in range(self.depth):
            bigram_j = self.bigram_ij[i]
            if U_cu is None:
                cells = np.flatnonzero(self.soft_ik[i][bigram_j])
                if cells.size == 0:
                    layers.append(None)
                    continue
                first = second = np.full(cells.size, -1)
                F_ca, S_ca = self.eye[bigram_j[cells] % chars], self.eye[bigram_j[cells] // chars]
            else:
                reached_j = inside_j | self.soft_ik[i][bigram_j]
                reached_j[:-1] |= inside_j[1:]
                reached_j[-1] |= inside_j[0]
                cells = np.flatnonzero(reached_j)
                after = cells + 1
                if after[-1] == self.pairs:
                    after[-1] = 0
                known = len(U_cu)  # characters outside the cone are read from rows of the identity below it
                F_ua = np.concatenate([U_cu[:, :chars], self.eye])
                S_ua = np.concatenate([U_cu[:, chars:], self.eye])
                bigram_c = bigram_j[cells]
                from_first, from_second = inside_j[after], inside_j[cells]
                first = np.where(from_first, row_j[after], -1)
                second = np.where(from_second, row_j[cells], -1)
                F_ca = F_ua[np.where(from_first, first, known + bigram_c % chars)]
                S_ca = S_ua[np.where(from_second, second, known + bigram_c // chars)]
            O_ck = (S_ca[:, :, None] * F_ca[:, None, :]).reshape(cells.size, -1)
            U_cu = O_ck @ self.M_iku[i] if i < self.depth - 1 else None
            layer = Layer(cells, first, second, F_ca, S_ca, O_ck, U_cu)
            layers.append(layer)
            inside_j[:] = False
            inside_j[cells] = True
            row_j[cells] = np.arange(cells.size)
        if layer is None:
            return layers, None
        rows_ck = self.P_ixk[-1].take(self.label_j[layer.cells], axis=0)
        return layers, np.einsum("ck,ck->c", rows_ck, layer.O_ck)

    def gradient(self, down_to: int, only: int | None = None) -> tuple[float, list[tuple[int, Indices, Floats]]] | None:
        """Loss and (layer, soft columns, dL/dW of them), for layers `down_to`.. or for the layer `only`.

        None when a label in the cone is too unlikely for the neglected tails.
        """
        layers, chance_c = self._forward()
        if chance_c is None:
            return 0.0, []
        if chance_c.min() < FLOOR:
            return None
        loss = float(-np.log(chance_c).sum() / self.pairs)
        pull_c = -1 / (chance_c * self.pairs)
        found = []
        top = layers[-1]
        assert top is not None
        last = self.depth - 1
        label_c = self.label_j[top.cells]
        if self.soft_ik[last].any() and only in (None, last):
            columns = np.flatnonzero(self.soft_ik[last])
            G_xk = np.zeros((self.chars**2, columns.size))
            np.add.at(G_xk, label_c, top.O_ck[:, columns] * pull_c[:, None])
            found.append((last, columns, weight_gradient(self.P_ixk[last][:, columns], G_xk)))
        gO_ck = self.P_ixk[last].take(label_c, axis=0) * pull_c[:, None]
        for i in range(last - 1, down_to - 1, -1):
            below, above = layers[i], layers[i + 1]
            if below is None or above is None or below.U_cu is None:
                break
            gU_cu = self._to_marginals(gO_ck, above, below.U_cu.shape)
            columns = np.flatnonzero(self.soft_ik[i]) if only in (None, i) else np.empty(0, dtype=np.int64)
            if columns.size:
                G_xk = spread(below.O_ck[:, columns].T @ gU_cu)
                found.append((i, columns, weight_gradient(self.P_ixk[i][:, columns], G_xk)))
            if i > down_to:
                gO_ck = gU_cu @ self.M_iku[i].T
        return loss, found

    def _to_marginals(self, gO_ck: Floats, above: Layer, shape: tuple[int, ...]) -> Floats:
        """From the outer products of one layer to the marginals of the cells below; each is read at most once."""
        chars = self.chars
        gO_caa = gO_ck.reshape(-1, chars, chars)
        gU_cu = np.zeros(shape)
        from_first, from_second = above.first >= 0, above.second >= 0
        gF_ca = np.einsum("cab,ca->cb", gO_caa, above.S_ca)
        gS_ca = np.einsum("cab,cb->ca", gO_caa, above.F_ca)
        gU_cu[above.first[from_first], :chars] = gF_ca[from_first]
        gU_cu[above.second[from_second], chars:] = gS_ca[from_second]
        return gU_cu

    def exact_gradient(self, layers: list[int]) -> tuple[float, list[tuple[int, Indices, Floats]]]:
        """The same, for every column of the layers asked for and without neglecting anything."""
        U_sju = one_hot_marginals(self.start_j[None], self.chars)
        run = forward(self.P_ixk, self.M_iku, U_sju, self.label_j[None])
        G = backward(run, self.P_ixk, self.M_iku, self.label_j[None], layers)
        every = np.arange(self.chars**2)
        return float(run.loss_s[0]), [(i, every, weight_gradient(self.P_ixk[i], G[i][0])) for i in layers]

    def step(self, layer: int, column: int, rate: float, full: bool) -> float:
        """One step of Algorithm 4 (only W_layer learns) or 5 (`full`: all do); returns the loss before it.

        W <- clip(W - rate · dL/dW, 0, 1).
        """
        self.refresh(layer, np.array([column]), in_context=False)
        result = self.gradient(0 if full else layer, None if full else layer)
        if result is None:
            self.fallbacks += 1
            result = self.exact_gradient(list(range(self.depth)) if full else [layer])
        loss, found = result
        for i, columns, gW_xk in found:
            W_xk = np.clip(self.W_ixk[i][:, columns] - rate * gW_xk, 0, 1)
            right_k = W_xk[self.rules_ik[i, columns], np.arange(columns.size)]
            self.held_ik[i, columns] = (W_xk >= right_k).sum(0) == 1
            self.W_ixk[i][:, columns] = W_xk
            self.refresh(i, columns)
        self.refresh(layer, np.array([column]))
        return loss
