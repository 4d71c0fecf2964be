"""From positions to padded tensors: the same whatever the workers, the processes and the batch."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.tiny import byte_level, chatting, metaspace
from torch.utils.data import DataLoader

from openbook.base.errors import InputError
from openbook.book import JsonlSource, Source
from openbook.curriculum import SamplingPlan, curriculum_named
from openbook.task import Codebook
from openbook.task.source import Translations
from openbook.training.batches import Collator, PositionDataset, Steps, pad_id_of
from openbook.training.encode import IGNORED, Encoder


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ragged records: books of 0 to 3 sections, prompts of many lengths."""
    path = tmp_path_factory.mktemp("data") / "facts.jsonl"
    with path.open("w") as file:
        for k in range(23):
            book = {f"s{s}": [f"fact {k} {s} {p} " + "x" * (k * p) for p in range((k + s) % 4)] for s in range(k % 4)}
            record = {
                "prompt": f"What is {k}? " * (1 + k % 3),
                "completion": f" It is {k}.",
                "privileged_context": book,
            }
            file.write(json.dumps(record) + "\n")
    return path


def source_of(kind: str, facts: Path) -> Source:
    if kind == "facts":
        return JsonlSource(facts)
    return Translations(2, 3, 40, Codebook.sample(2, 3), lengths=(4, 8), text="compact")


def plan_of(source: Source, name: str = "anneal") -> SamplingPlan:
    return SamplingPlan(source, curriculum_named(name), seed=5, epochs=2, shuffle=True)


def loaded(plan: SamplingPlan, workers: int, batch_size: int = 7, micro: int = 3) -> list[dict[str, Any]]:
    dataset = PositionDataset(plan, Encoder(byte_level(), plan.source.bank))
    return list(
        DataLoader(
            dataset,
            batch_sampler=Steps(plan.total, batch_size),
            collate_fn=Collator(0, micro),
            num_workers=workers,
            multiprocessing_context="fork" if workers else None,
        )
    )


def flattened(steps: list[dict[str, Any]]) -> dict[int, tuple[list[int], list[int], list[bool]]]:
    """Unpadded ids, labels and answers of every position."""
    by_position = {}
    for step in steps:
        for batch in step["micro_batches"]:
            for row, position in enumerate(batch["positions"].tolist()):
                size = int(batch["attention_mask"][row].sum())
                assert position not in by_position
                by_position[position] = tuple(
                    batch[name][row, :size].tolist() for name in ("input_ids", "labels", "answers")
                )
    return by_position


@pytest.mark.parametrize("kind", ["facts", "task"])
@pytest.mark.parametrize("name", ["anneal", "wrong-context"])
def test_data_and_masks_are_equal_for_any_number_of_workers(kind: str, name: str, facts: Path) -> None:
    source = source_of(kind, facts)
    source.example(0)  # a file is open in this process before workers are forked
    alone = loaded(plan_of(source, name), workers=0)
    for workers in (1, 2):
        others = loaded(plan_of(source, name), workers)
        assert len(others) == len(alone)
        for one, other in zip(alone, others, strict=True):
            assert (one["positions"], one["targets"]) == (other["positions"], other["targets"])
            for a, b in zip(one["micro_batches"], other["micro_batches"], strict=True):
                assert all(torch.equal(a[key], b[key]) for key in a)


@pytest.mark.parametrize("kind", ["facts", "task"])
def test_a_position_gives_the_same_tokens_in_any_batch(kind: str, facts: Path) -> None:
    source = source_of(kind, facts)
    plan = plan_of(source)
    one = flattened(loaded(plan, 0, batch_size=1, micro=1))
    for batch_size, micro in ((7, 3), (plan.total, 4), (16, 16)):
        assert flattened(loaded(plan_of(source_of(kind, facts)), 0, batch_size, micro)) == one
    assert sorted(one) == list(range(plan.total))


@pytest.mark.parametrize("micro", [1, 3, 100])
def test_micro_batches_hold_exactly_the_steps_positions(micro: int, facts: Path) -> None:
    plan = plan_of(JsonlSource(facts))
    steps = loaded(plan, 0, 7, micro)
    assert [sorted(step["positions"]) for step in steps] == [
        list(range(start, min(start + 7, plan.total))) for start in range(0, plan.total, 7)
    ]
    for step in steps:
        inside = [p for batch in step["micro_batches"] for p in batch["positions"].tolist()]
        assert sorted(inside) == sorted(step["positions"])
        sizes = [int(mask.sum()) for batch in step["micro_batches"] for mask in batch["attention_mask"]]
        assert sizes == sorted(sizes)
        assert step["targets"] == sum(int((b["labels"][:, 1:] != IGNORED).sum()) for b in step["micro_batches"])


def padding_share(step: dict[str, Any]) -> float:
    masks = [batch["attention_mask"] for batch in step["micro_batches"]]
    return 1 - sum(float(mask.sum()) for mask in masks) / sum(mask.numel() for mask in masks)


def test_grouping_by_length_saves_padding(facts: Path) -> None:
    plan = plan_of(JsonlSource(facts))
    grouped, whole = (np.mean([padding_share(step) for step in loaded(plan, 0, 12, micro)]) for micro in (3, 12))
    assert grouped < 0.6 * whole


def test_padding_never_carries_loss_and_is_never_attended_to(facts: Path) -> None:
    for step in loaded(plan_of(JsonlSource(facts)), 0):
        for batch in step["micro_batches"]:
            padding = batch["attention_mask"] == 0
            assert (batch["labels"][padding] == IGNORED).all() and not batch["answers"][padding].any()
            assert (batch["input_ids"][padding] == 0).all()
            assert (batch["attention_mask"].sum(1) == (~padding).sum(1)).all()


@pytest.mark.parametrize("processes", [1, 2, 4])
def test_processes_share_every_step(processes: int) -> None:
    shares = [list(Steps(22, 8, process, processes)) for process in range(processes)]
    together = [sorted(itertools.chain(*step)) for step in zip(*shares, strict=True)]
    assert together == [list(range(8)), list(range(8, 16)), list(range(16, 22))]
    assert all(len(Steps(22, 8, p, processes)) == len(share) for p, share in enumerate(shares))


def test_steps_can_start_later() -> None:
    assert list(Steps(22, 8, first_step=1)) == list(Steps(22, 8))[1:]
    assert len(Steps(22, 8, first_step=1)) == 2


def test_batches_that_cannot_be_shared_are_refused() -> None:
    with pytest.raises(InputError, match="a batch of 9 cannot be shared evenly by 2"):
        Steps(20, 9, 0, 2)
    with pytest.raises(InputError, match="the last step has 1 positions"):
        Steps(17, 8, 0, 2)
    with pytest.raises(InputError, match="a batch of 0"):
        Steps(17, 0)


def test_the_padding_token_is_one_that_exists() -> None:
    assert pad_id_of(chatting()) == chatting().pad_token_id
    assert pad_id_of(metaspace()) == metaspace().eos_token_id
