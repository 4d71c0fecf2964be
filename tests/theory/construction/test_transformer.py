"""The construction against the oracle, module by module and as a whole."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import CASES, Case
from torch.nn import functional

from openbook.base.errors import InputError
from openbook.task import Codebook, random_inputs, translate_batch
from openbook.theory.construction import ConstructedTransformer
from openbook.theory.construction.verify import divisions
from openbook.theory.surrogate.model import context as context_of


def expected_stream(model: ConstructedTransformer, strings: np.ndarray, level: int) -> torch.Tensor:
    """The second segment as the paper's tables have it, with the string of `level` after `level` shifts."""
    plain = model.embed_strings(strings)
    moved = torch.zeros_like(plain)
    moved[:, level:] = plain[:, : plain.shape[1] - level]
    for i in range(level):
        moved[:, i, model.basis.axis("think", i)] = 1
    return moved


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_cases_with_every_division_of_context_and_weights(case: Case) -> None:
    model = ConstructedTransformer(case.codebook.depth, case.codebook.chars)
    for name, context, weights in divisions(case.codebook, seed=1, index=0):
        model.store(weights)
        with torch.no_grad():
            columns = model(context, [case.string])
        assert tuple(model.translated(columns)[0]) == case.output, name


@settings(max_examples=25, deadline=None)
@given(
    depth=st.integers(1, 4),
    chars=st.integers(2, 4),
    half=st.integers(1, 6),
    seed=st.integers(0, 2**32),
)
def test_random_codebooks(depth: int, chars: int, half: int, seed: int) -> None:
    codebook = Codebook.sample(depth, chars, seed)
    inputs, lengths = random_inputs(chars, 5, (2, 2 * half), seed)
    oracle = translate_batch(codebook, inputs, lengths)
    model = ConstructedTransformer(depth, chars)
    for _, context, weights in divisions(codebook, seed, 0):
        model.store(weights)
        with torch.no_grad():
            found = model.translated(model(context, inputs, lengths))
        for row, length in enumerate(lengths):
            assert found[row, :length].tolist() == oracle.outputs[row, :length].tolist()


