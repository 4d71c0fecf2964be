"""Contexts: matrices C_1 .. C_d, each column one-hot (a rule that is shown) or zero (one that is not)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from openbook.base.errors import InputError
from openbook.task import Codebook


def full_context(codebook: Codebook) -> Tensor:
    """C_i = Matrix(π_i): every rule of the codebook, [d, n², n²]."""
    return torch.from_numpy(codebook.matrices())


def partial_context(codebook: Codebook, shown: NDArray[np.bool_]) -> Tensor:
    """The rules marked in `shown` [d, n²]; the columns of the others are zero."""
    size = codebook.chars**2
    if shown.shape != (codebook.depth, size):
        raise InputError(
            f"the mask of shown rules is {list(shown.shape)}, not [{codebook.depth}, {size}]: mark each rule"
        )
    return full_context(codebook) * torch.from_numpy(shown)[:, None, :]


def check_context(context: Any, depth: int, chars: int) -> Tensor:
    """A context as a float tensor [d, n², n²], or a complaint that names the level and the column."""
    tensor = torch.as_tensor(context).detach().to(torch.float32)
    size = chars**2
    if tuple(tensor.shape) != (depth, size, size):
        raise InputError(
            f"a context for MLT({depth}, {chars}) is [{depth}, {size}, {size}], not {list(tensor.shape)}: "
            "build the transformer for the depth and the number of characters of the codebook"
        )
    binary = ((tensor == 0) | (tensor == 1)).all(1)
    bad = ~(binary & (tensor.sum(1) <= 1))
    if bad.any():
        level, column = (int(i) for i in bad.nonzero()[0])
        raise InputError(
            f"context of level {level + 1}, column {column}: it sums to {float(tensor[level, :, column].sum()):g}, "
            "but a column must be one-hot (a rule) or zero (no rule)"
        )
    return tensor
