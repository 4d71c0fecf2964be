"""Only target tokens get logits, and the loss and its gradient are those of computing all of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.tiny import FAMILIES, tiny

from openbook.base.errors import InputError
from openbook.training.encode import IGNORED
from openbook.training.targets import all_logits_loss, output_layer, summed_loss, target_logits


def batch(vocabulary: int = 700, rows: int = 3, length: int = 24, seed: int = 0) -> dict[str, torch.Tensor]:
    """Random tokens, padded on the right, with loss on a stretch of each row."""
    random = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, vocabulary, (rows, length), generator=random)
    labels = torch.full_like(ids, IGNORED)
    mask = torch.ones_like(ids)
    for row in range(rows):
        end = length - 3 * row
        start = end - 4 - row
        labels[row, start:end] = ids[row, start:end]
        mask[row, end:] = 0
    return {"input_ids": ids, "labels": labels, "attention_mask": mask}


def gradients(model: Any) -> dict[str, torch.Tensor]:
    result = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    return result


@pytest.mark.parametrize("family", FAMILIES)
def test_loss_and_gradient_equal_those_of_all_logits(family: str) -> None:
    model = tiny(family, layers=2)
    logits, targets = target_logits(model, batch())
    assert logits.shape == (4 + 5 + 6, 700) and len(targets) == 15
    ours = summed_loss(logits, targets)
    ours.backward()
    our_gradients = gradients(model)
    theirs = all_logits_loss(model, batch())
    theirs.backward()
    torch.testing.assert_close(ours, theirs)
    their_gradients = gradients(model)
    assert our_gradients.keys() == their_gradients.keys()
    for name, gradient in their_gradients.items():
        torch.testing.assert_close(our_gradients[name], gradient, msg=name)
        assert gradient.abs().sum() > 0, name


def test_a_soft_cap_on_the_logits_stays_in_force() -> None:
    model = tiny("gemma2", layers=2)
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(100)
        capped, _ = target_logits(model, batch())
        assert capped.abs().max() <= 2.0 < model.get_output_embeddings().weight.abs().max()


def test_the_first_token_has_no_prediction_and_so_no_loss() -> None:
    model, whole = tiny(), batch()
    whole["labels"][0, 0] = whole["input_ids"][0, 0]
    assert len(target_logits(model, whole)[1]) == 15


def test_the_output_layer_is_whole_again_afterwards() -> None:
    model = tiny()
    before = model(batch()["input_ids"]).logits
    target_logits(model, batch())
    torch.testing.assert_close(model(batch()["input_ids"]).logits, before)
    model.model.forward = None  # a forward that fails must leave no hook behind either
    with pytest.raises(TypeError):
        target_logits(model, batch())
    assert not model.get_output_embeddings()._forward_pre_hooks


def test_what_is_no_causal_model_is_refused() -> None:
    model = tiny()
    with pytest.raises(InputError, match="has no output embeddings"):
        output_layer(model.model)

    class Twice(torch.nn.Module):
        """Does something of its own between the hidden states and the logits."""

        def __init__(self) -> None:
            super().__init__()
            self.inner = model

        def get_output_embeddings(self) -> torch.nn.Module:
            return self.inner.get_output_embeddings()

        def forward(self, **inputs: Any) -> Any:
            result = self.inner(**inputs)
            result.logits = torch.cat([result.logits, result.logits], dim=1)
            return result

    with pytest.raises(InputError, match="does not pass its hidden states straight"):
        target_logits(Twice(), batch())


def test_the_head_sees_the_targets_alone() -> None:
    """The memory that matters: the output layer computes one row for each target, not one for each token."""
    model, seen = tiny(), []
    model.get_output_embeddings().register_forward_hook(lambda module, inputs, output: seen.append(output.shape))
    target_logits(model, batch())
    all_logits_loss(model, batch())
    assert seen == [(1, 15, 700), (3, 24, 700)]
