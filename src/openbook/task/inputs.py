"""Input strings: uniform, covering every rule, or restricted to a set of rules at one level."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from openbook.base.errors import InputError
from openbook.base.randomness import below, generator, words
from openbook.task.phrasebook import Codebook
from openbook.task.translate import Chars, bigram_characters, invert_batch, shift_right, translate_batch


def check_lengths(shortest: int, longest: int) -> None:
    if shortest < 2 or longest < shortest:
        raise InputError(f"lengths {shortest} to {longest}: the shortest is at least 2 and at most the longest")
    if shortest % 2 or longest % 2:
        raise InputError(f"lengths {shortest} to {longest}: an odd length has no bigrams, use even numbers")


def _draw(
    bound: int, count: int, lengths: tuple[int, int], seed: int, start: int, stream: str
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Bigram indices below `bound` for items start.., and their lengths in characters, uniform over even lengths."""
    shortest, longest = lengths
    check_lengths(shortest, longest)
    pairs = longest // 2
    drawn = words(seed, f"{stream} {shortest} {longest}", start, count, 1 + -(-pairs // 2))
    sizes = shortest + 2 * below((longest - shortest) // 2 + 1, drawn[:, :1])[:, 0]
    return below(bound, drawn[:, 1:])[:, :pairs], sizes


def _characters(bigrams: NDArray[np.int64], chars: int) -> Chars:
    return bigram_characters(chars).take(bigrams).view(np.uint8)


def random_inputs(
    chars: int, count: int, lengths: tuple[int, int] = (20, 40), seed: int = 0, start: int = 0, stream: str = "input"
) -> tuple[Chars, NDArray[np.int64]]:
    """Uniform strings `start .. start+count-1` of a seed: [count, longest], padded past each one's length."""
    bigrams, sizes = _draw(chars**2, count, lengths, seed, start, stream)
    return _characters(bigrams, chars), sizes


def subset_inputs(
    codebook: Codebook,
    level: int,
    rules: ArrayLike,
    count: int,
    lengths: tuple[int, int] = (20, 40),
    seed: int = 0,
    start: int = 0,
) -> tuple[Chars, NDArray[np.int64]]:
    """Strings whose translation uses, at `level` (from 0), only the given rules, each bigram uniform among them.

    The bigrams are chosen at that level and taken back to the input, so no string is rejected.
    """
    allowed = np.unique(np.asarray(rules, dtype=np.int64))
    if not 0 <= level < codebook.depth:
        raise InputError(f"level {level} does not exist: this codebook has levels 0 to {codebook.depth - 1}")
    if allowed.size == 0 or allowed[0] < 0 or allowed[-1] >= codebook.chars**2:
        raise InputError(f"the allowed rules must be a non-empty set of bigrams 0..{codebook.chars**2 - 1}")
    choice, sizes = _draw(allowed.size, count, lengths, seed, start, f"subset {level}")
    shifted = _characters(allowed[choice], codebook.chars)
    return invert_batch(codebook, shift_right(shifted, sizes), sizes, level), sizes


def halves(chars: int, level: int, seed: int = 0) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The rules of a level (from 0) divided at random: half for training, the others held out."""
    order = generator(seed, "held-out rules", level).permutation(chars**2).tolist()
    middle = chars**2 // 2
    return tuple(sorted(order[:middle])), tuple(sorted(order[middle:]))


def missing_rules(codebook: Codebook, string: ArrayLike) -> NDArray[np.int64]:
    """Rules that the translation of one string does not use, as rows (level, bigram)."""
    used = translate_batch(codebook, np.asarray(string)[None]).used()[0]
    return np.argwhere(~used)


def coverage_length(depth: int, chars: int, delta: float = 0.05) -> int:
    """Characters after which a uniform string uses every rule of every level with probability 1-delta or more.

    Coupon collector: n² log(n² d / δ) bigrams suffice for the union over n² d rules.
    """
    bigrams = int(np.ceil(chars**2 * np.log(chars**2 * depth / delta)))
    return 2 * bigrams


def coverable_inputs(codebook: Codebook, count: int = 1, length: int | None = None, seed: int = 0) -> Chars:
    """Strings whose translation uses every rule of every level: [count, length].

    Uniform strings are drawn until enough of them cover; a length too short for that is refused.
    """
    size = length or coverage_length(codebook.depth, codebook.chars)
    shortest = 2 * codebook.chars**2
    if size < shortest:
        raise InputError(
            f"{size} characters cannot use all {codebook.chars**2} rules of a level: use at least {shortest}"
        )
    covering: list[Chars] = []
    tried = max(1000, 20 * count)
    for index in range(tried):
        string = random_inputs(codebook.chars, 1, (size, size), seed, index, "coverable")[0]
        if missing_rules(codebook, string[0]).size == 0:
            covering.append(string)
        if len(covering) == count:
            return np.concatenate(covering)
    raise InputError(
        f"{len(covering)} of {tried} uniform strings of {size} characters cover the codebook, not {count}: "
        f"use {coverage_length(codebook.depth, codebook.chars)} characters, which covers 19 times out of 20"
    )
