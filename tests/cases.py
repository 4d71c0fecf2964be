"""One table of cases that the oracle, the surrogate and the constructed transformer all obey.

The first rows are worked by hand; the others sweep sizes and lengths, the shortest strings and wrap-around included.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from openbook.task import Codebook


@dataclass(frozen=True)
class Case:
    """A codebook, an input and the output it must have."""

    name: str
    codebook: Codebook = field(repr=False)
    string: tuple[int, ...]
    output: tuple[int, ...]


def _by_hand() -> list[Case]:
    identity = Codebook(3, np.arange(9)[None])
    swap = Codebook(3, np.arange(9).reshape(3, 3).T.reshape(1, 9))  # (a, b) -> (b, a)
    swap_twice = Codebook(3, np.repeat(swap.tables, 2, axis=0))
    xor = Codebook(2, np.array([[0, 1, 3, 2]]))  # copy, xor: 00->00 01->01 10->11 11->10
    return [
        Case("identity only shifts", identity, (0, 1, 2, 0), (1, 2, 0, 0)),
        Case("swap undoes the shift inside a pair", swap, (0, 1, 2, 0), (2, 1, 0, 0)),
        Case("swap twice", swap_twice, (0, 1, 2, 0), (0, 1, 2, 0)),
        Case("two characters wrap around", swap, (1, 2), (1, 2)),
        Case("copy and xor", xor, (1, 1, 0, 1), (1, 1, 1, 0)),
    ]


def _swept() -> list[Case]:
    from openbook.task.translate import output, translate

    cases = []
    for depth, chars, length in [(1, 2, 2), (2, 2, 8), (3, 3, 2), (2, 8, 8), (5, 8, 20), (5, 10, 40), (10, 4, 20)]:
        codebook = Codebook.sample(depth, chars, seed=depth * 100 + chars)
        string = np.random.default_rng(length).integers(0, chars, length).tolist()
        name = f"MLT({depth}, {chars}), length {length}"
        cases.append(Case(name, codebook, tuple(string), tuple(output(translate(codebook, string)))))
    return cases


BY_HAND = _by_hand()
CASES = BY_HAND + _swept()
