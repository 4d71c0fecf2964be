"""Facts about the chemical elements, and questions whose answers need two of them.

    book       carbon=6  neon=10  oxygen=8  ...        how many protons an element has (from the package periodictable)
    question   carbon + oxygen =                       how many they have together
    answer     14

The answer says neither number, so a fact cannot be copied from the answers: that is what makes the book worth having.
Half of the pairs are asked in training; the exam asks the others, and also every fact by itself (`carbon =`), which
training never does.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import periodictable


@dataclass(frozen=True)
class Facts:
    """The numbers of some elements: the true ones, or invented ones of the same form."""

    numbers: dict[str, int]

    @classmethod
    def true(cls, count: int) -> Facts:
        return cls({element.name: element.number for element in list(periodictable.elements)[:count]})

    def invented(self, draw: random.Random) -> Facts:
        """The same elements with their numbers exchanged at random."""
        return Facts(dict(zip(self.numbers, draw.sample(list(self.numbers.values()), len(self.numbers)), strict=True)))

    def record(self, asked: Sequence[str], shown: Sequence[str]) -> dict[str, Any]:
        """A question about one or two elements, with the facts of some elements as its book."""
        facts = [{"text": f"{name}={self.numbers[name]}", "needed": name in asked} for name in shown]
        answer = sum(self.numbers[name] for name in asked)
        prompt = f"{' + '.join(asked)} ="
        return {"prompt": prompt, "completion": f" {answer}", "privileged_context": {"protons": facts}}


def vocabulary(facts: Facts) -> list[str]:
    """Every word that can occur: a fact is one word, so that an element and its number are read together."""
    names, numbers = list(facts.numbers), sorted(facts.numbers.values())
    pairs = [f"{name}={number}" for name in names for number in numbers]
    return [*names, *map(str, range(1, 2 * numbers[-1])), *pairs, "+", "="]


def lessons(facts: Facts, count: int, seed: int, single: float, shown: int = 6) -> Iterator[dict[str, Any]]:
    """Questions about invented facts, fresh ones in every example: what a model learns to read the book from."""
    draw = random.Random(seed)
    for _ in range(count):
        world = facts.invented(draw)
        names = draw.sample(list(world.numbers), shown)
        asked = draw.sample(names, 1 if draw.random() < single else 2)
        yield world.record(asked, names)


@dataclass(frozen=True)
class Exam:
    """The questions about the true facts, divided once for all runs; no pair is in two parts, in either order."""

    training: list[dict[str, Any]]
    search: list[dict[str, Any]]  # to choose learning rates by
    pairs: list[dict[str, Any]]
    singles: list[dict[str, Any]]

    @classmethod
    def of(cls, facts: Facts, seed: int = 0) -> Exam:
        names = list(facts.numbers)
        pairs = list(combinations(names, 2))
        random.Random(seed).shuffle(pairs)
        half, quarter = len(pairs) // 2, len(pairs) // 4
        parts = [pairs[:half], pairs[half : half + quarter], pairs[half + quarter :]]
        asked = [[facts.record(order, names) for a, b in part for order in ((a, b), (b, a))] for part in parts]
        return cls(*asked, [facts.record([name], names) for name in names])
