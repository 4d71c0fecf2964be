"""The sample-efficiency figure at the paper's task size, with the hand-built transformer as the ICL-capable model.

It needs no pre-training: with W small it translates by any codebook in its context. Each curriculum trains it for one
epoch on datasets of growing size; the exam is on held-out inputs with an empty context. Which rules an example shows
is decided by the project's curriculum (`openbook.curriculum`), as it is for language models.
"""

from __future__ import annotations

import multiprocessing
import os
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from openbook.base.errors import InputError, nearest
from openbook.book.shelf import NONE
from openbook.curriculum import SamplingPlan, curriculum_named, open_fragments
from openbook.paper.published import published
from openbook.task import Codebook, Translation, random_inputs
from openbook.task.alphabet import alphabets
from openbook.task.source import Translations
from openbook.theory.construction.fast import Rules, bigrams
from openbook.theory.construction.training import Learner, Recipe, accuracy, rate_at

Scale = Literal["smoke", "laptop", "overnight"]
Advance = Callable[..., None]

# our name of a curriculum, and the one that the published curve has
CURRICULA = {
    "no-context": "No Context",
    "fixed:0.2": "Fixed Dropout",
    "anneal": "Annealing Dropout",
    "no-dropout": "No Dropout",
    "wrong-context": "Wrong Context",
}
LENGTHS = (20, 40)  # of strings, as in section 4.1
EXAM = 512  # held-out strings
CHUNK = 1024  # positions whose curriculum is worked out at once
_RULE = re.compile(r"(\S) (\S) -> (\S) (\S)")


@dataclass(frozen=True)
class Job:
    """One point of the figure before it is measured."""

    chars: int
    curriculum: str
    samples: int
    seed: int
    depth: int = 5


@dataclass(frozen=True)
class Point:
    """One point of the figure: accuracy of characters with an empty context, on inputs not trained on."""

    chars: int
    curriculum: str
    samples: int
    seed: int
    accuracy: float
    chance: float
    depth: int = 5


# sizes of datasets, each with the number of its seeds
_SIZES: dict[Scale, dict[int, int]] = {
    "smoke": {200: 1, 2000: 1},
    "laptop": {1000: 3, 3000: 3, 10_000: 3, 30_000: 1},  # at 30,000 nothing is left to be seen but that it stays so
    "overnight": dict.fromkeys((1000, 3000, 10_000, 30_000, 100_000, 300_000, 1_000_000), 3),
}


def jobs(
    scale: Scale,
    chars: Sequence[int] = (),
    samples: Sequence[int] = (),
    seeds: int | None = None,
    curricula: Sequence[str] = (),
) -> list[Job]:
    """The grid of a scale, or the part of it or the other one that is asked for.

    The longest runs come first, so that no core is left with one at the end.
    """
    sizes = _SIZES[scale]
    if seeds is not None and seeds < 1:
        raise InputError(f"--seeds is {seeds}: train with at least one")
    if min((*chars, 2)) < 2 or min((*samples, 1)) < 1:
        raise InputError("--chars are at least 2, --samples at least 1")
    for name in curricula:
        if name not in CURRICULA:
            raise InputError(f"there is no curriculum '{name}' in this figure{nearest(name, CURRICULA)}")
    depth = 2 if scale == "smoke" else 5
    alphabets_ = dict.fromkeys(chars or ((3,) if scale == "smoke" else (8, 10)))
    most = max(sizes.values())
    grid = [
        Job(n, name, size, seed, depth)
        for size in dict.fromkeys(samples or sizes)
        for n in alphabets_
        for seed in range(seeds or sizes.get(size, most))
        for name in dict.fromkeys(curricula or CURRICULA)
    ]
    return sorted(grid, key=lambda job: -job.samples * job.chars**2)


