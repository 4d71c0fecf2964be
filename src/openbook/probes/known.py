"""The same probes on models whose truth is known: the surrogate and the transformer written by hand.

Both read level i of the context in their i-th layer and keep it there when it is learned, by construction. So a probe
that is right must find exactly that: perturbing section i changes nothing before layer i, and a stitched model with
section i dropped translates if and only if its window holds layer i. The stitched rows go through the same engine as
those of a language model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from openbook.base.errors import InputError
from openbook.base.intervals import clustered
from openbook.probes.layers import evaluating, recorded
from openbook.probes.perturb import Count, Floats, PerturbMap, check_enough, choose_rules, other_images, section_changes
from openbook.probes.stitch import SectionMap, StitchMap
from openbook.probes.stitching import Cost, Stitcher
from openbook.task import Codebook, Translation, random_inputs, translate_batch
from openbook.theory.construction import ConstructedTransformer, full_context
from openbook.theory.surrogate.model import augment, hardmax, matricize, shift

Kind = Literal["construction", "surrogate"]


class SurrogateLevel(nn.Module):
    """One layer of the surrogate on its context-augmented input: V <- HardMax(C_i + W_i) Shift(V)."""

    def __init__(self, level: int, depth: int, size: int) -> None:
        super().__init__()
        self.level, self.depth, self.size = level, depth, size
        self.weight = nn.Parameter(torch.zeros(size, size, dtype=torch.float64))

    def forward(self, X_bxm: Tensor) -> Tensor:
        X = X_bxm.numpy()
        cut, own = self.depth * self.size, self.level * self.size
        P_bxk = hardmax(X[:, :, own : own + self.size] + self.weight.detach().numpy())
        V_bxj = P_bxk @ shift(X[:, :, cut:])
        return torch.from_numpy(np.concatenate([X[:, :, :cut], V_bxj], axis=2))


class SurrogateStack(nn.Module):
    """The surrogate as a stack of layers that hooks can look into."""

    def __init__(self, depth: int, chars: int) -> None:
        super().__init__()
        self.depth, self.chars = depth, chars
        self.levels = nn.ModuleList(SurrogateLevel(level, depth, chars**2) for level in range(depth))

    def store(self, weights: Tensor) -> None:
        for level, W in zip(self.levels, weights, strict=True):
            level.weight.data = W.double()

    def forward(self, context: Tensor, strings: NDArray[Any]) -> Tensor:
        """V_{d+1} as rows, [b, L/2, n²]."""
        X = torch.from_numpy(augment(context.double().numpy(), matricize(strings, self.chars)))
        for level in self.levels:
            X = level(X)
        return X[:, :, self.depth * self.chars**2 :].mT


def build(kind: Kind, depth: int, chars: int) -> Any:
    """A model that reads its context and has nothing stored."""
    return (ConstructedTransformer if kind == "construction" else SurrogateStack)(depth, chars)


def _strings(depth: int, chars: int, samples: int, length: int, seed: int) -> tuple[Codebook, Translation]:
    if samples < 2:
        raise InputError(f"{samples} strings: use at least two")
    codebook = Codebook.sample(depth, chars, seed)
    strings, sizes = random_inputs(chars, samples, (length, length), seed)
    return codebook, translate_batch(codebook, strings, sizes)


def known_stitch_map(
    kind: Kind, depth: int = 5, chars: int = 4, samples: int = 16, length: int = 20, seed: int = 0
) -> StitchMap:
    """Stitching maps between a model that only reads and one that has stored the codebook."""
    codebook, translation = _strings(depth, chars, samples, length, seed)
    base, trained = build(kind, depth, chars), build(kind, depth, chars)
    everything = full_context(codebook)
    trained.store(everything)
    stitcher = Stitcher(list(base.levels), list(trained.levels))
    wanted = translation.outputs.astype(np.int64)
    maps, cost = [], Cost()
    with evaluating(base, trained):
        for level in range(depth):
            context = everything.clone()
            context[level] = 0
            with stitcher.stitching(stitcher.changed) as state:
                outputs = base(context, translation.inputs)
            right = _right(outputs, wanted, chars).reshape(1 + len(state.windows), samples)
            own = _right(trained(context, translation.inputs), wanted, chars)
            accuracy, low, high = (np.full((depth, depth), np.nan) for _ in range(3))
            for window, shares in zip(state.windows, right[1:], strict=True):
                accuracy[window], low[window], high[window] = clustered(shares)
            nothing = np.full_like(accuracy, np.nan)  # no probabilities, so no loss
            name, reader = f"level {level + 1}", float(right[0].mean())
            maps.append(SectionMap(name, accuracy, low, high, nothing, reader, float(own.mean()), samples))
            cost = state.cost
    changed = [layer + 1 for layer in stitcher.changed]
    return StitchMap(f"{kind}, reading", f"{kind}, stored", depth, changed, maps, 1 / chars, cost=cost)


def _right(outputs_bjx: Tensor, wanted_bl: NDArray[np.int64], chars: int) -> Floats:
    """Share of right characters of every row; the strings repeat as often as there are rows for each."""
    index = outputs_bjx.argmax(-1).numpy()
    found = np.stack([index // chars, index % chars], -1).reshape(len(index), -1)
    return (found == np.tile(wanted_bl, (len(index) // len(wanted_bl), 1))).mean(1)


def known_perturb_map(
    kind: Kind, depth: int = 5, chars: int = 4, rules: Count = 3, samples: int = 16, length: int = 20, seed: int = 0
) -> PerturbMap:
    """Perturbation maps of a model that reads its context, with every rule shown."""
    codebook, translation = _strings(depth, chars, samples, length, seed)
    base = build(kind, depth, chars)
    cut = depth * chars**2
    keep = (lambda x: x[:, cut:]) if kind == "construction" else (lambda x: x[:, :, cut:].mT)
    images = np.broadcast_to(codebook.tables.astype(np.int64), (samples, depth, chars**2))
    used = translation.used()
    found, counts = [], []
    with evaluating(base):
        before = _states(base, images, translation, keep)
        for level in range(depth):
            for name, among in (("used", used[:, level]), ("unused", ~used[:, level])):
                changed = images.copy()
                check_enough(among, rules, name, f"level {level + 1}", "string {}".format)
                chosen = choose_rules(among, rules, seed, f"{level} {name}")
                changed[:, level] = other_images(images[:, level], chosen, seed, level)
                norms_nkq = (_states(base, changed, translation, keep) - before)[:, 1:].norm(dim=-1)
                found.append(norms_nkq.double().numpy())
                counts.append(chosen.sum(-1))
    pairs = np.stack([np.stack(found[0::2]), np.stack(found[1::2])], 1)
    places = pairs.shape[-1]
    names, changed_rules = [f"level {i + 1}" for i in range(depth)], np.stack(counts).reshape(depth, 2, -1)
    maps = section_changes(names, pairs, changed_rules, np.ones(places, np.int64), seed)
    return PerturbMap(kind, rules, samples, [{"string": 1, "place": q + 1} for q in range(places)], maps)


def _states(base: Any, images: NDArray[np.int64], translation: Translation, keep: Callable[[Tensor], Tensor]) -> Tensor:
    """The input and every layer's output after the context, which each string has for itself: [N, d + 1, Q, D]."""
    rows = []
    size = images.shape[-1]
    for row, string in zip(images, translation.inputs, strict=True):
        context = torch.nn.functional.one_hot(torch.tensor(row), size).mT.float()
        with recorded(list(base.levels), keep) as states:
            base(context, string[None])
        rows.append(torch.stack([state[0].clone() for state in states]))
    return torch.stack(rows)
