"""Checks before a run starts: whether its examples can be learned and fit into the window, and what to warn of."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from openbook.base.console import Bar, no_bar
from openbook.base.errors import InputError
from openbook.book.shelf import CODE, NONE, Shelf
from openbook.book.source import Source
from openbook.book.text import Kind
from openbook.curriculum import Curriculum, SamplingPlan, Schedule
from openbook.training.config import RunConfig
from openbook.training.encode import Encoder, is_unknown
from openbook.training.shipped import shipped_readers

SEEN = 0.01  # the user is warned if training has seen a larger share of the exam than this
CHUNK = 512  # examples that are checked at a time


@dataclass
class Fit:
    """How much of some examples does not fit into the model's window when as much of the book is open as ever."""

    examples: int  # that were checked
    pieces: int = 0  # pieces of the book that are left out, starting with those that are not needed
    prompts: int = 0  # prompts that are cut at their start
    unknown: int = 0  # examples whose target has words that the vocabulary lacks

    def warnings(self, window: int | None) -> list[str]:
        """A sentence for each kind of thing that does not fit."""
        lines = []
        if self.pieces:
            lines.append(
                f"{self.pieces:,} pieces of the book of {self.examples:,} examples do not fit into a window of "
                f"{window} tokens and are left out: use shorter pieces, or a model with a longer window"
            )
        if self.prompts:
            lines.append(
                f"{self.prompts:,} prompts of {self.examples:,} do not fit into a window of {window} tokens and are "
                "cut at their start"
            )
        return lines


def check_targets(
    source: Source, encoder: Encoder, curriculum: Curriculum, count: int, bar: Bar = no_bar, learned: bool = True
) -> Fit:
    """Encode the first `count` examples with the book closed and as open as it ever is, and see whether they fit.

    An example without an answer, or with a completion that does not fit, is refused now and not after hours of
    training. If the examples are to be `learned`, so is one with words that the vocabulary lacks.
    """
    count = min(count, CHUNK) if source.uniform else min(count, len(source))  # of those that are alike, a few will do
    words = min(rate for _, rate in curriculum.silence.points)  # thoughts take most room when they are least silent
    widest_book = {"silence": Schedule.parse(words), "wrong": False, "drop": Schedule.parse(0)}
    plan = SamplingPlan(source, curriculum.model_copy(update=widest_book))
    fit = Fit(count)
    with bar("checking", count) as advance:
        for start in range(0, count, CHUNK):
            positions = np.arange(start, min(start + CHUNK, count))
            name = plan.namer(positions)
            shelf, opened = plan.at(positions)
            closed = encoder.encode(shelf, replace(opened, slots=np.full_like(opened.slots, NONE)), name)
            firsts = np.r_[0, closed.ends[:-1]]
            answered = np.add.reduceat(closed.flat_kinds == CODE[Kind.ANSWER], firsts)
            if not answered.all():
                where = name(int(answered.argmin()))
                raise InputError(f"{where}: no answer: all of the completion is thoughts, so nothing can be examined")
            unknown = np.add.reduceat(is_unknown(encoder.tokenizer, closed.flat_labels), firsts)
            unknown = np.where(_spelt(shelf, encoder.tokenizer, unknown > 0), 0, unknown)
            if learned and unknown.any():
                where = name(int(unknown.argmax()))
                raise InputError(
                    f"{where}: {unknown.max()} target tokens are not in the model's vocabulary and would be learned as "
                    f"{encoder.tokenizer.unk_token}: use a model whose tokenizer knows them (see `openbook mask`)"
                )
            widest = closed if always_closed(curriculum) else encoder.encode(shelf, opened, name)
            fit.pieces += widest.dropped_pieces
            fit.prompts += widest.cut_prompts
            fit.unknown += int((unknown > 0).sum())
            advance(len(positions))
    return fit


def _spelt(shelf: Shelf, tokenizer: Any, among: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which of the marked examples have the token for unknown words written out in their text, as WikiText has."""
    rows = np.flatnonzero(among).tolist()
    spelt = np.zeros(len(shelf), bool)
    spelt[rows] = [tokenizer.unk_token in "".join(shelf.texts(shelf.completion[row])) for row in rows]
    return spelt


def always_closed(curriculum: Curriculum) -> bool:
    """Whether the book is closed in all of training."""
    return all(rate == 1 for _, rate in curriculum.drop.points)


def check_kept(config: RunConfig, folder: Path) -> None:
    """Refuse to replace a folder that contains the model or the data of the run."""
    sources = {"model.path": config.model.path, "data": config.data, "exam.data": config.exam.data}
    for name, path in sources.items():
        if path is None or not (Path(path).exists() or str(path) in shipped_readers()):
            continue
        if Path(path).resolve().is_relative_to(folder.resolve()):
            raise InputError(f"{name} is {path}, which is in {folder}: name another folder with --out")


def check_moments(config: RunConfig, recorded: RunConfig) -> None:
    """Refuse to go on with another optimiser or other frozen weights: the checkpoint keeps the old moments."""
    for key in ("optimizer", "freeze"):
        before, now = getattr(recorded.training, key), getattr(config.training, key)
        if before != now:
            raise InputError(
                f"training.{key} was {before} and is {now}: a checkpoint cannot go on with that, so start a new run"
            )


def warnings_of(
    config: RunConfig, source: Source, fit: Fit, exam_fit: Fit | None, window: int | None, seen: float
) -> list[str]:
    """What does not stop a run, but matters to whoever reads its results; `exam_fit` is that of an exam's own file."""
    lines = []
    if not source.has_books and not always_closed(config.curriculum):
        lines.append(
            "no record has a privileged_context, so there is no book to close: this is plain fine-tuning (rename the "
            "column that holds the book, or give --curriculum no-context)"
        )
    lines += fit.warnings(window)
    if exam_fit is not None:
        lines += [f"exam: {line}" for line in exam_fit.warnings(window)]
        if exam_fit.unknown:
            lines.append(
                f"exam: {exam_fit.unknown:,} answers of {exam_fit.examples:,} have words that the model's vocabulary "
                "lacks, so they can only be wrong"
            )
    if seen > SEEN:
        lines.append(
            f"{seen:.0%} of the exam's strings are among those of training: few characters make few short strings"
        )
    return lines
