"""What a training step costs: against TRL's SFTTrainer, against a bare PyTorch loop, and in memory.

`tokens/s`: real (not padding) tokens per CPU second of one core, from the end of the first optimiser step to the end
of the last, on the same model, examples, optimiser and batch. TRL gets finished prompts and completions, tokenises them
before its clock starts, takes them in the same order, so that each step has the same examples on both sides, and
computes loss on completions alone (by a fused head that skips the rest); ours encodes within the time measured.
`step`: the same steps by a plain loop over batches that lie ready, with the same forward pass, loss and optimiser.
`memory`: how far the peak of resident memory rises over one forward and backward pass above what was resident before
it, each way in a process of its own (`ru_maxrss`), at Llama 3's vocabulary and the text of MLT(5, 10).

Sides take turns and medians of rounds are compared, because the machine may be busy.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"  # one thread: CPU time is then the time of the work
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback
from transformers.optimization import get_cosine_schedule_with_warmup
from transformers.trainer_utils import IntervalStrategy

from _rows import Row, main
from _tokenizer import THINK, llama_like
from openbook.base.console import err
from openbook.book.text import COMPLETION_KINDS, Kind
from openbook.curriculum import SamplingPlan, curriculum_named
from openbook.task import Codebook
from openbook.task.source import Translations
from openbook.training.batches import Collator, PositionDataset, pad_id_of
from openbook.training.config import ModelConfig, RunConfig
from openbook.training.encode import Encoder
from openbook.training.families import Family, llama_shape
from openbook.training.models import make_tokenizer
from openbook.training.run import trainer_arguments
from openbook.training.targets import all_logits_loss, summed_loss, target_logits
from openbook.training.trainer import CELTrainer

STEP, MICRO, STEPS, ROUNDS = 16, 4, 4, 3
VOCABULARY = 128_256  # Llama 3's
GOALS = {"tokens/s": 1.3, "step": 1 / 1.1, "memory": 1 / 0.4}
TRL_MISSING = "TRL is not installed: .venv/bin/pip install -c constraints.txt -e '.[bench]'"
PROMPT_KINDS = set(Kind) - COMPLETION_KINDS


@dataclass(frozen=True)
class Setting:
    """Examples, model and tokenizer that all sides train with."""

    name: str
    plan: SamplingPlan
    encoder: Encoder
    shape: ModelConfig

    def model(self) -> Any:
        return Family().make(llama_shape(self.shape, len(self.encoder.tokenizer)), seed=0)

    def tokens(self) -> int:
        """Real tokens in the steps that are timed: all but the first."""
        items = PositionDataset(self.plan, self.encoder).__getitems__(range(STEP, self.plan.total))
        return sum(len(item.ids) for item in items)


def settings() -> Iterator[Setting]:
    """The model that `openbook learn` makes by default, on both texts of the task."""
    for name, depth, text in (("compact text", 3, "compact"), ("released text", 2, "released")):
        source = Translations(depth, 8, STEP * STEPS, Codebook.sample(depth, 8), text=text)
        compact = text == "compact"
        tokenizer = make_tokenizer(source) if compact else llama_like(source, chat=False)
        encoder = Encoder(tokenizer, source.bank, think=source.format.think if compact else THINK)
        yield Setting(name, SamplingPlan(source, curriculum_named("anneal")), encoder, ModelConfig())


class Clock(TrainerCallback):
    """CPU time at the end of every optimiser step."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.ends.append(time.process_time())

    def seconds(self) -> float:
        return self.ends[-1] - self.ends[0]


def arguments_in(folder: str) -> Any:
    """The arguments of both trainers, without exams and checkpoints."""
    settings = {"batch_size": STEP, "micro_batch_size": MICRO, "learning_rate": 1e-3, "checkpoint_every": 0}
    config = RunConfig.model_validate({"task": {}, "training": settings, "exam": {"every": 10**6}})
    arguments = trainer_arguments(config, folder, STEPS * config.training.step_size)
    arguments.eval_strategy = IntervalStrategy.NO
    return arguments


def ours(setting: Setting, folder: str) -> float:
    clock = Clock()
    data: dict[str, Any] = {"train_dataset": setting.plan.source, "plan": setting.plan, "encoder": setting.encoder}
    trainer = CELTrainer(setting.model(), arguments_in(folder), callbacks=[clock], **data)
    trainer.train()
    return clock.seconds()


def with_trl(setting: Setting, folder: str) -> float:
    """TRL's trainer with its own defaults, except for what must be equal: precision, batch, optimiser, no recompute."""
    from datasets import Dataset, disable_progress_bars
    from transformers.trainer_callback import PrinterCallback
    from trl import SFTConfig, SFTTrainer

    disable_progress_bars()
    common = arguments_in(folder).to_dict()
    same = ("learning_rate", "adam_beta1", "adam_beta2", "weight_decay", "warmup_steps", "lr_scheduler_type")
    same += ("max_grad_norm", "logging_steps", "report_to", "save_strategy", "disable_tqdm", "seed")
    config = SFTConfig(
        output_dir=folder,
        per_device_train_batch_size=MICRO,
        gradient_accumulation_steps=STEP // MICRO,
        num_train_epochs=1,
        bf16=False,
        gradient_checkpointing=False,
        max_length=None,
        completion_only_loss=True,
        train_sampling_strategy="sequential",  # the same examples in the same steps as ours
        **{key: common[key] for key in same},
    )
    clock = Clock()
    trainer = SFTTrainer(
        setting.model(),
        config,
        train_dataset=Dataset.from_list(prompts(setting)),
        processing_class=setting.encoder.tokenizer,
        callbacks=[clock],
    )
    trainer.remove_callback(PrinterCallback)
    check_same(setting, trainer)
    trainer.train()
    return clock.seconds()


