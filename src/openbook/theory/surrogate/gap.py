"""The exponential gap, measured: characters of input needed to learn a codebook, with and without context.

    enhanced    Algorithm 5 on one coverable string of 10n² bigrams, one rule at a time out of the context
    search      Algorithm 2 on a coverable string of 2n² log(nd/δ) bigrams
    vanilla     the same soft model, loss and clipping with nothing in context, on fresh strings at every step

Characters are the paper's sample complexity: the total length of all inputs processed. A vanilla learner is done when
its hard form translates an unseen string without a mistake, even if by weights other than the codebook's (renaming
the characters between two layers gives such weights); `enhanced` and `search` must recover every rule, which implies
that. Vanilla descent is tuned: of several learning rates the one with the lowest median counts, at each size. Runs
that the budget ends are censored: they enter medians and fits as "more than the budget", never as the budget.

    shapes   s run (a codebook at a learning rate) · i layer · x image (row) · k left side (column)
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from openbook.base.errors import InputError
from openbook.base.randomness import generator
from openbook.task import Codebook, random_inputs, translate_batch
from openbook.task.alphabet import check_size
from openbook.task.phrasebook import Table, sample_tables
from openbook.theory.surrogate.censored import growth, is_identified, median_interval
from openbook.theory.surrogate.factored import clipped_step
from openbook.theory.surrogate.learn import SWEEPS, LearnerConfig, learn
from openbook.theory.surrogate.model import Floats

VANILLA_PAIRS = 16  # bigrams of the fresh string of each step: short strings serve vanilla descent best
VANILLA_RATES = (0.01, 0.03, 0.1, 0.3, 1.0)
VANILLA_NOISE = 0.1
EXAM = 400  # characters of the unseen string
TICK = 1.05  # exams are held when the characters seen have grown by this factor


@dataclass(frozen=True)
class GapGrid:
    """What to measure: each alphabet size with every depth up to `depth` (and up to twice that with context)."""

    chars: Sequence[int] = (2, 3, 4)
    depth: int = 5
    seeds: int = 10
    budget: int = 200_000  # characters for each vanilla run
    seed: int = 0

    def check(self) -> None:
        if not self.chars:
            raise InputError("no alphabet size is given: give at least one")
        for chars in self.chars:
            check_size(self.depth, chars)
        if len(set(self.chars)) < len(self.chars):
            raise InputError(f"an alphabet size occurs twice in {list(self.chars)}: name each once")
        if self.seeds < 6:
            raise InputError(f"{self.seeds} seeds are too few for a 95 % interval of a median: use 6 or more")
        if self.budget < 100 * VANILLA_PAIRS:
            raise InputError(f"a budget of {self.budget} characters is too small: use {100 * VANILLA_PAIRS} or more")

    def total(self) -> int:
        """How often `measure` advances: for two arms to twice the depth, for one to the depth."""
        return len(self.chars) * 5 * self.depth


def exam(W_isxk: Floats, tables_sik: Table, strings: NDArray[np.uint8], chars: int) -> NDArray[np.bool_]:
    """Which runs translate their unseen string without a mistake, by their hard form and nothing in context: [s]."""
    learned_sik = W_isxk.argmax(2).swapaxes(0, 1).astype(np.uint16)
    outputs = [translate_batch(tables, strings, chars=chars).outputs for tables in (learned_sik, tables_sik)]
    return (outputs[0] == outputs[1]).all(1)


def vanilla(
    depth: int, chars: int, seeds: int, budget: int, seed: int, rates: Sequence[float] = VANILLA_RATES
) -> NDArray[np.float64]:
    """Characters until each run passes its exam, [rate, codebook]; infinite where the budget ended it.

    All runs go side by side; a run that has passed leaves.
    """
    size, length = chars**2, 2 * VANILLA_PAIRS
    codebook_s = np.tile(np.arange(seeds), len(rates))
    rate_s = np.repeat(np.asarray(rates), seeds)[:, None, None]
    tables_sik = sample_tables(depth, chars, seed, 0, seeds)[codebook_s]
    noise = generator(seed, f"gap weights {depth} {chars}").standard_normal((depth, seeds, size, size))
    W_isxk = np.clip(VANILLA_NOISE * noise, 0, 1)[:, codebook_s]
    needed_s = np.full(rate_s.size, np.inf)
    live_s = np.arange(rate_s.size)
    due = length
    for step in range(budget // length):
        fresh = random_inputs(chars, seeds, (length, length), seed, step * seeds, f"gap {depth}")[0]
        translation = translate_batch(tables_sik[live_s], fresh[codebook_s[live_s]], chars=chars)
        W_isxk = clipped_step(W_isxk, 0.0, translation, rate_s[live_s])
        seen = (step + 1) * length
        if seen >= due:
            due = max(seen + length, int(seen * TICK))
            unseen = random_inputs(chars, seeds, (EXAM, EXAM), seed, step * seeds, f"gap exam {depth}")[0]
            passed_s = exam(W_isxk, tables_sik[live_s], unseen[codebook_s[live_s]], chars)
            needed_s[live_s[passed_s]] = seen
            live_s, W_isxk = live_s[~passed_s], W_isxk[:, ~passed_s]
            if live_s.size == 0:
                break
    return needed_s.reshape(len(rates), seeds)


def with_context(arm: str, depth: int, chars: int, seeds: int, seed: int) -> NDArray[np.float64]:
    """Characters until a context-enhanced learner has recovered each codebook: [codebook]."""
    needed = []
    for index in range(seeds):
        config = LearnerConfig("full" if arm == "enhanced" else "search", seed=seed + index)
        result = learn(config, Codebook.sample(depth, chars, seed, index))
        needed.append(result.characters if result.complete else np.inf)
    return np.array(needed)


def _row(arm: str, depth: int, chars: int, needed: NDArray[np.float64], limit: float, **extra: Any) -> dict[str, Any]:
    median = dict(zip(("median", "low", "high"), median_interval(needed), strict=True))
    ended = {"recovered": int(np.isfinite(needed).sum()), "runs": needed.size, "censored_at": limit}
    return {"arm": arm, "chars": chars, "depth": depth, **median, **ended, "characters": needed.tolist(), **extra}


def measure(grid: GapGrid, advance: Callable[..., object] = lambda *_: None) -> list[dict[str, Any]]:
    """A row for each arm, alphabet size and depth. Vanilla stops at the first depth where no run succeeds."""
    grid.check()
    rows = []
    for chars in grid.chars:
        hopeless = False
        for depth in range(1, 2 * grid.depth + 1):
            for arm in ("enhanced", "search"):
                needed = with_context(arm, depth, chars, grid.seeds, grid.seed)
                limit = SWEEPS * depth * chars**2 * 20 * chars**2 if arm == "enhanced" else np.inf
                rows.append(_row(arm, depth, chars, needed, float(limit)))
                advance(1, f"n = {chars}, d = {depth}: {arm}")
            if depth > grid.depth:
                continue
            if not hopeless:
                by_rate = vanilla(depth, chars, grid.seeds, grid.budget, grid.seed)
                best = min(range(len(by_rate)), key=lambda r: (np.median(by_rate[r]), -np.isfinite(by_rate[r]).sum()))
                rows.append(_row("vanilla", depth, chars, by_rate[best], grid.budget, rate=VANILLA_RATES[best]))
                hopeless = rows[-1]["recovered"] == 0
            advance(1, f"n = {chars}, d = {depth}: vanilla")
    return rows


def fits(rows: list[dict[str, Any]], shallowest: int = 2) -> list[dict[str, Any]]:
    """Growth of the characters needed from one level to the next, for each arm and alphabet size, with intervals.

    log characters = a + b·depth + noise from depth 2 on (one level composes nothing), censored runs included; e^b is
    the growth per level and b / log n the constant c of n^(c·d). For the arms with context the power p of d in
    characters ∝ d^p is fitted as well. Where runs ended at one depth only there is nothing to fit.
    """
    fitted = []
    for chars, arm in itertools.product(sorted({row["chars"] for row in rows}), ("vanilla", "enhanced", "search")):
        points = [row for row in rows if (row["chars"], row["arm"]) == (chars, arm) and row["depth"] >= shallowest]
        runs = [row["runs"] for row in points]
        depth, limit = (np.repeat([row[key] for row in points], runs) for key in ("depth", "censored_at"))
        needed = np.array([value for row in points for value in row["characters"]])
        if len(points) < 2 or not is_identified(depth, needed):
            continue
        slopes, powers = growth(depth, needed, limit), growth(np.log(depth), needed, limit)
        fit: dict[str, Any] = {"arm": arm, "chars": chars, "depths": [int(depth.min()), int(depth.max())]}
        fit |= dict(zip(("growth", "low", "high"), np.exp(slopes).tolist(), strict=True))
        fit |= dict(zip(("power_of_d", "power_low", "power_high"), powers, strict=True))
        fitted.append({**fit, "exponent_of_n": float(slopes[0] / np.log(chars))})
    return fitted
