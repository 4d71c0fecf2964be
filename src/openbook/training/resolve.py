"""Fills in what a config leaves open because it depends on the data or on the model, once, before a run is created.

    resolve({"data": "facts.jsonl"})              a pre-trained model, and how such a model learns a text
    resolve({"model": "student-3-8"})             the student's own task, and how students are trained

Values that are given are kept. The result is a config of plain values, which is recorded with the run and validated by
itself from then on: what happens to the model's folder later changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from openbook.base.errors import InputError
from openbook.book.load import record_count
from openbook.curriculum import text_settings
from openbook.task.formats import FORMATS
from openbook.training.config import DEFAULT_CURRICULUM, RunConfig
from openbook.training.families import family_of, task_of
from openbook.training.settings import combined, validated
from openbook.training.shipped import config_of
from openbook.training.store import DEFAULT, SCRATCH

POSITIONS = 1200  # examples that a pre-trained model is shown by default, each one as often as that takes
LEAST_EPOCHS, MOST_EPOCHS = 3, 20

WIDE = 256  # the width from which on a model is not one that was made small

# Settings of a model to make; where one is given, no model is loaded.
SHAPE = {"hidden_size", "layers", "heads", "key_value_heads", "intermediate_size", "tie_embeddings"}


def resolve(values: Mapping[str, Any]) -> RunConfig:
    """The config of a run from the values that are given."""
    filled = dict(values)
    if isinstance(filled.get("model"), str):  # a model by its path or name
        filled["model"] = {"path": filled["model"]}
    if isinstance(filled.get("model", {}), dict | None):
        filled["model"] = _start_of(filled.get("model") or {}, filled.get("data") is not None)
    if filled.get("data") is None and filled.get("task") is None:
        filled["task"] = {}
    path = filled["model"].get("path") if isinstance(filled.get("model"), dict) else None
    if path:
        _fit_to_model(filled, str(path))
        filled["model"] = {"dtype": _dtype(filled, str(path)), **filled["model"]}
    if isinstance(task := filled.get("task"), dict):
        seeds = dict.fromkeys(("codebook", "seed"), filled.get("seed", 0))
        filled["task"] = {**task, **{key: seed for key, seed in seeds.items() if task.get(key) is None}}
    training = filled.get("training") or {}
    if isinstance(training, dict):  # validation refuses anything else
        defaults = _training_defaults(filled, starts_from=path)
        filled["training"] = {**training, **{k: v for k, v in defaults.items() if training.get(k) is None}}
    filled["curriculum"] = _curriculum(filled.get("curriculum", DEFAULT_CURRICULUM), filled.get("data") is not None)
    config = validated(RunConfig, filled)
    unknown = "epochs" not in config.training.model_fields_set
    if unknown and config.model.path is not None and config.data is not None and config.data.exists():
        epochs = epochs_for(config.samples or record_count(config.data))
        config = config.model_copy(update={"training": config.training.model_copy(update={"epochs": epochs})})
    return config


def epochs_for(examples: int) -> int:
    """How often a pre-trained model sees every example of a user's own data: fewer times the more there are."""
    return min(MOST_EPOCHS, max(LEAST_EPOCHS, -(-POSITIONS // examples)))


def configured(
    file: Path | str | None, settings: Iterable[str], flags: Mapping[str, Any], base: Mapping[str, Any] | None = None
) -> RunConfig:
    """The config of a run from a YAML file, `key=value` settings and command-line flags (see `settings.combined`)."""
    return resolve(combined(file, settings, flags, base))


def _fit_to_model(values: dict[str, Any], path: str) -> None:
    """Where a model's vocabulary is made for one task, that task need not be named, and no other can be."""
    if (task := task_of(path)) is None:
        return
    student = f"{path} is a student of " + "MLT({depth}, {chars}) in {text} text".format(**task)
    if (data := values.get("data")) is not None:
        raise InputError(f"{student}, whose words are those of its task: it cannot learn from {data}")
    if not isinstance(asked := values.get("task"), dict):  # validation refuses anything else
        return
    given = {key: value for key, value in asked.items() if value is not None}
    if others := [f"task.{key} is {given[key]}" for key, own in task.items() if given.get(key, own) != own]:
        raise InputError(f"{student}, but {', '.join(others)}")
    values["task"] = {**task, **given}


def _start_of(model: dict[str, Any], own_data: bool) -> dict[str, Any]:
    """The model to start from: for data of one's own a pre-trained one, unless another or none is asked for."""
    if model.get("path") == SCRATCH:
        return {**model, "path": None}
    if own_data and "path" not in model and not SHAPE & set(model):
        return {**model, "path": DEFAULT}
    return model


def _dtype(values: Mapping[str, Any], path: str) -> str:
    """The type of the weights of a model that learns a user's own data: bfloat16 where the machine is quick with it.

    Models that were made small keep float32, and so does one that is to compute in bfloat16 with float32 weights.
    """
    training = values.get("training")
    autocast = isinstance(training, dict) and training.get("bf16")
    if values.get("data") is None or autocast or config_of(path).get("hidden_size", WIDE) < WIDE:
        return "float32"
    from openbook.training.models import multiplies_bfloat16

    return "bfloat16" if multiplies_bfloat16() else "float32"


def _training_defaults(values: Mapping[str, Any], starts_from: str | None) -> dict[str, Any]:
    own_data = values.get("data") is not None
    defaults: dict[str, Any] = {
        "batch_size": 8 if own_data else 64,
        "shuffle": own_data,
        "learning_rate": 1e-4 if starts_from else 1e-3,
    }
    task = values.get("task")
    text = task.get("text") if isinstance(task, dict) else None
    family = FORMATS[text].family if isinstance(text, str) and text in FORMATS else None
    return {**defaults, **family_of(family).training_defaults}


def _curriculum(value: Any, own_data: bool) -> Any:
    """What is left open of a curriculum is the default's, but for what suits a text of one's own."""
    if isinstance(value, str):
        value = {"preset": value}
    if not isinstance(value, dict):  # validation refuses anything else
        return value
    value = {"preset": DEFAULT_CURRICULUM, **value}
    return {**text_settings(str(value["preset"])), **value} if own_data else value


_OPEN_BOOK = {"candidates": "needed", "others": 0.25, "drop": "0", "spread": "all"}
# What `openbook prepare` starts from: a student that learns to read, or any model by chain of thought as in the paper.
STAGE_ONE: dict[str, dict[str, Any]] = {
    "reading": {"task": {"codebook": "fresh", "text": "composite"}, "reading": {}, "curriculum": _OPEN_BOOK},
    "chain-of-thought": {
        "task": {"codebook": "fresh", "chain": "explicit"},
        "curriculum": {**_OPEN_BOOK, "silence": "0@0.1,1@0.6"},
    },
}
