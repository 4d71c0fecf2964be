"""The exam: how much a model knows with the book closed, half open, open, and wrong.

Next-token accuracy on the answer under teacher forcing (as the paper reports it), exact match, and accuracy by place in
the answer, for several shares of the book open: the context-reliance curve. Each rate stands beside its chance level
and an interval clustered by example. The examples of all shares are read together, and equal ones once: a book of one
piece is open or closed, whatever the share. `examine_sections` closes one section at a time instead and leaves the
others open: which of them the model knows by heart.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import torch

from openbook.base.errors import InputError
from openbook.base.intervals import clustered, wilson
from openbook.book.shelf import CODE, NONE
from openbook.book.source import Source
from openbook.book.text import Kind
from openbook.curriculum import Curriculum, SamplingPlan, Schedule
from openbook.training.answers import Written, written_rates, written_to
from openbook.training.batches import Collator, Item, items, pad_id_of
from openbook.training.encode import IGNORED, Encoder
from openbook.training.models import examined
from openbook.training.targets import target_logits
from openbook.training.writing import answers_in_place, write

SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
NAMES = 24  # sections with more names than these are entries of one list, and go by their number


class ExamInterrupted(Exception):  # noqa: N818 - not an error: a signal asked for it
    """The exam stopped between two batches, because it was asked to."""


@dataclass(frozen=True)
class Row:
    """One condition of the exam."""

    book: str  # "right" or "wrong"
    open: float  # share of the book that is open: of every section, made whole by the curriculum's rounding
    pieces: float  # open pieces of an example, on average
    samples: int
    accuracy: float
    low: float
    high: float
    chance: float
    exact_match: float
    exact_low: float
    exact_high: float
    by_place: list[float] = field(repr=False)
    # Where the model wrote its completions by itself: the share of them that have the answer in its place, and how
    # what it wrote compares with the reference as a text.
    generated_match: float | None = None
    f1: float | None = None
    f1_low: float | None = None
    f1_high: float | None = None
    normalised_match: float | None = None
    normalised_low: float | None = None
    normalised_high: float | None = None
    written: Sequence[Written] = field(default=(), repr=False)

    def as_dict(self) -> dict[str, Any]:
        """The row as it is printed by `--json` and recorded."""
        return {key: value for key, value in asdict(self).items() if key != "written"}


@dataclass(frozen=True)
class SectionRow(Row):
    """The exam with one section of the book closed and the others open.

    `pieces` counts the closed pieces, and `samples` the examples that need an open piece of this section: the others
    would miss nothing.
    """

    section: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The row as it is printed by `--json`."""
        keys = ("section", "pieces", "samples", "accuracy", "low", "high", "chance", "exact_match")
        return {key: getattr(self, key) for key in keys}


def condition(curriculum: Curriculum, share: float, wrong: bool = False) -> Curriculum:
    """The curriculum's own choice of pieces, with a fixed share open in every section and thoughts as at the end."""
    closed, silent = (Schedule(((0.0, rate),)) for rate in (1.0 - share, float(curriculum.silence.at(1.0))))
    return curriculum.model_copy(update={"drop": closed, "spread": "all", "wrong": wrong, "silence": silent})


def examine(
    model: Any,
    encoder: Encoder,
    source: Source,
    curriculum: Curriculum,
    shares: Sequence[float] = SHARES,
    wrong: bool = True,
    samples: int = 256,
    seed: int = 0,
    batch_size: int = 64,
    generate: bool = False,
    advance: Callable[..., None] = lambda *_, **__: None,
    stopped: Callable[[], bool] = lambda: False,
) -> list[Row]:
    """Examine a model: a row for every share of the book, and one with a wrong book where the source has any."""
    sheets: list[list[Item]] = []
    asked = conditions(source, curriculum, shares, wrong, samples, seed)
    pieces = []
    for _, _, plan, positions in asked:
        shelf, opened = plan.at(positions)
        encoded = encoder.encode(shelf, opened, plan.namer(positions))
        sheets.append(items(encoded, positions.tolist()))
        pieces.append((int((opened.slots != NONE).sum()) - encoded.dropped_pieces) / len(positions))
    everything = [item for sheet in sheets for item in sheet]
    work = len(asked) / (2 if generate else 1)

    def told(part: float) -> None:
        advance(part * work)

    right = _apart(correct_answers(model, encoder, everything, source, batch_size, stopped, told), len(sheets))
    written: Sequence[Any] = [None] * len(sheets)
    if generate:
        written = _apart(write(model, encoder, everything, batch_size, told), len(sheets))
    return [
        Row(
            book="wrong" if misled else "right",
            open=share,
            pieces=pieces[k],
            **_rates(right[k]),
            chance=chance_level(source, sheets[k], encoder),
            **({} if written[k] is None else _by_itself(source, plan.indices(positions), sheets[k], written[k])),
        )
        for k, (share, misled, plan, positions) in enumerate(asked)
    ]


