"""Configs: what a run is told, in YAML or on the command line. Unknown keys are refused by name."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from openbook.base.errors import InputError
from openbook.book.text import THINK
from openbook.curriculum import PRESETS, Curriculum, curriculum_named, preset
from openbook.task.formats import STUDENT_TEXTS
from openbook.training.shipped import located


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True, allow_inf_nan=False)


class TaskConfig(Strict):
    """The task MLT(depth, chars) as the source of examples."""

    depth: int = Field(3, ge=1, description="levels")
    chars: int = Field(8, ge=2, le=255, description="characters in each alphabet")
    lengths: tuple[int, int] = Field((20, 40), description="shortest and longest string, both even")
    codebook: int | str = Field(
        0, description="seed of the codebook (the run's own, if not given), a file, or 'fresh' for a new one each time"
    )
    seed: int = Field(0, description="seed of the input strings; the run's own, if not given")
    text: Literal["released", "compact", "composite", "pairs", "letters"] = Field(
        "compact", description="how it is written down; composite, pairs and letters are the student's"
    )
    chain: Literal["silent", "explicit"] = Field("silent", description="thinking tokens, or the strings in between")
    held_out: int | None = Field(None, ge=1, description="a level of which strings use a random half of the rules only")


class LoraConfig(Strict):
    """Low-rank adapters instead of all weights (needs `pip install openbook[peft]`)."""

    rank: int = Field(16, ge=1, description="of the adapters; naming any of this group trains adapters alone")
    alpha: int = Field(32, ge=1, description="adapters are scaled by alpha / rank")
    dropout: float = Field(0.0, ge=0, lt=1, description="of what goes into an adapter")
    targets: list[str] | Literal["all-linear"] = Field("all-linear", description="modules that get one, by name")


class ModelConfig(Strict):
    """A model to start from, or the shape of one to make."""

    path: str | None = Field(
        None, description="a folder, a run, a shipped reader or a Hugging Face name; none makes a small Llama"
    )
    hidden_size: int = Field(128, ge=8, description="width of the small Llama")
    layers: int = Field(4, ge=1, description="its layers")
    heads: int = Field(4, ge=1, description="its attention heads")
    key_value_heads: int | None = Field(None, ge=1, description="fewer heads for keys and values")
    intermediate_size: int | None = Field(None, ge=1, description="width of the MLPs; twice hidden_size if not given")
    vocabulary: int | None = Field(None, ge=2, description="size of the vocabulary, where the tokenizer is not at hand")
    tie_embeddings: bool = Field(False, description="one matrix for embedding and head")
    dtype: Literal["float32", "bfloat16", "auto"] = Field(
        "float32", description="of the weights in training; auto: as they are stored"
    )
    lora: LoraConfig | None = None

    @model_validator(mode="after")
    def _splits_into_heads(self) -> ModelConfig:
        if self.hidden_size % self.heads or (self.hidden_size // self.heads) % 2:
            raise ValueError(f"hidden_size {self.hidden_size} does not split into {self.heads} heads of an even size")
        if self.heads % (self.key_value_heads or 1):
            raise ValueError(f"{self.heads} heads cannot share {self.key_value_heads} key_value_heads evenly")
        return self


class TrainingConfig(Strict):
    """How it is trained."""

    batch_size: int | None = Field(None, ge=1, description="examples in an optimiser step; 64, or 8 for own data")
    micro_batch_size: int = Field(16, ge=1, description="examples in one forward pass")
    epochs: int = Field(1, ge=1, description="times every example is seen")
    learning_rate: float | None = Field(None, gt=0, description="peak; 1e-3 from scratch, 1e-4 otherwise")
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = Field(
        (0.9, 0.95), description="of AdamW"
    )
    weight_decay: float = Field(0.0, ge=0, description="of AdamW, and of Muon's matrices")
    warmup: float = Field(0.06, ge=0, lt=1, description="share of the steps in which the rate rises to its peak")
    schedule: Literal["cosine", "linear", "constant", "constant_with_warmup", "warmup_stable_decay"] = Field(
        "cosine", description="of the learning rate"
    )
    decay: float = Field(0.2, gt=0, le=1, description="share of the steps at the end in which a stable rate decays")
    optimizer: Literal["adamw", "muon"] = Field("adamw", description="muon: for matrices, with AdamW for the rest")
    matrix_learning_rate: float = Field(0.02, gt=0, description="Muon's peak learning rate")
    loss: Literal["completion", "answer", "everything"] = Field(
        "completion", description="which tokens carry loss; everything: the book too, the positive control of an audit"
    )
    freeze: list[str] = Field(
        default_factory=list, description="weights that stay as they are, by parts of their names"
    )
    max_grad_norm: float = Field(1.0, gt=0, description="gradients longer than this are shortened to it")
    max_length: int | None = Field(None, ge=2, description="tokens of the window; the model's own if not given")
    shuffle: bool | None = Field(None, description="a new order each epoch; on for data, off for the task")
    workers: int = Field(0, ge=0, description="processes that make batches; 0: none beside the training itself")
    bf16: bool = Field(False, description="compute in bfloat16 where it is safe")
    gradient_checkpointing: bool = Field(False, description="less memory for more time")
    report_to: list[str] = Field(default_factory=list, description="trackers, as in transformers: wandb, tensorboard")
    log_every: int = Field(10, ge=1, description="steps between lines of metrics.jsonl")
    checkpoint_every: int | None = Field(None, ge=0, description="steps between checkpoints; ten a run if not given")
    keep_checkpoints: bool = Field(False, description="leave the last checkpoints in the folder of a finished run")

    @model_validator(mode="after")
    def _rises_before_it_falls(self) -> TrainingConfig:
        if self.schedule == "warmup_stable_decay" and self.warmup + self.decay > 1:
            raise ValueError(f"warmup {self.warmup:g} and decay {self.decay:g} are more than all of the steps")
        return self

    @property
    def step_size(self) -> int:
        return self.batch_size or 64


class ReadingConfig(Strict):
    """The course in which a student learns to read; the defaults serve all sizes that were tried."""

    batch_size: int = Field(64, ge=4, description="examples in a step of one level; fewer later, when strings are long")
    matrix_lr: float = Field(0.02, gt=0, description="Muon's peak learning rate")
    lr: float = Field(3e-3, gt=0, description="peak learning rate of all else")
    warmup: int = Field(20, ge=1, description="steps")
    gate: float = Field(0.93, gt=0, lt=1, description="running accuracy that ends a stage")
    margin: float = Field(0.03, ge=0, description="above the gate, at which the last stage begins to end")
    window: int = Field(5, ge=1, description="steps over which accuracy is averaged")
    last_window: int = Field(20, ge=5, description="the same for the last stage, which must not end by luck")
    final_steps: int = Field(60, ge=1, description="for each level, after which the learning rate has gone to zero")
    most_steps: int = Field(6000, ge=1, description="after which it ends, capable or not")
    capable: float = Field(0.98, gt=0, le=1, description="accuracy below which a student is not called capable")
    others: float = Field(0.25, ge=0, le=1, description="share of the unused rules that is shown")
    missing: float = Field(0.5, ge=0, lt=1, description="share of the examples with pages missing")
    most_missing: float = Field(0.5, ge=0, le=1, description="largest share of the pages that is missing")
    spare: int = Field(128, ge=0, description="units added to each MLP in the end, for what is to be remembered")
    width: int = Field(64, ge=8, description="of the student")
    heads: int = Field(4, ge=1, description="its attention heads")
    head: int = Field(32, ge=2, multiple_of=2, description="size of a head")
    mlp: int = Field(128, ge=8, description="units of an MLP")
    ends: float | None = Field(
        None, ge=0, description="weight of a string's last bigram beside the mean of all; 0.5 from four levels on, or 0"
    )
    lag: bool = Field(True, description="each level stands half a bigram to the right of the one before")
    kept: Literal["float32", "float16"] = Field(
        "float32", description="how the finished reader is kept; float16 takes half the space, and is what is examined"
    )

    @model_validator(mode="after")
    def _can_end(self) -> ReadingConfig:
        if self.gate + self.margin >= 1:
            raise ValueError(f"gate {self.gate:g} and margin {self.margin:g}: no accuracy is above their sum")
        if self.window > self.last_window:
            raise ValueError(f"window {self.window} is longer than last_window {self.last_window}")
        return self


class ExamConfig(Strict):
    """How it is examined."""

    samples: int = Field(256, ge=1, description="examples of an exam; of own data all, up to this many")
    every: int | None = Field(
        None, ge=1, description="steps between exams during training; about ten of them if not given"
    )
    data: Path | None = Field(None, description="examples to be examined on; those trained on, if not given")
    batch_size: int = Field(64, ge=1, description="examples in one forward pass of an exam")


DEFAULT = "anneal"  # the curriculum, if nothing else is said, and what is not said of one


def _curriculum(value: Any) -> Any:
    """A preset's name, or an object of settings that may start from a `preset`."""
    try:
        if isinstance(value, str):
            return preset(value)
        if isinstance(value, dict) and "preset" in value:
            return {**preset(str(value["preset"])), **{k: v for k, v in value.items() if k != "preset"}}
    except InputError as error:
        raise ValueError(str(error)) from None
    return value


