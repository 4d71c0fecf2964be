"""The config of a run. Validation is pure: it reads no file, and unknown keys are refused by name.

What depends on the data or on the model (defaults, the task of a student) is filled in by `training.resolve` before a
config is validated, so the config that a run records has plain values and means the same for ever.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from openbook.base.errors import InputError
from openbook.book.text import THINK
from openbook.curriculum import Curriculum, curriculum_named, expanded
from openbook.task.formats import FORMATS, Chain

DEFAULT_CURRICULUM = "anneal"


class Strict(BaseModel):
    """Settings that refuse unknown keys and do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True, allow_inf_nan=False)


def _known_format(name: str) -> str:
    try:
        FORMATS[name]
    except InputError as error:
        raise ValueError(str(error)) from None
    return name


class TaskConfig(Strict):
    """The task MLT(depth, chars) as the source of examples."""

    depth: int = Field(3, ge=1, description="Number of levels")
    chars: int = Field(8, ge=2, le=255, description="Number of characters in each alphabet")
    lengths: tuple[int, int] = Field((20, 40), description="Shortest and longest string, both even")
    codebook: int | str = Field(
        0,
        description="The codebook: a seed (the run's own by default), a file, or 'fresh' for a new one in each example",
    )
    seed: int = Field(0, description="Seed of the input strings; the run's own by default")
    text: Annotated[str, AfterValidator(_known_format)] = Field(
        "compact", description="Text format: released or compact, or composite, pairs or letters for a student"
    )
    chain: Chain = Field("silent", description="Write thinking tokens, or the strings of the levels in between")
    held_out: int | None = Field(
        None, ge=1, description="A level whose strings use only one half of the rules, drawn at random"
    )


class LoraConfig(Strict):
    """Low-rank adapters instead of all weights (needs `pip install openbook[peft]`)."""

    rank: int = Field(16, ge=1, description="Rank of the adapters; setting any key of this group trains adapters only")
    alpha: int = Field(32, ge=1, description="Adapters are scaled by alpha / rank")
    dropout: float = Field(0.0, ge=0, lt=1, description="Dropout of the inputs of an adapter")
    targets: list[str] | Literal["all-linear"] = Field("all-linear", description="Names of the modules that get one")


