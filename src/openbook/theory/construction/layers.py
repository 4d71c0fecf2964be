"""The layers of the paper's definitions: relative self-attention, MLP, and the gated residual connection around them.

Legend of shape suffixes: b string, h head, q query position, p key position, c context token, k axis of the stream,
u hidden unit, o offset.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional


class Head(NamedTuple):
    """One attention head: three maps of the stream, and biases for the offsets 0, -1, ... (zero beyond)."""

    query: Tensor  # [k, k]
    key: Tensor
    value: Tensor
    biases: tuple[float, ...] = (0.0,)


class Memory(NamedTuple):
    """Keys and values of the context tokens at one layer: what need not be computed again for every string."""

    key_hck: Tensor
    value_hck: Tensor


class RelativeAttention(nn.Module):
    """Causal self-attention with relative biases; the heads' outputs are added.

        y_q = Σ_h Σ_{p<=q} softmax_p( (Q_h x_q)·(K_h x_p) + b_{p-q} ) V_h x_p

    (`def:rel_attn`; no 1/√k, and Q, K, V are k × k.) Weights are buffers: nothing here is trained.
    """

    query_hkk: Tensor
    key_hkk: Tensor
    value_hkk: Tensor
    bias_ho: Tensor

    def __init__(self, heads: Sequence[Head]) -> None:
        super().__init__()
        query, key, value, biases = zip(*heads, strict=True)
        for name, maps in (("query_hkk", query), ("key_hkk", key), ("value_hkk", value)):
            self.register_buffer(name, torch.stack(maps))
        self.register_buffer("bias_ho", nn.utils.rnn.pad_sequence([torch.tensor(row) for row in biases], True))

    @property
    def heads(self) -> int:
        return len(self.query_hkk)

    def remember(self, x_ck: Tensor, like: Memory | None = None, changed: slice = slice(None)) -> Memory:
        """Keys and values of tokens; `like` is the memory of tokens that differ from these in the `changed` axes alone.

        A map that does not read those axes gives for these tokens what it gave for the others.
        """

        def mapped(maps_hkk: Tensor, before: Tensor | None) -> Tensor:
            return before if before is not None and not maps_hkk[..., changed].any() else x_ck @ maps_hkk.mT

        key, value = (None, None) if like is None else like
        return Memory(mapped(self.key_hkk, key), mapped(self.value_hkk, value))

    def forward(self, x_bqk: Tensor, memory: Memory | None = None) -> Tensor:
        """Attend from every token of `x`; with a memory, `x` is what follows the remembered context tokens."""
        memory = memory or self.remember(x_bqk.new_zeros(0, x_bqk.shape[-1]))
        tokens, context = x_bqk.shape[1], memory.key_hck.shape[1]
        query_bhqk = _each_head(x_bqk, self.query_hkk)
        to_context_bhqc = torch.einsum("bhqk,hck->bhqc", query_bhqk, memory.key_hck)
        to_own_bhqp = query_bhqk @ _each_head(x_bqk, self.key_hkk).mT
        scores = torch.cat([to_context_bhqc, to_own_bhqp], -1) + _biases(self.bias_ho, tokens, context + tokens)
        from_context, from_own = torch.softmax(scores, -1).split([context, tokens], -1)
        value_bhqk = torch.einsum("bhqc,hck->bhqk", from_context, memory.value_hck)
        # summed over heads last: two heads that say the same with opposite signs then cancel exactly
        return (value_bhqk + from_own @ _each_head(x_bqk, self.value_hkk)).sum(1)


def _each_head(x_bpk: Tensor, maps_hkk: Tensor) -> Tensor:
    """Every head's map of every token, as one matrix product: [b, h, p, k]."""
    heads, width = maps_hkk.shape[:2]
    return (x_bpk @ maps_hkk.reshape(heads * width, -1).mT).unflatten(-1, (heads, width)).transpose(1, 2)


def _biases(bias_ho: Tensor, queries: int, keys: int) -> Tensor:
    """b_{p-q} for the last `queries` of `keys` positions, minus infinity where p is after q: [h, queries, keys]."""
    position = torch.arange(keys, device=bias_ho.device)
    offset = position[keys - queries :, None] - position
    known = (offset >= 0) & (offset < bias_ho.shape[1])
    bias = torch.where(known, bias_ho[:, offset.clamp(0, bias_ho.shape[1] - 1)], 0.0)
    return bias.masked_fill(offset < 0, float("-inf"))


class Mlp(nn.Module):
    """y = W_outer GELU(W_inner x), without biases (`def:mlp`). Buffers: nothing here is trained."""

    inner_uk: Tensor
    outer_ku: Tensor

    def __init__(self, inner_uk: Tensor, outer_ku: Tensor) -> None:
        super().__init__()
        self.register_buffer("inner_uk", inner_uk)
        self.register_buffer("outer_ku", outer_ku)

    def forward(self, x_bqk: Tensor) -> Tensor:
        return functional.gelu(x_bqk @ self.inner_uk.mT) @ self.outer_ku.mT


class StoringMlp(Mlp):
    """The MLP that holds a phrasebook: W_inner is a fixed part plus the trainable W, and its units are normalised.

        y = W_outer h / sqrt(|h|² + ε²),   h = GELU((W_inner + W P) x),   P the projection that W reads from

    The normalisation is an RMSnorm up to a constant factor; ε keeps 0 / 0 at 0.
    """

    reads_xk: Tensor

    def __init__(self, inner_uk: Tensor, outer_ku: Tensor, reads_xk: Tensor, floor: float) -> None:
        super().__init__(inner_uk, outer_ku)
        self.register_buffer("reads_xk", reads_xk)
        self.floor = floor
        self.weight = nn.Parameter(torch.zeros(len(inner_uk), len(reads_xk)))  # W_i, zero: nothing is known yet

    def forward(self, x_bqk: Tensor) -> Tensor:
        h_bqu = functional.gelu(x_bqk @ (self.inner_uk + self.weight @ self.reads_xk).mT)
        return normalised(h_bqu, self.floor) @ self.outer_ku.mT


def normalised(h: Tensor, floor: float) -> Tensor:
    """h / sqrt(|h|² + ε²) along the last axis: a smooth stand-in for HardMax that sends 0 to 0."""
    return h * torch.rsqrt(h.square().sum(-1, keepdim=True) + floor**2)


class Gated(nn.Module):
    """The gated residual connection: y = x + g(x) (f(x) - P x), with g = 0 at context tokens and 1 elsewhere.

    Where the gate is open, f replaces the subspaces that P projects on and is added to the others; where it is closed
    the token stays as it is, bit for bit. That is why keys and values of context tokens can be computed once.
    """

    replaces_k: Tensor

    def __init__(self, layer: nn.Module, replaces_k: Tensor, context_axis: int) -> None:
        super().__init__()
        self.layer = layer
        self.context_axis = context_axis
        self.register_buffer("replaces_k", replaces_k)

    def forward(self, x_bqk: Tensor, *memory: Memory | None) -> Tensor:
        out_bqk = self.layer(x_bqk, *memory)
        gate_bq1 = 1 - x_bqk[..., self.context_axis, None]
        return x_bqk + gate_bq1 * (out_bqk - self.replaces_k * x_bqk)
