"""Named directions of a vector space, and linear maps given by what they do to each of them.

The weights of the hand-built transformer are never written as index arithmetic: a map is a table that says, for each
subspace, to which combination of named basis vectors it sends its own (tracr's `craft` is the model).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
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


def onto(subspace: str, weight: float = 1.0) -> Action:
    """Sends each direction to the one at the same place in a subspace, times a weight."""
    return lambda direction: {Direction(subspace, direction.place): weight}


def kept(*subspaces: str) -> dict[str, Action]:
    """Sends each of these subspaces to itself."""
    return {subspace: onto(subspace) for subspace in subspaces}


def linear(source: Basis, target: Basis, actions: Mapping[str, Action]) -> Tensor:
    """The matrix [target, source] of the map that sends each basis vector to the action on it of its subspace.

    Subspaces without an action are sent to 0.
    """
    matrix = torch.zeros(len(target), len(source))
    for column, direction in enumerate(source.directions):
        if action := actions.get(direction.subspace):
            for image, coefficient in action(direction).items():
                matrix[target.axis(image.subspace, *image.place), column] = coefficient
    return matrix
