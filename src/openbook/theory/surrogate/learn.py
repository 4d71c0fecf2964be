"""One entry to all learners of the surrogate: choose an input, initial weights and a budget, and run.

search      Algorithm 2   try all images of the dropped rule
descent     Algorithm 3   surrogate gradients, depth 2
layerwise   Algorithm 4   soft model, the layer with the dropped rule learns
full        Algorithm 5   soft model, all layers learn
vanilla     control       soft model, all layers learn, nothing in context
wrong       control       soft model, all layers learn, the context is another codebook's
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, log
from typing import Literal

from openbook.base.errors import InputError
from openbook.base.randomness import generator
from openbook.task import Codebook, coverable_inputs, random_inputs
from openbook.task.translate import Chars
from openbook.theory.surrogate.descent import descend
from openbook.theory.surrogate.model import Floats
from openbook.theory.surrogate.search import search
from openbook.theory.surrogate.soft import CONTROLS, RATE, initial_weights, soft_descent
from openbook.theory.surrogate.trajectory import Trajectory

Algorithm = Literal["search", "descent", "layerwise", "full", "vanilla", "wrong"]
InputKind = Literal["coverable", "random"]
SWEEPS = 20  # default budget: every rule is dropped this often (the paper's runs: 10)


def default_pairs(algorithm: Algorithm, depth: int, chars: int, delta: float) -> int:
    """Bigrams of the input: 2n² log(nd/δ) where the paper proves that this suffices, else its 10n² (1000 at n = 10)."""
    if algorithm in ("search", "descent"):
        return ceil(2 * chars**2 * log(chars * depth / delta))
    return 10 * chars**2


@dataclass(frozen=True)
class LearnerConfig:
    """Everything that determines a run of a learner. None stands for the default of the algorithm."""

    algorithm: Algorithm
    input: InputKind = "coverable"
    pairs: int | None = None  # bigrams of the input
    delta: float = 0.05  # accepted chance that a random input is not coverable
    steps: int | None = None  # maximum number
    rate: float = RATE
    noise: float | None = None  # standard deviation of the initial weights
    seed: int = 0

    def check(self) -> None:
        if not 0 < self.delta < 1:
            raise InputError(f"delta is {self.delta}: give a probability between 0 and 1")
        if self.pairs is not None and self.pairs < 1:
            raise InputError(f"an input of {self.pairs} bigrams is empty: give 1 or more")

    def budget(self, codebook: Codebook) -> int:
        """Maximum number of steps; search and descent take a fixed number."""
        size = codebook.chars**2
        if self.algorithm == "search":
            return codebook.depth * size
        if self.algorithm == "descent":
            return 2 * size
        return SWEEPS * codebook.depth * size if self.steps is None else self.steps

    def string(self, codebook: Codebook) -> Chars:
        """The one input string of the run."""
        pairs = self.pairs or default_pairs(self.algorithm, codebook.depth, codebook.chars, self.delta)
        if self.input == "random":
            return random_inputs(codebook.chars, 1, (2 * pairs, 2 * pairs), self.seed, stream="surrogate")[0][0]
        return coverable_inputs(codebook, 1, 2 * pairs, self.seed)[0]


def learn(config: LearnerConfig, codebook: Codebook, advance: Callable[..., object] = lambda *_: None) -> Trajectory:
    """Run one learner on one codebook."""
    config.check()
    string = config.string(codebook)
    if config.algorithm == "search":
        return search(codebook, string, advance)
    if config.algorithm == "descent":
        shape = (codebook.depth, codebook.chars**2, codebook.chars**2)
        W_ixk: Floats = generator(config.seed, "surrogate weights").uniform(-0.5, 0.5, shape)
        return descend(codebook, string, W_ixk, advance)[0]
    noise = (1 / codebook.chars if config.algorithm in CONTROLS else 0.0) if config.noise is None else config.noise
    W_ixk = initial_weights(codebook, noise, config.seed)
    steps = config.budget(codebook)
    return soft_descent(codebook, string, W_ixk, steps, config.algorithm, config.seed, config.rate, advance)[0]
