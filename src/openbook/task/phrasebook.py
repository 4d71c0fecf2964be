"""Phrasebooks and codebooks: what there is to learn.

A phrasebook is a bijection between the n² bigrams of one alphabet and those of the next. The bigram (a, b) has index
a·n + b, so a phrasebook is a permutation of 0..n²-1 and a rule `a b -> C D` is one entry of it. A codebook is d
phrasebooks, one for each level of MLT(d, n).
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from openbook.base.errors import InputError
from openbook.base.randomness import permutations, words
from openbook.task.alphabet import alphabets, check_size

Table = NDArray[np.uint16]
_RULE = re.compile(r"^\s*(\S+)\s+(\S+)\s*->\s*(\S+)\s+([^\s;]+)\s*;?\s*$")

MAKE_ONE = "`openbook translate --json` prints a codebook"


def _frozen(table: Any, chars: int) -> Table:
    """A copy that nobody can change. Entries are checked before they are narrowed: 65536 must not turn into 0."""
    wide = np.asarray(table)
    if wide.dtype.kind not in "iu":
        raise InputError(f"a phrasebook is a table of bigram indices, not of {wide.dtype}")
    outside = wide[(wide < 0) | (wide >= chars**2)]
    if outside.size:
        raise InputError(f"{outside[0]} is not a bigram over {chars} characters: indices go from 0 to {chars**2 - 1}")
    array = np.array(wide, dtype=np.uint16)
    array.flags.writeable = False
    return array


@contextmanager
def _complaints_name(place: str) -> Iterator[None]:
    """Error messages from inside begin with the place."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{place}: {error}") from None


def rule_text(source: Sequence[str], target: Sequence[str], left: int, right: int) -> str:
    """The rule that maps bigram `left` to bigram `right`, as `a b -> C D`."""
    n = len(source)
    return f"{source[left // n]} {source[left % n]} -> {target[right // n]} {target[right % n]}"


