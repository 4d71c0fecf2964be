"""Translation: shift, then translate bigrams, d times.

One worked example, MLT(1, 8), string `A B C D`:

    s_1        A B C D
    shifted     B C D A        every character one to the left, the first wraps around
    bigrams    (B C)(D A)
    rules       B C -> K L,  D A -> M I
    s_2        K L M I

`translate` is the oracle: slow and obvious. `translate_batch` is the fast one, and tests hold them equal.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from openbook.base.errors import InputError
from openbook.task.phrasebook import Codebook, Table

Chars = NDArray[np.uint8]


@dataclass(frozen=True)
class Level:
    """What happens to one string at one level."""

    string: list[int]
    shifted: list[int]
    bigrams: list[tuple[int, int]]
    images: list[tuple[int, int]]


def check_string(string: Sequence[int], chars: int) -> None:
    """Refuse a string that has no translation."""
    if len(string) == 0:
        raise InputError("the string is empty: give an even number of characters")
    if len(string) % 2:
        raise InputError(f"the string has {len(string)} characters, an odd number: add or remove one")
    for place, char in enumerate(string):
        if not 0 <= char < chars:
            raise InputError(f"character {place + 1} is {char}, outside the alphabet 0..{chars - 1}")


def translate(codebook: Codebook, string: Sequence[int]) -> list[Level]:
    """The oracle: every level of the translation of one string, in plain Python."""
    check_string(string, codebook.chars)
    levels = []
    current = list(string)
    for phrasebook in codebook.phrasebooks:
        shifted = current[1:] + current[:1]
        bigrams = list(zip(shifted[0::2], shifted[1::2], strict=True))
        images = [phrasebook(a, b) for a, b in bigrams]
        levels.append(Level(current, shifted, bigrams, images))
        current = [char for image in images for char in image]
    return levels


def output(levels: list[Level]) -> list[int]:
    """The translated string of the oracle's levels."""
    return [char for image in levels[-1].images for char in image]


@dataclass(frozen=True)
class Translation:
    """A batch of translations.

    `strings[b, i]` is s_{i+1} of sample b (i = 0 is the input, i = d the output) and `bigrams[b, i]` the indices of
    the rules that level i looked up, in order. Entries at or past a sample's length are padding.
    """

    chars: int
    lengths: NDArray[np.int64]  # [batch]
    strings: Chars  # [batch, depth + 1, longest]
    bigrams: Table  # [batch, depth, longest / 2]

    @property
    def inputs(self) -> Chars:
        return self.strings[:, 0]

    @property
    def outputs(self) -> Chars:
        return self.strings[:, -1]

    def used(self) -> NDArray[np.bool_]:
        """Which rules each sample uses at each level: [batch, depth, chars²]."""
        there = np.arange(self.bigrams.shape[-1]) < self.lengths[:, None] // 2
        # Padding points at the first rule, which is used anyway, so the scatter needs no spare column.
        index = np.where(there[:, None], self.bigrams, self.bigrams[..., :1]).astype(np.int64)
        used = np.zeros((*index.shape[:2], self.chars**2), dtype=bool)
        index += np.arange(0, used.size, used.shape[-1]).reshape(*index.shape[:2], 1)
        used.reshape(-1)[index.reshape(-1)] = True
        return used


def shift_left(strings: Chars, lengths: NDArray[np.int64]) -> Chars:
    """s~_j = s_{j+1}, and the last character is the first: each string wraps at its own length."""
    shifted = np.concatenate([strings[:, 1:], strings[:, :1]], axis=1)  # what turns up in padding is still a character
    shifted[np.arange(len(strings)), lengths - 1] = strings[:, 0]
    return shifted


def shift_right(strings: Chars, lengths: NDArray[np.int64]) -> Chars:
    """The inverse of `shift_left`."""
    shifted = np.concatenate([strings[:, -1:], strings[:, :-1]], axis=1)
    shifted[:, 0] = strings[np.arange(len(strings)), lengths - 1]
    return shifted


