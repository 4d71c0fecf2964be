"""The arguments of `CELTrainer`: those of transformers, and what context-enhanced learning adds to them."""

from __future__ import annotations

import copy
from dataclasses import dataclass, fields
from typing import Any

from transformers import TrainingArguments

from openbook.base.errors import InputError
from openbook.book.source import Source
from openbook.book.text import THINK
from openbook.curriculum import Curriculum, SamplingPlan, curriculum_for
from openbook.training.encode import Loss


@dataclass
class CELConfig(TrainingArguments):
    """Arguments of `CELTrainer`. All of `transformers.TrainingArguments` are there; these are new or have new defaults.

    Parameters
    ----------
    curriculum
        What is open of the book when: a name such as "anneal" or "fixed:0.2", or the settings of a curriculum.
    max_samples
        Number of examples to train on; all of them by default.
    max_length
        Longest example in tokens; the model's window by default.
    shuffle
        Draw a new order of the examples in each epoch; by default for your own data and not for the task.
    loss_on
        Which tokens carry loss: completion, answer, or everything.
    step_size
        Examples in an optimiser step; by default batch size times accumulation times processes.
    think, chat, today
        The thinking token; whether to use the chat template (if there is one); the date that the template inserts.
    optimizer, matrix_learning_rate
        adamw (then `optim` chooses which), or muon for matrices with this peak rate and AdamW for everything else.
    decay
        Share of the steps at the end in which the schedule warmup_stable_decay lowers the rate.
    exam_samples, exam_samples_during
        Maximum number of exam examples; the same for exams during training, before the last step.
    checkpoint_share
        Largest share of the time that checkpoints may take; one that is due too soon after the last one is left out.
    """

    num_train_epochs: float = 1
    learning_rate: float = 1e-4
    lr_scheduler_type: Any = "cosine"
    warmup_steps: float = 0.06  # less than 1 is a share of all steps
    adam_beta2: float = 0.95
    logging_steps: float = 10
    logging_first_step: bool = True
    save_steps: float = 0.1
    seed: int = 0

    curriculum: str | dict[str, Any] | Curriculum = "anneal"
    max_samples: int | None = None
    max_length: int | None = None
    shuffle: bool | None = None
    loss_on: Loss = "completion"
    step_size: int | None = None
    think: str = THINK
    chat: bool | None = None
    today: str | None = None
    optimizer: str = "adamw"
    matrix_learning_rate: float = 0.02
    decay: float = 0.2
    exam_samples: int = 256
    exam_samples_during: int | None = None
    checkpoint_share: float = 1.0

    def sampling_plan(self, source: Source) -> SamplingPlan:
        """The plan of a training on these examples."""
        return SamplingPlan(
            source,
            curriculum_for(self.curriculum, source),
            seed=self.seed,
            epochs=int(self.num_train_epochs),
            shuffle=not source.uniform if self.shuffle is None else self.shuffle,
            samples=self.max_samples,
        )


# Arguments of transformers that a step of whole micro-batches cannot honour: the usual value, and what to do instead.
REFUSED: dict[str, tuple[Any, str]] = {
    "max_steps": (-1, "set num_train_epochs, because a curriculum spans the whole training"),
    "auto_find_batch_size": (False, "set per_device_train_batch_size"),
    "dataloader_drop_last": (False, "every position is trained on"),
    "label_smoothing_factor": (0.0, "the loss is plain cross-entropy on targets"),
    "neftune_noise_alpha": (None, "embeddings are trained without noise"),
    "train_sampling_strategy": ("random", "set shuffle; lengths are sorted inside a step anyway"),
    "ignore_data_skip": (False, "resuming never reads data twice"),
    "save_only_model": (False, "call save_model; a checkpoint must be able to continue"),
    "fp16": (False, "set bf16"),
    "deepspeed": (None, "use plain data parallelism with torchrun"),
    "fsdp": (None, "use plain data parallelism with torchrun"),
}


def completed(args: TrainingArguments | None) -> CELConfig:
    """A copy of the arguments as a `CELConfig`; what cannot be honoured is refused by name."""
    result: Any = CELConfig("out") if args is None else copy.copy(args)
    if not isinstance(result, CELConfig):
        plain = {spec.name for spec in fields(TrainingArguments)}
        for spec in fields(CELConfig):
            if spec.name not in plain:
                setattr(result, spec.name, spec.default)
        result.sampling_plan = CELConfig.sampling_plan.__get__(result)
    for name, (usual, instead) in REFUSED.items():
        value = getattr(result, name, usual)
        if value != usual and value not in ([], "", None):
            raise InputError(f"{name}={value!r} is not supported by CELTrainer: {instead}")
    if result.save_strategy == "best":
        raise InputError("save_strategy='best' is not supported by CELTrainer: use 'steps' or 'epoch'")
    if result.num_train_epochs != int(result.num_train_epochs) or result.num_train_epochs < 1:
        raise InputError(f"num_train_epochs is {result.num_train_epochs}: give a whole number, at least 1")
    return result
