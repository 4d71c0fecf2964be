"""Stitched models, all of them at once: the engine of `stitch.py`.

A stitched model takes layers s..e from the trained checkpoint and all else from the ICL-capable one. K layers make
K(K+1)/2 of them, and running them one by one costs K²(K+1)/2 layer evaluations. But two windows are the same until the
later one starts, and a window does not know its end until it is reached. So while the ICL-capable model runs once, each
of its layers is handed three kinds of rows:

    prefix     nothing replaced so far                                  its own layer        1 row
    inside     windows that started at s <= l and are not yet closed    the trained layer    l rows
    after      windows [s, e] with e < l                                its own layer        l(l-1)/2 rows

and after layer l every inside row is copied to the after rows, as the window that ends there. That is
K + K(K+1)/2 + (K-1)K(K+1)/6 evaluations in 2K calls: 4,088 instead of 11,368 at K = 28.

The model's own forward pass drives this through hooks. It computes masks, rotary embeddings and whatever else its
architecture passes to a layer, and applies its own norm and head to all rows in the end. Neither model is changed.
A layer that is equal in both models starts and ends nothing: windows that differ only by such layers are one.

Legend: B inputs, R rows of one input (windows and prefix), K layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from openbook.base.errors import InputError
from openbook.probes.layers import hidden_of, tensor_of, with_tensor

Window = tuple[int, int]  # first and last replaced layer, from 0


def same_weights(one: nn.Module, other: nn.Module) -> bool:
    """Whether two layers hold the same numbers."""
    ours, theirs = one.state_dict(), other.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


@dataclass
class Cost:
    """Layer evaluations (rows of one input through one layer) and calls of modules that they took."""

    evaluations: int = 0
    calls: int = 0

    def __iadd__(self, other: Cost) -> Cost:
        self.evaluations, self.calls = self.evaluations + other.evaluations, self.calls + other.calls
        return self


def naive_evaluations(layers: int) -> int:
    """K²(K+1)/2: every window through every layer."""
    return layers * layers * (layers + 1) // 2


class Stitcher:
    """All windows over two lists of layers. `groups` splits them where they would not fit into memory at once."""

    def __init__(self, base: Sequence[nn.Module], trained: Sequence[nn.Module]) -> None:
        if len(base) != len(trained):
            raise InputError(f"one model has {len(base)} layers and the other {len(trained)}: they cannot be stitched")
        self.base, self.trained = list(base), list(trained)
        self.changed = [n for n, pair in enumerate(zip(base, trained, strict=True)) if not same_weights(*pair)]
        if not self.changed:
            raise InputError("the two models are equal in every layer: there is nothing to stitch")

    @property
    def layers(self) -> int:
        return len(self.base)

    def canonical(self, window: Window) -> Window | None:
        """The window of changed layers that gives the same model; None if it holds none of them."""
        inside = [layer for layer in self.changed if window[0] <= layer <= window[1]]
        return (inside[0], inside[-1]) if inside else None

    def rows(self, starts: Sequence[int]) -> int:
        """Rows at the end, for windows that start at these layers, and the prefix."""
        return 1 + sum(sum(end >= start for end in self.changed) for start in starts)

    def groups(self, most_rows: int) -> list[list[int]]:
        """Starts in as few groups as keep to `most_rows`; a start is never split."""
        groups: list[list[int]] = [[]]
        for start in self.changed:
            if groups[-1] and self.rows([*groups[-1], start]) > most_rows:
                groups.append([])
            groups[-1].append(start)
        return groups

    @contextmanager
    def stitching(self, starts: Sequence[int]) -> Iterator[_Pass]:
        """Within, one forward pass of the base model returns rows for the prefix and for every window, in order."""
        state = _Pass(self, starts)
        with ExitStack() as hooks:
            for number, layer in enumerate(self.base):
                hooks.enter_context(layer.register_forward_pre_hook(state.before(number), with_kwargs=True))
                hooks.enter_context(layer.register_forward_hook(state.after(number)))
            yield state


class _Pass:
    """One forward pass with all windows of a group of starts under way."""

    def __init__(self, stitcher: Stitcher, starts: Sequence[int]) -> None:
        self.stitcher, self.starts = stitcher, set(starts)
        self.cost = Cost()
        self.windows: list[Window] = []  # of the after rows, in order
        self._open: list[int] = []  # starts of the inside rows, in order
        self._inside = self._after = torch.empty(0)
        self._batch = 0

    def before(self, number: int) -> Callable[..., Any]:
        def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            prefix = hidden_of(args, kwargs)
            if number == 0:
                self._batch, self._inside, self._after = len(prefix), prefix[:0], prefix[:0]
            if number not in self.stitcher.changed:  # the same layer for every row
                return self._arguments(args, kwargs, torch.cat([prefix, self._inside, self._after]))
            if number in self.starts:
                self._open.append(number)
                self._inside = torch.cat([self._inside, prefix])
            if self._open:  # the trained layer is given what the base model gives to its own
                own_args, own_kwargs = self._arguments(args, kwargs, self._inside)
                self._inside = tensor_of(self.stitcher.trained[number](*own_args, **own_kwargs))
            return self._arguments(args, kwargs, torch.cat([prefix, self._after]))

        return hook

    def after(self, number: int) -> Callable[..., Any]:
        def hook(_: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
            hidden = tensor_of(output)
            prefix, rest = hidden[: self._batch], hidden[self._batch :]
            if number in self.stitcher.changed:
                self._after = torch.cat([rest, self._inside])
                self.windows += [(start, number) for start in self._open]
                if number == self.stitcher.changed[-1]:
                    self._open, self._inside = [], prefix[:0]
            else:
                cut = len(self._open) * self._batch
                self._inside, self._after = rest[:cut], rest[cut:]
            is_last = number == self.stitcher.layers - 1
            return with_tensor(output, torch.cat([prefix, self._after]) if is_last else prefix)

        return hook

    def _arguments(self, args: Any, kwargs: Any, hidden: Tensor) -> tuple[Any, Any]:
        """A layer's arguments with these rows for hidden states, and the others repeated for as many rows."""
        times = len(hidden) // self._batch
        self.cost += Cost(times, 1)
        own = {name: value for name, value in kwargs.items() if name != "hidden_states"}
        repeated = {name: _repeat(value, self._batch, times) for name, value in own.items()}
        if not args:
            return (), {**repeated, "hidden_states": hidden}
        return (hidden, *_repeat(args[1:], self._batch, times)), repeated


def _repeat(value: Any, batch: int, times: int) -> Any:
    """Tensors that have a row for every input get one for every row; those with one row for all broadcast anyway."""
    if isinstance(value, Tensor):
        own = batch > 1 and value.ndim >= 2 and len(value) == batch
        return value.repeat(times, *[1] * (value.ndim - 1)) if own and times > 1 else value
    if isinstance(value, tuple | list):
        return type(value)(_repeat(item, batch, times) for item in value)
    if isinstance(value, dict):
        return {key: _repeat(item, batch, times) for key, item in value.items()}
    return value


@contextmanager
def one_stitched(base: Sequence[nn.Module], trained: Sequence[nn.Module], window: Window) -> Iterator[None]:
    """Within, the base model runs with these layers of the trained one: the definition, one window at a time."""

    def replaced(layer: nn.Module) -> Callable[..., Any]:
        return lambda _, args, kwargs, output: with_tensor(output, tensor_of(layer(*args, **kwargs)))

    with ExitStack() as hooks:
        for number in range(window[0], window[1] + 1):
            hooks.enter_context(base[number].register_forward_hook(replaced(trained[number]), with_kwargs=True))
        yield