def _apart(results: list[Any], count: int) -> list[list[Any]]:
    """Results of equally many examples under each of `count` conditions, one list for each condition."""
    size = len(results) // count
    return [results[start : start + size] for start in range(0, len(results), size)]


def _by_itself(
    source: Source, indices: np.ndarray, sheet: list[Item], written: list[tuple[np.ndarray, str]]
) -> dict[str, Any]:
    """How completions that the model wrote compare with the references, by the names that a row has for it."""
    texts = zip(indices.tolist(), written, strict=True)
    answers = [written_to(source.example(index), text) for index, (_, text) in texts]
    hits = sum(answers_in_place(item, row) for item, (row, _) in zip(sheet, written, strict=True))
    return {"generated_match": hits / len(sheet), **written_rates(answers), "written": answers}


def examine_sections(
    model: Any,
    encoder: Encoder,
    source: Source,
    curriculum: Curriculum,
    samples: int = 256,
    seed: int = 0,
    batch_size: int = 64,
    advance: Callable[..., None] = lambda *_, **__: None,
) -> list[SectionRow]:
    """Examine a model with each section closed in turn, all others open, as far as they fit into the window.

    Sections go by name, or by number where they have none or there are more than `NAMES`. One that no example needs has
    no row.
    """
    plan, positions = exam_plan(source, condition(curriculum, 1.0), samples, seed)
    shelf, opened = plan.at(positions)
    opened = encoder.fitted(shelf, opened, plan.namer(positions))
    is_open = opened.slots != NONE
    needed = is_open & np.take_along_axis(shelf.needed, np.maximum(opened.slots, 0), axis=-1)
    sheets: dict[str, list[Item]] = {}
    pieces = {}
    for name, where in _sections(source, positions, opened.slots.shape[1]).items():  # [B, S]
        asked = np.flatnonzero((needed & where[..., None]).any((1, 2)))
        if len(asked):
            closed = replace(opened, slots=np.where(where[..., None], NONE, opened.slots))
            encoded = items(encoder.encode(shelf, closed, plan.namer(positions)), positions.tolist())
            sheets[name] = [encoded[row] for row in asked.tolist()]
            pieces[name] = float((is_open & where[..., None])[asked].sum((1, 2)).mean())
    if not sheets:
        raise InputError("no example of this exam needs a piece of a book: there is no section to close")
    everything = [item for sheet in sheets.values() for item in sheet]
    right = iter(correct_answers(model, encoder, everything, source, batch_size, advance=advance))
    return [
        SectionRow(
            book="right",
            open=1.0,
            pieces=pieces[name],
            **_rates([next(right) for _ in sheet]),
            chance=chance_level(source, sheet, encoder),
            section=name,
        )
        for name, sheet in sheets.items()
    ]


def conditions(
    source: Source, curriculum: Curriculum, shares: Sequence[float], wrong: bool, samples: int, seed: int
) -> list[tuple[float, bool, SamplingPlan, np.ndarray]]:
    """What an exam asks for: a share of the book, whether it misleads, and the plan and positions of the questions."""
    if any(not 0 <= share <= 1 for share in shares):
        raise InputError(f"shares of the book are between 0 and 1, not {list(shares)}")
    asked = [(share, False) for share in shares] + [(1.0, True)] * (wrong and source.can_mislead)
    return [
        (share, misled, *exam_plan(source, condition(curriculum, share, misled), samples, seed))
        for share, misled in asked
    ]


def exam_plan(source: Source, curriculum: Curriculum, samples: int, seed: int) -> tuple[SamplingPlan, np.ndarray]:
    """The plan of an exam and its positions."""
    if samples < 1:
        raise InputError(f"an exam of {samples} examples says nothing: use at least one")
    samples = min(samples, len(source))
    return SamplingPlan(source, curriculum, seed=seed, samples=samples), np.arange(samples)