class _RuleReader:
    """The two sides of a rule, by the number of its fragment: what a context says is read from its text."""

    def __init__(self, source: Translations) -> None:
        self.source = source
        letters = alphabets(source.depth, source.chars)
        self._place = {symbol: place for alphabet in letters for place, symbol in enumerate(alphabet)}
        self._left = np.zeros(0, dtype=np.int64)
        self._right = np.zeros(0, dtype=np.int64)

    def images(self, fragments_bdp: NDArray[np.int32]) -> NDArray[np.int64]:
        """image[b, i, x] = r for every rule x -> r among the open fragments, n² where there is none."""
        self._read_new()
        batch, depth, _ = fragments_bdp.shape
        size = self.source.chars**2
        image = np.full((batch, depth, size + 1), size, dtype=np.int64)
        left = np.where(fragments_bdp == NONE, size, self._left[fragments_bdp])
        np.put_along_axis(image, left, self._right[fragments_bdp], axis=-1)
        return image[..., :size]

    def _read_new(self) -> None:
        texts = self.source.bank.texts[len(self._left) :]
        sides = np.zeros((len(texts), 2), dtype=np.int64)
        for row, text in enumerate(texts):
            found = _RULE.search(text)
            if found and all(symbol in self._place for symbol in found.groups()):
                a, b, c, d = (self._place[symbol] for symbol in found.groups())
                sides[row] = a * self.source.chars + b, c * self.source.chars + d
        self._left = np.concatenate([self._left, sides[:, 0]])
        self._right = np.concatenate([self._right, sides[:, 1]])


def batches(plan: SamplingPlan, source: Translations, batch: int) -> Iterator[tuple[Translation, NDArray[np.int64]]]:
    """The strings of each step and the rules that its examples show, in the order of training."""
    reader = _RuleReader(source)
    for first in range(0, plan.total, CHUNK):
        positions = np.arange(first, min(first + CHUNK, plan.total))
        shelf, opened = plan.at(positions)
        images = reader.images(open_fragments(shelf, opened))
        translation, _ = source.translations(plan.indices(positions))
        for start in range(0, len(positions), batch):
            rows = slice(start, start + batch)
            part = replace(
                translation,
                lengths=translation.lengths[rows],
                strings=translation.strings[rows],
                bigrams=translation.bigrams[rows],
            )
            yield part, images[rows]


def measure(job: Job, recipe: Recipe | None = None) -> Point:
    """Train on one dataset under one curriculum, then sit the exam with an empty context."""
    codebook = Codebook.sample(job.depth, job.chars, seed=job.seed)
    source = Translations(job.depth, job.chars, job.samples, codebook, LENGTHS, seed=job.seed)
    plan = SamplingPlan(source, curriculum_named(job.curriculum), seed=job.seed)
    recipe = recipe or Recipe(seed=job.seed)
    steps = -(-job.samples // recipe.batch)
    recipe = replace(recipe, warmup=min(recipe.warmup, max(1, steps // 10)))
    learner = Learner(job.depth, job.chars, recipe)
    for step, (part, images) in enumerate(batches(plan, source, recipe.batch)):
        index, target = bigrams(part.inputs, job.chars), bigrams(part.outputs, job.chars)
        loss = learner.loss(Rules.of(images), index, target, torch.from_numpy(part.lengths // 2))
        learner.step(loss, range(job.depth), rate_at(recipe, step, steps))
    held_out, lengths = random_inputs(job.chars, EXAM, LENGTHS, job.seed, start=10**9)
    right = accuracy([weight.detach() for weight in learner.weights], codebook, held_out, lengths)
    return Point(job.chars, job.curriculum, job.samples, job.seed, right, 1 / job.chars, job.depth)


def figure(grid: list[Job], processes: int | None = None, advance: Advance = lambda *_, **__: None) -> list[Point]:
    """Every point of the figure, on all cores unless told otherwise."""
    if processes is not None and processes < 1:
        raise InputError(f"{processes} processes: use at least 1")
    workers = processes or os.cpu_count() or 1
    points = []
    context = multiprocessing.get_context("spawn")  # a forked torch may hang
    with ProcessPoolExecutor(workers, mp_context=context, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        running = {pool.submit(measure, job): job for job in grid}
        for done in as_completed(running):
            point = done.result()
            points.append(point)
            advance(running[done].samples, note=f"{point.curriculum}, n={point.chars}: {point.accuracy:.0%}")
    return sorted(points, key=lambda p: (p.chars, list(CURRICULA).index(p.curriculum), p.samples, p.seed))


def published_points() -> list[dict[str, Any]]:
    """The published points: what a 3B language model did. They are drawn behind ours and are not ours."""
    return [
        {
            "chars": row["n"],
            "curriculum": row["curriculum"],
            "samples": row["num_samples"],
            "accuracy": row["acc_no_context"],
        }
        for row in published("sample_efficiency")
        if row["curriculum"] in CURRICULA.values()
    ]


def to_json(scale: Scale, points: list[Point]) -> dict[str, Any]:
    return {
        "scale": scale,
        "recipe": asdict(Recipe()),
        "exam_strings": EXAM,
        "lengths": LENGTHS,
        "rows": [asdict(point) for point in points],
        "published_by_a_3b_model": published_points(),
    }