def check_batch(chars: int, strings: Any, lengths: ArrayLike | None) -> tuple[Chars, NDArray[np.int64]]:
    wide = np.asarray(strings)
    if wide.ndim != 2 or wide.shape[1] == 0 or wide.shape[1] % 2:
        raise InputError(f"a batch of strings is [batch, even length], not {wide.shape}")
    if wide.dtype.kind not in "iu":
        raise InputError(f"a batch of strings holds character numbers, not {wide.dtype}")
    if wide.size and (wide.max() >= chars or wide.min() < 0):  # before narrowing, which would wrap around
        row, place = np.argwhere((wide >= chars) | (wide < 0))[0]
        raise InputError(f"string {row}, character {place + 1} is {wide[row, place]}, outside 0..{chars - 1}")
    array = np.ascontiguousarray(wide, dtype=np.uint8)
    sizes = np.full(len(array), array.shape[1]) if lengths is None else np.asarray(lengths, dtype=np.int64)
    if sizes.shape != (len(array),):
        raise InputError(f"{len(array)} strings need as many lengths, not an array of shape {sizes.shape}")
    if (sizes % 2).any() or (sizes < 2).any() or (sizes > array.shape[1]).any():
        raise InputError(f"lengths must be even and between 2 and {array.shape[1]}")
    return array, sizes


@functools.lru_cache(maxsize=64)
def bigram_characters(chars: int) -> NDArray[np.uint16]:
    """Both characters of each bigram as bytes of one word, so that one gather moves both."""
    index = np.arange(chars**2)
    both = np.stack(divmod(index, chars), axis=1).astype(np.uint8).view(np.uint16)[:, 0]
    both.flags.writeable = False  # it is kept and shared
    return both


def translate_batch(
    codebooks: Codebook | Table, strings: ArrayLike, lengths: ArrayLike | None = None, chars: int | None = None
) -> Translation:
    """Translate many strings at once: under one codebook, or each under its own (tables [batch, depth, chars²]).

    Strings shorter than the row are padded on the right with any characters; `lengths` says where they end.
    """
    shared = isinstance(codebooks, Codebook)
    tables = codebooks.tables if isinstance(codebooks, Codebook) else codebooks
    n = chars or round(tables.shape[-1] ** 0.5)
    array, sizes = check_batch(n, strings, lengths)
    batch, longest = array.shape
    if not shared and (tables.ndim != 3 or tables.shape[::2] != (batch, n * n)):
        raise InputError(f"{batch} strings need tables [{batch}, depth, {n * n}], not {tables.shape}")
    depth = tables.shape[-2]
    pairs = bigram_characters(n)
    images = pairs[tables]  # [depth, n²] or [batch, depth, n²]: the two characters of each image
    result = np.empty((batch, depth + 1, longest), dtype=np.uint8)
    bigrams = np.empty((batch, depth, longest // 2), dtype=np.uint16)
    result[:, 0] = current = array
    offsets = 0 if shared else (np.arange(batch) * n * n)[:, None]
    for level in range(depth):
        shifted = shift_left(current, sizes)
        index = shifted[:, 0::2].astype(np.uint16) * n
        index += shifted[:, 1::2]
        bigrams[:, level] = index
        current = images[..., level, :].reshape(-1).take(index + offsets).view(np.uint8)
        result[:, level + 1] = current
    return Translation(n, sizes, result, bigrams)


def invert_batch(
    codebook: Codebook, strings: ArrayLike, lengths: ArrayLike | None = None, level: int | None = None
) -> Chars:
    """The inputs s_1 of strings s_{level+1}; `level` defaults to the depth, so outputs are taken back to inputs."""
    array, sizes = check_batch(codebook.chars, strings, lengths)
    depth = codebook.depth if level is None else level
    if not 0 <= depth <= codebook.depth:
        raise InputError(f"level {depth} does not exist: this codebook has levels 0 to {codebook.depth}")
    pairs = bigram_characters(codebook.chars)
    for table in codebook.tables[:depth][::-1]:
        inverse = pairs[np.argsort(table)]
        index = array[:, 0::2].astype(np.uint16) * codebook.chars + array[:, 1::2]
        array = shift_right(inverse.take(index).view(np.uint8), sizes)
    return array


def dependencies(depth: int, position: int, length: int) -> list[int]:
    """The input positions (from 0) that output character `position` depends on: 2d of them, fewer if they wrap.

    Output pair p comes from characters 2p+1, 2p+2 of the level before; walking back, the window grows by two.
    """
    needed = {position}
    for _ in range(depth):
        needed = {(2 * (j // 2) + k) % length for j in needed for k in (1, 2)}
    return sorted(needed)