class ModelConfig(Strict):
    """A model to start from, or the shape of one to make."""

    path: str | None = Field(
        None,
        description="Folder, run, GGUF file, shipped reader, smollm2-135m (the default for your own data), or a name "
        "on the Hugging Face hub; scratch (the default for the task) makes a small Llama",
    )
    hidden_size: int = Field(128, ge=8, description="Width of the small Llama")
    layers: int = Field(4, ge=1, description="Its number of layers")
    heads: int = Field(4, ge=1, description="Its number of attention heads")
    key_value_heads: int | None = Field(None, ge=1, description="Its number of key and value heads, if fewer")
    intermediate_size: int | None = Field(None, ge=1, description="Width of its MLPs; twice hidden_size by default")
    vocabulary: int | None = Field(
        None, ge=2, description="Size of the vocabulary, for a dry run without the model's tokenizer"
    )
    tie_embeddings: bool = Field(False, description="Use one matrix for embedding and output layer")
    dtype: Literal["float32", "bfloat16", "auto"] = Field(
        "float32",
        description="Type of the weights in training; auto keeps the type they are stored in. By default bfloat16 "
        "where a pre-trained model learns your own data on a machine that is quick with it",
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
    """How the model is trained."""

    batch_size: int | None = Field(
        None, ge=1, description="Examples in an optimiser step; 64 for the task and 8 for your own data by default"
    )
    micro_batch_size: int = Field(16, ge=1, description="Examples in one forward pass")
    epochs: int = Field(
        1,
        ge=1,
        description="Number of times every example is seen; where a pre-trained model learns your own data, by default "
        "as many as show 1,200 examples (3 at least, 20 at most)",
    )
    learning_rate: float | None = Field(
        None, gt=0, description="Peak learning rate; 1e-3 for a new model and 1e-4 for a trained one by default"
    )
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = Field(
        (0.9, 0.95), description="The betas of AdamW"
    )
    weight_decay: float = Field(0.0, ge=0, description="Weight decay, also of the matrices of Muon")
    warmup: float = Field(0.06, ge=0, lt=1, description="Share of the steps in which the rate rises to its peak")
    schedule: Literal["cosine", "linear", "constant", "constant_with_warmup", "warmup_stable_decay"] = Field(
        "cosine", description="Schedule of the learning rate"
    )
    decay: float = Field(
        0.2, gt=0, le=1, description="Share of the steps at the end in which warmup_stable_decay lowers the rate"
    )
    optimizer: Literal["adamw", "muon"] = Field(
        "adamw", description="muon trains matrices with Muon, and everything else with AdamW"
    )
    matrix_learning_rate: float = Field(0.02, gt=0, description="Peak learning rate of Muon")
    loss: Literal["completion", "answer", "everything"] = Field(
        "completion",
        description="Which tokens carry loss; everything includes the book, as an audit's positive control needs",
    )
    freeze: list[str] = Field(
        default_factory=list, description="Parts of the names of weights that are not trained, such as self_attn"
    )
    max_grad_norm: float = Field(1.0, gt=0, description="Gradients longer than this are shortened to it")
    max_length: int | None = Field(None, ge=2, description="Longest example in tokens; the model's window by default")
    shuffle: bool | None = Field(
        None, description="Draw a new order in each epoch; by default for your own data and not for the task"
    )
    workers: int = Field(0, ge=0, description="Number of processes that prepare batches beside the training")
    bf16: bool = Field(False, description="Compute in bfloat16 where that is safe")
    gradient_checkpointing: bool = Field(False, description="Use less memory and more time")
    report_to: list[str] = Field(
        default_factory=list, description="Trackers, with the names of transformers: wandb, tensorboard"
    )
    log_every: int = Field(10, ge=1, description="Number of steps between lines of metrics.jsonl")
    checkpoint_every: int | None = Field(
        None,
        ge=0,
        description="Number of steps between checkpoints; by default at most ten in a run, and fewer where they take "
        "more than a twentieth of the time",
    )
    keep_checkpoints: bool = Field(False, description="Keep the last checkpoints of a finished run")

    @model_validator(mode="after")
    def _rises_before_it_falls(self) -> TrainingConfig:
        if self.schedule == "warmup_stable_decay" and self.warmup + self.decay > 1:
            raise ValueError(f"warmup {self.warmup:g} and decay {self.decay:g} are more than all of the steps")
        return self

    @property
    def step_size(self) -> int:
        return self.batch_size or 64


class ReadingConfig(Strict):
    """The course in which a new model learns to read a book; the defaults served all sizes that were tried."""

    batch_size: int = Field(64, ge=4, description="Examples in a step of the first level; later steps have fewer")
    matrix_lr: float = Field(0.02, gt=0, description="Peak learning rate of Muon")
    lr: float = Field(3e-3, gt=0, description="Peak learning rate of everything else")
    warmup: int = Field(20, ge=1, description="Number of steps in which the rates rise to their peaks")
    gate: float = Field(0.93, gt=0, lt=1, description="Mean accuracy of recent steps that ends a stage")
    margin: float = Field(0.03, ge=0, description="Added to the gate, the accuracy at which the last stage ends")
    window: int = Field(5, ge=1, description="Number of steps over which accuracy is averaged")
    last_window: int = Field(20, ge=5, description="The same in the last stage, which must not end by luck")
    final_steps: int = Field(60, ge=1, description="Steps for each level in which the rate falls to zero at the end")
    most_steps: int = Field(6000, ge=1, description="Steps after which the course ends, whether or not it was passed")
    capable: float = Field(0.98, gt=0, le=1, description="Accuracy with the book open that a reader must reach")
    others: float = Field(0.25, ge=0, le=1, description="Share of the unused rules that is shown")
    missing: float = Field(0.5, ge=0, lt=1, description="Share of the examples with pages missing")
    most_missing: float = Field(0.5, ge=0, le=1, description="Largest share of the pages that is missing")
    spare: int = Field(128, ge=0, description="Units added to each MLP at the end, for what will be learned by heart")
    width: int = Field(64, ge=8, description="Width of the student")
    heads: int = Field(4, ge=1, description="Its number of attention heads")
    head: int = Field(32, ge=2, multiple_of=2, description="Size of a head")
    mlp: int = Field(128, ge=8, description="Number of units of an MLP")
    ends: float | None = Field(
        None,
        ge=0,
        description="Weight of a string's last bigram in the loss; 0.5 from four levels on and 0 below by default",
    )
    lag: bool = Field(True, description="Whether each level stands half a bigram to the right of the one before")
    kept: Literal["float32", "float16"] = Field(
        "float32", description="Type of the saved weights; float16 takes half the space, and is what is examined"
    )

    @model_validator(mode="after")
    def _can_end(self) -> ReadingConfig:
        if self.gate + self.margin >= 1:
            raise ValueError(f"gate {self.gate:g} and margin {self.margin:g}: no accuracy is above their sum")
        if self.window > self.last_window:
            raise ValueError(f"window {self.window} is longer than last_window {self.last_window}")
        return self


class ExamConfig(Strict):
    """How the model is examined."""

    samples: int = Field(256, ge=1, description="Maximum number of exam examples")
    every: int | None = Field(
        None, ge=1, description="Number of steps between exams during training; about ten exams by default"
    )
    during: int | None = Field(
        None,
        ge=1,
        description="Maximum number of examples of an exam during training; by default all for the task, and for your "
        "own data so many that these exams cost about a tenth of the training",
    )
    data: Path | None = Field(None, description="Data to examine on; by default the data that is trained on")
    batch_size: int = Field(64, ge=1, description="Examples in one forward pass of an exam")
    retention: bool = Field(
        True, description="Measure at the end what a pre-trained model lost, on other prose and on new books"
    )


class RunConfig(Strict):
    """One run of `openbook learn` or `openbook prepare`."""

    model: ModelConfig = ModelConfig()
    task: TaskConfig | None = None
    data: Path | None = Field(None, description="JSONL file, or folder of a saved Hugging Face dataset, to train on")
    skip_bad: bool = Field(False, description="Leave out records that cannot be read, and count them")
    samples: int | None = Field(
        None, ge=1, description="Number of examples to train on; all of the data, or 10,000 of the task, by default"
    )
    curriculum: Annotated[Curriculum, BeforeValidator(expanded)] = curriculum_named(DEFAULT_CURRICULUM)
    training: TrainingConfig = TrainingConfig()
    reading: ReadingConfig | None = Field(None, description="Settings of a reading course, in place of `training`")
    exam: ExamConfig = ExamConfig()
    think: str = Field(THINK, description="The thinking token")
    chat: bool | None = Field(None, description="Use the tokenizer's chat template; by default if it has one")
    seed: int = Field(0, ge=0, lt=2**32, description="Seed of everything random")

    @model_validator(mode="after")
    def _one_source(self) -> RunConfig:
        if self.data is not None and self.task is not None:
            raise ValueError("both 'data' and 'task' are given: train on one of them")
        return self

    @model_validator(mode="after")
    def _text_allows_it(self) -> RunConfig:
        """A model that has no other words than those of its text cannot be given some settings."""
        complete = self.task is not None and FORMATS[self.task.text].complete
        if complete and self.think != THINK:
            raise ValueError(f"think: the vocabulary of a student has {THINK} and no other thinking token")
        if self.reading is not None and not complete:
            texts = " or ".join(name for name in FORMATS if FORMATS[name].complete)
            raise ValueError(f"a reading course needs the task in a student's text: set task.text to {texts}")
        return self

    def check_start(self) -> None:
        """Refuse to keep weights that nothing has taught anything."""
        if self.training.freeze and self.model.path is None:
            raise InputError(
                "training.freeze keeps weights as they are, but the model is made from nothing: give --model"
            )
