"""All stitched models of two checkpoints: windows that advance together, against one window after another.

Two Llamas of 28 layers (as many as Llama 3.2 3B) with random weights and a tiny width, on inputs of the task's compact
text. One by one, each of the 406 stitched models is run by itself: layers are swapped into a copy, which costs next to
nothing, and only answer tokens get logits, as on our side. The released code takes one input at a time, and so does the
first row. The second gives both sides four inputs in a batch: the more work there is in a call, the less is saved by
making fewer of them, down to the ratio of the evaluations. Results are compared before anything is timed. CPU seconds
of one core; the sides take turns.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import copy
import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from _rows import Row, in_turns, main
from openbook.curriculum import SamplingPlan, curriculum_named
from openbook.probes.layers import decoder_layers
from openbook.probes.stitch import answer_logits, stitched_logits
from openbook.probes.stitching import Stitcher, naive_evaluations
from openbook.task import Codebook
from openbook.task.source import Translations
from openbook.training.batches import Collator, PositionDataset, pad_id_of
from openbook.training.encode import Encoder
from openbook.training.models import make_tokenizer

LAYERS, WIDTH, ROUNDS = 28, 16, 2
GOAL = 8.0


def models(vocabulary: int) -> tuple[Any, Any]:
    """Two models with the same shape and other weights."""
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=WIDTH,
        intermediate_size=2 * WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=1024,
    )
    made = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        made.append(LlamaForCausalLM(config).eval())
    return made[0], made[1]


def inputs(count: int) -> tuple[int, dict[str, Tensor]]:
    """The size of the vocabulary, and a batch of `count` inputs."""
    source = Translations(2, 4, count, Codebook.sample(2, 4), lengths=(12, 12), text="compact")
    tokenizer = make_tokenizer(source)
    encoder = Encoder(tokenizer, source.bank)
    rows = PositionDataset(SamplingPlan(source, curriculum_named("no-dropout")), encoder).__getitems__(range(count))
    return len(tokenizer), Collator(pad_id_of(tokenizer), count).pad(rows)


def one_by_one(base: Any, trained: Any, batch: dict[str, Tensor]) -> dict[tuple[int, int], Tensor]:
    """Every stitched model on its own, layers swapped in a copy."""
    model = copy.deepcopy(base)
    own, others = decoder_layers(model), decoder_layers(trained)
    layers = model.model.layers
    logits = {}
    for first in range(LAYERS):
        for last in range(first, LAYERS):
            for number in range(LAYERS):
                layers[number] = others[number] if first <= number <= last else own[number]
            logits[first, last] = answer_logits(model, batch)
    return logits


def check(logits: Tensor, windows: list[tuple[int, int]], naive: dict[tuple[int, int], Tensor]) -> float:
    """The largest difference of a logit between the two ways."""
    worst = max(float((logits[1 + k] - naive[w]).abs().max()) for k, w in enumerate(windows))
    if len(windows) != len(naive) or worst > 1e-4:
        raise AssertionError(f"{len(windows)} windows instead of {len(naive)}, logits differ by {worst:g}")
    return worst


@torch.inference_mode()
def measure() -> Iterator[Row]:
    torch.set_num_threads(1)
    for count, goal in ((1, GOAL), (4, None)):
        vocabulary, batch = inputs(count)
        base, trained = models(vocabulary)
        stitcher = Stitcher(decoder_layers(base), decoder_layers(trained))
        together = functools.partial(stitched_logits, base, stitcher, batch, stitcher.changed)
        alone = functools.partial(one_by_one, base, trained, batch)
        logits, windows, cost = together()
        worst = check(logits, windows, alone())
        seconds = in_turns({"ours": together, "naive": alone}, ROUNDS)
        size = {"layers": LAYERS, "width": WIDTH, "inputs": count, "tokens": batch["input_ids"].shape[1]}
        yield Row(
            f"all windows, {count} input{'s' * (count > 1)} at a time",
            value=seconds["ours"],
            unit="CPU s",
            baseline=seconds["naive"],
            goal=goal,
            goal_of="ratio",
            better="less",
            extra={**size, "windows": len(windows), "largest_difference_of_logits": worst},
            at=f"K={LAYERS}",
        )
    for name, value in (("layer evaluations of an input", cost.evaluations), ("calls of a layer", cost.calls)):
        yield Row(name, value, "", naive_evaluations(LAYERS), better="less", extra=size, at=f"K={LAYERS}")


if __name__ == "__main__":
    main("Stitching maps, CPU time of one core", measure)
