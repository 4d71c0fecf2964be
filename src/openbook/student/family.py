"""The student as a family of models: what `training` needs to know to make one and to train it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from openbook.book.source import Source
from openbook.student.model import StudentForCausalLM
from openbook.student.vocabulary import StudentConfig, student_config
from openbook.training.config import ModelConfig, ReadingConfig
from openbook.training.families import Family


class Student(Family):
    """A small Llama whose vocabulary is made for one task."""

    model_class = StudentForCausalLM  # importing it makes it known to transformers

    # The slots of a student answer at once, so only they carry loss.
    training_defaults: Mapping[str, Any] = {
        "batch_size": 16,
        "learning_rate": 2e-3,
        "optimizer": "muon",
        "schedule": "warmup_stable_decay",
        "warmup": 0.03,
        "loss": "answer",
    }

    def task(self, shape: Mapping[str, Any]) -> dict[str, Any]:
        """The task that the student's words are made for."""
        return {"text": shape.get("text", "composite"), "depth": shape["depth"], "chars": shape["chars"]}

    def shape(self, config: ModelConfig, source: Source, vocabulary: int) -> StudentConfig:
        """The shape of a student that a reading course makes, so that new and prepared students can be compared."""
        assert source.task is not None
        task, course = source.task, ReadingConfig()
        size = (course.width, course.heads, course.head, course.mlp + course.spare)
        return student_config(task["depth"], task["chars"], *size, text=task["text"], lag=course.lag)

    def logits(self, shape: Any) -> int:
        """A student whose rules are tokens of their own has logits for the words of its output alone."""
        return shape.outputs