# A curriculum as runs recorded it before it could be rounded by chance.
_EARLIER = {"candidates", "others", "drop", "spread", "order", "wrong", "silence"}


def _of_records(name: str) -> dict[str, Any]:
    """What suits a user's text: it keeps its order, is closed by chance where pieces are few, and ends fully closed."""
    tosses = PRESETS.get(name.partition(":")[0], {}).get("spread") == "coin"
    return {"order": "given", "rounding": "chance", **({"spread": "all"} if tosses else {})}


# What a student is trained with, unless something else is said: its slots answer at once, so only they carry loss.
_STUDENT: dict[str, Any] = {
    "batch_size": 16,
    "learning_rate": 2e-3,
    "optimizer": "muon",
    "schedule": "warmup_stable_decay",
    "warmup": 0.03,
    "loss": "answer",
}


def student_at(path: str | Path) -> dict[str, Any] | None:
    """The task that a student's vocabulary is made for; None if there is no student."""
    place = located(path)
    for folder in (place / "model", place):
        with contextlib.suppress(OSError, ValueError):
            shape = json.loads((folder / "config.json").read_text(encoding="utf-8"))
            if shape.get("model_type") == "openbook_student":
                return {"text": shape.get("text", "composite"), "depth": shape["depth"], "chars": shape["chars"]}
    return None


