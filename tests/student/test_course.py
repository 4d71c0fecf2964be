"""The reading course: its stages, and batches that say what the oracle says."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from openbook.student.course import Course, Stage, stages
from openbook.student.vocabulary import student_config
from openbook.training.config import ReadingConfig

SETTINGS = ReadingConfig()


def test_the_course_grows_to_the_depth_and_ends_at_the_full_lengths() -> None:
    course = stages(5, (20, 40), SETTINGS)
    assert [stage.levels for stage in course] == [1, 1, 2, 3, 5, 5]
    assert course[0].others == 0 and course[-1] == Stage(5, 0.25, (20, 40), missing=True, ends=0.5)
    assert [stage.levels for stage in stages(1, (4, 8), SETTINGS)] == [1, 1, 1]


@pytest.mark.parametrize(("wrong", "words"), [({"gate": 0.98}, "gate 0.98"), ({"window": 30}, "window 30")])
def test_a_course_that_could_not_end_is_refused(wrong: dict[str, float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ReadingConfig(**wrong)


def test_more_than_three_levels_mind_the_wrap_around() -> None:
    course = stages(5, (20, 40), SETTINGS)
    assert {stage.ends for stage in course} == {0.5}
    assert [stage.lengths for stage in course if stage.levels == 2] == [(8, 40)]
    without = stages(5, (20, 40), SETTINGS.model_copy(update={"ends": 0.0}))
    for plain in (without, stages(3, (20, 40), SETTINGS)):
        assert {stage.ends for stage in plain} == {0.0}
        assert {stage.lengths for stage in plain[:-1]} == {(8, 20)}


@pytest.mark.parametrize("levels", [1, 2, 3])
def test_a_batch_says_what_the_oracle_says(levels: int) -> None:
    """Rules looked up in the tokens translate the given string into what the slots are to know."""
    course = Course(3, 4, seed=2)
    config = student_config(3, 4)
    size, batch = 16, course.batch(Stage(levels, 0.25, (4, 8)), 5, 6, 0.0)
    for row in range(6):
        ids = batch.ids[row].numpy()
        rules = ids[ids >= config.first_rule] - config.first_rule
        table = {(int(r) // size**2, int(r) // size % size): int(r) % size for r in rules}
        given = ids[(ids >= size) & (ids < 4 * size)] - size
        level, string = int(given[0]) // size, given % size
        for i in range(levels):
            characters = np.stack([string // 4, string % 4], 1).reshape(-1)
            shifted = np.roll(characters, -1).reshape(-1, 2)
            assert (batch.shifted[row, i].numpy() == shifted).all()
            string = np.array([table[level + i, int(a * 4 + b)] for a, b in shifted])
            assert (batch.wanted[row, i].numpy() == np.stack([string // 4, string % 4], 1)).all()
        think = (config.pad_token_id or 0) + 3
        assert (batch.ids[row, batch.slots[row].reshape(-1)] == think).all()


@pytest.mark.parametrize("most_missing", [0.0, 0.5])
def test_rows_with_pages_missing_are_told_what_the_oracle_says_where_the_page_is_there(most_missing: float) -> None:
    course = Course(2, 4, seed=1, most_missing=most_missing)
    config = student_config(2, 4)
    size, batch = 16, course.batch(Stage(1, 0.25, (8, 8), missing=True), 3, 12, 0.5)
    assert not batch.complete.all()
    shown = 0
    for row in (~batch.complete).nonzero()[:, 0]:
        ids = batch.ids[row].numpy()
        rules = ids[ids >= config.first_rule] - config.first_rule
        table = {int(rule) // size % size: int(rule) % size for rule in rules}
        left, right = (x[row, 0].numpy() @ np.array([4, 1]) for x in (batch.shifted, batch.wanted))
        there = [table[bigram] == word for bigram, word in zip(left, right, strict=True) if bigram in table]
        shown += len(there)
        assert all(there)
    assert shown == 6 * 4 if most_missing == 0 else 0 < shown < 6 * 4


def test_pages_are_missing_from_the_second_half_alone() -> None:
    course = Course(2, 4, seed=0)
    config = student_config(2, 4)
    batch = course.batch(Stage(2, 0.0, (8, 8), missing=True), 0, 64, 0.5)
    assert batch.complete.tolist() == [True] * 32 + [False] * 32
    rules = (batch.ids >= config.first_rule).sum(1).float()
    assert rules[32:].mean() < 0.8 * rules[:32].mean()


def test_a_step_is_a_function_of_the_seed_alone() -> None:
    first, second = Course(3, 4, seed=1), Course(3, 4, seed=1)
    stage = Stage(2, 0.25, (4, 12))
    second.batch(stage, 3, 8, 0.5)
    a, b = (course.batch(stage, 7, 8, 0.5) for course in (first, second))
    assert torch.equal(a.ids, b.ids) and torch.equal(a.wanted, b.wanted)
    assert not torch.equal(a.ids[0, :5], Course(3, 4, seed=9).batch(stage, 7, 8, 0.5).ids[0, :5])
