"""Phrasebooks and codebooks: what there is to learn.

A phrasebook is a bijection between the n² bigrams of one alphabet and those of the next. The bigram (a, b) has index
a·n + b, so a phrasebook is a permutation of 0..n²-1 and a rule `a b -> C D` is one entry of it. A codebook is d
phrasebooks, one for each level of MLT(d, n).
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from openbook.base.errors import InputError
from openbook.base.randomness import permutations, words
from openbook.task.alphabet import alphabets, check_size

Table = NDArray[np.uint16]
_RULE = re.compile(r"^\s*(\S+)\s+(\S+)\s*->\s*(\S+)\s+([^\s;]+)\s*;?\s*$")


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

    @classmethod
    def sample(cls, chars: int, seed: int = 0, index: int = 0) -> Phrasebook:
        """A uniformly random phrasebook; (seed, index) determine it."""
        return Codebook.sample(1, chars, seed, index)[0]

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

    def matrix(self) -> NDArray[np.float32]:
        """Matrix(π): column-stochastic, column = left side, row = right side."""
        size = self.chars**2
        matrix = np.zeros((size, size), dtype=np.float32)
        matrix[self.table, np.arange(size)] = 1
        return matrix

    @classmethod
    def from_matrix(cls, matrix: NDArray[Any]) -> Phrasebook:
        """The phrasebook of a matrix with exactly one 1 in each row and column."""
        matrix = np.asarray(matrix)
        size = matrix.shape[0]
        chars = round(size**0.5)
        if matrix.shape != (chars**2, chars**2):
            raise InputError(f"a phrasebook matrix is n² by n², not {' by '.join(map(str, matrix.shape))}")
        columns = np.flatnonzero(~((matrix == 1).sum(0) == 1) | ~((matrix == 0).sum(0) == size - 1))
        if columns.size:
            raise InputError(f"column {columns[0]} of the matrix is not one-hot")
        return cls(chars, matrix.argmax(0).astype(np.uint16))

    def rules(self, source: Sequence[str], target: Sequence[str]) -> list[str]:
        """The rules as text, `a b -> C D`, in the order of their left sides."""
        n = self.chars
        image = self.table.tolist()
        return [
            f"{source[x // n]} {source[x % n]} -> {target[image[x] // n]} {target[image[x] % n]}" for x in range(n * n)
        ]

    @classmethod
    def from_rules(cls, rules: Sequence[str], source: Sequence[str], target: Sequence[str]) -> Phrasebook:
        """Read rules in any order; names the rule that keeps them from being a bijection."""
        n = len(source)
        left_index = {symbol: i for i, symbol in enumerate(source)}
        right_index = {symbol: i for i, symbol in enumerate(target)}
        by_left: dict[int, str] = {}
        by_right: dict[int, str] = {}
        table = np.zeros(n * n, dtype=np.uint16)
        for rule in rules:
            match = _RULE.match(rule) if isinstance(rule, str) else None
            if not match:
                raise InputError(f"{rule!r} is not a rule: write it as 'a b -> C D'")
            for symbol, known in zip(match.groups(), (left_index, left_index, right_index, right_index), strict=True):
                if symbol not in known:
                    raise InputError(f"rule '{rule}': '{symbol}' is not in the alphabet {''.join(known)}")
            a, b, c, d = match.groups()
            left, right = left_index[a] * n + left_index[b], right_index[c] * n + right_index[d]
            if left in by_left:
                raise InputError(f"not a bijection: '{rule}' has the same left side as '{by_left[left]}'")
            if right in by_right:
                raise InputError(f"not a bijection: '{rule}' has the same right side as '{by_right[right]}'")
            by_left[left], by_right[right] = rule, rule
            table[left] = right
        missing = next((x for x in range(n * n) if x not in by_left), None)
        if missing is not None:
            raise InputError(
                f"not a bijection: no rule for '{source[missing // n]} {source[missing % n]}' "
                f"({n * n - len(by_left)} of {n * n} rules are missing)"
            )
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
        _ = self._phrasebooks

    @property
    def depth(self) -> int:
        return self.tables.shape[0]

    @functools.cached_property
    def _phrasebooks(self) -> tuple[Phrasebook, ...]:
        phrasebooks = []
        for level, table in enumerate(self.tables):
            try:
                phrasebooks.append(Phrasebook(self.chars, table))
            except InputError as error:
                raise InputError(f"phrasebook {level + 1}: {error}") from None
        return tuple(phrasebooks)

    def __getitem__(self, level: int) -> Phrasebook:
        return self._phrasebooks[level]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Codebook) and np.array_equal(self.tables, other.tables)

    def __hash__(self) -> int:
        return hash(self.tables.tobytes())

    @classmethod
    def sample(cls, depth: int, chars: int, seed: int = 0, index: int = 0) -> Codebook:
        """A uniformly random codebook; (seed, index) determine it."""
        return cls(chars, sample_tables(depth, chars, seed, index, 1)[0])

    def inverse(self) -> Codebook:
        """Each phrasebook read right to left, in reverse order of levels."""
        return Codebook(self.chars, np.argsort(self.tables[::-1], axis=-1).astype(np.uint16))

    def matrices(self) -> NDArray[np.float32]:
        """Matrix(π_i) for every level: [depth, n², n²]."""
        return np.stack([self[level].matrix() for level in range(self.depth)])

    def alphabets(self) -> tuple[str, ...]:
        return alphabets(self.depth, self.chars)

    def rules(self) -> list[list[str]]:
        """The rules of every level as text."""
        letters = self.alphabets()
        return [self[i].rules(letters[i], letters[i + 1]) for i in range(self.depth)]

    def to_json(self) -> dict[str, Any]:
        return {
            "depth": self.depth,
            "chars": self.chars,
            "phrasebooks": [{"from": i + 1, "to": i + 2, "rules": rules} for i, rules in enumerate(self.rules())],
        }

    @classmethod
    def from_json(cls, data: Any, where: str = "codebook") -> Codebook:
        """Read `to_json`'s form, or an object that holds it as `codebook`, as `openbook translate --json` prints.

        Every complaint says which phrasebook and which rule.
        """
        if isinstance(data, dict) and "codebook" in data:
            data = data["codebook"]
        if not isinstance(data, dict) or not isinstance(data.get("phrasebooks"), list) or not data["phrasebooks"]:
            raise InputError(f"{where}: expected an object with a non-empty list 'phrasebooks'")
        books = data["phrasebooks"]
        counts = [len(b["rules"]) if isinstance(b, dict) and isinstance(b.get("rules"), list) else -1 for b in books]
        if -1 in counts:
            raise InputError(f"{where}: phrasebook {counts.index(-1) + 1} has no list 'rules'")
        chars = data.get("chars", round(max(counts) ** 0.5))
        if not isinstance(chars, int) or isinstance(chars, bool):
            raise InputError(f"{where}: 'chars' is {chars!r}, not a whole number")
        if data.get("depth", len(books)) != len(books):
            raise InputError(f"{where}: 'depth' is {data['depth']!r}, but there are {len(books)} phrasebooks")
        try:
            letters = alphabets(len(books), chars)
        except InputError as error:
            raise InputError(f"{where}: {error}") from None
        tables = []
        for i, book in enumerate(books):
            try:
                tables.append(Phrasebook.from_rules(book["rules"], letters[i], letters[i + 1]).table)
            except InputError as error:
                raise InputError(f"{where}: phrasebook {i + 1}: {error}") from None
        return cls(chars, np.stack(tables))

    @classmethod
    def load(cls, path: Path | str) -> Codebook:
        """Read a codebook file (JSON)."""
        try:
            data = json.loads(Path(path).read_text(encoding="utf-8-sig"))
        except (ValueError, RecursionError) as error:  # also a number of too many digits
            raise InputError(f"{path}: not a JSON file: {error}") from None
        return cls.from_json(data, str(path))


def sample_tables(depth: int, chars: int, seed: int, start: int, count: int) -> Table:
    """Tables of the codebooks `start .. start+count-1` of a seed: [count, depth, chars²]."""
    check_size(depth, chars)
    size = chars**2
    drawn = words(seed, f"codebook {depth} {chars}", start, count, depth * size)
    return permutations(drawn.reshape(count, depth, size)).astype(np.uint16)
