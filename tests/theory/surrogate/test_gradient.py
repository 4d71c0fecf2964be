"""Gradient prediction accuracy: both definitions, the masks, and what large batches and high rates do to it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from openbook.base.errors import InputError
from openbook.task import Codebook, random_inputs, translate_batch
from openbook.theory.surrogate import dense
from openbook.theory.surrogate.gradient import GradientGrid, column_gradients, draw_mask, measure, predicted
from openbook.theory.surrogate.model import context, matricize

SMALL = GradientGrid(
    depth=6, chars=4, pairs=50, rates=(0.1, 0.8), deeper_rates=(0.4,), batches=(1, 10), books=(1, 6), masks=4
)


def test_gradients_of_dropped_columns_are_the_dense_ones():
    codebook = Codebook.sample(3, 4, 1)
    mask_ik = draw_mask(codebook, 0.4, 2, 1, 0)
    strings = random_inputs(4, 3, (60, 60), 1)[0]
    g_sxq, image_q = column_gradients(codebook, mask_ik, strings, np.float64)
    dropped = np.flatnonzero(mask_ik[0])
    np.testing.assert_array_equal(image_q, codebook.tables[0, dropped])
    labels = translate_batch(codebook, strings).outputs.astype(np.int64)
    for string, label, mine in zip(strings, labels, g_sxq, strict=True):
        expected = dense.gradient(
            np.zeros((3, 16, 16)),
            context(codebook, mask_ik),
            matricize(string, 4)[0],
            matricize(label, 4)[0],
            [0],
        )[1][0]
        np.testing.assert_allclose(mine, expected[:, dropped], atol=1e-10)


def test_every_mask_has_strings_of_its_own(monkeypatch):
    """Also where batches are smaller than those of the panel over phrasebooks."""
    drawn = []

    def noted(chars, count, lengths, seed, start, stream):
        drawn.append(range(start, start + count))
        return random_inputs(chars, count, lengths, seed, start, stream)

    monkeypatch.setattr("openbook.theory.surrogate.gradient.random_inputs", noted)
    measure(replace(SMALL, rates=(), batches=(1,), books=(2,)))
    numbers = [number for some in drawn for number in some]
    assert len(numbers) == 10 * SMALL.masks == len(set(numbers))


def test_the_two_definitions():
    g_xq = np.array([[-3.0, -1.0, 2.0, 0.0], [1.0, -2.0, -1.0, 0.0], [2.0, 3.0, -1.0, 0.0]])  # columns sum to zero
    paper, released = predicted(g_xq[None], np.array([0, 0, 1, 1]))
    assert paper.tolist() == [[True, False, False, False]]  # the smallest entry, the second, a tie, no gradient at all
    assert released.tolist() == [[True, True, True, False]]  # the right sign is enough


def test_softmax_makes_the_released_measure_a_question_of_sign():
    codebook = Codebook.sample(4, 4, 2)
    mask_ik = draw_mask(codebook, 0.6, 4, 2, 1)
    g_sxq, image_q = column_gradients(codebook, mask_ik, random_inputs(4, 20, (80, 80), 2)[0], np.float64)
    np.testing.assert_allclose(g_sxq.sum(1), 0, atol=1e-12)
    at_sq = np.take_along_axis(g_sxq, image_q[None, None], axis=1)[:, 0]
    np.testing.assert_array_equal(predicted(g_sxq, image_q)[1], at_sq < 0)


def test_masks_drop_independently_from_the_first_phrasebooks_only():
    codebook = Codebook.sample(4, 5, 0)
    masks = np.stack([draw_mask(codebook, 0.3, 2, 7, index) for index in range(200)])
    assert not masks[:, 2:].any() and masks[:, 0].any(1).all()
    assert masks[:, :2].mean((0, 2)) == pytest.approx([0.3, 0.3], abs=0.03)
    agree = (masks[:, 0] & masks[:, 1]).mean()
    assert agree == pytest.approx(0.09, abs=0.02)  # the released code drops the same columns in all: 0.3
    assert draw_mask(codebook, 0.01, 1, 0, 3)[0].any()


def test_more_context_and_larger_batches_predict_better():
    rows = {(row["panel"], row["rate"], row["phrasebooks"], row["batch"]): row for row in measure(SMALL)}
    assert len(rows) == 2 * 2 + 2
    easy, hard = rows["batch", 0.1, 1, 10], rows["batch", 0.8, 1, 10]
    assert easy["paper"] == 1 and hard["paper"] < 0.95
    assert rows["batch", 0.8, 1, 1]["paper"] < hard["paper"] - 0.2
    assert rows["phrasebooks", 0.4, 6, 10]["paper"] < rows["phrasebooks", 0.4, 1, 10]["paper"] - 0.3
    for row in rows.values():
        assert row["paper_low"] <= row["paper"] <= row["paper_high"] and row["released"] >= row["paper"]
        assert row["chance"] == 1 / 16


def test_a_study_is_a_function_of_its_seed():
    tiny = replace(SMALL, rates=(0.5,), deeper_rates=(), masks=2)
    assert measure(tiny) == measure(tiny) != measure(replace(tiny, seed=1))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"rates": (0.1, 1.2)}, "drop rate is 1.2"),
        ({"deeper_rates": (-0.1,)}, "drop rate is -0.1"),
        ({"books": (1, 7)}, "7 phrasebooks, but there are 6"),
        ({"batches": ()}, "batch sizes"),
        ({"masks": 1}, "2 or more"),
        ({"pairs": 0}, "0 bigrams"),
    ],
)
def test_what_cannot_be_measured_is_refused(change, complaint):
    with pytest.raises(InputError, match=complaint):
        measure(replace(SMALL, **change))