def prompts(setting: Setting) -> list[dict[str, str]]:
    """Every example of the plan as text, with what the curriculum opens at its position."""
    shelf, opened = setting.plan.at(range(setting.plan.total))
    records = []
    for row in range(len(shelf)):
        rendered = setting.plan.source.example(row).render(opened.numbers(row))
        completion = rendered.of(*COMPLETION_KINDS).replace(setting.plan.source.format.think, setting.encoder.think)
        records.append({"prompt": rendered.of(*PROMPT_KINDS), "completion": completion})
    return records


def check_same(setting: Setting, trainer: Any) -> None:
    """TRL must train on the same amount, up to merges across the edges of fragments (`.The` for our `.` and `The`)."""
    items = PositionDataset(setting.plan, setting.encoder).__getitems__(range(setting.plan.total))
    rows = list(trainer.train_dataset)
    theirs = [sum(len(row["input_ids"]) for row in rows), sum(label != -100 for row in rows for label in row["labels"])]
    own = [sum(len(item.ids) for item in items), sum(int((item.labels != -100).sum()) for item in items)]
    if any(abs(a / b - 1) > 0.02 for a, b in zip(theirs, own, strict=True)):
        raise AssertionError(f"TRL has {theirs} tokens and targets, we have {own}")


def bare(setting: Setting, _: str) -> float:
    """A plain loop over batches that lie ready."""
    collator = Collator(pad_id_of(setting.encoder.tokenizer), MICRO)
    data = PositionDataset(setting.plan, setting.encoder)
    steps = [collator(data.__getitems__(range(k, k + STEP))) for k in range(0, setting.plan.total, STEP)]
    model = setting.model().train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.0)
    schedule = get_cosine_schedule_with_warmup(optimiser, 1, len(steps))
    ends = []
    for step in steps:
        for batch in step["micro_batches"]:
            (summed_loss(*target_logits(model, batch)) / step["targets"]).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        optimiser.zero_grad()
        ends.append(time.process_time())
    return ends[-1] - ends[0]


def rounds(setting: Setting, sides: dict[str, Callable[[Setting, str], float]]) -> dict[str, float]:
    """CPU seconds of each side, the median of rounds in which all take their turn; the first round warms up."""
    spent: dict[str, list[float]] = {name: [] for name in sides}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(ROUNDS + 1):
            for name, side in sides.items():
                seconds = side(setting, folder)
                if number:
                    spent[name].append(seconds)
    return {name: statistics.median(seconds) for name, seconds in spent.items()}


def speed() -> Iterator[Row]:
    sides: dict[str, Callable[[Setting, str], float]] = {"ours": ours, "bare": bare}
    try:
        import trl  # noqa: F401

        sides["trl"] = with_trl
    except ImportError:
        err.print(TRL_MISSING)
    for setting in settings():
        seconds = rounds(setting, sides)
        tokens = setting.tokens()
        extra = {"vocabulary": len(setting.encoder.tokenizer), "batch": STEP, "micro_batch": MICRO, "tokens": tokens}
        yield Row(
            "tokens/s, ours against TRL",
            value=tokens / seconds["ours"],
            unit="tokens/s",
            baseline=tokens / seconds["trl"] if "trl" in seconds else None,
            goal=GOALS["tokens/s"],
            goal_of="ratio",
            extra=extra | ({} if "trl" in seconds else {"note": TRL_MISSING}),
            at=setting.name,
        )
        yield Row(
            "step, ours against a bare loop",
            value=1000 * seconds["ours"] / (STEPS - 1),
            unit="ms",
            baseline=1000 * seconds["bare"] / (STEPS - 1),
            goal=GOALS["step"],
            goal_of="ratio",
            better="less",
            extra={**extra, "overhead": seconds["ours"] / seconds["bare"] - 1},
            at=setting.name,
        )


def memory() -> Iterator[Row]:
    sizes = {}
    for way in ("targets", "everywhere"):
        command = [sys.executable, __file__, "--memory", way]
        sizes[way] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    yield Row(
        "memory, targets against all",
        value=sizes["targets"]["mib"],
        unit="MiB",
        baseline=sizes["everywhere"]["mib"],
        goal=GOALS["memory"],
        goal_of="ratio",
        better="less",
        extra={"share": sizes["targets"]["mib"] / sizes["everywhere"]["mib"], **sizes["targets"]},
        at="128k words",
    )


def memory_of_step(way: str) -> None:
    """One forward and backward pass; prints how far resident memory rose at its peak."""
    source = Translations(5, 10, 1000, Codebook.sample(5, 10))
    encoder = Encoder(llama_like(source), source.bank, think=THINK)
    items = PositionDataset(SamplingPlan(source, curriculum_named("anneal")), encoder).__getitems__(range(8))
    item = min(items, key=lambda item: abs(len(item.ids) - 1500))
    batch = Collator(0, 1).pad([item])
    model = Family().make(llama_shape(ModelConfig(hidden_size=256, layers=4), VOCABULARY), seed=0).train()
    page = os.sysconf("SC_PAGE_SIZE")
    before = int(Path("/proc/self/statm").read_text().split()[1]) * page
    loss = summed_loss(*target_logits(model, batch)) if way == "targets" else all_logits_loss(model, batch)
    loss.backward()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    shape = {"context": len(item.ids), "targets": int((item.labels != -100).sum()), "vocabulary": VOCABULARY}
    print(json.dumps({"mib": (peak - before) / 2**20, "loss": float(loss.detach()), **shape}))


def measure() -> Iterator[Row]:
    torch.set_num_threads(1)
    yield from memory()
    yield from speed()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--memory"]:
        memory_of_step(sys.argv[2])
    else:
        main("Training a small Llama, CPU time of one core", measure)
