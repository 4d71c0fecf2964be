"""Facts about the chemical elements, and questions whose answers need three of them.

    book       tin=10  silver=2  iodine=1  ...     how many natural isotopes an element has (from periodictable)
    question   tin silver iodine =                 how many they have together
    answer     13

No answer says a fact, so facts cannot be copied from answers: that is what makes the book worth having. The exam asks
for threes that training never asked, and for every fact by itself (`tin =`), which training never does.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import periodictable

ASKED = 3  # elements in a question
MOST = 10  # isotopes of an element: tin has so many
FIRST = 40  # protons of zirconium: from here on the numbers of isotopes are spread well

Record = dict[str, Any]


@dataclass(frozen=True)
class Facts:
    """How many isotopes some elements have: the true numbers, or invented ones of the same form."""

    numbers: dict[str, int]

    @classmethod
    def true(cls, count: int) -> Facts:
        """Elements from zirconium on, without those that do not occur in nature."""
        heavy = [element for element in periodictable.elements if element.number >= FIRST]
        natural = {e.name: sum(e[isotope].abundance > 0 for isotope in e.isotopes) for e in heavy}
        return cls(dict([(name, number) for name, number in natural.items() if number][:count]))

    def invented(self, draw: random.Random) -> Facts:
        """The same elements, the number of each drawn by itself, so that no fact says anything about another."""
        return Facts({name: draw.randint(1, MOST) for name in self.numbers})

    def record(self, asked: Sequence[str], shown: Sequence[str]) -> Record:
        """A question about some elements, with the facts of some elements as its book."""
        facts = [{"text": f"{name}={self.numbers[name]}", "needed": name in asked} for name in shown]
        answer = sum(self.numbers[name] for name in asked)
        question = {"prompt": f"{' '.join(asked)} =", "completion": f" {answer}", "layout": "compact"}
        return {**question, "privileged_context": {"isotopes": facts}} if facts else question


def vocabulary(facts: Facts) -> list[str]:
    """Every word that can occur: a fact is one word, so that an element and its number are read together."""
    pairs = [f"{name}={number}" for name in facts.numbers for number in range(1, MOST + 1)]
    return [*facts.numbers, *map(str, range(1, ASKED * MOST + 1)), *pairs, "="]


def lessons(facts: Facts, count: int, seed: int) -> Iterator[Record]:
    """The course in which a model learns to read: invented facts, fresh ones in every example, harder and harder.

    Single facts come first, then twos, then threes. In the second half, half of the examples have facts missing from
    the book and the same answer as ever: there the model can only learn to doubt, and how much.
    """
    draw = random.Random(seed)
    for number in range(count):
        progress = number / count
        asked = draw.choice((1,) if progress < 0.1 else (1, 2, 2) if progress < 0.25 else (1, 2, 3, 3, 3, 3))
        yield lesson(facts, draw, asked, missing=progress > 0.45 and draw.random() < 0.5)


def lesson(facts: Facts, draw: random.Random, asked: int, missing: bool = False) -> Record:
    """One question about invented facts, with up to three facts in the book that it does not need."""
    world = facts.invented(draw)
    names = draw.sample(list(world.numbers), asked + draw.randint(0, 3))
    question, others = names[:asked], names[asked:]
    known = draw.sample(question, asked - draw.randint(1, asked)) if missing else question
    shown = [] if missing and draw.random() < 0.1 else [*known, *others]
    return world.record(question, draw.sample(shown, len(shown)))


@dataclass(frozen=True)
class Exam:
    """The questions about the true facts, divided once for all runs; no three elements are in two parts."""

    facts: Facts
    training: list[tuple[str, ...]]
    search: list[Record]  # to choose learning rates by
    threes: list[Record]
    singles: list[Record]

    @classmethod
    def of(cls, facts: Facts, seed: int = 0) -> Exam:
        names = list(facts.numbers)
        threes = list(combinations(names, ASKED))
        random.Random(seed).shuffle(threes)
        part = len(threes) // 4
        exam, search = ([facts.record(three, names) for three in threes[k * part : (k + 1) * part]] for k in (0, 1))
        return cls(facts, threes[2 * part :], search, exam, [facts.record([name], names) for name in names])

    def questions(self, count: int, seed: int) -> Iterator[Record]:
        """So many questions to learn from: all threes of the training part in random order, then all of them again."""
        draw = random.Random(seed)
        names = list(self.facts.numbers)
        order: list[tuple[str, ...]] = []
        for _ in range(count):
            order = order or draw.sample(self.training, len(self.training))
            yield self.facts.record(draw.sample(order.pop(), ASKED), names)
