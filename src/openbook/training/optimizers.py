"""Optimisers: Muon for matrices with AdamW for everything else, and AdamW for weights in bfloat16.

Muon replaces the momentum of a matrix by the nearest orthogonal matrix, which a few Newton-Schulz steps approximate. A
small model has many small matrices of few shapes, so matrices of the same shape are updated together: torch's own Muon
updates one at a time, which for the student takes most of a step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of the quintic that pushes singular values towards one
_STEPS = 5
AT_ONCE = 2**23  # weights whose gradients are in float32 at the same time


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
    Where a step has several micro-batches, `gather` adds their gradients up in float32 as well.
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
        self._sums: dict[Tensor, Tensor] = {}  # gradients of earlier micro-batches of this step
        self._scale: Tensor | None = None  # by which `clip` shortens the gradient

    @torch.no_grad()
    def gather(self) -> None:
        """Add the gradients there are to their sums in float32, and forget them."""
        for parameter in (p for group in self.param_groups for p in group["params"]):
            if parameter.grad is not None:
                held = self._sums.get(parameter)
                self._sums[parameter] = parameter.grad.float() if held is None else held.add_(parameter.grad)
                parameter.grad = None

    @torch.no_grad()
    def clip(self, longest: float) -> Tensor:
        """Shorten the gradient of the step to a norm, and return the norm it had."""
        if self._sums:
            self.gather()
        gradients = list(self._sums.values()) or [
            p.grad for group in self.param_groups for p in group["params"] if p.grad is not None
        ]
        norms = [torch.linalg.vector_norm(gradient, dtype=torch.float32) for gradient in gradients]
        norm = torch.linalg.vector_norm(torch.stack(norms))
        self._scale = (longest / (norm + 1e-6)).clamp(max=1.0)
        return norm

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update the masters of all weights that have a gradient, and round them to the weights."""
        if self._sums:
            self.gather()
        for group in self.param_groups:
            for part in _parts(p for p in group["params"] if p in self._sums or p.grad is not None):
                self._update(group, part)
        self._sums.clear()
        self._scale = None

    def _update(self, group: dict[str, Any], parameters: list[Tensor]) -> None:
        """Update some weights; there are few enough that their gradients fit into float32 for a moment."""
        gradients = [self._sums[p] if p in self._sums else p.grad.float() for p in parameters]  # type: ignore[union-attr]
        if self._scale is not None:
            torch._foreach_mul_(gradients, self._scale)
        for p in parameters:
            if not self.state[p]:
                master = p.detach().float()
                moments = {"first": torch.zeros_like(master), "second": torch.zeros_like(master)}
                self.state[p] = {"step": torch.zeros(()), "master": master, **moments}
        names = ("master", "first", "second", "step")
        masters, firsts, seconds, steps = ([self.state[p][name] for p in parameters] for name in names)
        beta1, beta2 = group["betas"]
        settings = {"lr": group["lr"], "weight_decay": group["weight_decay"], "eps": group["eps"]}
        adamw(
            masters,
            gradients,
            firsts,
            seconds,
            [],
            steps,
            fused=True,
            amsgrad=False,
            maximize=False,
            beta1=beta1,
            beta2=beta2,
            **settings,
        )
        torch._foreach_copy_(parameters, masters)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients, and the sums of them."""
        super().zero_grad(set_to_none)
        self._sums.clear()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """The base class would round masters and moments to the precision of the weights."""
        super().load_state_dict(state_dict)
        parameters = [p for group in self.param_groups for p in group["params"]]
        for number, state in state_dict["state"].items():
            place = parameters[int(number)].device
            self.state[parameters[int(number)]] = {
                name: value.clone() if name == "step" else value.to(place, copy=True) for name, value in state.items()
            }


def _parts(parameters: Iterable[Tensor]) -> Iterator[list[Tensor]]:
    """Weights in groups of at most `AT_ONCE` numbers, or of one matrix that has more."""
    part: list[Tensor] = []
    for parameter in parameters:
        if part and sum(p.numel() for p in part) + parameter.numel() > AT_ONCE:
            yield part
            part = []
        part.append(parameter)
    if part:
        yield part


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
