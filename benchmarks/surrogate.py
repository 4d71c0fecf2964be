"""Steps of gradient descent on the soft surrogate, against a dense implementation of the paper's formulas.

At the paper's size: MLT(10, 10), one string of 1000 bigrams. Both sides compute the gradient and update the weights,
over rules of every layer, in the middle of a run; before anything is timed their gradients must agree to 1e-5.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from _rows import Row, cpu_seconds, main
from openbook.task import Codebook, coverable_inputs, random_inputs
from openbook.theory.surrogate import dense
from openbook.theory.surrogate.cone import ConeDescent
from openbook.theory.surrogate.gradient import column_gradients, draw_mask
from openbook.theory.surrogate.learn import LearnerConfig, learn
from openbook.theory.surrogate.model import context, matricize, one_dropped
from openbook.theory.surrogate.soft import RATE, initial_weights, mask_at

DEPTH, CHARS, PAIRS = 10, 10, 1000
AGREE = 1e-5


class Dense:
    """The same training step by the chain rule on the dense formulas, in float32.

    Straightforward means that all parameters are differentiated and the update takes those it wants; the released
    code does so too (its two modes cost the same). With `lean` the layers that do not learn are left out.
    """

    def __init__(self, codebook: Codebook, string: np.ndarray, W_ixk: np.ndarray, label_j: np.ndarray) -> None:
        self.codebook = codebook
        self.W_ixk = W_ixk.astype(np.float32)
        self.C_ixk = context(codebook).astype(np.float32)
        self.V_xj = matricize(string, codebook.chars)[0].astype(np.float32)
        self.label_xj = np.eye(codebook.chars**2, dtype=np.float32)[:, label_j]

    def step(self, layer: int, column: int, full: bool, lean: bool = False) -> None:
        kept = self.C_ixk[layer, :, column].copy()
        self.C_ixk[layer, :, column] = 0
        layers = [layer] if lean else list(range(DEPTH))
        gW_ixk = dense.gradient(self.W_ixk, self.C_ixk, self.V_xj, self.label_xj, layers)[1]
        self.C_ixk[layer, :, column] = kept
        for i, gW_xk in zip(layers, gW_ixk, strict=True):
            if full or i == layer:
                self.W_ixk[i] = (self.W_ixk[i] - RATE * gW_xk).clip(0, 1)


def disagreement(cone: ConeDescent, string: np.ndarray, masks: list[tuple[int, int]]) -> float:
    """Largest difference between the gradients of steps and the dense ones, relative to the largest dense entry.

    The dense ones are in float64. The scale is that of all masks together: the gradient of a rule already learned is
    nothing but softmax tails, which the light cone leaves out.
    """
    codebook = cone.codebook
    size = codebook.chars**2
    V_xj = matricize(string, codebook.chars)[0]
    worst = largest = 0.0
    for layer, column in masks:
        cone.refresh(layer, np.array([column]), in_context=False)
        result = cone.gradient(range(codebook.depth)) or cone.exact_gradient(range(codebook.depth))
        cone.refresh(layer, np.array([column]))
        fast = np.zeros((codebook.depth, size, size))
        for i, columns, gW_xk in result[1]:
            fast[i][:, columns] = gW_xk
        C_ixk = context(codebook, one_dropped(codebook, layer, column))
        expected = dense.gradient(cone.W_ixk, C_ixk, V_xj, np.eye(size)[:, cone.label_j])[1]
        worst = max(worst, float(np.abs(fast - expected).max()))
        largest = max(largest, float(np.abs(expected).max()))
    return worst / largest


def step_row(name: str, full: bool, noise: float, goal: float | None) -> Row:
    codebook = Codebook.sample(DEPTH, CHARS, 0)
    string = coverable_inputs(codebook, 1, 2 * PAIRS, 0)[0]
    cone = ConeDescent(codebook, string, np.clip(initial_weights(codebook, noise, 0), 0, 1))
    size = CHARS**2
    masks = [(layer, column) for column in range(0, size, 5) for layer in range(DEPTH)]
    worst = disagreement(cone, string, masks[:DEPTH])
    for step in range(DEPTH * size):  # one sweep over all rules, so that the weights are those of a run under way
        cone.step(*mask_at(step, DEPTH, size), RATE, full)
    worst = max(worst, disagreement(cone, string, masks[:DEPTH]))
    if worst > AGREE:
        raise SystemExit(f"{name}: gradients differ from the dense ones by {worst:.2g} of the largest entry")
    baseline = Dense(codebook, string, cone.W_ixk, cone.label_j)
    ours = cpu_seconds(lambda: [cone.step(*mask, RATE, full) for mask in masks]) / len(masks)
    baseline_seconds = cpu_seconds(lambda: [baseline.step(*mask, full) for mask in masks[:DEPTH]]) / DEPTH
    extra: dict[str, object] = {"depth": DEPTH, "chars": CHARS, "pairs": PAIRS, "gradient_difference": worst}
    if not full:
        lean = cpu_seconds(lambda: [baseline.step(*mask, full, lean=True) for mask in masks[:DEPTH]]) / DEPTH
        extra |= {"lean_baseline": 1e3 * lean, "lean_ratio": lean / ours}
    return Row(name, 1e3 * ours, "ms/step", 1e3 * baseline_seconds, goal, "ratio", "less", extra)


def recovery_row() -> Row:
    """CPU seconds from zero weights to all 2000 rules of MLT(20, 10)."""
    codebook = Codebook.sample(20, CHARS, 0)
    runs = []
    seconds = cpu_seconds(lambda: runs.append(learn(LearnerConfig("full"), codebook)), at_least=0, repeats=1)
    if not runs[0].complete:
        raise SystemExit(f"MLT(20, 10) was not recovered: {runs[0].recovered:.2%} after {runs[0].steps} steps")
    return Row("MLT(20, 10) recovered", seconds, "s", None, 240, "value", "less", {"steps": runs[0].steps})


def accuracy_row() -> Row:
    """One string of the gradient accuracy figure: the gradient of all dropped columns of the first layer."""
    codebook = Codebook.sample(DEPTH, CHARS, 0)
    mask_ik = draw_mask(codebook, 0.3, 1, 0, 0)
    strings = random_inputs(CHARS, 4, (2 * PAIRS, 2 * PAIRS), 0)[0]
    ours = cpu_seconds(lambda: column_gradients(codebook, mask_ik, strings)) / len(strings)
    C_ixk = context(codebook, mask_ik).astype(np.float32)
    V_xj = matricize(strings[0], CHARS)[0].astype(np.float32)
    W_ixk = np.zeros_like(C_ixk)
    label_xj = np.eye(CHARS**2, dtype=np.float32)[:, ConeDescent(codebook, strings[0], W_ixk).label_j]
    baseline_seconds = cpu_seconds(lambda: dense.gradient(W_ixk, C_ixk, V_xj, label_xj, [0]))
    return Row("gradient accuracy, one string", 1e3 * ours, "ms", 1e3 * baseline_seconds, None, "ratio", "less")


def measure() -> Iterator[Row]:
    yield step_row("layer-wise step", False, 0.0, 25)
    yield step_row("full-parameter step", True, 0.0, 25)
    yield step_row("full-parameter step, noisy start", True, 1 / CHARS, None)
    yield accuracy_row()
    yield recovery_row()


if __name__ == "__main__":
    main("The surrogate's gradients (one thread)", measure)
