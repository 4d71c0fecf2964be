"""Forward and backward of 32 strings of length 20 at MLT(5, 10): the hand-built transformer against a stock one.

The stock model has the same shape (515 tokens of width 214, ten layers of attention with 3 and 2 heads of that width,
MLPs with 300 and 100 units) and computes every token for every string, with PyTorch's own attention kernel.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from _rows import Row, cpu_seconds, main
from openbook.task import Codebook, random_inputs, translate_batch
from openbook.theory.construction import ConstructedTransformer
from openbook.theory.construction.fast import bigrams, shown_sources, simulate
from openbook.theory.surrogate.model import context

DEPTH, CHARS, LENGTH, BATCH = 5, 10, 20, 32
PART = 4  # strings the stock model is timed on; its time grows linearly, its memory would not fit a laptop


class Stock(nn.Module):
    """A plain pre-made transformer of the construction's shape; everything is computed, nothing is shared."""

    def __init__(self, width: int, heads: list[int], hidden: list[int]) -> None:
        super().__init__()
        self.heads = heads
        self.inputs = nn.ModuleList(nn.Linear(width, 3 * h * width, bias=False) for h in heads)
        self.up = nn.ModuleList(nn.Linear(width, u, bias=False) for u in hidden)
        self.down = nn.ModuleList(nn.Linear(u, width, bias=False) for u in hidden)

    def forward(self, x_bpk: Tensor) -> Tensor:
        for h, project, up, down in zip(self.heads, self.inputs, self.up, self.down, strict=True):
            query, key, value = project(x_bpk).unflatten(-1, (3, h, -1)).permute(2, 0, 3, 1, 4)
            x_bpk = x_bpk + functional.scaled_dot_product_attention(query, key, value, is_causal=True).sum(1)
            x_bpk = x_bpk + down(functional.gelu(up(x_bpk)))
        return x_bpk


def measure() -> Iterator[Row]:
    torch.set_num_threads(1)
    codebook = Codebook.sample(DEPTH, CHARS)
    inputs, lengths = random_inputs(CHARS, BATCH, (LENGTH, LENGTH))
    target = bigrams(translate_batch(codebook, inputs, lengths).outputs, CHARS)
    shown = np.ones((1, DEPTH, CHARS**2), dtype=bool)
    shown[0, 2, 17] = False
    model = ConstructedTransformer(DEPTH, CHARS)
    weights, index = model.stored, bigrams(inputs, CHARS)

    def loss(columns: Tensor) -> Tensor:
        return functional.cross_entropy(columns.flatten(0, 1), target.flatten())

    def fast() -> None:
        rules = shown_sources(codebook.tables, shown)
        torch.autograd.grad(loss(simulate(weights, rules, index)), weights)

    memories = model.remember(context(codebook))

    def remembered() -> None:
        torch.autograd.grad(loss(model.answer(memories, inputs)), weights)

    width = len(model.basis)
    stock = Stock(width, [3, 2] * DEPTH, [3 * CHARS**2, CHARS**2] * DEPTH)
    x = torch.randn(PART, CHARS**2 * DEPTH + LENGTH // 2 + DEPTH, width)

    def dense() -> None:
        stock(x)[:, -LENGTH // 2 :, : CHARS**2].square().mean().backward()

    baseline = 1e3 * cpu_seconds(dense, at_least=0.1, repeats=1) * BATCH / PART
    settings = {"depth": DEPTH, "chars": CHARS, "length": LENGTH, "batch": BATCH, "stock_timed_on": PART}
    for name, work in (("fast forward and backward", fast), ("module, context remembered", remembered)):
        work()
        yield Row(
            f"{name}, batch of 32",
            1e3 * cpu_seconds(work),
            "ms/step",
            baseline,
            goal=10,
            goal_of="ratio",
            better="less",
            extra=settings,
        )


if __name__ == "__main__":
    main("The transformer written by hand: one training step", measure)