def _fit_to_student(values: dict[str, Any]) -> None:
    """A student's task need not be named again, and no other can be."""
    model, task = values.get("model"), values.get("task")
    path = model.get("path") if isinstance(model, dict) else None
    if not path or (made_for := student_at(str(path))) is None:
        return
    student = f"{path} is a student of " + "MLT({depth}, {chars}) in {text} text".format(**made_for)
    if (data := values.get("data")) is not None:
        raise ValueError(f"{student}, whose words are those of its task: it cannot learn from {data}")
    if not isinstance(task, dict):  # refused by its own rules
        return
    told = {key: value for key, value in task.items() if value is not None}
    other = [f"task.{key} is {told[key]}" for key, own in made_for.items() if told.get(key, own) != own]
    if other:
        raise ValueError(f"{student}, but {', '.join(other)}")
    values["task"] = {**made_for, **told}


class RunConfig(Strict):
    """One run of `openbook learn` or `openbook prepare`."""

    model: ModelConfig = ModelConfig()
    task: TaskConfig | None = None
    data: Path | None = Field(None, description="a JSONL file or a saved Hugging Face dataset")
    skip_bad: bool = Field(False, description="leave out records that cannot be read, and count them")
    samples: int | None = Field(None, ge=1, description="examples to train on; all of the data, or 10,000 of the task")
    curriculum: Annotated[Curriculum, BeforeValidator(_curriculum)] = curriculum_named(DEFAULT)
    training: TrainingConfig = TrainingConfig()
    reading: ReadingConfig | None = Field(None, description="the course of a student; instead of `training`")
    exam: ExamConfig = ExamConfig()
    think: str = Field(THINK, description="the thinking token")
    chat: bool | None = Field(None, description="use the tokenizer's chat template; if it has one, by default")
    seed: int = Field(0, ge=0, lt=2**32, description="of everything random")

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, values: Any) -> Any:
        """Defaults that depend on where the examples come from."""
        if not isinstance(values, dict):
            return values
        filled = dict(values)
        if isinstance(filled.get("model"), str):  # a model by its path or name
            filled["model"] = {"path": filled["model"]}
        if filled.get("data") is None and filled.get("task") is None:
            filled["task"] = {}
        _fit_to_student(filled)
        if isinstance(task := filled.get("task"), dict):
            seeds = dict.fromkeys(("codebook", "seed"), filled.get("seed", 0))
            filled["task"] = {**task, **{key: seed for key, seed in seeds.items() if task.get(key) is None}}
        training = filled.get("training") or {}
        if isinstance(training, dict):  # anything else is refused by its own rules
            model = filled.get("model") or {}
            started = isinstance(model, dict) and model.get("path")
            defaults: dict[str, Any] = {
                "batch_size": 64 if filled.get("data") is None else 8,
                "shuffle": filled.get("data") is not None,
                "learning_rate": 1e-4 if started else 1e-3,
            }
            task = filled.get("task")
            if isinstance(task, dict) and task.get("text") in STUDENT_TEXTS:
                defaults |= _STUDENT
            filled["training"] = {**training, **{k: v for k, v in defaults.items() if training.get(k) is None}}
        curriculum = filled.get("curriculum", DEFAULT)
        if isinstance(curriculum, str):
            curriculum = {"preset": curriculum}
        if isinstance(curriculum, dict):  # anything else is refused by its own rules
            # What is not said of a curriculum is the default's, but for what suits records of a user.
            if curriculum.keys() == _EARLIER:
                curriculum = {**curriculum, "rounding": "floor"}
            curriculum = {"preset": DEFAULT, **curriculum}
            own = _of_records(str(curriculum["preset"])) if filled.get("data") is not None else {}
            curriculum = {**own, **curriculum}
        filled["curriculum"] = curriculum
        return filled

    @model_validator(mode="after")
    def _one_source(self) -> RunConfig:
        if self.data is not None and self.task is not None:
            raise ValueError("both 'data' and 'task' are given: train on one of them")
        return self

    @model_validator(mode="after")
    def _student(self) -> RunConfig:
        """What a student cannot be told."""
        of_student = self.task is not None and self.task.text in STUDENT_TEXTS
        if of_student and self.think != THINK:
            raise ValueError(f"think: the vocabulary of a student has {THINK} and no other thinking token")
        if self.reading is not None and not of_student:
            raise ValueError(f"a reading course needs the task in a student's text: {' or '.join(STUDENT_TEXTS)}")
        return self

    def check_start(self) -> None:
        """Refuse to keep weights that nothing has taught anything."""
        if self.training.freeze and self.model.path is None:
            raise InputError(
                "training.freeze keeps weights as they are, but the model is made from nothing: give --model"
            )


_OPEN_BOOK = {"candidates": "needed", "others": 0.25, "drop": "0", "spread": "all"}
# What `openbook prepare` starts from: a student that learns to read, or any model by chain of thought as in the paper.
STAGE_ONE: dict[str, dict[str, Any]] = {
    "reading": {"task": {"codebook": "fresh", "text": "composite"}, "reading": {}, "curriculum": _OPEN_BOOK},
    "chain-of-thought": {
        "task": {"codebook": "fresh", "chain": "explicit"},
        "curriculum": {**_OPEN_BOOK, "silence": "0@0.1,1@0.6"},
    },
}
