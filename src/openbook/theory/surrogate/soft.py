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


def initial_weights(codebook: Codebook, noise: float, seed: int) -> Floats:
    """W_i ~ N(0, noise²) entry by entry; noise 0 is the paper's zero initialisation, 1/n the released code's."""
    if not (noise >= 0 and isfinite(noise)):
        raise InputError(f"the noise is {noise}: give a standard deviation of 0 or more")
    shape = (codebook.depth, codebook.chars**2, codebook.chars**2)
    return noise * generator(seed, "surrogate weights").standard_normal(shape)


def mask_at(step: int, depth: int, size: int) -> tuple[int, int]:
    """The layer and rule out of the context at a step (from 0): rule by rule, then layer by layer, round and round."""
    return step // size % depth, step % size


def soft_descent(
    codebook: Codebook,
    string: Chars,
    W_ixk: Floats,
    steps: int,
    algorithm: str,
    seed: int = 0,
    rate: float = RATE,
    advance: Callable[..., object] = lambda *_: None,
) -> tuple[Trajectory, Floats]:
    """Descent until every rule is held, or for `steps` steps; the trajectory and the weights.

    One rule is dropped at each step, also from a wrong context; without context there is none to drop. Weights of a
    control should not all be equal: at W = 0 and C = 0 every gradient but the last layer's vanishes.
    """
    if steps < 1:
        raise InputError(f"the budget is {steps} steps: give 1 or more")
    if not (rate > 0 and isfinite(rate)):
        raise InputError(f"the learning rate is {rate}: give a positive number")
    check_shape("the array of weights", W_ixk.shape, codebook.matrices().shape)
    depth, size = codebook.tables.shape
    W_ixk = np.clip(W_ixk, 0, 1)  # what the first update's clipping would do
    cone: ConeDescent | None = None
    if algorithm not in CONTROLS:
        check_coverable(codebook, string)
        cone = ConeDescent(codebook, string, W_ixk)
    translation = translate_batch(codebook, np.asarray(string)[None])
    other = Codebook.sample(depth, codebook.chars, seed, index=2**40)  # no run learns a codebook of this index
    result = Trajectory(algorithm, depth, codebook.chars, len(string))
    result.record(recovered(W_ixk, codebook))
    for step in range(steps):
        mask = mask_at(step, depth, size)
        if cone is not None:
            cone.step(*mask, rate, algorithm == "full")
            W_ixk = cone.W_ixk
        else:
            C_ixk = context(other, one_dropped(other, *mask)) if algorithm == "wrong" else np.zeros_like(W_ixk)
            W_ixk = clipped_step(W_ixk[:, None], C_ixk[:, None], translation, rate)[:, 0]
        result.steps = result.forward_passes = step + 1
        known = cone is not None and bool(cone.held_ik.all())
        if known or result.steps % codebook.chars == 0 or result.steps == steps:
            result.record(recovered(W_ixk, codebook) if cone is None else cone.held_ik)
        advance(1)
        if result.complete:
            break
    result.extra = {"stopped": "recovered" if result.complete else "budget"}
    result.extra |= {"chance": 1 / size} if cone is None else {"exact_steps": cone.exact_steps}
    return result, W_ixk