def _sections(source: Source, positions: np.ndarray, count: int) -> dict[str, np.ndarray]:
    """Where each section stands in the books of these examples, by name: [B, S]."""
    books = source.section_names(positions)
    few = len({name for book in books for name in book}) <= NAMES
    places: dict[str, np.ndarray] = defaultdict(lambda: np.zeros((len(books), count), bool))
    for row, book in enumerate(books):
        for number, name in enumerate(book):
            places[name if name and few else f"{number + 1}"][row, number] = True
    return places


def _rates(right: list[np.ndarray]) -> dict[str, Any]:
    """Accuracy and exact match of some answers, with their intervals, by the names that a row has for them."""
    accuracy, low, high = clustered([float(answer.mean()) for answer in right])
    exact = sum(bool(answer.all()) for answer in right)
    exact_low, exact_high = wilson(exact, len(right))
    padded = np.full((len(right), max(map(len, right))), np.nan)
    for row, answer in enumerate(right):
        padded[row, : len(answer)] = answer
    return {
        "samples": len(right),
        "accuracy": accuracy,
        "low": low,
        "high": high,
        "exact_match": exact / len(right),
        "exact_low": exact_low,
        "exact_high": exact_high,
        "by_place": np.nanmean(padded, axis=0).tolist(),
    }


def answer_tokens(item: Item) -> np.ndarray:
    """The tokens of an example's answer."""
    return item.ids[item.kinds == CODE[Kind.ANSWER]]


def chance_level(source: Source, items: Sequence[Item], encoder: Encoder) -> float:
    """What guessing scores, if the source knows it; otherwise the best that the same token in every place scores.

    Averaged as accuracy is, first over the answer of an example and then over examples.
    """
    if (known := source.chance(encoder.table.tokenize)) is not None:
        return known
    shares: Counter[int] = Counter()
    for item in items:
        answer = answer_tokens(item)
        for token, count in zip(*np.unique(answer, return_counts=True), strict=True):
            shares[int(token)] += count / len(answer)
    return float(max(shares.values()) / len(items))


def correct_answers(
    model: Any,
    encoder: Encoder,
    items: list[Item],
    source: Source,
    batch_size: int,
    stopped: Callable[[], bool] = lambda: False,
    advance: Callable[[float], None] = lambda part: None,
) -> list[np.ndarray]:
    """For every example, which parts of its answer tokens are the model's first choice given all that stands before.

    Equal examples are read once. `advance` is told what part of the work each batch was. `stopped` is called between
    batches; once it is true, the exam ends with `ExamInterrupted`.
    """
    distinct: dict[tuple[bytes, bytes], Item] = {}
    keys = []
    for item in items:
        answers = item.kinds == CODE[Kind.ANSWER]
        if not answers.any():
            raise InputError(f"example {item.position} has no answer tokens to be examined")
        keys.append(key := (item.ids.tobytes(), answers.tobytes()))
        distinct.setdefault(key, replace(item, position=len(distinct)))
    device = next(model.parameters()).device
    results: dict[int, np.ndarray] = {}
    with torch.inference_mode(), examined(model):
        for batch in Collator(pad_id_of(encoder.tokenizer), batch_size)(list(distinct.values()))["micro_batches"]:
            if stopped():
                raise ExamInterrupted
            labels = torch.where(batch["answers"], batch["labels"], IGNORED)
            logits, targets = target_logits(model, {k: v.to(device) for k, v in (batch | {"labels": labels}).items()})
            right = source.score(logits.argmax(-1).cpu().numpy(), targets.cpu().numpy())
            counts = (labels[:, 1:] != IGNORED).sum(1).numpy() * right.shape[1]
            rows = np.split(right.reshape(-1), np.cumsum(counts)[:-1])
            results.update(zip(batch["positions"].tolist(), rows, strict=True))
            advance(len(rows) / len(distinct))
    return [results[distinct[key].position] for key in keys]


def check_others(curriculum: Curriculum, source: Source, samples: int, others: float) -> None:
    """Refuse to set the share of the pieces that are not needed where this would change nothing."""
    if not 0 <= others <= 1:
        raise InputError(f"--others is {others:g}: give a share from 0 to 1")
    if curriculum.candidates == "all":
        raise InputError("--others: this run's book has all pieces, needed or not (curriculum.candidates)")
    shelf = source.shelf(np.arange(min(samples, len(source))))
    if not ((shelf.pieces != NONE) & ~shelf.needed).any():
        raise InputError(
            "--others: no example here has a piece that it does not need; a record marks one with "
            '{"text": ..., "needed": false}'
        )
