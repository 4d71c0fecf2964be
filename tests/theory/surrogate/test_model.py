"""The surrogate obeys the oracle, and its Shift pairs characters as the task does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import CASES

from openbook.base.errors import InputError
from openbook.task import Codebook, random_inputs, translate_batch
from openbook.theory.surrogate.model import (
    Surrogate,
    augment,
    context,
    hardmax,
    icl_witness,
    is_icl_capable,
    is_task_capable,
    matricize,
    one_dropped,
    recovered,
    shift,
    unmatricize,
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("hard", [True, False], ids=["hard", "soft"])
def test_equals_the_oracle(case, hard):
    """With all phrasebooks in context and small weights; and without context once the weights hold them."""
    depth, chars = case.codebook.depth, case.codebook.chars
    V_bxj = matricize(case.string, chars)
    C_ixk = context(case.codebook)
    in_context = Surrogate.zeros(depth, chars)(C_ixk, V_bxj, hard)
    in_weights = Surrogate(C_ixk)(np.zeros_like(C_ixk), V_bxj, hard)
    for output in (in_context, in_weights):
        np.testing.assert_allclose(output, matricize(case.output, chars), rtol=0, atol=0 if hard else 1e-6)
        assert tuple(unmatricize(output)[0]) == case.output


@given(chars=st.integers(2, 4), pairs=st.integers(1, 5), batch=st.integers(1, 3), seed=st.integers(0, 99))
def test_the_papers_hadamard_product_is_the_outer_product_of_marginals(chars, pairs, batch, seed):
    V_bxj = np.random.default_rng(seed).random((batch, chars**2, pairs))
    V_baaj = V_bxj.reshape(batch, chars, chars, pairs)
    second_baj, first_baj = V_baaj.sum(1), np.roll(V_baaj.sum(2), -1, axis=-1)
    np.testing.assert_allclose(shift(V_bxj), (second_baj[:, :, None] * first_baj[:, None]).reshape(V_bxj.shape))


@given(depth=st.integers(1, 3), chars=st.integers(2, 4), seed=st.integers(0, 99), hard=st.booleans())
def test_context_augmented_form_is_the_same_model(depth, chars, seed, hard):
    codebook = Codebook.sample(depth, chars, seed)
    rng = np.random.default_rng(seed)
    model = Surrogate(rng.random((depth, chars**2, chars**2)))
    C_ixk = context(codebook, rng.random((depth, chars**2)) < 0.4)
    V_bxj = matricize(rng.integers(0, chars, (3, 8)), chars)
    X_bxm = model.augmented(augment(C_ixk, V_bxj), hard)
    np.testing.assert_allclose(X_bxm, augment(C_ixk, model(C_ixk, V_bxj, hard)))


def test_dropping_a_rule_zeroes_its_column_and_breaks_the_output_only_where_it_is_used():
    codebook = Codebook.sample(2, 4, 3)
    strings = random_inputs(4, 20, (40, 40), 1)[0]
    run = translate_batch(codebook, strings)
    column = 6 if codebook.tables[1, 6] else 7  # a zero column's hard-max is row 0, which may be right by luck
    mask = one_dropped(codebook, 1, column)
    C_ixk = context(codebook, mask)
    assert C_ixk.sum() == 2 * 16 - 1 and not C_ixk[1, :, column].any()
    output = unmatricize(Surrogate.zeros(2, 4)(C_ixk, matricize(strings, 4)))
    wrong = (output != run.outputs).reshape(20, -1, 2).any(-1)
    np.testing.assert_array_equal(wrong, run.bigrams[:, 1] == column)


@given(scale=st.sampled_from([0.4, 0.49, 0.6, 1.0]), seed=st.integers(0, 200))
def test_icl_capability_is_decided_by_the_spread_of_a_column(scale, seed):
    """The witness is a rule that the model really gets wrong although it is in context; without one none is wrong."""
    W_ixk = np.random.default_rng(seed).uniform(-scale, scale, (2, 4, 4))
    eye = np.eye(4)
    overruled = [
        (i, k, x)
        for i in range(2)
        for k in range(4)
        for x in range(4)
        if hardmax((W_ixk[i, :, k] + eye[x])[:, None])[x, 0] != 1
    ]
    witness = icl_witness(W_ixk)
    assert is_icl_capable(W_ixk) == (not overruled)
    assert witness is None or witness in overruled
    if scale < 0.5:
        assert witness is None  # the paper's lemma


def test_task_capability_needs_every_column_and_a_tie_is_not_knowledge():
    codebook = Codebook.sample(2, 3, 5)
    W_ixk = 0.3 * context(codebook)
    assert is_task_capable(W_ixk, codebook)
    strings = random_inputs(3, 50, (12, 12), 0)[0]
    output = Surrogate(W_ixk)(np.zeros_like(W_ixk), matricize(strings, 3))
    np.testing.assert_array_equal(unmatricize(output), translate_batch(codebook, strings).outputs)
    W_ixk[1, (codebook.tables[1, 4] + 1) % 9, 4] = 0.3
    assert not is_task_capable(W_ixk, codebook)
    np.testing.assert_array_equal(np.argwhere(~recovered(W_ixk, codebook)), [[1, 4]])


@pytest.mark.parametrize(
    ("work", "complaint"),
    [
        (lambda: matricize([0, 1, 2], 3), "even"),
        (lambda: matricize([0, 3], 3), "outside the alphabet"),
        (lambda: context(Codebook.sample(2, 3), np.zeros((2, 4))), "mask of dropped rules"),
        (lambda: one_dropped(Codebook.sample(2, 3), 2, 0), "no rule 0 in layer 2"),
        (lambda: Surrogate.zeros(2, 3)(np.zeros((1, 9, 9)), matricize([0, 1], 3)), "the context has shape"),
        (lambda: Surrogate.zeros(2, 3).augmented(np.zeros((1, 9, 18))), "augmented input"),
    ],
)
def test_what_does_not_fit_is_refused(work, complaint):
    with pytest.raises(InputError, match=complaint):
        work()
