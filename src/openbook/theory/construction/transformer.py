"""The transformer written by hand: a causal `nn.Module` that simulates the surrogate (`lem:construction`).

    embed            context tokens [e_x; C_i e_x], then the columns of V_1, then d paddings
    for each level   shift      attention (3 heads), MLP (3n² units)        left = Shift(V_i), one position on
                     translate  attention (2 heads), MLP (n² units, W_i)    left = V_{i+1}
    read             `left` of the last L/2 positions

Legend of shape suffixes: b string, j column (bigram) of a string, x bigram, d level, c context token, q position of the
second segment, k axis of the stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.nn import functional

from openbook.base.errors import InputError
from openbook.task.alphabet import check_size
from openbook.task.translate import check_batch
from openbook.theory.construction import shift, translate
from openbook.theory.construction.basis import Basis
from openbook.theory.construction.fast import bigrams
from openbook.theory.construction.layers import Gated, Memory, RelativeAttention, StoringMlp
from openbook.theory.construction.stream import Stream
from openbook.theory.surrogate.model import unmatricize

SCALE = 100.0  # N of both products: in float32 a larger one loses to rounding what it gains (`construct verify`)
LARGEST = 2 << 30  # bytes of dense weights that we are willing to build


class TranslationLevel(nn.Module):
    """One step V_i -> V_{i+1}: four gated layers."""

    def __init__(self, stream: Stream, level: int, scale: float) -> None:
        super().__init__()

        def gated(layer: nn.Module, basis: Basis, replaces: Sequence[str]) -> Gated:
            return Gated(layer, basis.projection(*replaces), basis.axis("context"))

        basis, halfway = stream.basis, stream.halfway
        shift_attention = RelativeAttention(shift.heads(stream, level))
        translate_attention = RelativeAttention(translate.heads(stream, level, scale))
        self.shift_attention = gated(shift_attention, halfway, shift.ATTENTION_REPLACES)
        self.shift_mlp = gated(shift.product_mlp(stream, scale), basis, shift.MLP_REPLACES)
        self.translate_attention = gated(translate_attention, basis, translate.ATTENTION_REPLACES)
        self.translate_mlp = gated(translate.storing_mlp(stream), basis, translate.MLP_REPLACES)

    def shifted(self, x_bqk: Tensor, memory: Memory | None = None) -> Tensor:
        return self.shift_mlp(self.shift_attention(x_bqk, memory))

    def forward(self, x_bqk: Tensor, at_shift: Memory | None = None, at_translate: Memory | None = None) -> Tensor:
        return self.translate_mlp(self.translate_attention(self.shifted(x_bqk, at_shift), at_translate))


class ConstructedTransformer(nn.Module):
    """The construction for MLT(depth, chars). Its parameters are W_1 .. W_d, zero at first, and nothing else."""

    def __init__(self, depth: int, chars: int, scale: float = SCALE) -> None:
        super().__init__()
        _check_buildable(depth, chars, scale)
        self.depth, self.chars, self.scale = depth, chars, scale
        self.stream = Stream(depth, chars)
        self.basis = self.stream.basis
        self.levels = nn.ModuleList(TranslationLevel(self.stream, level, scale) for level in range(depth))

    @property
    def stored(self) -> list[nn.Parameter]:
        """W_1 .. W_d, each [n², n²]."""
        return [module.weight for module in self.modules() if isinstance(module, StoringMlp)]

    def store(self, weights: Any) -> None:
        """Set W_1 .. W_d from an array [d, n², n²]."""
        size = self.chars**2
        tensor = torch.as_tensor(weights, dtype=torch.float32)
        if tuple(tensor.shape) != (self.depth, size, size):
            raise InputError(
                f"weights of shape {list(tensor.shape)} cannot be stored: give [{self.depth}, {size}, {size}]"
            )
        with torch.no_grad():
            for parameter, value in zip(self.stored, tensor, strict=True):
                parameter.copy_(value)

    def embed_context(self, context: Any) -> Tensor:
        """The first segment: [n²·d, k], level by level."""
        context_dxx, size = self._checked_context(context), self.chars**2
        tokens = context_dxx.new_zeros(self.depth, size, len(self.basis))
        tokens[:, :, self.basis.axes("left")] = torch.eye(size)
        tokens[:, :, self.basis.axes("right")] = context_dxx.mT
        tokens[:, :, self.basis.axes("level")] = torch.eye(self.depth)[:, None]
        tokens[:, :, self.basis.axis("context")] = 1
        return tokens.reshape(self.depth * size, -1)

    def _checked_context(self, context: Any) -> Tensor:
        """A context as a float tensor [d, n², n²], or a complaint that names the level and the column."""
        tensor = torch.as_tensor(context).detach().to(self.stored[0])
        size = self.chars**2
        if tuple(tensor.shape) != (self.depth, size, size):
            raise InputError(
                f"a context for MLT({self.depth}, {self.chars}) is [{self.depth}, {size}, {size}], not "
                f"{list(tensor.shape)}: build the transformer for the depth and number of characters of the codebook"
            )
        bad = ((tensor != 0) & (tensor != 1)).any(1) | (tensor.sum(1) > 1)
        if bad.any():
            level, column = (int(i) for i in bad.nonzero()[0])
            raise InputError(
                f"context of level {level + 1}, column {column}: it sums to {float(tensor[level, :, column].sum()):g}, "
                "but a column must be one-hot (a rule) or zero (no rule)"
            )
        return tensor

    def embed_strings(self, strings: ArrayLike, lengths: ArrayLike | None = None) -> Tensor:
        """The second segment: the columns of V_1, then paddings, [b, L/2 + d, k]."""
        array, sizes = check_batch(self.chars, strings, lengths)
        columns = torch.from_numpy(sizes // 2)
        index_bj = bigrams(array, self.chars)
        width, rows = index_bj.shape[1], torch.arange(len(array))
        inside_bj = (torch.arange(width) < columns[:, None]).float()
        tokens = torch.zeros(len(array), width + self.depth, len(self.basis))
        tokens[:, :width, self.basis.axes("left")] = functional.one_hot(index_bj, self.chars**2) * inside_bj[..., None]
        tokens[:, :width, self.basis.axis("query")] = inside_bj
        tokens[:, 0, self.basis.axis("start")] = 1
        tokens[rows, columns, self.basis.axis("end")] = 1
        tokens[rows, columns, self.basis.axis("query")] = 1
        return tokens.to(self.stored[0].device)

    def read(self, x_bqk: Tensor) -> Tensor:
        """V_{d+1} as rows, [b, L/2, n²]: `left` of the positions after the d thinking ones."""
        return x_bqk[:, self.depth :, self.basis.axes("left")]

    def forward(self, context: Any, strings: ArrayLike, lengths: ArrayLike | None = None) -> Tensor:
        """All n²·d + L/2 + d tokens through every layer; returns V_{d+1} as rows, [b, L/2, n²]."""
        first_ck, second_bqk = self.embed_context(context), self.embed_strings(strings, lengths)
        x_bpk = torch.cat([first_ck.expand(len(second_bqk), -1, -1), second_bqk], 1)
        for level in self.levels:
            x_bpk = level(x_bpk)
        return self.read(x_bpk[:, len(first_ck) :])

    @property
    def attentions(self) -> list[RelativeAttention]:
        """Two of each level, in order: that of the shift and that of the translation."""
        return [module for module in self.modules() if isinstance(module, RelativeAttention)]

    def remember(self, context: Any, like: Sequence[Memory] | None = None) -> list[Memory]:
        """What every attention needs of a context, computed once and good for any number of strings.

        No gate lets context tokens change. Contexts differ in `right` alone, which most maps do not read: with what was
        remembered of another context of this model (`like`), only the values of the translation are computed.
        """
        first_ck, right = self.embed_context(context), self.basis.axes("right")
        known: Sequence[Memory | None] = like or [None] * len(self.attentions)
        return [layer.remember(first_ck, one, right) for layer, one in zip(self.attentions, known, strict=True)]

    def answer(self, memories: Sequence[Memory], strings: ArrayLike, lengths: ArrayLike | None = None) -> Tensor:
        """The same as `forward` for a context that was remembered: only the second segment is computed."""
        x_bqk = self.embed_strings(strings, lengths)
        for level, at_shift, at_translate in zip(self.levels, memories[::2], memories[1::2], strict=True):
            x_bqk = level(x_bqk, at_shift, at_translate)
        return self.read(x_bqk)

    def translated(self, columns_bjx: Tensor) -> Any:
        """The characters of output columns: argmax of each column, [b, L]."""
        return unmatricize(columns_bjx.mT.cpu().numpy())


def _check_buildable(depth: int, chars: int, scale: float) -> None:
    check_size(depth, chars)
    if not 1 <= scale <= 1e4:
        raise InputError(f"the scale N is {scale:g}: use a number from 1 to 10,000 (100 is the paper's)")
    size, width = chars**2, 2 * chars**2 + 2 * depth + 4
    weights = 4 * depth * (5 * 3 * width**2 + 2 * 3 * size * width + 3 * size * width)
    if weights > LARGEST:
        raise InputError(
            f"MLT({depth}, {chars}) needs {weights / 2**30:.1f} GiB of dense weights, more than the "
            f"{LARGEST / 2**30:g} GiB this module is built for: use fewer characters or levels"
        )
