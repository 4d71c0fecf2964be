"""Named directions of a vector space, and linear maps given by what they do to each of them.

The weights of the hand-built transformer are never written as index arithmetic: a map is a function from a named basis
vector to a combination of named basis vectors (tracr's `craft` is the model).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
from torch import Tensor


class Direction(NamedTuple):
    """One basis vector: the subspace it belongs to and its place there, e.g. `left(3, 1)` or `start()`."""

    subspace: str
    place: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.subspace}({', '.join(map(str, self.place))})"


Vector = dict[Direction, float]
Action = Callable[[Direction], Vector]


class Basis:
    """An ordered set of directions; the directions of one subspace stand together."""

    def __init__(self, directions: Iterable[Direction]) -> None:
        self.directions = tuple(directions)
        self._axis = {direction: axis for axis, direction in enumerate(self.directions)}
        if len(self._axis) != len(self.directions):
            raise ValueError("a direction occurs twice")

    def __len__(self) -> int:
        return len(self.directions)

    def axis(self, subspace: str, *place: int) -> int:
        return self._axis[Direction(subspace, place)]

    def axes(self, subspace: str) -> slice:
        """The run of axes that a subspace takes."""
        axes = [axis for axis, direction in enumerate(self.directions) if direction.subspace == subspace]
        if not axes or axes != list(range(axes[0], axes[-1] + 1)):
            raise KeyError(subspace)
        return slice(axes[0], axes[-1] + 1)

    def projection(self, *subspaces: str) -> Tensor:
        """The diagonal of the projection onto some subspaces: [size]."""
        return torch.tensor([float(direction.subspace in subspaces) for direction in self.directions])


def linear(source: Basis, target: Basis, action: Action) -> Tensor:
    """The matrix [target, source] of the map that sends each basis vector of `source` to `action` of it."""
    matrix = torch.zeros(len(target), len(source))
    for column, direction in enumerate(source.directions):
        for image, coefficient in action(direction).items():
            matrix[target.axis(image.subspace, *image.place), column] = coefficient
    return matrix
