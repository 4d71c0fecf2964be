"""The same function as the transformer's, without the transformer: what training and long evaluations run.

Context tokens never change, so what the attention reads from them is known beforehand: C_i s is a gather of s along the
rules that are shown. What is left are the marginals of two columns, their product and one matrix product with W_i.
Products are exact here, where the transformer has √(π/2)N²[GELU..] and N sinh(·/N): the two agree to O(N⁻²), in
values and in gradients, and tests hold them to it.

Legend of shape suffixes: b string, j column (bigram), x bigram on the left of a rule, r bigram on its right, a, b, c
characters, d level.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from openbook.theory.construction.layers import normalised
from openbook.theory.construction.translate import FLOOR


def sources(image: NDArray[Any]) -> Tensor:
    """The rules shown to each string, read backwards: the left side x of the rule x -> r for each r, [b, d, n²].

    `image[b, i, x]` is r for a rule x -> r, and n² where no rule is shown, as in the result. Right sides must differ
    within a level, as they do in a phrasebook and in parts of it. b is 1 where every string sees the same rules.
    """
    batch, depth, size = image.shape
    source = np.full((batch, depth, size + 1), size, dtype=np.int64)
    np.put_along_axis(source, image.astype(np.int64), np.broadcast_to(np.arange(size), image.shape), axis=-1)
    return torch.from_numpy(source[..., :size].copy())


def shown_sources(tables: NDArray[Any], open_bdx: NDArray[np.bool_]) -> Tensor:
    """`sources` of the rules of one codebook (tables [d, n²]) that are marked open for each string."""
    return sources(np.where(open_bdx, tables, tables.shape[-1]))


def looked_up(s_bjx: Tensor, source_br: Tensor) -> Tensor:
    """C_i s without the matrix: row r of the result is s at the left side of the rule with right side r, or 0."""
    padded = functional.pad(s_bjx, (0, 1))
    if len(source_br) == 1:
        return padded.index_select(-1, source_br[0])
    return padded.gather(-1, source_br[:, None].expand(-1, s_bjx.shape[1], -1))


def shift(V_bjx: Tensor, chars: int, columns_b: Tensor | None = None) -> Tensor:
    """Shift(V)[b, c, j] = (Σ_a V[a, b, j]) (Σ_d V[c, d, j+1]), each string wrapping at its own number of columns."""
    V_bjcc = V_bjx.unflatten(-1, (chars, chars))
    tail_bjc, lead_bjc = V_bjcc.sum(-2), V_bjcc.sum(-1)
    following = lead_bjc.roll(-1, 1)
    if columns_b is not None:
        last_bj = torch.arange(V_bjx.shape[1]) == columns_b[:, None] - 1
        following = torch.where(last_bj[..., None], lead_bjc[:, :1], following)
    return (tail_bjc[..., :, None] * following[..., None, :]).flatten(-2)


def simulate(
    weights: Sequence[Tensor], source_bdr: Tensor, index_bj: Tensor, columns_b: Tensor | None = None
) -> Tensor:
    """V_{d+1} as rows, [b, j, n²], of strings given as bigram indices; `weights` are W_1 .. W_d.

    Columns at or past a string's own number of columns are padding, before and after.
    """
    size = weights[0].shape[0]
    chars = round(size**0.5)
    V_bjx = functional.one_hot(index_bj, size).to(weights[0].dtype)
    for level, W in enumerate(weights):
        s_bjx = shift(V_bjx, chars, columns_b)
        shown_bjr = looked_up(s_bjx, source_bdr[:, level])
        V_bjx = normalised(functional.gelu(shown_bjr + s_bjx @ W.mT), FLOOR)
    return V_bjx


def bigrams(strings: NDArray[Any], chars: int) -> Tensor:
    """Strings as bigram indices: [b, L/2]."""
    return torch.from_numpy(strings[:, 0::2].astype(np.int64) * chars + strings[:, 1::2])
