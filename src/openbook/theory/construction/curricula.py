"""The hand-built transformer trained under a curriculum of the project, as language models are.

It needs no pre-training: with small W it translates by any codebook in its context. Which rules an example shows is
decided by `openbook.curriculum`; here the text of each shown rule is read back into the rule that it says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from openbook.book.shelf import NONE
from openbook.curriculum import SamplingPlan, curriculum_named, open_fragments
from openbook.task import Codebook, Translation, random_inputs
from openbook.task.alphabet import alphabets
from openbook.task.source import Translations
from openbook.theory.construction.fast import sources
from openbook.theory.construction.training import EXAM, Learner, Recipe, accuracy, rate_at

LENGTHS = (20, 40)  # characters of a string, as in section 4.1
CHUNK = 1024  # positions whose curriculum is worked out at once
_RULE = re.compile(r"(\S) (\S) -> (\S) (\S)")


class RuleReader:
    """What contexts of a source say: the two sides of each rule, by the number of its fragment."""

    def __init__(self, source: Translations) -> None:
        self.bank, self.chars = source.bank, source.chars
        letters = alphabets(source.depth, source.chars)
        self.place = {symbol: place for alphabet in letters for place, symbol in enumerate(alphabet)}
        self.sides = np.zeros((0, 2), dtype=np.int64)  # left and right bigram; zeros for a fragment that is no rule

    def images(self, fragments_bdp: NDArray[np.int32]) -> NDArray[np.int64]:
        """image[b, i, x] = r for every rule x -> r among the open fragments, n² where there is none."""
        new = [self._sides_of(text) for text in self.bank.texts[len(self.sides) :]]
        self.sides = np.concatenate([self.sides, np.array(new, dtype=np.int64).reshape(-1, 2)])
        size = self.chars**2
        image = np.full((*fragments_bdp.shape[:2], size + 1), size, dtype=np.int64)
        left = np.where(fragments_bdp == NONE, size, self.sides[fragments_bdp, 0])
        np.put_along_axis(image, left, self.sides[fragments_bdp, 1], axis=-1)
        return image[..., :size]

    def _sides_of(self, text: str) -> tuple[int, int]:
        rule = _RULE.search(text)
        if rule is None or any(symbol not in self.place for symbol in rule.groups()):
            return 0, 0
        a, b, c, d = (self.place[symbol] for symbol in rule.groups())
        return a * self.chars + b, c * self.chars + d


def batches(plan: SamplingPlan, source: Translations, batch: int) -> Iterator[tuple[Translation, NDArray[np.int64]]]:
    """The strings of each step and the rules that its examples show, in the order of training."""
    reader = RuleReader(source)
    for first in range(0, plan.total, CHUNK):
        positions = np.arange(first, min(first + CHUNK, plan.total))
        images = reader.images(open_fragments(*plan.at(positions)))
        translation, _ = source.translations(plan.indices(positions))
        for start in range(0, len(positions), batch):
            rows = slice(start, start + batch)
            parts = {name: getattr(translation, name)[rows] for name in ("lengths", "strings", "bigrams")}
            yield replace(translation, **parts), images[rows]


def closed_book_accuracy(curriculum: str, depth: int, chars: int, samples: int, seed: int) -> float:
    """Train for one epoch on `samples` strings; the share of characters right with an empty context afterwards."""
    codebook = Codebook.sample(depth, chars, seed=seed)
    source = Translations(depth, chars, samples, codebook, LENGTHS, seed=seed)
    plan = SamplingPlan(source, curriculum_named(curriculum), seed=seed)
    recipe = Recipe(seed=seed)
    steps = -(-samples // recipe.batch)
    recipe = replace(recipe, warmup=min(recipe.warmup, max(1, steps // 10)))
    learner = Learner(depth, chars, recipe)
    for step, (part, images) in enumerate(batches(plan, source, recipe.batch)):
        learner.step(learner.loss(part, sources(images)), range(depth), rate_at(recipe, step, steps))
    return accuracy(learner.weights, codebook, *random_inputs(chars, EXAM, LENGTHS, seed, start=10**9))