@dataclass(frozen=True, eq=False)
class Phrasebook:
    """One bijection of bigrams: `table[a*n + b]` is the index of the image of (a, b)."""

    chars: int
    table: Table

    def __post_init__(self) -> None:
        object.__setattr__(self, "table", _frozen(self.table, self.chars))
        size = self.chars**2
        if self.table.shape != (size,):
            raise InputError(f"a phrasebook over {self.chars} characters has {size} rules, not {self.table.size}")
        seen = np.bincount(self.table, minlength=size)
        if (seen != 1).any():
            twice = int(seen.argmax())
            left = np.flatnonzero(self.table == twice)
            raise InputError(f"not a bijection: bigrams {left.tolist()} all map to bigram {twice}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Phrasebook) and np.array_equal(self.table, other.table)

    def __hash__(self) -> int:
        return hash(self.table.tobytes())

    def __call__(self, a: int, b: int) -> tuple[int, int]:
        """The image of one bigram."""
        return divmod(self._images[a * self.chars + b], self.chars)

    @functools.cached_property
    def _images(self) -> list[int]:
        return self.table.tolist()

    def inverse(self) -> Phrasebook:
        """The phrasebook that reads right to left."""
        return Phrasebook(self.chars, np.argsort(self.table).astype(np.uint16))

    def then(self, later: Phrasebook) -> Phrasebook:
        """The composition: first this phrasebook, then `later`, with no shift between them."""
        if later.chars != self.chars:
            raise InputError(f"cannot compose phrasebooks over {self.chars} and {later.chars} characters")
        return Phrasebook(self.chars, later.table[self.table])

    def rules(self, source: Sequence[str], target: Sequence[str]) -> list[str]:
        """The rules as text, `a b -> C D`, in the order of their left sides."""
        return [rule_text(source, target, left, right) for left, right in enumerate(self._images)]

    @classmethod
    def from_rules(cls, rules: Sequence[str], source: Sequence[str], target: Sequence[str]) -> Phrasebook:
        """Read rules in any order; names the rule that keeps them from being a bijection."""
        n = len(source)
        by_side: dict[str, dict[int, str]] = {"left": {}, "right": {}}  # which rule has a bigram on that side
        table = np.zeros(n * n, dtype=np.uint16)
        for rule in rules:
            match = _RULE.match(rule) if isinstance(rule, str) else None
            if not match:
                raise InputError(f"{rule!r} is not a rule: write it as 'a b -> C D'")
            bigrams = []
            for side, alphabet, pair in (("left", source, match.group(1, 2)), ("right", target, match.group(3, 4))):
                for symbol in pair:
                    if symbol not in list(alphabet):
                        raise InputError(f"rule '{rule}': '{symbol}' is not in the alphabet {''.join(alphabet)}")
                bigram = alphabet.index(pair[0]) * n + alphabet.index(pair[1])
                if (other := by_side[side].get(bigram)) is not None:
                    raise InputError(f"not a bijection: '{rule}' has the same {side} side as '{other}': change one")
                by_side[side][bigram] = rule
                bigrams.append(bigram)
            table[bigrams[0]] = bigrams[1]
        missing = sorted(set(range(n * n)) - set(by_side["left"]))
        if missing:
            left, count = f"{source[missing[0] // n]} {source[missing[0] % n]}", f"{len(missing)} of {n * n}"
            raise InputError(f"not a bijection: no rule for '{left}' ({count} rules are missing): write one for each")
        return cls(n, table)


@dataclass(frozen=True, eq=False)
class Codebook:
    """d phrasebooks, one for each level: `tables[i]` is the permutation of level i (counted from 0)."""

    chars: int
    tables: Table  # [depth, chars²]

    def __post_init__(self) -> None:
        object.__setattr__(self, "tables", _frozen(self.tables, self.chars))
        if self.tables.ndim != 2:
            raise InputError(f"the tables of a codebook are [depth, chars²], not {self.tables.shape}")
        check_size(self.depth, self.chars)
        _ = self.phrasebooks

    @property
    def depth(self) -> int:
        return self.tables.shape[0]

    @functools.cached_property
    def phrasebooks(self) -> tuple[Phrasebook, ...]:
        phrasebooks = []
        for number, table in enumerate(self.tables, 1):
            with _complaints_name(f"phrasebook {number}"):
                phrasebooks.append(Phrasebook(self.chars, table))
        return tuple(phrasebooks)

    def __getitem__(self, level: int) -> Phrasebook:
        return self.phrasebooks[level]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Codebook) and np.array_equal(self.tables, other.tables)

    def __hash__(self) -> int:
        return hash(self.tables.tobytes())

    @classmethod
    def sample(cls, depth: int, chars: int, seed: int = 0, index: int = 0) -> Codebook:
        """A uniformly random codebook; (seed, index) determine it."""
        return cls(chars, sample_tables(depth, chars, seed, index, 1)[0])

    def matrices(self) -> NDArray[np.float32]:
        """Matrix(π_i) for every level, [depth, n², n²]: column-stochastic, column = left side, row = right side."""
        return np.stack([np.eye(self.chars**2, dtype=np.float32)[table].T for table in self.tables])

    def alphabets(self) -> tuple[str, ...]:
        return alphabets(self.depth, self.chars)

    def rules(self) -> list[list[str]]:
        """The rules of every level as text."""
        return [book.rules(*pair) for book, pair in zip(self.phrasebooks, pairwise(self.alphabets()), strict=True)]

    def in_symbols(self, strings: Sequence[Sequence[int]]) -> list[list[str]]:
        """The strings s_1 .. s_{d+1} of a translation, each in the symbols of its alphabet."""
        return [[alphabet[c] for c in string] for alphabet, string in zip(self.alphabets(), strings, strict=True)]

    def to_json(self) -> dict[str, Any]:
        books = [{"from": i, "to": i + 1, "rules": rules} for i, rules in enumerate(self.rules(), 1)]
        return {"depth": self.depth, "chars": self.chars, "phrasebooks": books}

    @classmethod
    def from_json(cls, data: Any, where: str = "codebook") -> Codebook:
        """Read `to_json`'s form, or an object that holds it as `codebook`, as `openbook translate --json` prints.

        Every complaint says which phrasebook and which rule.
        """
        with _complaints_name(where):
            if isinstance(data, dict) and "codebook" in data:
                data = data["codebook"]
            books = data.get("phrasebooks") if isinstance(data, dict) else None
            if not isinstance(books, list) or not books:
                raise InputError(f"expected an object with a non-empty list 'phrasebooks': {MAKE_ONE}")
            for number, book in enumerate(books, 1):
                if not isinstance(book, dict) or not isinstance(book.get("rules"), list):
                    raise InputError(f"phrasebook {number} has no list 'rules': {MAKE_ONE}")
            chars = data.get("chars", round(max(len(book["rules"]) for book in books) ** 0.5))
            if not isinstance(chars, int) or isinstance(chars, bool):
                raise InputError(f"'chars' is {chars!r}: write a whole number")
            if data.get("depth", len(books)) != len(books):
                raise InputError(f"'depth' is {data['depth']!r}, but there are {len(books)} phrasebooks")
            letters, tables = alphabets(len(books), chars), []
            for i, book in enumerate(books):
                with _complaints_name(f"phrasebook {i + 1}"):
                    tables.append(Phrasebook.from_rules(book["rules"], letters[i], letters[i + 1]).table)
            return cls(chars, np.stack(tables))

    @classmethod
    def load(cls, path: Path | str) -> Codebook:
        """Read a codebook file (JSON)."""
        try:
            data = json.loads(Path(path).read_text(encoding="utf-8-sig"))
        except (ValueError, RecursionError) as error:  # also a number of too many digits
            raise InputError(f"{path}: not a JSON file: {error}; {MAKE_ONE}") from None
        return cls.from_json(data, str(path))


def sample_tables(depth: int, chars: int, seed: int, start: int, count: int) -> Table:
    """Tables of the codebooks `start .. start+count-1` of a seed: [count, depth, chars²]."""
    check_size(depth, chars)
    size = chars**2
    drawn = words(seed, f"codebook {depth} {chars}", start, count, depth * size)
    return permutations(drawn.reshape(count, depth, size)).astype(np.uint16)
