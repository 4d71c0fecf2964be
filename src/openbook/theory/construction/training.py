"""The paper's trainability experiment: W_1 .. W_d learned from strings while one rule at a time is hidden.

At every step a random column of a random level is masked from an otherwise full context. Layer-wise training updates
the weights of that level alone, full-parameter training all of them. Adam, cosine schedule with warm-up, cross-entropy
summed over the columns of the output, ℓ1 on the weights (section "Trainability of the constructed transformer").

What the paper does not say, and what we found it needs (`docs/construction.md`): the outputs are read as logits at an
inverse temperature, gradients are clipped, and the weights start at a small constant. From zero a masked column is
silent, GELU(0) = 0, where the surrogate's softmax(0) is uniform; the constant makes it uniform here too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from openbook.base.errors import InputError
from openbook.base.randomness import generator
from openbook.task import Codebook, Translation, random_inputs, translate_batch
from openbook.theory.construction.fast import bigrams, shown_sources, simulate
from openbook.theory.surrogate.model import recovered

Update = Literal["layerwise", "full"]
Advance = Callable[..., object]
EXAM = 512  # strings of the exam, none of which was trained on
POINTS = 40  # measurements of recovery in a run


@dataclass(frozen=True)
class Recipe:
    """Settings of a run; the defaults are the paper's where it gives them."""

    update: Update = "full"
    rate: float = 1e-2  # peak; the paper tries 1e-2, 1e-3, 1e-4
    sequences: int = 51_200
    length: int = 20
    batch: int = 32
    sparsity: float = 1e-4  # ℓ1
    warmup: int = 100
    last_share: float = 0.1  # of the peak rate, at the end
    sharpness: float = 3.0  # inverse temperature of the cross-entropy (ours)
    clip: float = 1.0  # largest norm of a gradient (ours)
    start: float = 0.01  # every weight at first (ours)
    seed: int = 0
    masked: bool = True  # False is the control: nothing is ever hidden
    shrink: bool = False  # ℓ1 as a shrinkage after Adam's step, as AdamW treats ℓ2, not as a part of its gradient
    each_string: bool = False  # hide a column of its own from each string, not the same one from a whole step

    def check(self) -> None:
        if self.sequences < self.batch or self.batch < 1:
            raise InputError(f"{self.sequences} sequences do not fill one batch: give at least {self.batch}")
        if self.length < 2 or self.length % 2:
            raise InputError(f"the length is {self.length}: give an even number of characters, at least 2")
        if not 0 < self.rate < 10:
            raise InputError(f"the rate is {self.rate:g}: give a learning rate between 0 and 10")

    @property
    def steps(self) -> int:
        return self.sequences // self.batch


@dataclass(frozen=True)
class TrainedWeights:
    """The weights that training ended with, and how much of the codebook they held at a few steps on the way."""

    recipe: Recipe
    depth: int
    chars: int
    weights: list[Tensor] = field(repr=False)
    curve: list[dict[str, Any]]  # step, recovered_by_layer, loss
    hidden: float  # share of the columns that were hidden at least once
    recovered_of_hidden: float  # share of those that were recovered
    closed_book: float  # characters right with an empty context, on strings that training did not see

    @property
    def recovered_by_layer(self) -> list[float]:
        return self.curve[-1]["recovered_by_layer"]

    @property
    def recovered(self) -> float:
        return float(np.mean(self.recovered_by_layer))

    def to_json(self) -> dict[str, Any]:
        names = ("depth", "chars", "recovered", "recovered_by_layer", "hidden", "recovered_of_hidden", "closed_book")
        measured = {name: getattr(self, name) for name in (*names, "curve")}
        return {**asdict(self.recipe), "steps": self.recipe.steps, "chance": 1 / self.chars, **measured}


def held(weights: Sequence[Tensor], codebook: Codebook) -> NDArray[np.bool_]:
    """Which columns [d, n²] have one largest entry, and it is the rule's right side."""
    return recovered(torch.stack([W.detach() for W in weights]).numpy(), codebook)


