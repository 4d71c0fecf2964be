"""The sample-efficiency figure: what is trained on is what the curriculum says, and a toy run tells curricula apart."""

from __future__ import annotations

import numpy as np
import pytest

from openbook.base.errors import InputError
from openbook.curriculum import SamplingPlan, curriculum_named
from openbook.task import Codebook
from openbook.task.source import Translations
from openbook.theory.construction.efficiency import CURRICULA, Job, batches, jobs, measure, published_points


def shown(name: str, samples: int = 96) -> tuple[Codebook, list]:
    codebook = Codebook.sample(3, 4, seed=1)
    source = Translations(3, 4, samples, codebook, (8, 12), seed=1)
    return codebook, list(batches(SamplingPlan(source, curriculum_named(name), seed=1), source, 32))


def test_no_dropout_shows_the_needed_rules_and_no_others() -> None:
    codebook, steps = shown("no-dropout")
    for part, images in steps:
        needed = part.used()
        assert np.array_equal(images, np.where(needed, codebook.tables.astype(np.int64), 16))


def test_no_context_shows_nothing() -> None:
    assert all((images == 16).all() for _, images in shown("no-context")[1])


def test_anneal_shows_true_rules_and_fewer_of_them_at_the_end() -> None:
    codebook, steps = shown("anneal")
    for _, images in steps:
        assert ((images == 16) | (images == codebook.tables)).all()
    assert (steps[0][1] != 16).sum() > 2 * (steps[-1][1] != 16).sum()


def test_wrong_context_shows_other_rules() -> None:
    codebook, steps = shown("wrong-context")
    _, images = steps[0]
    open_rules = images != 16
    assert open_rules.any()
    assert (images == codebook.tables)[open_rules].mean() < 0.2
    for image in images.reshape(-1, 16):  # still part of a bijection
        sides = image[image != 16]
        assert len(set(sides.tolist())) == len(sides)


def test_curricula_differ_where_they_should() -> None:
    found = {name: measure(Job(3, name, 1000, 0, depth=2)).accuracy for name in ("anneal", "no-dropout")}
    assert found["anneal"] > 0.95
    assert found["no-dropout"] < 0.6


def test_published_points_are_the_3b_models() -> None:
    rows = published_points()
    assert {row["curriculum"] for row in rows} == set(CURRICULA.values())
    best = next(r for r in rows if (r["chars"], r["curriculum"], r["samples"]) == (8, "Annealing Dropout", 50_000))
    assert best["accuracy"] == 1.0


@pytest.mark.parametrize("scale", ["smoke", "laptop", "overnight"])
def test_longest_jobs_come_first(scale) -> None:
    costs = [job.samples * job.chars**2 for job in jobs(scale)]
    assert costs == sorted(costs, reverse=True)
    assert len(set(jobs(scale))) == len(costs)


def test_a_part_of_the_grid_can_be_asked_for() -> None:
    grid = jobs("laptop", chars=[8], samples=[1000, 10_000], seeds=2, curricula=["anneal", "no-context"])
    assert {(job.chars, job.depth) for job in grid} == {(8, 5)} and len(grid) == 2 * 2 * 2
    assert {job.seed for job in jobs("laptop") if job.samples == 30_000} == {0}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"seeds": 0}, "at least one"),
        ({"chars": [1]}, "at least 2"),
        ({"samples": [0]}, "at least 1"),
        ({"curricula": ["aneal"]}, "did you mean 'anneal'"),
    ],
)
def test_a_bad_grid_is_refused(options: dict, says: str) -> None:
    with pytest.raises(InputError, match=says):
        jobs("laptop", **options)
