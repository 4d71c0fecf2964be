"""What the audit asks about the kind of a source or of a model. Nothing else in this room asks such a question."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from openbook.book.shelf import Source
from openbook.student.model import StudentForCausalLM
from openbook.task.source import Translations
from openbook.training.models import is_composite, is_student


def task_of(source: Source) -> Translations | None:
    """The translation task that the examples belong to; None for records."""
    return source if isinstance(source, Translations) else None


def has_written_pieces(source: Source) -> bool:
    """Whether a model of this source can write the pieces of its book, so that they have a likelihood."""
    return not is_composite(source)


def is_asked_in_tokens(source: Source) -> bool:
    """Whether the model has a vocabulary of its own for the task, and is asked by token numbers instead of text."""
    return is_student(source)


def raw_record(source: Any, index: int) -> dict[str, Any]:
    """A record as the user wrote it."""
    return dict(source._record(index))


def inputs_in_place(model: Any, read: Tensor) -> dict[str, Tensor]:
    """What a model must be given, beside their places, to read tokens in place of those of a text `read` before."""
    return {"text": read} if isinstance(model, StudentForCausalLM) else {}