def rate_at(recipe: Recipe, step: int, steps: int) -> float:
    """Linear warm-up over half of the steps at most, then a cosine from the peak to `last_share` of it."""
    warmup = min(recipe.warmup, max(1, steps // 2))
    if step < warmup:
        return recipe.rate * (step + 1) / warmup
    done = (step - warmup) / max(1, steps - warmup)
    return recipe.rate * (recipe.last_share + (1 - recipe.last_share) * 0.5 * (1 + math.cos(math.pi * done)))


class Learner:
    """Weights W_1 .. W_d and Adam, which lets a level stand still that is given no gradient."""

    def __init__(self, depth: int, chars: int, recipe: Recipe) -> None:
        self.recipe = recipe
        size = chars**2
        self.weights = [torch.full((size, size), recipe.start, requires_grad=True) for _ in range(depth)]
        self.optimizer = torch.optim.Adam(self.weights)

    def loss(self, translation: Translation, source_bdr: Tensor) -> Tensor:
        """Cross-entropy summed over the columns of a string, mean over strings."""
        index_bj, target_bj, columns_b = columns_of(translation)
        logits_bjx = self.recipe.sharpness * simulate(self.weights, source_bdr, index_bj, columns_b)
        losses_bj = functional.cross_entropy(logits_bjx.mT, target_bj, reduction="none")
        return (losses_bj * (torch.arange(index_bj.shape[1]) < columns_b[:, None])).sum(1).mean()

    def step(self, loss: Tensor, levels: Sequence[int], rate: float) -> None:
        """One update of the weights of some levels."""
        chosen = [self.weights[level] for level in levels]
        if not self.recipe.shrink:
            loss = loss + self.recipe.sparsity * sum((weight.abs().sum() for weight in chosen), torch.zeros(()))
        self.optimizer.zero_grad()
        loss.backward(inputs=chosen)
        norm = torch.nn.utils.clip_grad_norm_(chosen, self.recipe.clip)
        if not torch.isfinite(norm):
            raise InputError("the gradient is not finite: give a smaller learning rate")
        self.optimizer.param_groups[0]["lr"] = rate
        self.optimizer.step()
        if self.recipe.shrink:
            with torch.no_grad():
                for weight in chosen:
                    weight.copy_(functional.softshrink(weight, rate * self.recipe.sparsity))


def columns_of(translation: Translation) -> tuple[Tensor, Tensor, Tensor]:
    """The bigrams of inputs and of outputs, [b, j] each, and how many of its columns each string has."""
    index_bj, target_bj = (bigrams(strings, translation.chars) for strings in (translation.inputs, translation.outputs))
    return index_bj, target_bj, torch.from_numpy(translation.lengths // 2)


def accuracy(weights: Sequence[Tensor], codebook: Codebook, strings: Any, lengths: Any) -> float:
    """Share of characters that come out right with an empty context."""
    n = codebook.chars
    nothing = shown_sources(codebook.tables, np.zeros((1, codebook.depth, n**2), dtype=bool))
    index_bj, target_bj, columns_b = columns_of(translate_batch(codebook, strings, lengths))
    with torch.no_grad():
        output_bj = simulate(weights, nothing, index_bj, columns_b).argmax(-1)
    right_bj = (output_bj // n == target_bj // n).float() + (output_bj % n == target_bj % n).float()
    return float(right_bj[torch.arange(target_bj.shape[1]) < columns_b[:, None]].mean() / 2)


def train(codebook: Codebook, recipe: Recipe, advance: Advance = lambda *_, **__: None) -> TrainedWeights:
    """Run the experiment, with a measurement of recovery now and then."""
    recipe.check()
    depth, chars, batch = codebook.depth, codebook.chars, recipe.batch
    learner = Learner(depth, chars, recipe)
    lengths = (recipe.length, recipe.length)
    masks = generator(recipe.seed, "masked columns")
    curve: list[dict[str, Any]] = []
    every = max(1, recipe.steps // POINTS)
    hidden = np.zeros((depth, chars**2), dtype=bool)
    for step in range(recipe.steps):
        strings = random_inputs(chars, batch, lengths, recipe.seed, step * batch, stream="construct")
        level = int(masks.integers(depth))
        columns = masks.integers(chars**2, size=batch if recipe.each_string else 1)
        shown = np.ones((len(columns), depth, chars**2), dtype=bool)
        if recipe.masked:
            shown[np.arange(len(columns)), level, columns] = False
            hidden[level, columns] = True
        loss = learner.loss(translate_batch(codebook, *strings), shown_sources(codebook.tables, shown))
        levels = [level] if recipe.update == "layerwise" else range(depth)
        learner.step(loss, levels, rate_at(recipe, step, recipe.steps))
        if (step + 1) % every == 0 or step + 1 == recipe.steps:
            shares = held(learner.weights, codebook).mean(1).tolist()
            curve.append({"step": step + 1, "recovered_by_layer": shares, "loss": loss.item()})
            advance(0, note=f"{np.mean(shares):.0%} of the columns")
        advance(1)
    weights = [weight.detach() for weight in learner.weights]
    of_hidden = float(held(weights, codebook)[hidden].mean()) if hidden.any() else 0.0
    held_out = random_inputs(chars, EXAM, lengths, recipe.seed, 10**9, stream="construct")
    closed_book = accuracy(weights, codebook, *held_out)
    return TrainedWeights(recipe, depth, chars, weights, curve, float(hidden.mean()), of_hidden, closed_book)
