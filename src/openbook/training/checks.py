"""What is looked at before a run begins: whether it can be learned from, whether it fits, and what should be known."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from openbook.book.shelf import CODE, Source
from openbook.book.translations import Translations
from openbook.console import Bar, no_bar
from openbook.curriculum import Curriculum, Plan
from openbook.errors import InputError
from openbook.schedule import Schedule
from openbook.task.text import Kind
from openbook.training.config import RunConfig
from openbook.training.encode import Encoder, is_unknown

SEEN = 0.01  # share of an exam that training has seen, above which it is said


@dataclass(frozen=True)
class Fit:
    """What of the examples does not fit into the model's window when all of the book is open."""

    examples: int  # looked at
    pieces: int = 0  # of the book that are left out, those that are not needed first
    prompts: int = 0  # cut at their start

    def told(self, window: int | None) -> str:
        return (
            f"with the book open, {self.pieces:,} pieces of the book of {self.examples:,} examples do not fit into a "
            f"window of {window} tokens and are left out, and {self.prompts:,} prompts are cut at their start: use a "
            "model with a longer window, or shorter pieces"
        )


def check_targets(source: Source, encoder: Encoder, curriculum: Curriculum, bar: Bar = no_bar) -> Fit:
    """Encode a user's examples once with the book closed, and once with it open to see whether it fits.

    One that has no target, whose target does not fit, or whose target has words that the vocabulary does not know is
    named now and not after hours of training. Examples of the task are all alike, so a few of them will do.
    """
    chunk = 512
    count = min(len(source), chunk) if isinstance(source, Translations) else len(source)
    words = min(rate for _, rate in curriculum.silence.points)  # thoughts take most room when they are least silent
    told = {"silence": Schedule.parse(words), "wrong": False}
    closed, opened = (Plan(source, curriculum.model_copy(update={**told, "drop": Schedule.parse(k)})) for k in (1, 0))
    fit = Fit(count)
    with bar("checking", count) as advance:
        for start in range(0, count, chunk):
            positions = np.arange(start, min(start + chunk, count))
            encoded = encoder.encode(*closed.at(positions), closed.namer(positions))
            firsts = np.r_[0, encoded.ends[:-1]]
            answered = np.add.reduceat(encoded.flat_kinds == CODE[Kind.ANSWER], firsts)
            if not answered.all():
                where = closed.namer(positions)(int(answered.argmin()))
                raise InputError(f"{where}: no answer: all of the completion is thoughts, so nothing can be examined")
            unknown = np.add.reduceat(is_unknown(encoder.tokenizer, encoded.flat_labels), firsts)
            if unknown.any():
                where = closed.namer(positions)(int(unknown.argmax()))
                raise InputError(
                    f"{where}: {unknown.max()} target tokens are not in the model's vocabulary and would be learned as "
                    f"{encoder.tokenizer.unk_token}: use a model whose tokenizer knows them (see `openbook mask`)"
                )
            whole = encoder.encode(*opened.at(positions), opened.namer(positions))
            fit = Fit(count, fit.pieces + whole.dropped_pieces, fit.prompts + whole.cut_prompts)
            advance(len(positions))
    return fit


def seen_in_training(training: Source, exam: Source) -> float:
    """Share of the exam's strings that training has too: tasks with few short strings draw some of them twice.

    A fresh codebook makes another example of the same string, and where strings are long none is drawn twice.
    """
    if not isinstance(training, Translations) or not isinstance(exam, Translations) or training.codebook is None:
        return 0.0
    if training.count * exam.count < 1e-3 * float(training.chars) ** training.lengths[0]:
        return 0.0
    known = {string for start in range(0, training.count, 4096) for string in _strings(training, start)}
    asked = _strings(exam, 0, exam.count)
    return sum(string in known for string in asked) / len(asked)


def _strings(source: Translations, start: int, count: int = 4096) -> list[bytes]:
    drawn, _ = source.translations(np.arange(start, min(start + count, source.count)))
    return [s[:size].tobytes() for s, size in zip(drawn.strings[:, 0], drawn.lengths.tolist(), strict=True)]


def check_kept(config: RunConfig, folder: Path) -> None:
    """Refuse to replace a folder that holds what the run starts from."""
    sources = {"model.path": config.model.path, "data": config.data, "exam.data": config.exam.data}
    for name, path in sources.items():
        if path is not None and Path(path).exists() and Path(path).resolve().is_relative_to(folder.resolve()):
            raise InputError(f"{name} is {path}, which is in {folder}: name another folder with --out")


def warnings_of(config: RunConfig, source: Source, fit: Fit, window: int | None, seen: float) -> list[str]:
    """What does not stop a run, but should be known to whoever reads its figures."""
    lines = []
    always_closed = all(rate == 1 for _, rate in config.curriculum.drop.points)
    if not getattr(source, "has_books", True) and not always_closed:
        lines.append(
            "no record has a privileged_context, so there is no book to close: this is plain fine-tuning (rename the "
            "column that holds the book, or say --curriculum no-context)"
        )
    if (fit.pieces or fit.prompts) and not always_closed:
        lines.append(fit.told(window))
    if seen > SEEN:
        lines.append(
            f"{seen:.0%} of the exam's strings are among those of training: few characters make few short strings"
        )
    return lines
