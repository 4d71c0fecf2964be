"""Advice on what to try next when a run ends no better than a guess with the book closed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from openbook.curriculum import Curriculum

GUESS = 0.05  # an accuracy less than this above chance counts as a guess
MOMENTS = np.linspace(0, 1, 101)  # progress of training at which the curriculum is evaluated


def advice(
    closed_book: float, open_book: float, chance: float, course: Sequence[Mapping[str, Any]], curriculum: Curriculum
) -> str | None:
    """Advice from the exams at the end and during training (`course` is the log); None for a run that learned."""
    guess = chance + min(GUESS, (1 - chance) / 2)  # where nearly all answers are the same, little is left above chance
    if closed_book >= guess:
        return None
    problem = "With the book closed it is no better than a guess"
    closed = curriculum.drop.at(MOMENTS)
    if curriculum.wrong:
        return f"{problem}: the book that it was shown misleads (curriculum.wrong)."
    if (closed == 0).all():
        return f"{problem}: this curriculum never closes the book. Take one that does, as --curriculum anneal."
    if (closed == 1).all():
        return (
            f"{problem}: this curriculum never opens the book. Give it more examples, or the book: --curriculum anneal."
        )
    if open_book >= guess:
        return (
            f"{problem}, but with the book open it is at {open_book:.3f}: it reads, and has not learned by heart. Give "
            "it more examples (--samples, --epochs), or close one section after another (--curriculum patient)."
        )
    exams = [line for line in course if "open_book" in line]
    best = max(exams, key=lambda line: line["open_book"], default=None)
    if best is not None and best["open_book"] >= guess:
        return (
            f"{problem}, and it reads no more: with the book open it was at {best['open_book']:.3f} after step "
            f"{best['step']} and is at {open_book:.3f} now. Take a lower rate (--settings lists those it had)."
        )
    return (
        f"{problem}, and with the book open neither: it cannot read. Start from a model that can (--model), or make "
        "one (`openbook prepare`)."
    )
