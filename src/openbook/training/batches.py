"""Batches: from positions of training to padded tensors.

The position travels in the sampler's index. A batch of the data loader is one optimiser step of one process; it is
encoded at once, sorted by length and cut into micro-batches, so that short examples are not padded to the length of
long ones, and yet the step has exactly its positions. All of it also works inside a training loop of your own:

    steps = Steps(plan.total, batch_size=64)
    loader = DataLoader(PositionDataset(plan, encoder), batch_sampler=steps, collate_fn=Collator(pad_id, micro=8))
    for step in loader:
        for batch in step["micro_batches"]: ...
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, Sampler

from openbook.base.errors import InputError
from openbook.book.shelf import CODE
from openbook.book.text import Kind
from openbook.curriculum import SamplingPlan
from openbook.training.encode import IGNORED, Encoded, Encoder


@dataclass(frozen=True)
class Item:
    """One encoded example and the position it came from."""

    position: int
    ids: np.ndarray
    labels: np.ndarray
    kinds: np.ndarray


class PositionDataset(Dataset):
    """Items by position of training; a whole batch is encoded at once."""

    def __init__(self, plan: SamplingPlan, encoder: Encoder) -> None:
        self.plan, self.encoder = plan, encoder

    def __len__(self) -> int:
        return self.plan.total

    def __getitem__(self, position: int) -> Item:
        return self.__getitems__([position])[0]

    def __getitems__(self, positions: Sequence[int]) -> list[Item]:
        where = np.asarray(positions, dtype=np.int64)
        shelf, opened = self.plan.at(where)
        return items(self.encoder.encode(shelf, opened, self.plan.namer(where)), positions)


def items(encoded: Encoded, positions: Sequence[int]) -> list[Item]:
    """The examples of an encoded batch, one by one, with their positions."""
    rows = zip(positions, encoded.ids, encoded.labels, encoded.kinds, strict=True)
    return [Item(int(position), ids, labels, kinds) for position, ids, labels, kinds in rows]


class Steps(Sampler):
    """The positions of every optimiser step, and of these the share of one process.

    Position = step · batch size + place in the step.
    """

    def __init__(self, total: int, batch_size: int, process: int = 0, processes: int = 1, first_step: int = 0) -> None:
        if batch_size < 1 or batch_size % processes:
            raise InputError(f"a batch of {batch_size} cannot be shared evenly by {processes} processes")
        if 0 < total % batch_size < processes:
            raise InputError(
                f"the last step has {total % batch_size} positions, not one for each of {processes} processes: "
                "change the number of samples or the batch size"
            )
        self.total, self.batch_size = total, batch_size
        self.process, self.processes, self.first_step = process, processes, first_step

    def __len__(self) -> int:
        return -(-self.total // self.batch_size) - self.first_step

    def __iter__(self) -> Iterator[list[int]]:
        for start in range(self.first_step * self.batch_size, self.total, self.batch_size):
            positions = range(start, min(start + self.batch_size, self.total))
            yield list(positions[self.process :: self.processes])


class Collator:
    """Sort items by length, cut them into micro-batches of at most `micro` and pad each to its longest."""

    def __init__(self, pad_id: int, micro: int) -> None:
        self.pad_id, self.micro = pad_id, micro

    def __call__(self, batch: list[Item]) -> dict[str, Any]:
        ordered = sorted(batch, key=lambda item: len(item.ids))  # stable: equal lengths keep the order of positions
        micro = [self.pad(ordered[k : k + self.micro]) for k in range(0, len(ordered), self.micro)]
        targets = sum(int((item.labels[1:] != IGNORED).sum()) for item in batch)
        tokens = sum(len(item.ids) for item in batch)
        positions = [item.position for item in batch]
        return {"micro_batches": micro, "targets": targets, "tokens": tokens, "positions": positions}

    def pad(self, batch: Sequence[Item]) -> dict[str, Tensor]:
        """Items as tensors of the length of the longest; `answers` marks the tokens of the answer."""
        shape = (len(batch), max(len(item.ids) for item in batch))
        arrays = {
            "input_ids": np.full(shape, self.pad_id, np.int64),
            "labels": np.full(shape, IGNORED, np.int64),
            "attention_mask": np.zeros(shape, np.int64),
            "answers": np.zeros(shape, bool),
        }
        for row, item in enumerate(batch):
            columns = (item.ids, item.labels, 1, item.kinds == CODE[Kind.ANSWER])
            for array, column in zip(arrays.values(), columns, strict=True):
                array[row, : len(item.ids)] = column
        arrays["positions"] = np.array([item.position for item in batch])
        return {name: torch.from_numpy(array) for name, array in arrays.items()}


def pad_id_of(tokenizer: Any) -> int:
    """The token to pad with. It never carries loss, so any will do if the tokenizer names none."""
    return next((token for token in (tokenizer.pad_token_id, tokenizer.eos_token_id) if token is not None), 0)
