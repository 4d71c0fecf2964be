"""Counter-based random numbers: item i of a stream is a pure function of (seed, stream, i).

Philox numbers its outputs, so the words of item i are found by jumping to i times the words an item needs. A batch of
items is then one contiguous block: fast, and the same whatever the batch size, the order, the number of processes or
how many items were made before.
"""

from __future__ import annotations

import functools
import zlib

import numpy as np
from numpy.typing import NDArray

WORDS_PER_COUNTER = 4  # Philox4x64 gives four 64-bit words for each value of its counter

Words = NDArray[np.uint64]


def _philox(seed: int, stream: str, start: int) -> np.random.Philox:
    key = np.array([seed % 2**64, zlib.crc32(stream.encode())], dtype=np.uint64)
    generator = np.random.Philox(key=key)
    generator.advance(start)
    return generator


def words(seed: int, stream: str, start: int, items: int, words_per_item: int) -> Words:
    """Random 64-bit words for items `start .. start+items-1`: an array [items, words_per_item]."""
    counters = -(-words_per_item // WORDS_PER_COUNTER)
    raw = _philox(seed, stream, start * counters).random_raw(items * counters * WORDS_PER_COUNTER)
    return raw.reshape(items, counters * WORDS_PER_COUNTER)[:, :words_per_item]


def generator(seed: int, stream: str, item: int = 0) -> np.random.Generator:
    """A NumPy generator of its own for one item, where the number of draws is not known beforehand.

    The item goes into the key, not the counter, so two items never overlap however much is drawn.
    """
    key = np.random.SeedSequence([seed % 2**64, zlib.crc32(stream.encode()), item]).generate_state(2, np.uint64)
    return np.random.Generator(np.random.Philox(key=key))


def below(bound: int, words_in: Words) -> NDArray[np.int64]:
    """Integers in 0..bound-1, two from each word, along the last axis (multiply-shift; bias below bound / 2³²)."""
    halves = np.ascontiguousarray(words_in).view(np.uint32)
    scaled = np.multiply(halves, np.uint64(bound), dtype=np.uint64)
    scaled >>= np.uint64(32)
    return scaled.view(np.int64)  # the same bits: every value is below 2³²


def permutations(words_in: Words) -> NDArray[np.intp]:
    """A uniform permutation along the last axis, one word for each entry.

    The index rides in the low bits of its random key, so one plain sort does it (several times faster than argsort).
    """
    size = words_in.shape[-1]
    bits = np.uint64(max(1, (size - 1).bit_length()))
    keys = (words_in >> bits << bits) | np.arange(size, dtype=np.uint64)
    keys.sort(axis=-1)
    return (keys & np.uint64((1 << int(bits)) - 1)).astype(np.intp)


class Keyed:
    """Words keyed by (seed, stream, item): as many as wanted for each item, and never shared between two items.

    Where items need different numbers of words, a counter offset cannot be known, so the item goes into Philox's key.
    Setting the key of one generator takes about a microsecond; making a new generator takes twenty.
    """

    def __init__(self, seed: int, stream: str) -> None:
        entropy = [seed % 2**64, zlib.crc32(stream.encode())]
        self._philox = np.random.Philox(key=int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0]))
        self._state = self._philox.state

    def words(self, item: int, count: int) -> Words:
        self._state["state"]["key"][1] = item
        self._philox.state = self._state
        return self._philox.random_raw(count)

    def block(self, items: NDArray[np.int64], count: int) -> Words:
        """The first `count` words of each item: [items, count]."""
        block = np.empty((len(items), count), dtype=np.uint64)
        for row, item in enumerate(items.tolist()):
            block[row] = self.words(item, count)
        return block


@functools.lru_cache(maxsize=64)
def keyed_words(seed: int, stream: str) -> Keyed:
    """The words of a stream; the generator behind it is made once in every process."""
    return Keyed(seed, stream)
