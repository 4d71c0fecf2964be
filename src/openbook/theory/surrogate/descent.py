"""Algorithm 3: surrogate gradient descent for two layers, and the closed form of its gradient (the key lemma).

The hard model has no gradient in W, so the one in the effective matrix P is used instead: with squared error
‖V_3 - V*_3‖², W_1^(k) -= dL/dP_1^(k) twice for each rule k of the first layer, then W_2^(k) -= dL/dP_2^(k) once.

    shapes   i layer · x image (row) · k left side (column) · j position of a bigram · a character
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from openbook.base.errors import InputError
from openbook.task import Codebook, translate_batch
from openbook.task.translate import Chars
from openbook.theory.surrogate.factored import Indices
from openbook.theory.surrogate.model import Floats, check_shape, recovered
from openbook.theory.surrogate.trajectory import Trajectory, check_coverable

CASES = ("a = a*, b ≠ b*", "a ≠ a*, b = b*", "a ≠ a*, b ≠ b*")


@dataclass(frozen=True)
class TwoLayers:
    """What the algorithm sees of one string: rules looked up in either layer and the label."""

    rules_ik: Indices
    first_j: Indices  # rules of layer 1 that the string looks up
    label_j: Indices

    @classmethod
    def of(cls, codebook: Codebook, string: Chars) -> TwoLayers:
        run = translate_batch(codebook, np.asarray(string)[None])
        rules_ik = codebook.tables.astype(np.int64)
        bigram_ij = run.bigrams[0].astype(np.int64)
        return cls(rules_ik, bigram_ij[0], rules_ik[1][bigram_ij[1]])

    @property
    def chars(self) -> int:
        return round(self.rules_ik.shape[1] ** 0.5)

    def forward(self, layer: int, column: int, image: int) -> tuple[Indices, Indices]:
        """Bigrams looked up by layer 2, and the output, with one rule of one layer replaced by `image`."""
        tables = self.rules_ik.copy()
        tables[layer, column] = image
        second_j = tables[0][self.first_j]
        shifted_j = second_j % self.chars * self.chars + np.roll(second_j, -1) // self.chars
        return shifted_j, tables[1][shifted_j]

    def gradient(self, layer: int, column: int, image: int) -> Floats:
        """dL/dP_layer^(column) of ‖V_3 - V*_3‖² by the chain rule, where P^(column) is the one-hot `image`: [n²]."""
        chars, size = self.chars, self.chars**2
        shifted_j, output_j = self.forward(layer, column, image)
        if layer == 1:
            used = shifted_j == column
            return 2.0 * (np.bincount(output_j[used], minlength=size) - np.bincount(self.label_j[used], minlength=size))
        here = np.flatnonzero(self.first_j == column)  # its second characters are read here, its first ones just before
        due_j = np.argsort(self.rules_ik[1])[self.label_j]  # what P_2 would have to look up

        def error(places: Indices) -> Floats:
            """dL/dShift(V_2), as second character of a bigram by first character of the next: [places, n, n]."""
            one_hot = np.eye(size).reshape(size, chars, chars)
            return 2 * (one_hot[shifted_j[places]] - one_hot[due_j[places]])

        second_a = np.take_along_axis(error(here), (shifted_j[here] % chars)[:, None, None], axis=2).sum((0, 2))
        first_a = np.take_along_axis(error(here - 1), (shifted_j[here - 1] // chars)[:, None, None], axis=1).sum((0, 1))
        return (first_a[:, None] + second_a[None, :]).reshape(-1)

    def counts(self, column: int) -> tuple[int, int]:
        """α: places where rule `column` of layer 1 is followed by another; β: where it is followed by itself."""
        here_j = self.first_j == column
        follows_j = np.roll(here_j, -1)
        return int((here_j & ~follows_j).sum()), int((here_j & follows_j).sum())


def closed_form(chars: int, image: int, target: int, alpha: int, beta: int) -> Floats:
    """The lemma's gradient dL/dP_1^(k) for P_1^(k) = (a, b) instead of (a*, b*): [n²].

    Its three cases are one formula, where [ ] is 1 if the equation holds and 0 otherwise:

        2 (α + β) (e_a ⊗ 1 + 1 ⊗ e_b) - 2 (α + β [b = b*]) e_a* ⊗ 1 - 2 (α + β [a = a*]) 1 ⊗ e_b*
    """
    (a, b), (a_true, b_true) = divmod(image, chars), divmod(target, chars)
    first_a, second_a = np.zeros((2, chars))  # coefficients of e_a ⊗ 1 and of 1 ⊗ e_a
    first_a[a] = second_a[b] = 2.0 * (alpha + beta)
    first_a[a_true] -= 2.0 * (alpha + beta * (b == b_true))
    second_a[b_true] -= 2.0 * (alpha + beta * (a == a_true))
    return (first_a[:, None] + second_a[None, :]).reshape(-1)


def case_of(chars: int, image: int, target: int) -> str | None:
    """Which of the lemma's three cases this is; None when the rule is already right."""
    same = image // chars == target // chars, image % chars == target % chars
    return {(True, False): CASES[0], (False, True): CASES[1], (False, False): CASES[2]}.get(same)


def descend(
    codebook: Codebook, string: Chars, W_ixk: Floats, advance: Callable[[], object] = lambda: None
) -> tuple[Trajectory, Floats]:
    """Run Algorithm 3 from any weights with entries within 1/2; returns the trajectory and the final weights.

    Each first-layer gradient is compared with the lemma's closed form; the largest difference and how often each
    case came up are in `extra["lemma"]`.
    """
    if codebook.depth != 2:
        raise InputError(
            f"surrogate gradient descent is defined for depth 2, not {codebook.depth}: use layerwise or full"
        )
    check_coverable(codebook, string)
    check_shape("the array of weights", W_ixk.shape, codebook.matrices().shape)
    if np.abs(W_ixk).max() > 0.5:
        raise InputError(f"an initial weight is {np.abs(W_ixk).max():.3g}: give weights within 1/2")
    W_ixk = W_ixk.copy()
    view = TwoLayers.of(codebook, string)
    size = codebook.chars**2
    result = Trajectory("descent", 2, codebook.chars, len(string))
    lemma = {"largest_difference": 0.0, **dict.fromkeys(CASES, 0)}
    for layer, updates in ((0, 2), (1, 1)):
        for column in range(size):
            target = int(view.rules_ik[layer, column])
            for _ in range(updates):
                image = int(W_ixk[layer, :, column].argmax())  # the dropped column is the weights' alone
                gradient_x = view.gradient(layer, column, image)
                if layer == 0 and (case := case_of(codebook.chars, image, target)):
                    expected_x = closed_form(codebook.chars, image, target, *view.counts(column))
                    gap = float(np.abs(gradient_x - expected_x).max())
                    lemma["largest_difference"] = max(lemma["largest_difference"], gap)
                    lemma[case] += 1
                W_ixk[layer, :, column] -= gradient_x
                result.steps += 1
                result.forward_passes += 1
            if (column + 1) % codebook.chars == 0:
                result.record(recovered(W_ixk, codebook))
            advance()
    result.extra = {"lemma": lemma}
    return result, W_ixk
