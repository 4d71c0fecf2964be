"""The residual stream of the construction: which subspaces a token's embedding is made of.

    subspace    size   context token [e_x; C_i e_x]   column of V   first padding   thinking position
    left        n²     e_x                            V^(j)         0               0
    right       n²     C_i e_x                        0             0               0
    level       d      i                              0             0               0
    think       d      0                              0             0               the level that left it behind
    start, end  2      0, 0                           1 at j = 1, 0 0, 1            0, 0
    context     1      1                              0             0               0
    query       1      0                              1             1               0

The names of the paper's tables add up to 2n² + d + 4; its lemma says 2n² + 2d + 4. The d dimensions that the text gives
no name to are `think` here: they mark the thinking position of each level, which the construction needs twice (it
is emptied by the shift's MLP and is where the attention of the translation rests).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from openbook.theory.construction.basis import Basis, Direction


def pairs(subspace: str, chars: int) -> list[Direction]:
    """A direction for every bigram (a, b), in the order a·n + b."""
    return [Direction(subspace, pair) for pair in itertools.product(range(chars), repeat=2)]


def singles(subspace: str, size: int) -> list[Direction]:
    return [Direction(subspace, (i,)) for i in range(size)]


@dataclass(frozen=True)
class Stream:
    """The embedding of MLT(depth, chars) under two readings of the same 2n² + 2d + 4 axes.

    `basis` is the reading between modules. `halfway` is the reading between the attention and the MLP of a shift, when
    the first 2n axes of `left` hold the two characters that are about to be joined: the `tail` of one bigram and the
    `lead` of the next.
    """

    depth: int
    chars: int

    @property
    def basis(self) -> Basis:
        return Basis(pairs("left", self.chars) + self._rest())

    @property
    def halfway(self) -> Basis:
        characters = singles("tail", self.chars) + singles("lead", self.chars)
        idle = singles("idle", self.chars**2 - 2 * self.chars)
        return Basis(characters + idle + self._rest())

    def _rest(self) -> list[Direction]:
        return [
            *pairs("right", self.chars),
            *singles("level", self.depth),
            *singles("think", self.depth),
            Direction("start"),
            Direction("end"),
            Direction("context"),
            Direction("query"),
        ]
