"""Optimisers: Muon for matrices with AdamW for everything else, and AdamW for weights in bfloat16.

Muon replaces the momentum of a matrix by the nearest orthogonal matrix, which a few Newton-Schulz steps approximate. A
small model has many small matrices of few shapes, so matrices of the same shape are updated together: torch's own Muon
updates one at a time, which for the student takes most of a step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of the quintic that pushes singular values towards one
_STEPS = 5


def orthogonalised(G_krc: Tensor) -> Tensor:
    """Roughly the orthogonal factor of each matrix of a stack: U Vᵀ of its singular value decomposition."""
    a, b, c = _COEFFICIENTS
    tall = G_krc.shape[-2] > G_krc.shape[-1]
    X_krc = G_krc.mT if tall else G_krc
    X_krc = X_krc / (X_krc.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(_STEPS):
        S_krr = X_krc @ X_krc.mT
        X_krc = a * X_krc + (b * S_krr + c * S_krr @ S_krr) @ X_krc
    return X_krc.mT if tall else X_krc


class MuonAdamW(torch.optim.Optimizer):
    """Updates the matrices of groups with `muon` true by Muon, and the parameters of other groups by AdamW."""

    def __init__(
        self,
        matrices: Iterable[Tensor],
        others: Iterable[Tensor],
        matrix_lr: float,
        lr: float,
        momentum: float = 0.95,
        betas: tuple[float, float] = (0.9, 0.95),
        weight_decay: float = 0.0,
    ) -> None:
        shared = {"momentum": momentum, "betas": betas, "eps": 1e-8, "weight_decay": weight_decay}
        groups = [
            {"params": list(matrices), "lr": matrix_lr, "muon": True, **shared},
            {"params": list(others), "lr": lr, "muon": False, **shared},
        ]
        super().__init__([group for group in groups if group["params"]], {})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update all parameters that have a gradient."""
        for group in self.param_groups:
            parameters = [p for p in group["params"] if p.grad is not None]
            (self._muon if group["muon"] else self._adamw)(group, parameters)

    def _muon(self, group: dict[str, Any], parameters: list[Tensor]) -> None:
        """Muon with Nesterov's momentum, for all matrices of one shape at a time."""
        by_shape: dict[torch.Size, list[Tensor]] = defaultdict(list)
        for parameter in parameters:
            by_shape[parameter.shape].append(parameter)
        for shape, same in by_shape.items():
            moments = [self.state[p].setdefault("momentum", torch.zeros_like(p)) for p in same]
            gradients = [p.grad for p in same if p.grad is not None]
            torch._foreach_lerp_(moments, gradients, 1 - group["momentum"])
            ahead = torch._foreach_lerp(gradients, moments, group["momentum"])  # Nesterov's look ahead
            updates = orthogonalised(torch.stack(tuple(ahead))).unbind()
            scale = max(1.0, shape[0] / shape[1]) ** 0.5
            torch._foreach_mul_(same, 1 - group["lr"] * group["weight_decay"])
            torch._foreach_add_(same, list(updates), alpha=-group["lr"] * scale)

    def _adamw(self, group: dict[str, Any], parameters: list[Tensor]) -> None:
        """AdamW, one parameter at a time."""
        beta1, beta2 = group["betas"]
        for p in parameters:
            assert p.grad is not None
            state = self.state[p]
            if not state:
                state.update(step=torch.zeros(()), first=torch.zeros_like(p), second=torch.zeros_like(p))
            state["step"] += 1
            state["first"].lerp_(p.grad, 1 - beta1)
            state["second"].lerp_(p.grad.square(), 1 - beta2)
            steps = float(state["step"])
            denominator = (state["second"] / (1 - beta2**steps)).sqrt_().add_(group["eps"])
            p.mul_(1 - group["lr"] * group["weight_decay"])
            p.addcdiv_(state["first"], denominator, value=-group["lr"] / (1 - beta1**steps))


