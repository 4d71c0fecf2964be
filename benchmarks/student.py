"""What a training step of the student costs, and where it goes.

`matmul rate`: floating-point operations of a step's matrix products and attention (forward and backward, as
`FlopCounterMode` counts them, padding included) a second, against what the machine reaches on a large product.
`step`: the same step as a stock Llama takes it, in which every example reads its rules again, and rules ask about all
that they may not see.
`generator`: what drawing, encoding and packing a step's examples takes, in percent of the step.
`padding`: tokens of a step that are padding, in percent.
`share of ...`: where a step's time goes, as torch's profiler sees it, in percent.

`reading, ...`: the same two of a step of `openbook prepare`, in the last stage of its course.

Everything on one thread, MLT(3, 8) and MLT(5, 8), strings of 20 to 40 characters, the book open.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import copy
import functools
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from _rows import Row, cpu_seconds, in_turns, main
from openbook.curriculum import SamplingPlan, curriculum_named
from openbook.student.model import StudentForCausalLM
from openbook.student.reading import Lesson
from openbook.student.vocabulary import student_config
from openbook.task import Codebook
from openbook.task.source import Translations
from openbook.training.batches import Collator, PositionDataset
from openbook.training.config import ReadingConfig, TaskConfig
from openbook.training.encode import Encoder
from openbook.training.models import make_tokenizer
from openbook.training.optimizers import muon_adamw
from openbook.training.targets import summed_loss, target_logits

STEP, MICRO, STEPS = 128, 16, 4
SIZE = 1024  # of the large product


def matmul_rate() -> float:
    """Floating-point operations a second of a large product, by one thread."""
    a, b = torch.randn(2, SIZE, SIZE)
    return 2 * SIZE**3 / cpu_seconds(lambda: a @ b, at_least=1.5)


def steps_of(depth: int) -> tuple[list[dict[str, Any]], float]:
    """The micro-batches of a few steps, and the CPU seconds that a step of them took to make."""
    source = Translations(depth, 8, STEP * STEPS, Codebook.sample(depth, 8), (20, 40), text="composite")
    tokenizer = make_tokenizer(source)
    dataset = PositionDataset(
        SamplingPlan(source, curriculum_named("no-dropout", others=0.25)),
        Encoder(tokenizer, source.bank, chat=False, loss="answer"),
    )
    collator = Collator(tokenizer.pad_token_id, MICRO)
    dataset.__getitems__(list(range(STEP)))  # what is made once is made
    start = time.process_time()
    batches = [collator(dataset.__getitems__(list(range(k * STEP, (k + 1) * STEP)))) for k in range(STEPS)]
    return batches, (time.process_time() - start) / STEPS


def training_step(model: StudentForCausalLM, step: dict[str, Any], optimizer: Any) -> None:
    for batch in step["micro_batches"]:
        summed_loss(*target_logits(model, batch)).backward()
    optimizer.step()
    optimizer.zero_grad()


KINDS = {
    "matrix products": ("aten::mm", "aten::bmm", "aten::addmm"),
    "attention": ("aten::_scaled_dot_product_flash_attention_for_cpu",),
    "element by element": (
        "aten::mul",
        "aten::add",
        "aten::silu",
        "aten::pow",
        "aten::div",
        "aten::neg",
        "aten::rsqrt",
    ),
    "moving": ("aten::copy_", "aten::cat", "aten::index", "aten::scatter", "aten::gather", "aten::fill_", "aten::zero"),
}


def shares(step: Callable[[], None]) -> dict[str, float]:
    """Percent of a step's time by kind of operation; what is left is Python's, autograd's and that of small ones."""
    step()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        step()
    spent = {event.key: event.self_cpu_time_total for event in profiler.key_averages()}
    total = sum(spent.values())
    percents = {
        kind: 100 * sum(time for name, time in spent.items() if name.startswith(names)) / total
        for kind, names in KINDS.items()
    }
    return {**percents, "all else": 100 - sum(percents.values())}


def reading_course(depth: int) -> tuple[float, float]:
    """Of a step of the course: the share of time that its examples take to make, and of its tokens that are padding."""
    lesson = Lesson(TaskConfig(depth=depth, text="composite"), 0, ReadingConfig())
    lesson.stage = len(lesson.stages) - 1
    for lesson.step in range(10 * STEPS):  # what is made once, for every length, is made
        lesson.batch()
    lesson.take_step()
    making = whole = padding = tokens = 0.0
    for _ in range(2 * STEPS):
        start = time.process_time()
        batch = lesson.batch()
        making += time.process_time() - start
        padding += float((batch.ids == lesson.course.tokenizer.pad_token_id).sum())
        tokens += batch.ids.numel()
        start = time.process_time()
        lesson.take_step()  # which makes the same batch once more
        whole += time.process_time() - start
    return making / whole, padding / tokens


def measure() -> Iterator[Row]:
    torch.set_num_threads(1)
    for depth in (3, 5):
        batches, making = steps_of(depth)
        ours = StudentForCausalLM(student_config(depth, 8, heads=4, mlp=256, lag=True))
        stock = copy.deepcopy(ours)
        stock.set_attn_implementation("sdpa")
        work = {
            name: functools.partial(training_step, model, batches[0], muon_adamw(model, 1e-4, 1e-4))
            for name, model in (("ours", ours), ("stock", stock))
        }
        with FlopCounterMode(display=False) as counter:
            work["ours"]()
        seconds = in_turns(work)
        at = {"depth": depth, "step": STEP, "micro_batch": MICRO}
        rate = counter.get_total_flops() / seconds["ours"]
        yield Row("matmul rate", rate / 1e9, "GFLOP/s", matmul_rate() / 1e9, 0.6, "ratio", extra=at, at=f"d={depth}")
        per_sample = {name: 1e3 * spent / STEP for name, spent in seconds.items()}
        yield Row(
            "step", per_sample["ours"], "ms/sample", per_sample["stock"], better="less", extra=at, at=f"d={depth}"
        )
        for kind, percent in shares(work["ours"]).items():
            yield Row(f"share of {kind}", percent, "%", better="less", extra=at, at=f"d={depth}")
        yield Row("generator", 100 * making / seconds["ours"], "%", better="less", extra=at, at=f"d={depth}")
        tokens = [batch["attention_mask"] for step in batches for batch in step["micro_batches"]]
        padding = 1 - sum(int(mask.sum()) for mask in tokens) / sum(mask.numel() for mask in tokens)
        yield Row("padding", 100 * padding, "%", goal=10, better="less", extra=at, at=f"d={depth}")
        making, padding = reading_course(depth)
        at = {"depth": depth}
        yield Row("reading, generator", 100 * making, "%", better="less", extra=at, at=f"d={depth}")
        yield Row("reading, padding", 100 * padding, "%", goal=10, better="less", extra=at, at=f"d={depth}")


if __name__ == "__main__":
    main("A training step of the student, one thread", measure)
