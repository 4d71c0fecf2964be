"""Algorithm 2: with one rule out of the context, try every image for it until the output is right.

shapes   h candidate image (n² of them) · c cell of the light cone of the dropped rule · j position · i layer
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from openbook.task import Codebook, translate_batch
from openbook.task.translate import Chars
from openbook.theory.surrogate.factored import Indices
from openbook.theory.surrogate.trajectory import Trajectory, check_coverable


def matches(rules_ik: Indices, bigram_ij: Indices, label_j: Indices, layer: int, column: int) -> np.ndarray:
    """Which of the n² candidate images for one rule give the right output, all other rules being right: [n²].

    All candidates run side by side, and only in the light cone: positions that look the rule up, and from there one
    more to the left with each layer. Everywhere else the output cannot change.
    """
    depth, size = rules_ik.shape
    chars, pairs = round(size**0.5), bigram_ij.shape[1]
    cells = np.flatnonzero(bigram_ij[layer] == column)
    image_hc = np.repeat(np.arange(size)[:, None], cells.size, axis=1)
    place_j = np.full(pairs, -1)  # of each position among the cells
    for i in range(layer + 1, depth):
        place_j[cells] = np.arange(cells.size)
        cells = np.union1d(cells, (cells - 1) % pairs)
        here_c, after_c, bigram_c = place_j[cells], place_j[(cells + 1) % pairs], bigram_ij[i, cells]
        second_hc = np.where(here_c >= 0, image_hc[:, here_c] % chars, bigram_c // chars)
        first_hc = np.where(after_c >= 0, image_hc[:, after_c] // chars, bigram_c % chars)
        image_hc = rules_ik[i][second_hc * chars + first_hc]
    return (image_hc == label_j[cells]).all(1)


def search(codebook: Codebook, string: Chars, advance: Callable[[], object] = lambda: None) -> Trajectory:
    """Recover the codebook from one coverable string, rule by rule; forward passes are counted as the paper does.

    Candidates are tried in order, so a rule whose image has index h costs h+1 passes: n⁴d bounds their sum.
    """
    check_coverable(codebook, string)
    run = translate_batch(codebook, np.asarray(string)[None])
    rules_ik = codebook.tables.astype(np.int64)
    bigram_ij = run.bigrams[0].astype(np.int64)
    label_j = np.take_along_axis(rules_ik, bigram_ij, axis=1)[-1]
    depth, size = rules_ik.shape
    result = Trajectory("search", depth, codebook.chars, len(string))
    chosen_ik = np.full((depth, size), -1)
    for layer in range(depth):
        for column in range(size):
            accepted = np.flatnonzero(matches(rules_ik, bigram_ij, label_j, layer, column))
            result.forward_passes += int(accepted[0]) + 1 if accepted.size else size
            chosen_ik[layer, column] = accepted[0] if accepted.size else size - 1
            result.steps += 1
            if (column + 1) % codebook.chars == 0:
                result.record(chosen_ik == rules_ik)
            advance()
    result.extra = {"bound": size**2 * depth, "share_of_bound": result.forward_passes / (size**2 * depth)}
    return result
