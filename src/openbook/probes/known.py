"""The same probes on models whose truth is known: the surrogate and the transformer written by hand.

Both read level i of the context in their i-th layer and keep it there when it is learned, by construction. So a probe
that is right must find exactly that: perturbing section i changes nothing before layer i, and a stitched model with
section i dropped translates if and only if its window holds layer i. The stitched rows go through the same engine as
those of a language model.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from openbook.base.arrays import Floats, Ints
from openbook.base.errors import InputError
from openbook.probes.layers import recorded
from openbook.probes.perturb import Count, PerturbMap, changed_books, section_changes
from openbook.probes.stitch import StitchMap, assembled, section_map
from openbook.probes.stitching import Cost, Stitcher, Window
from openbook.task import Codebook, Translation, random_inputs, translate_batch
from openbook.theory.construction import ConstructedTransformer, full_context
from openbook.theory.surrogate.model import hardmax, matricize, shift

Kind = Literal["construction", "surrogate"]
RULES = 3  # to change: strings are short and characters few


class SurrogateLevel(nn.Module):
    """One layer of the surrogate: V <- HardMax(C_i + W_i) Shift(V)."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(size, size, dtype=torch.float64))

    def forward(self, V_bxj: Tensor, C_xk: NDArray[Any]) -> Tensor:
        return torch.from_numpy(hardmax(C_xk + self.weight.detach().numpy()) @ shift(V_bxj.numpy()))


class SurrogateStack(nn.Module):
    """The surrogate as a stack of layers that hooks can look into."""

    def __init__(self, depth: int, chars: int) -> None:
        super().__init__()
        self.depth, self.chars = depth, chars
        self.levels = nn.ModuleList(SurrogateLevel(chars**2) for _ in range(depth))

    def store(self, weights: Tensor) -> None:
        for level, W in zip(self.levels, weights, strict=True):
            level.weight.data = W.double()

    def forward(self, context: Tensor, strings: NDArray[Any]) -> Tensor:
        """V_{d+1} as rows, [b, L/2, n²]."""
        V_bxj = torch.from_numpy(matricize(strings, self.chars))
        for level, C_xk in zip(self.levels, context.double().numpy(), strict=True):
            V_bxj = level(V_bxj, C_xk)
        return V_bxj.mT


def build(kind: Kind, depth: int, chars: int) -> Any:
    """A model that reads its context and has nothing stored."""
    return (ConstructedTransformer if kind == "construction" else SurrogateStack)(depth, chars)


def _translated(depth: int, chars: int, samples: int, length: int, seed: int) -> tuple[Codebook, Translation]:
    if samples < 2:
        raise InputError(f"{samples} strings: use at least two")
    codebook = Codebook.sample(depth, chars, seed)
    return codebook, translate_batch(codebook, *random_inputs(chars, samples, (length, length), seed))


def known_stitch_map(
    kind: Kind, depth: int = 5, chars: int = 4, samples: int = 16, length: int = 20, seed: int = 0
) -> StitchMap:
    """Stitching maps between a model that only reads and one that has stored the codebook."""
    codebook, translation = _translated(depth, chars, samples, length, seed)
    base, trained = build(kind, depth, chars), build(kind, depth, chars)
    everything = full_context(codebook)
    trained.store(everything)
    stitcher = Stitcher(list(base.levels), list(trained.levels))
    expected = translation.outputs.astype(np.int64)
    maps, cost = [], Cost()
    with torch.inference_mode():
        for level in range(depth):
            context = everything.clone()
            context[level] = 0
            with stitcher.stitching(stitcher.changed) as state:
                outputs = base(context, translation.inputs)
            windows: list[Window | None] = [None, *state.windows]
            scores = dict(zip(windows, _scores(outputs, expected, chars), strict=True))
            (own,) = _scores(trained(context, translation.inputs), expected, chars)
            maps.append(section_map(f"level {level + 1}", stitcher, scores, own))
            cost = state.cost
    return assembled((f"{kind}, reading", f"{kind}, stored"), None, stitcher, 1 / chars, cost, maps)


def _scores(outputs_bjx: Tensor, expected_nl: Ints, chars: int) -> Floats:
    """Share of right characters of every string, for every stitched model: [R, 2, N]. There is no loss: it is NaN."""
    index = outputs_bjx.argmax(-1).numpy()
    characters = np.stack([index // chars, index % chars], -1).reshape(-1, *expected_nl.shape)
    right = (characters == expected_nl).mean(-1)
    return np.stack([right, np.full_like(right, np.nan)], 1)


def known_perturb_map(
    kind: Kind, depth: int = 5, chars: int = 4, rules: Count = RULES, samples: int = 16, length: int = 20, seed: int = 0
) -> PerturbMap:
    """Perturbation maps of a model that reads its context, with every rule shown."""
    codebook, translation = _translated(depth, chars, samples, length, seed)
    base = build(kind, depth, chars)
    images = np.broadcast_to(codebook.tables.astype(np.int64), (samples, depth, chars**2))
    used = translation.used()
    names = {level: f"level {level + 1}" for level in range(depth)}
    changes, counts = [], []
    with torch.inference_mode():
        before = _states(kind, base, images, translation)
        for _, changed, count in changed_books(images, used, ~used, names, rules, seed, "string {}".format):
            norms_nkq = (_states(kind, base, changed, translation) - before)[:, 1:].norm(dim=-1)
            changes.append(norms_nkq.double().numpy())
            counts.append(count)
    places = changes[0].shape[-1]
    maps = section_changes(list(names.values()), changes, counts, np.ones(places, np.int64), seed)
    return PerturbMap(kind, depth, rules, samples, [{"string": 1, "place": q + 1} for q in range(places)], maps)


def _states(kind: Kind, base: Any, images: Ints, translation: Translation) -> Tensor:
    """The input and every layer's output after the context, which each string has for itself: [N, d + 1, Q, D]."""
    rows = []
    size = images.shape[-1]
    cut = base.depth * size  # tokens of the construction's context
    for row, string in zip(images, translation.inputs, strict=True):
        context = torch.nn.functional.one_hot(torch.tensor(row), size).mT.float()
        with recorded(list(base.levels), lambda x: x[:, cut:] if kind == "construction" else x.mT) as states:
            base(context, string[None])
        rows.append(torch.stack([state[0].clone() for state in states]))
    return torch.stack(rows)
