"""The fast forward against the whole transformer: values and gradients, one-hot and soft, any lengths."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from openbook.task import Codebook, random_inputs
from openbook.theory.construction import ConstructedTransformer
from openbook.theory.construction.fast import bigrams, shown_sources, simulate, sources
from openbook.theory.surrogate.model import context


@pytest.mark.parametrize(("depth", "chars", "lengths"), [(1, 2, (2, 6)), (3, 4, (2, 12)), (2, 5, (8, 8))])
def test_same_values_and_gradients_as_the_transformer(depth: int, chars: int, lengths: tuple[int, int]) -> None:
    random = torch.Generator().manual_seed(depth)
    codebook = Codebook.sample(depth, chars, seed=7)
    shown = np.random.default_rng(chars).random((depth, chars**2)) < 0.6
    weights = 0.3 * torch.rand(depth, chars**2, chars**2, generator=random)
    inputs, sizes = random_inputs(chars, 6, lengths, seed=3)
    model = ConstructedTransformer(depth, chars)
    model.store(weights)
    whole = model(context(codebook, ~shown), inputs, sizes)
    copies = [weight.clone().requires_grad_() for weight in weights]
    columns = torch.from_numpy(sizes // 2)
    fast = simulate(copies, shown_sources(codebook.tables, shown[None]), bigrams(inputs, chars), columns)
    inside = torch.arange(fast.shape[1]) < columns[:, None]
    assert (whole - fast)[inside].abs().max() < 1e-4
    direction = torch.randn(fast.shape, generator=random) * inside[..., None]
    gradients = torch.autograd.grad((whole * direction).sum(), model.stored)
    fast_gradients = torch.autograd.grad((fast * direction).sum(), copies)
    for slow, quick in zip(gradients, fast_gradients, strict=True):
        assert (slow - quick).norm() < 3e-3 * slow.norm()
        assert slow.norm() > 0


def test_rules_of_each_string_are_its_own() -> None:
    """Contexts that differ within a batch give what each gives alone, and misleading ones mislead."""
    books = [Codebook.sample(2, 3, seed=seed) for seed in range(4)]
    inputs, _ = random_inputs(3, 4, (8, 8), seed=1)
    index = bigrams(inputs, 3)
    weights = list(0.2 * torch.rand(2, 9, 9, generator=torch.Generator().manual_seed(0)))
    images = np.stack([book.tables for book in books]).astype(np.int64)
    images[1, 0, 4] = images[2, 1, 3] = 9  # a rule that is not shown
    together = simulate(weights, sources(images), index)
    for row in range(4):
        alone = simulate(weights, sources(images[row : row + 1]), index[row : row + 1])
        assert torch.allclose(together[row], alone[0], atol=1e-6)
    assert not torch.allclose(together, simulate(weights, sources(images[::-1].copy()), index), atol=0.1)


def test_gradient_through_the_lookup_is_the_transpose() -> None:
    images = np.full((2, 1, 9), 9)
    images[0, 0, [1, 4, 7]] = [2, 0, 8]
    images[1, 0, [0, 8]] = [5, 3]
    source = sources(images).expand(-1, 2, -1)
    weights = [(0.3 * torch.rand(9, 9, generator=torch.Generator().manual_seed(2))).double().requires_grad_()]
    index = torch.tensor([[1, 5, 3], [0, 2, 6]])
    assert torch.autograd.gradcheck(lambda W: simulate([W, W], source, index), weights)