class MasterAdamW(torch.optim.Optimizer):
    """AdamW for weights of low precision: a float32 copy of each, the master, takes the updates.

    A step at a rate of 1e-4 is smaller than what bfloat16 can tell apart, so in the weights alone it would be lost.
    Gradients of micro-batches are added up in float32 as well. `gather` does that, and `clip` looks at the sums.
    """

    def __init__(
        self,
        groups: Iterable[dict[str, Any]],
        lr: float,
        betas: tuple[float, float] = (0.9, 0.95),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(groups, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})
        self._sums: dict[Tensor, Tensor] = {}  # kept from step to step, so that memory is asked for once
        self._summed: set[Tensor] = set()  # weights whose sum is of this step

    @torch.no_grad()
    def gather(self) -> list[Tensor]:
        """Add the gradients there are to their sums in float32, and return the sums of this step."""
        for parameter in (p for group in self.param_groups for p in group["params"]):
            if parameter.grad is None:
                continue
            held = self._sums.get(parameter)
            if held is None:
                self._sums[parameter] = parameter.grad.float()
            elif parameter in self._summed:
                held.add_(parameter.grad)
            else:
                held.copy_(parameter.grad)
            self._summed.add(parameter)
            parameter.grad = None
        return [self._sums[p] for group in self.param_groups for p in group["params"] if p in self._summed]

    def clip(self, longest: float) -> Tensor:
        """Shorten the gradient to a norm, and return the norm it had."""
        sums = self.gather()
        norm = nn.utils.get_total_norm(sums)
        if norm > longest:
            torch._foreach_mul_(sums, longest / (norm + 1e-6))
        return norm

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update the masters of all weights that have a gradient, and round them to the weights."""
        self.gather()
        for group in self.param_groups:
            parameters = [p for p in group["params"] if p in self._summed]
            for p in parameters:
                if not self.state[p]:
                    master = p.detach().float().clone()
                    moments = {"first": torch.zeros_like(master), "second": torch.zeros_like(master)}
                    self.state[p] = {"step": torch.zeros(()), "master": master, **moments}
            states = [self.state[p] for p in parameters]
            masters, firsts, seconds, steps = (
                [state[name] for state in states] for name in ("master", "first", "second", "step")
            )
            beta1, beta2 = group["betas"]
            adamw(
                masters,
                [self._sums[p] for p in parameters],
                firsts,
                seconds,
                [],
                steps,
                fused=True,
                amsgrad=False,
                beta1=beta1,
                beta2=beta2,
                lr=group["lr"],
                weight_decay=group["weight_decay"],
                eps=group["eps"],
                maximize=False,
            )
            torch._foreach_copy_(parameters, masters)
        self._summed.clear()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients, and the sums of them."""
        super().zero_grad(set_to_none)
        self._summed.clear()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """The base class would round masters and moments to the precision of the weights."""
        super().load_state_dict(state_dict)
        parameters = [p for group in self.param_groups for p in group["params"]]
        for number, state in state_dict["state"].items():
            place = parameters[int(number)].device
            self.state[parameters[int(number)]] = {
                name: value.clone() if name == "step" else value.to(place, copy=True) for name, value in state.items()
            }


def muon_adamw(
    model: nn.Module, matrix_lr: float, lr: float, weight_decay: float = 0.0, betas: tuple[float, float] = (0.9, 0.95)
) -> MuonAdamW:
    """The optimiser of a model: Muon for the matrices of the blocks, AdamW for embeddings, the head and norms."""
    getters = (getattr(model, f"get_{place}_embeddings", lambda: None) for place in ("input", "output"))
    layers = [layer for getter in getters if (layer := getter()) is not None]
    layers += [layer for layer in model.modules() if isinstance(layer, nn.Embedding)]  # those of positions
    outside = {id(p) for layer in layers for p in layer.parameters()}
    matrices: list[Tensor] = []
    others: list[Tensor] = []
    for p in model.parameters():
        if p.requires_grad:
            (matrices if p.ndim == 2 and id(p) not in outside else others).append(p)
    return MuonAdamW(matrices, others, matrix_lr, lr, betas=betas, weight_decay=weight_decay)
