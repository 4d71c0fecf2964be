"""Muon with AdamW: orthogonal updates, and torch's own AdamW where it is AdamW."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from openbook.training.optimizers import MasterAdamW, MuonAdamW, muon_adamw, orthogonalised


@pytest.mark.parametrize("shape", [(4, 8, 8), (3, 16, 6), (3, 6, 16)])
def test_orthogonalised_matrices_have_singular_values_near_one(shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(0)
    result = orthogonalised(torch.randn(shape, generator=generator))
    values = torch.linalg.svdvals(result)
    assert ((values > 0.6) & (values < 1.3)).all()


def test_a_stack_is_treated_matrix_by_matrix() -> None:
    matrices = torch.randn(5, 7, 9, generator=torch.Generator().manual_seed(1))
    together = orthogonalised(matrices)
    apart = torch.stack([orthogonalised(matrix[None])[0] for matrix in matrices])
    torch.testing.assert_close(together, apart)


def test_vectors_follow_torchs_adamw() -> None:
    ours, theirs = nn.Parameter(torch.randn(12)), None
    theirs = copy.deepcopy(ours)
    mine = MuonAdamW([], [ours], matrix_lr=0.1, lr=0.01, weight_decay=0.1)
    torchs = torch.optim.AdamW([theirs], lr=0.01, betas=(0.9, 0.95), weight_decay=0.1)
    for step in range(5):
        gradient = torch.randn(12, generator=torch.Generator().manual_seed(step))
        ours.grad, theirs.grad = gradient.clone(), gradient.clone()
        mine.step()
        torchs.step()
    torch.testing.assert_close(ours, theirs)


def test_matrices_follow_torchs_muon() -> None:
    ours = nn.Parameter(torch.randn(8, 8, generator=torch.Generator().manual_seed(3)))
    theirs = copy.deepcopy(ours)
    mine = MuonAdamW([ours], [], matrix_lr=0.02, lr=0.01)
    torchs = torch.optim.Muon([theirs], lr=0.02, weight_decay=0.0, momentum=0.95)
    for step in range(3):
        gradient = torch.randn(8, 8, generator=torch.Generator().manual_seed(step))
        ours.grad, theirs.grad = gradient.clone(), gradient.clone()
        mine.step()
        torchs.step()
    torch.testing.assert_close(ours, theirs, rtol=0.05, atol=0.02)  # torch orthogonalises in bfloat16


def test_only_matrices_inside_the_blocks_go_to_muon() -> None:
    from openbook.student.model import StudentForCausalLM
    from openbook.student.vocabulary import student_config

    model = StudentForCausalLM(student_config(2, 3, width=16, heads=1, head=8, mlp=16))
    optimizer = muon_adamw(model, 0.02, 0.003)
    muon, adam = ({id(p) for p in group["params"]} for group in optimizer.param_groups)
    assert muon == {id(p) for name, p in model.named_parameters() if "proj" in name}
    assert muon | adam == {id(p) for p in model.parameters()}
    assert not muon & adam


def test_a_table_of_positions_is_no_matrix_of_a_block() -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(vocab_size=11, n_positions=16, n_embd=8, n_layer=1, n_head=1))
    muon, adam = ({id(p) for p in group["params"]} for group in muon_adamw(model, 0.02, 0.003).param_groups)
    assert muon == {id(p) for name, p in model.named_parameters() if ".h." in name and p.ndim == 2}
    assert id(model.transformer.wpe.weight) in adam and id(model.transformer.wte.weight) in adam


def test_its_state_can_be_taken_up_again() -> None:
    def made() -> tuple[list[nn.Parameter], MuonAdamW]:
        generator = torch.Generator().manual_seed(5)
        parameters = [nn.Parameter(torch.randn(shape, generator=generator)) for shape in ((6, 4), (4, 6), (5,))]
        return parameters, MuonAdamW(parameters[:2], parameters[2:], 0.02, 0.01)

    def walk(parameters: list[nn.Parameter], optimizer: MuonAdamW, steps: range) -> None:
        for step in steps:
            for number, parameter in enumerate(parameters):
                seed = torch.Generator().manual_seed(10 * step + number)
                parameter.grad = torch.randn(parameter.shape, generator=seed)
            optimizer.step()

    whole, optimizer = made()
    walk(whole, optimizer, range(6))
    first, optimizer = made()
    walk(first, optimizer, range(3))
    second, resumed = made()
    for old, new in zip(first, second, strict=True):
        new.data.copy_(old.data)
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    walk(second, resumed, range(3, 6))
    for a, b in zip(whole, second, strict=True):
        assert torch.equal(a, b)


def _rounded(seed: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(6, 5, generator=torch.Generator().manual_seed(seed)).bfloat16())


def _gradients(step: int) -> torch.Tensor:
    return torch.randn(6, 5, generator=torch.Generator().manual_seed(100 + step)).bfloat16()


def test_masters_follow_torchs_adamw_in_float32() -> None:
    ours = _rounded(0)
    theirs = nn.Parameter(ours.detach().float())
    mine = MasterAdamW([{"params": [ours]}], lr=1e-4, weight_decay=0.1)
    torchs = torch.optim.AdamW([theirs], lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1)
    for step in range(20):
        ours.grad, theirs.grad = _gradients(step), _gradients(step).float()
        norm = mine.clip(1.0)
        torch.testing.assert_close(norm, nn.utils.clip_grad_norm_([theirs], 1.0))
        mine.step()
        torchs.step()
        torch.testing.assert_close(mine.state[ours]["master"], theirs.detach())
        assert torch.equal(ours.detach(), mine.state[ours]["master"].bfloat16())


def test_small_steps_are_lost_without_masters_and_kept_with_them() -> None:
    ours, plain = nn.Parameter(torch.ones(4).bfloat16()), nn.Parameter(torch.ones(4).bfloat16())
    mine, torchs = MasterAdamW([{"params": [ours]}], lr=1e-4), torch.optim.AdamW([plain], lr=1e-4, weight_decay=0.0)
    for _ in range(100):
        ours.grad, plain.grad = torch.ones(4).bfloat16(), torch.ones(4).bfloat16()
        mine.step()
        torchs.step()
    assert torch.equal(plain.detach(), torch.ones(4).bfloat16())
    torch.testing.assert_close(ours.detach().float(), torch.full((4,), 0.99), atol=2e-3, rtol=0)


def test_gradients_of_micro_batches_add_up_in_float32() -> None:
    ours = nn.Parameter(torch.zeros(1).bfloat16())
    mine = MasterAdamW([{"params": [ours]}], lr=1e-4)
    for part in (1.0, 1 / 512, 1 / 512):  # in bfloat16, 1 + 1/512 is 1
        ours.grad = torch.full((1,), part).bfloat16()
        mine.gather()
    assert ours.grad is None and float(mine.clip(9.0)) == 1 + 2 / 512
    mine.zero_grad()
    ours.grad = torch.ones(1).bfloat16()
    mine.gather()
    ours.grad = torch.ones(1).bfloat16()
    assert float(mine.clip(9.0)) == 2  # the last micro-batch need not be gathered


def test_masters_go_on_bit_for_bit() -> None:
    def trained(optimizer: MasterAdamW, parameter: nn.Parameter, steps: range) -> None:
        for step in steps:
            parameter.grad = _gradients(step)
            optimizer.clip(1.0)
            optimizer.step()

    whole, half = _rounded(1), _rounded(1)
    first, second = MasterAdamW([{"params": [whole]}], lr=1e-3), MasterAdamW([{"params": [half]}], lr=1e-3)
    trained(first, whole, range(10))
    trained(second, half, range(5))
    again = nn.Parameter(half.detach().clone())
    resumed = MasterAdamW([{"params": [again]}], lr=1e-3)
    resumed.load_state_dict(copy.deepcopy(second.state_dict()))
    trained(resumed, again, range(5, 10))
    assert torch.equal(again, whole) and torch.equal(resumed.state[again]["master"], first.state[whole]["master"])
    assert resumed.state[again]["second"].dtype == torch.float32
