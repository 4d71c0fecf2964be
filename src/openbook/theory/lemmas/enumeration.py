"""Everything there is of a size: all bijections, codebooks and strings, and all translations of them.

Correlation is computed here by its definition, from the values of two functions on all inputs.
"""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from openbook.task.phrasebook import Table
from openbook.task.translate import translate_batch

Bits = NDArray[np.uint8]
Integers = NDArray[np.int64]


def all_strings(length: int, chars: int = 2) -> Bits:
    """Every string of a length, in counting order: [chars^length, length]."""
    index = np.arange(chars**length)[:, None] // chars ** np.arange(length - 1, -1, -1)
    return (index % chars).astype(np.uint8)


def numbers(strings: NDArray[np.integer], chars: int = 2) -> Integers:
    """The place of each string among `all_strings` of its length: strings along the last axis, read as numbers."""
    return strings.astype(np.int64) @ chars ** np.arange(strings.shape[-1] - 1, -1, -1)


def all_maps() -> Table:
    """The tables of all 24 bijections of {0,1}²: [24, 4]."""
    return np.array(list(itertools.permutations(range(4))), dtype=np.uint16)


def characters(tables: NDArray[np.integer]) -> Bits:
    """Both output characters of each map of {0,1}² on 00, 01, 10, 11: [maps, 2, 4]."""
    return np.stack([tables >> 1, tables & 1], axis=1).astype(np.uint8)


def all_codebooks(depth: int, phrasebooks: Table | None = None) -> Table:
    """Every choice of one of the phrasebooks (by default all 24 over {0,1}) at each level: [choices, depth, n²]."""
    choices = all_maps() if phrasebooks is None else phrasebooks
    return choices[all_strings(depth, len(choices))]


def not_bijective(tables: NDArray[np.integer]) -> int:
    """The number of rows that are no permutation of 0, 1, 2, ..."""
    return int((np.sort(tables, axis=-1) != np.arange(tables.shape[-1])).any(axis=-1).sum())


def translate_all(tables: Table, strings: NDArray[np.uint8], chars: int = 2) -> Bits:
    """Every level of every string under every codebook: [codebooks, strings, depth + 1, length]."""
    repeated = np.repeat(tables, len(strings), axis=0)
    levels = translate_batch(repeated, np.tile(strings, (len(tables), 1)), chars=chars).strings
    return levels.reshape(len(tables), len(strings), *levels.shape[1:])


def agreement(first: Bits, second: Bits) -> Integers:
    """|#equal − #different| over the last axis, for all pairs of rows: corr(f, g) times the number of inputs."""
    signs_f, signs_g = (1 - 2 * values.astype(np.int64) for values in (first, second))
    return np.abs(signs_f @ signs_g.T)


def largest_agreement(functions: Bits) -> int:
    """The largest `agreement` of two different rows."""
    table = agreement(functions, functions)
    np.fill_diagonal(table, 0)
    return int(table.max())
