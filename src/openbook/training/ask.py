"""Asks a run a question: the prompt is encoded as training encodes it, and the model writes on from there."""

from __future__ import annotations

from typing import Any

import numpy as np

from openbook.base.errors import InputError
from openbook.book.load import ListSource
from openbook.book.shelf import CODE, NONE
from openbook.book.text import Kind
from openbook.curriculum import Opened
from openbook.training.reopen import Reopened
from openbook.training.writing import generate


def book_for(opened: Reopened, question: str) -> dict[str, list[str]]:
    """The book to open for a question: that of the same question in the run's data, or else every piece there is.

    The encoder closes whole pieces, the last ones first, where they do not fit into the window.
    """
    source = opened.source
    book: dict[str, list[str]] = {}
    if source.uniform:
        raise InputError("this run is on the task, whose prompts have books of their own: use `openbook exam`")
    for index in range(len(source)):
        example = source.example(index)
        sections = {section.name: [piece.text for piece in section.pieces] for section in example.sections}
        if example.prompt.strip() == question.strip():
            return sections
        for name, pieces in sections.items():
            known = book.setdefault(name, [])
            known += [piece for piece in pieces if piece not in known]
    return book


def ask(opened: Reopened, question: str, book: Any = None, max_new_tokens: int = 64) -> str:
    """The model's answer, written greedily; `book` is what `privileged_context` may be, open before the question."""
    record = {"prompt": question, "completion": "?", "privileged_context": book}
    source = ListSource([record], think=opened.encoder.think)
    shelf = source.shelf(np.array([0]))
    slots = np.where(shelf.pieces != NONE, np.arange(shelf.pieces.shape[-1]), NONE)
    encoded = opened.encoder.of_bank(source.bank).encode(shelf, Opened(slots, np.zeros(1, np.int64)))
    prompt = encoded.flat_ids[encoded.flat_kinds < CODE[Kind.WORDS]]
    tokenizer = opened.encoder.tokenizer
    (answer,) = generate(opened.model, tokenizer, [prompt], max_new_tokens)
    return tokenizer.decode(answer, skip_special_tokens=True).strip()
