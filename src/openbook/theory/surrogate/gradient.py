"""Gradient prediction accuracy: does the gradient of a dropped rule's column point at the rule?

The model is ICL-capable and untrained (W = 0). Rules are dropped from the context, independently with the same rate
in the first k phrasebooks, and the gradient is taken in W_1 over a batch of strings. A dropped rule is predicted when

    paper       the largest entry of the negative gradient of its column is the rule's image (chance 1/n²)
    released    the gradient at the image is below the mean of the column's other entries (chance 1/2): what the
                released code computes. The softmax makes a column of gradients sum to zero, so this only asks whether
                the gradient at the image is negative, that is, whether learning goes in the right direction at all.

Gradients are computed string by string, so one pool of strings gives all batch sizes, and the whole pool stands for
the expected loss. Each mask comes with a codebook of its own. Batches that share them are not independent: intervals
are taken between masks.

    shapes   s string · j position · i layer · x image (row) · k left side (column) · q dropped rule · b batch
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from openbook.base.errors import InputError
from openbook.base.intervals import clustered
from openbook.base.randomness import generator
from openbook.task import Codebook, random_inputs, translate_batch
from openbook.theory.surrogate.factored import Indices, string_gradients, weight_gradient
from openbook.theory.surrogate.model import Floats, Mask, context, softmax

CHUNK = 4  # strings computed together: their arrays stay in the cache
BATCHES = (1, 2, 3, 10, 30, 100, 300, 1000)  # as published
RATES = tuple(round(0.01 + 0.05 * step, 2) for step in range(20))  # as published
LEAST_DROPPED = 0.01  # rules that a rate drops on average: with fewer a mask that drops one is hardly ever drawn
ACROSS_BATCH = 10  # batch size of the panel over phrasebooks
DEEPER_RATES = RATES[:11]


@dataclass(frozen=True)
class DropSetting:
    """One drop rate on the first `books` phrasebooks, with the batch sizes that share its strings."""

    panel: str  # "batch" or "phrasebooks"
    rate: float
    books: int
    batches: tuple[int, ...]


@dataclass(frozen=True)
class GradientGrid:
    """What to measure. The defaults are the paper's figure."""

    depth: int = 10
    chars: int = 10
    pairs: int = 1000  # bigrams of each string
    rates: Sequence[float] = RATES
    deeper_rates: Sequence[float] = DEEPER_RATES
    batches: Sequence[int] = BATCHES
    books: Sequence[int] = tuple(range(1, 11))
    masks: int = 16
    seed: int = 0

    def check(self) -> None:
        for rate in (*self.rates, *self.deeper_rates):
            if not 0 < rate <= 1:
                raise InputError(f"a drop rate is {rate}: give rates above 0 and at most 1")
            if rate * self.chars**2 < LEAST_DROPPED:
                raise InputError(
                    f"a drop rate of {rate:g} drops next to none of {self.chars**2} rules: give a larger one"
                )
        for books in self.books:
            if not 1 <= books <= self.depth:
                raise InputError(f"rules dropped from {books} phrasebooks, but there are {self.depth}: use 1 to depth")
        if self.rates and min(self.batches, default=0) < 1:
            raise InputError(f"the batch sizes are {list(self.batches)}: give at least one, each 1 or more")
        if self.masks < 2:
            raise InputError(f"{self.masks} masks are too few for an interval between masks: use 2 or more")
        if self.pairs < 1:
            raise InputError(f"strings of {self.pairs} bigrams are too short: use 1 or more")

    def settings(self) -> list[DropSetting]:
        """The points of both panels."""
        by_batch = [DropSetting("batch", rate, 1, tuple(self.batches)) for rate in self.rates]
        across = itertools.product(self.books, self.deeper_rates)
        return by_batch + [DropSetting("phrasebooks", rate, books, (ACROSS_BATCH,)) for books, rate in across]

    def pool(self, setting: DropSetting, mask: int) -> int:
        """Strings computed for one mask: the largest batch for a quarter of the masks, a tenth of it for the rest.

        Small batches vary more from mask to mask than large ones, and would gain nothing from the whole pool.
        """
        largest = max(setting.batches)
        return largest if mask < max(2, self.masks // 4) else max(-(-largest // 10), min(setting.batches), 1)

    def total(self) -> int:
        """Number of strings that are computed."""
        return sum(self.pool(setting, mask) for setting in self.settings() for mask in range(self.masks))


def draw_mask(codebook: Codebook, rate: float, books: int, seed: int, index: int) -> Mask:
    """Each rule of the first `books` phrasebooks dropped with probability `rate`; at least one of the first."""
    rng = generator(seed, f"gradient mask {rate} {books}", index)
    mask_ik = np.zeros(codebook.tables.shape, dtype=bool)
    while not mask_ik[0].any():
        mask_ik[:books] = rng.random((books, codebook.chars**2)) < rate
    return mask_ik


def column_gradients(
    codebook: Codebook, mask_ik: Mask, strings: np.ndarray, dtype: type = np.float32
) -> tuple[Floats, Indices]:
    """The gradient in W_1 of each string's mean loss, at the dropped columns: [s, x, q]; and their images [q]."""
    P_ixk: Floats = softmax(context(codebook, mask_ik)).astype(dtype)
    dropped_q = np.flatnonzero(mask_ik[0])
    G_sxk = string_gradients(P_ixk, translate_batch(codebook, strings), [0])[0]
    return weight_gradient(P_ixk[0][:, dropped_q], G_sxk[:, :, dropped_q]), codebook.tables[0, dropped_q].astype(int)


def predicted(g_bxq: Floats, image_q: Indices) -> tuple[Mask, Mask]:
    """Whether each column's gradient predicts its rule, by the paper's definition and by the released code's: [b, q].

    A column that no string looked up has no gradient, and predicts nothing.
    """
    at_bq = np.take_along_axis(g_bxq, image_q[None, None, :], axis=1)[:, 0]
    largest_bq = (g_bxq <= at_bq[:, None]).sum(1) == 1
    others_bq = (g_bxq.sum(1) - at_bq) / g_bxq.shape[1]  # the released code divides by n², not by n² - 1
    return largest_bq, at_bq < others_bq


def measure_mask(grid: GradientGrid, setting: DropSetting, index: int) -> dict[int, tuple[float, float]]:
    """Both accuracies for each batch size under one mask of one codebook."""
    codebook = Codebook.sample(grid.depth, grid.chars, grid.seed, index)
    mask_ik = draw_mask(codebook, setting.rate, setting.books, grid.seed, index)
    pool, length = grid.pool(setting, index), 2 * grid.pairs
    first = index * max((*grid.batches, ACROSS_BATCH))  # strings of its own for every mask
    strings = random_inputs(grid.chars, pool, (length, length), grid.seed, first, "gradient")[0]
    chunks = (strings[start : start + CHUNK] for start in range(0, pool, CHUNK))
    parts, images = zip(*(column_gradients(codebook, mask_ik, chunk) for chunk in chunks), strict=True)
    g_sxq = np.concatenate(parts)
    accuracies = {}
    for batch in setting.batches:
        if whole := pool // batch:
            g_bxq = g_sxq[: whole * batch].reshape(whole, batch, *g_sxq.shape[1:]).mean(1)
            paper, released = predicted(g_bxq, images[0])
            accuracies[batch] = float(paper.mean()), float(released.mean())
    return accuracies


def measure(grid: GradientGrid, advance: Callable[..., object] = lambda *_: None) -> list[dict[str, Any]]:
    """One row for each panel, rate, number of phrasebooks and batch size, with intervals between masks."""
    grid.check()
    rows = []
    for setting in grid.settings():
        by_batch: dict[int, list[tuple[float, float]]] = {batch: [] for batch in setting.batches}
        for index in range(grid.masks):
            for batch, accuracies in measure_mask(grid, setting, index).items():
                by_batch[batch].append(accuracies)
            advance(grid.pool(setting, index), f"drop rate {setting.rate:g}, {setting.books} phrasebook(s)")
        for batch, pairs in by_batch.items():
            row: dict[str, Any] = {"panel": setting.panel, "rate": setting.rate, "phrasebooks": setting.books}
            row |= {"batch": batch, "masks": len(pairs), "tuples": batch * grid.pairs, "chance": 1 / grid.chars**2}
            for name, values in zip(("paper", "released"), zip(*pairs, strict=True), strict=True):
                row[name], row[f"{name}_low"], row[f"{name}_high"] = clustered(values)
            rows.append(row)
    return rows
