"""Gradient descent on the soft surrogate: Algorithms 4 (layer-wise) and 5 (full-parameter), and their controls.

One string is used for all steps. Step t drops rule t mod n² of layer ⌊t / n²⌋ mod d from the context and descends,

    W <- clip(W - η dL/dW, 0, 1),      L the mean cross-entropy of the output,  η = 100,

in that layer alone (layer-wise) or in all layers (full). The controls descend in all layers on the same string and
the same loss, but with nothing in context (vanilla) or with the phrasebooks of another codebook there (wrong).
"""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite

import numpy as np

from openbook.base.errors import InputError
from openbook.base.randomness import generator
from openbook.task import Codebook, translate_batch
from openbook.task.translate import Chars
from openbook.theory.surrogate.cone import ConeDescent
from openbook.theory.surrogate.factored import clipped_step
from openbook.theory.surrogate.model import Floats, check_shape, context, one_dropped, recovered
from openbook.theory.surrogate.trajectory import Trajectory, check_coverable

RATE = 100.0  # η of the appendix on empirical evidence
CONTROLS = ("vanilla", "wrong")

Advance = Callable[..., object]


def initial_weights(codebook: Codebook, noise: float, seed: int) -> Floats:
    """W_i ~ N(0, noise²) entry by entry; noise 0 is the paper's zero initialisation, 1/n the released code's."""
    if not (noise >= 0 and isfinite(noise)):
        raise InputError(f"the noise is {noise}: give a standard deviation of 0 or more")
    shape = (codebook.depth, codebook.chars**2, codebook.chars**2)
    return noise * generator(seed, "surrogate weights").standard_normal(shape)


def check_budget(steps: int, rate: float) -> None:
    if steps < 1:
        raise InputError(f"the budget is {steps} steps: give 1 or more")
    if not (rate > 0 and isfinite(rate)):
        raise InputError(f"the learning rate is {rate}: give a positive number")


def mask_at(step: int, depth: int, size: int) -> tuple[int, int]:
    """The layer and rule out of the context at a step (from 0): rule by rule, then layer by layer, round and round."""
    return step // size % depth, step % size


def enhanced(
    codebook: Codebook,
    string: Chars,
    W_ixk: Floats,
    steps: int,
    full: bool,
    rate: float = RATE,
    advance: Advance = lambda *_: None,
) -> tuple[Trajectory, Floats]:
    """Context-enhanced descent until every rule is held, or for `steps` steps; the trajectory and the weights."""
    check_budget(steps, rate)
    check_shape("the array of weights", W_ixk.shape, codebook.matrices().shape)
    check_coverable(codebook, string)
    cone = ConeDescent(codebook, string, np.clip(W_ixk, 0, 1))  # what the first update's clipping would do
    depth, size = codebook.tables.shape
    result = Trajectory("full" if full else "layerwise", depth, codebook.chars, len(string))
    result.record(cone.held_ik)
    for step in range(steps):
        cone.step(*mask_at(step, depth, size), rate, full)
        done = bool(cone.held_ik.all())
        if _is_recorded(result, step, steps) or done:
            result.record(cone.held_ik)
        advance(1)
        if done:
            break
    result.extra = {"exact_steps": cone.exact_steps, "stopped": "recovered" if result.complete else "budget"}
    return result, cone.W_ixk


def control(
    codebook: Codebook,
    string: Chars,
    W_ixk: Floats,
    steps: int,
    kind: str,
    seed: int = 0,
    rate: float = RATE,
    advance: Advance = lambda *_: None,
) -> tuple[Trajectory, Floats]:
    """The same descent in all layers without the right context: `vanilla` (none) or `wrong` (another codebook's).

    With wrong context one rule is dropped at each step, as in `enhanced`; without context there is none to drop.
    Starting weights should not all be equal: at W = 0 and C = 0 every gradient but the last layer's vanishes.
    """
    if kind not in CONTROLS:
        raise InputError(f"there is no control '{kind}': use {' or '.join(CONTROLS)}")
    check_budget(steps, rate)
    check_shape("the array of weights", W_ixk.shape, codebook.matrices().shape)
    depth, size = codebook.tables.shape
    other = Codebook.sample(depth, codebook.chars, seed, index=2**40)  # no run learns a codebook of this index
    translation = translate_batch(codebook, np.asarray(string)[None])
    W_isxk = np.clip(W_ixk, 0, 1)[:, None]
    C_isxk: Floats | float = 0.0
    result = Trajectory(kind, depth, codebook.chars, len(string))
    result.record(recovered(W_isxk[:, 0], codebook))
    for step in range(steps):
        if kind == "wrong":
            C_isxk = context(other, one_dropped(other, *mask_at(step, depth, size)))[:, None]
        W_isxk = clipped_step(W_isxk, C_isxk, translation, rate)
        if _is_recorded(result, step, steps):
            result.record(recovered(W_isxk[:, 0], codebook))
        advance(1)
        if result.complete:
            break
    result.extra = {"stopped": "recovered" if result.complete else "budget", "chance": 1 / size}
    return result, W_isxk[:, 0]


def _is_recorded(result: Trajectory, step: int, steps: int) -> bool:
    """Count a step; whether the curve gets a point after it: every n steps and at the end of the budget."""
    result.steps = result.forward_passes = step + 1
    return result.steps % result.chars == 0 or result.steps == steps
