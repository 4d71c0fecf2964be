"""What is trained on is what the curriculum says, and a toy run tells curricula apart."""

from __future__ import annotations

import numpy as np

from openbook.curriculum import SamplingPlan, curriculum_named
from openbook.task import Codebook
from openbook.task.source import Translations
from openbook.theory.construction.curricula import batches, closed_book_accuracy


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
    setting = {"depth": 2, "chars": 3, "samples": 1000, "seed": 0}
    assert closed_book_accuracy("anneal", **setting) > 0.95
    assert closed_book_accuracy("no-dropout", **setting) < 0.6
