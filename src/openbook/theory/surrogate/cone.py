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

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from openbook.task import Codebook, translate_batch
from openbook.theory.surrogate.factored import (
    Indices,
    backward,
    forward,
    input_and_labels,
    marginals,
    one_hot_marginals,
    spread,
    weight_gradient,
)
from openbook.theory.surrogate.model import Floats, Mask, recovered, softmax

ColumnGradients = tuple[int, Indices, Floats]  # a layer, columns of it, dL/dW of these columns

TAIL = 1e-8  # a column whose probability outside its largest entry is above this is soft
FLOOR = 1e-5  # labels less likely than this make the neglected tails matter


@dataclass(frozen=True)
class ConeLayer:
    """Cells of one layer of the cone, and what the backward pass needs of them."""

    cells: Indices  # positions, ascending
    after: Indices  # the positions after them
    F_ca: Floats  # first characters of the bigrams after
    S_ca: Floats  # second characters of the cells' own bigrams
    O_ck: Floats  # their outer products


class ConeDescent:
    """The soft surrogate on one fixed string, one rule at a time out of the context (Algorithms 4 and 5).

    Keeps the effective matrices of the full context up to date column by column, so that a step touches only what
    its mask and its update change.
    """

    def __init__(self, codebook: Codebook, string: np.ndarray, W_ixk: Floats) -> None:
        self.codebook, self.chars, self.depth = codebook, codebook.chars, codebook.depth
        self.exact_steps = 0  # steps in which the cone was refused
        self.rules_ik: Indices = codebook.tables.astype(np.int64)
        run = translate_batch(codebook, np.asarray(string)[None])
        self.bigram_ij: Indices = run.bigrams[0].astype(np.int64)
        self.start_j, self.label_j = (bigram_sj[0] for bigram_sj in input_and_labels(run))
        self.pairs = self.label_j.size
        self.next_j = np.roll(np.arange(self.pairs), -1)
        self.eye = np.eye(self.chars**2)
        # marginals that the oracle knows, before each layer; a pass writes its cells over them and puts them back
        known = run.strings[0, :-1].astype(np.int64).reshape(self.depth, self.pairs, 2)
        self.known_iju = np.eye(self.chars)[known].reshape(self.depth, self.pairs, -1)
        self.pulled_ju = np.empty((self.pairs, 2 * self.chars))  # scratch of the backward pass
        self.W_ixk = np.array(W_ixk, dtype=np.float64)
        self.P_ixk = np.empty_like(self.W_ixk)
        self.M_iku = np.empty((self.depth, self.chars**2, 2 * self.chars))
        self.soft_ik: Mask = np.zeros(self.rules_ik.shape, dtype=bool)
        self.held_ik: Mask = recovered(self.W_ixk, codebook)
        for i in range(self.depth):
            self.refresh(i, np.arange(self.chars**2))

    def refresh(self, layer: int, columns: Indices, in_context: bool = True) -> None:
        """Recompute the effective columns after their weights, or their context, changed."""
        A_xk = self.W_ixk[layer][:, columns]
        right = self.rules_ik[layer, columns], np.arange(columns.size)
        if in_context:
            A_xk[right] += 1
        P_xk = softmax(A_xk)
        self.P_ixk[layer][:, columns] = P_xk
        self.M_iku[layer, columns] = marginals(P_xk)
        P_xk[right] = 0  # what is left is the tail: no cancellation
        self.soft_ik[layer, columns] = P_xk.sum(0) > TAIL

    def _forward(self) -> dict[int, ConeLayer]:
        """The cone's layers, from where it begins."""
        chars = self.chars
        cone: dict[int, ConeLayer] = {}
        for i in range(self.depth):
            reached_j = self.soft_ik[i].take(self.bigram_ij[i])
            below, known_ju = cone.get(i - 1), self.known_iju[i]
            if below is not None:
                reached_j[below.cells] = reached_j[below.cells - 1] = True  # it spreads by one position to the left
                kept_cu = known_ju.take(below.cells, axis=0)
                known_ju[below.cells] = below.O_ck @ self.M_iku[i - 1]
            cells = np.flatnonzero(reached_j)
            if not cells.size:
                continue
            after = self.next_j.take(cells)
            F_ca, S_ca = known_ju.take(after, axis=0)[:, :chars], known_ju.take(cells, axis=0)[:, chars:]
            if below is not None:
                known_ju[below.cells] = kept_cu
            cone[i] = ConeLayer(cells, after, F_ca, S_ca, (S_ca[:, :, None] * F_ca[:, None, :]).reshape(cells.size, -1))
        return cone

    def gradient(self, layers: Sequence[int]) -> tuple[float, list[ColumnGradients]] | None:
        """Loss and (layer, soft columns, dL/dW of them), for each of the given layers, the last first.

        None when a label in the cone is too unlikely for the neglected tails.
        """
        cone, last = self._forward(), self.depth - 1
        if not cone:
            return 0.0, []
        label_c = self.label_j[cone[last].cells]
        rows_ck = self.P_ixk[last].take(label_c, axis=0)
        chance_c = np.einsum("ck,ck->c", rows_ck, cone[last].O_ck)
        if chance_c.min() < FLOOR:
            return None
        pull_c = -1 / (chance_c * self.pairs)
        gO_ck = rows_ck * pull_c[:, None]
        gradients: list[ColumnGradients] = []
        for i in range(last, max(min(layers), min(cone)) - 1, -1):
            if i < last:
                gU_cu = self._to_marginals(gO_ck, cone[i + 1], cone[i].cells)
                gO_ck = gU_cu @ self.M_iku[i].T if i > min(layers) else gO_ck
            if i in layers and self.soft_ik[i].any():
                columns = np.flatnonzero(self.soft_ik[i])
                O_ck = cone[i].O_ck.take(columns, axis=1)
                G_xk = spread(O_ck.T @ gU_cu) if i < last else self.eye.take(label_c, axis=1) @ (O_ck * pull_c[:, None])
                gradients.append((i, columns, weight_gradient(self.P_ixk[i][:, columns], G_xk)))
        return float(-np.log(chance_c).sum() / self.pairs), gradients

    def _to_marginals(self, gO_ck: Floats, above: ConeLayer, cells: Indices) -> Floats:
        """From the outer products of one layer to the marginals of the cells below it.

        Each cell below was read once as a first and once as a second character, so its whole row is written here.
        """
        gO_caa = gO_ck.reshape(-1, self.chars, self.chars)
        self.pulled_ju[above.after, : self.chars] = np.einsum("cab,ca->cb", gO_caa, above.S_ca)
        self.pulled_ju[above.cells, self.chars :] = np.einsum("cab,cb->ca", gO_caa, above.F_ca)
        return self.pulled_ju.take(cells, axis=0)

    def exact_gradient(self, layers: Sequence[int]) -> tuple[float, list[ColumnGradients]]:
        """The same, for every column of the layers asked for and without neglecting anything."""
        U_suj = one_hot_marginals(self.start_j[None], self.chars)
        run = forward(self.P_ixk, self.M_iku, U_suj, self.label_j[None])
        G = backward(run, self.P_ixk, self.M_iku, self.label_j[None], layers)
        every = np.arange(self.chars**2)
        return float(run.loss_s[0]), [(i, every, weight_gradient(self.P_ixk[i], G[i][0])) for i in layers]

    def step(self, layer: int, column: int, rate: float, full: bool) -> float:
        """One step of Algorithm 4 (only W_layer learns) or 5 (`full`: all do); returns the loss before it.

        W <- clip(W - rate · dL/dW, 0, 1).
        """
        dropped = np.array([column])
        self.refresh(layer, dropped, in_context=False)
        layers = range(self.depth) if full else [layer]
        result = self.gradient(layers)
        if result is None:
            self.exact_steps += 1
            result = self.exact_gradient(layers)
        loss, gradients = result
        for i, columns, gW_xk in gradients:
            W_xk = np.minimum(np.maximum(self.W_ixk[i][:, columns] - rate * gW_xk, 0), 1)
            right_k = W_xk[self.rules_ik[i, columns], np.arange(columns.size)]
            self.held_ik[i, columns] = (W_xk >= right_k).sum(0) == 1
            self.W_ixk[i][:, columns] = W_xk
            self.refresh(i, columns)
        if not any(i == layer and column in columns for i, columns, _ in gradients):
            self.refresh(layer, dropped)
        return loss