def test_every_module_leaves_the_stream_as_the_tables_have_it() -> None:
    codebook = Codebook.sample(3, 4, seed=5)
    model = ConstructedTransformer(3, 4)
    context = context_of(codebook)
    inputs, lengths = random_inputs(4, 6, (8, 8), seed=2)
    oracle = translate_batch(codebook, inputs, lengths)
    first = model.embed_context(context)
    x = torch.cat([first.expand(6, -1, -1), model.embed_strings(inputs)], 1)
    with torch.no_grad():
        for i, level in enumerate(model.levels):
            shifted = level.shifted(x)
            x = level(x)
            pairs = oracle.bigrams[:, i].astype(np.int64)
            strings = np.stack([pairs // 4, pairs % 4], -1).reshape(6, -1)
            for found, string in ((shifted, strings), (x, oracle.strings[:, i + 1])):
                assert torch.equal(found[:, : len(first)], first.expand(6, -1, -1))  # bit for bit
                off = found[:, len(first) :] - expected_stream(model, string, i + 1)
                assert off.abs().max() < 1e-3


def test_shift_alone_is_the_outer_product_of_soft_marginals() -> None:
    """Not only one-hot columns: the module multiplies, to O(N⁻²)."""
    model = ConstructedTransformer(1, 3, scale=100)
    soft = torch.rand(2, 4, 9, generator=torch.Generator().manual_seed(0))
    x = model.embed_strings(np.zeros((2, 8), dtype=np.uint8))
    x[:, :4, model.basis.axes("left")] = soft
    with torch.no_grad():
        found = model.levels[0].shifted(x)[:, 1:, model.basis.axes("left")]
    square = soft.reshape(2, 4, 3, 3)
    wanted = torch.einsum("bjk,bjl->bjkl", square.sum(2), square.sum(3).roll(-1, 1)).reshape(2, 4, 9)
    assert ((found - wanted).abs() / wanted).max() < 2e-3


def test_translate_alone_is_linear_in_soft_columns() -> None:
    codebook = Codebook.sample(2, 3, seed=3)
    model = ConstructedTransformer(2, 3)
    context = context_of(codebook, np.random.default_rng(1).random((2, 9)) >= 0.7)
    soft = torch.rand(2, 4, 9, generator=torch.Generator().manual_seed(0))
    level, first = model.levels[1], model.embed_context(context)
    x = expected_stream(model, np.zeros((2, 8), dtype=np.uint8), 2)
    x[:, 2:, model.basis.axes("left")] = soft
    with torch.no_grad():
        attended = level.translate_attention(torch.cat([first.expand(2, -1, -1), x], 1))[:, len(first) + 2 :]
        found = attended[..., model.basis.axes("right")]
    assert (found - soft @ torch.tensor(context[1].T).float()).abs().max() < 1e-3


def test_remembering_the_context_changes_nothing() -> None:
    codebook = Codebook.sample(3, 4, seed=8)
    model = ConstructedTransformer(3, 4)
    model.store(0.2 * torch.rand(3, 16, 16, generator=torch.Generator().manual_seed(1)))
    context = context_of(codebook, np.random.default_rng(2).random((3, 16)) >= 0.5)
    inputs, lengths = random_inputs(4, 7, (2, 12), seed=4)
    with torch.no_grad():
        whole = model(context, inputs, lengths)
        remembered = model.answer(model.remember(context), inputs, lengths)
    inside = np.arange(6) < lengths[:, None] // 2
    assert (whole - remembered).abs().max() < 1e-3
    assert not whole[~inside].any() and not remembered[~inside].any()  # paddings stay empty
    assert whole[inside].norm(dim=-1).min() > 0.99


def test_causal() -> None:
    """What comes later in the sequence changes nothing before it, in any layer."""
    model = ConstructedTransformer(2, 3)
    model.store(torch.rand(2, 9, 9, generator=torch.Generator().manual_seed(3)))
    first = model.embed_context(context_of(Codebook.sample(2, 3)))
    inputs, _ = random_inputs(3, 1, (12, 12), seed=0)
    x = torch.cat([first[None], model.embed_strings(inputs)], 1)
    for cut in (1, 5, len(first) - 1, len(first) + 2, x.shape[1] - 1):
        y = x.clone()
        y[:, cut:] += torch.randn(y[:, cut:].shape, generator=torch.Generator().manual_seed(cut))
        a, b = x, y
        with torch.no_grad():
            for level in model.levels:
                a, b = level(a), level(b)
                assert torch.equal(a[:, :cut], b[:, :cut])
        assert not torch.equal(a[:, cut:], b[:, cut:])


def test_only_the_stored_phrasebooks_are_trained() -> None:
    model = ConstructedTransformer(2, 3)
    assert [tuple(p.shape) for p in model.parameters()] == [(9, 9)] * 2
    columns = model(torch.zeros(2, 9, 9), [[0, 1, 2, 0]])
    functional.cross_entropy(columns[0], torch.tensor([1, 2])).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda m, c: m(c, [[0, 1, 2]]), "even length"),
        (lambda m, c: m(c, [[0, 1, 2, 9]]), "character 4 is 9"),
        (lambda m, c: m(c, [[0, 1, 2, 1]], [3]), "must be even"),
        (lambda m, c: m(c[:1], [[0, 1]]), r"is \[2, 9, 9\], not \[1, 9, 9\]"),
        (lambda m, c: m(c * 0.5, [[0, 1]]), "level 1, column 0: it sums to 0.5"),
        (lambda m, c: m(c + torch.eye(9).roll(3, 0), [[0, 1]]), "must be one-hot"),
        (lambda m, c: m.store(c[:, :4]), r"cannot be stored: give \[2, 9, 9\]"),
        (lambda m, c: ConstructedTransformer(0, 3), "at least one phrasebook"),
        (lambda m, c: ConstructedTransformer(5, 200), "GiB of dense weights"),
        (lambda m, c: ConstructedTransformer(2, 3, scale=0.0), "scale N is 0"),
    ],
)
def test_bad_input_is_named(call, says: str) -> None:
    model = ConstructedTransformer(2, 3)
    context = torch.tensor(context_of(Codebook(3, np.tile(np.arange(9), (2, 1)))))
    with pytest.raises(InputError, match=says):
        call(model, context)


def test_remembering_like_another_context_changes_no_bit() -> None:
    model, codebook = ConstructedTransformer(3, 4), Codebook.sample(3, 4, seed=2)
    context = context_of(codebook)
    other = model.remember(np.zeros_like(context))
    for one, two in zip(model.remember(context), model.remember(context, like=other), strict=True):
        assert torch.equal(one.key_hck, two.key_hck) and torch.equal(one.value_hck, two.value_hck)
    shared = model.remember(context, like=other)
    assert shared[0].key_hck is other[0].key_hck  # what does not depend on the context was not computed again
    assert not torch.equal(shared[1].value_hck, other[1].value_hck)
