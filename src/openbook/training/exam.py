"""The exam: how much a model knows with the book closed, half open, open, and wrong.

Next-token accuracy on the answer under teacher forcing (as the paper reports it), exact match, and accuracy by place in
the answer, for several shares of the book open: the context-reliance curve. Each rate stands beside its chance level
and an interval clustered by example. `examine_sections` closes one section at a time instead and leaves the others
open: which of them the model knows by heart.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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
from openbook.training.batches import Collator, Item, items, pad_id_of
from openbook.training.encode import IGNORED, Encoder
from openbook.training.targets import target_logits

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
    generated_match: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """The row as it is printed by `--json` and recorded."""
        return asdict(self)


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
    if any(not 0 <= share <= 1 for share in shares):
        raise InputError(f"shares of the book are between 0 and 1, not {list(shares)}")
    rows = []
    for share, misled in [(share, False) for share in shares] + [(1.0, True)] * (wrong and source.can_mislead):
        plan, positions = _questions(source, condition(curriculum, share, misled), samples, seed)
        shelf, opened = plan.at(positions)
        encoded = encoder.encode(shelf, opened, plan.namer(positions))
        examples = items(encoded, positions.tolist())
        right = correct_answers(model, encoder, examples, source, batch_size, stopped)
        row = Row(
            book="wrong" if misled else "right",
            open=share,
            pieces=(int((opened.slots != NONE).sum()) - encoded.dropped_pieces) / len(examples),
            **_rates(right),
            chance=chance_level(source, examples, encoder),
            generated_match=generated_match(model, encoder, examples, batch_size) if generate else None,
        )
        rows.append(row)
        advance(1)
    return rows


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
    plan, positions = _questions(source, condition(curriculum, 1.0), samples, seed)
    shelf, opened = plan.at(positions)
    opened = encoder.fitted(shelf, opened, plan.namer(positions))
    is_open = opened.slots != NONE
    needed = is_open & np.take_along_axis(shelf.needed, np.maximum(opened.slots, 0), axis=-1)
    rows = []
    for name, where in _sections(source, positions, opened.slots.shape[1]).items():  # [B, S]
        asked = np.flatnonzero((needed & where[..., None]).any((1, 2)))
        if len(asked):
            closed = replace(opened, slots=np.where(where[..., None], NONE, opened.slots))
            encoded = items(encoder.encode(shelf, closed, plan.namer(positions)), positions.tolist())
            examples = [encoded[row] for row in asked.tolist()]
            rates = _rates(correct_answers(model, encoder, examples, source, batch_size))
            pieces = float((is_open & where[..., None])[asked].sum((1, 2)).mean())
            chance = chance_level(source, examples, encoder)
            rows.append(SectionRow("right", 1.0, pieces, **rates, chance=chance, section=name))
        advance(1)
    if not rows:
        raise InputError("no example of this exam needs a piece of a book: there is no section to close")
    return rows


def _questions(source: Source, curriculum: Curriculum, samples: int, seed: int) -> tuple[SamplingPlan, np.ndarray]:
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
) -> list[np.ndarray]:
    """For every example, which parts of its answer tokens are the model's first choice given all that stands before.

    `stopped` is called between batches; once it is true, the exam ends with `ExamInterrupted`.
    """
    for item in items:
        if not (item.kinds == CODE[Kind.ANSWER]).any():
            raise InputError(f"example {item.position} has no answer tokens to be examined")
    device = next(model.parameters()).device
    results: dict[int, np.ndarray] = {}
    with torch.inference_mode(), examined(model):
        for batch in Collator(pad_id_of(encoder.tokenizer), batch_size)(items)["micro_batches"]:
            if stopped():
                raise ExamInterrupted
            labels = torch.where(batch["answers"], batch["labels"], IGNORED)
            logits, targets = target_logits(model, {k: v.to(device) for k, v in (batch | {"labels": labels}).items()})
            right = source.score(logits.argmax(-1).cpu().numpy(), targets.cpu().numpy())
            counts = (labels[:, 1:] != IGNORED).sum(1).numpy() * right.shape[1]
            rows = np.split(right.reshape(-1), np.cumsum(counts)[:-1])
            results.update(zip(batch["positions"].tolist(), rows, strict=True))
    return [results[item.position] for item in items]


@contextmanager
def examined(model: Any) -> Iterator[None]:
    """Turns dropout off; afterwards the model is in the mode it was in."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


def written_part(item: Item) -> slice:
    """Which tokens of an example a model has to write: from the first to the last one with loss in its completion."""
    taught = np.flatnonzero((item.labels != IGNORED) & (item.kinds >= CODE[Kind.WORDS]))
    return slice(int(taught[0]), int(taught[-1]) + 1)


def generate(model: Any, tokenizer: Any, prompts: Sequence[np.ndarray], max_new_tokens: int) -> np.ndarray:
    """The tokens that a model writes greedily after each prompt: [prompts, at most max_new_tokens]."""
    longest, pad = max(map(len, prompts)), pad_id_of(tokenizer)
    ids = np.full((len(prompts), longest), pad, np.int64)
    mask = np.zeros((len(prompts), longest), np.int64)
    for row, prompt in enumerate(prompts):  # generation continues at the right edge, so prompts are padded left
        ids[row, longest - len(prompt) :], mask[row, longest - len(prompt) :] = prompt, 1
    device = next(model.parameters()).device
    with torch.inference_mode(), examined(model):
        tokens = model.generate(
            input_ids=torch.from_numpy(ids).to(device),
            attention_mask=torch.from_numpy(mask).to(device),
            max_new_tokens=max_new_tokens,
            do_sample=False,
            num_beams=1,
            repetition_penalty=1.0,  # some models come with one, which would not be greedy
            pad_token_id=pad,
        )
    return tokens[:, longest:].cpu().numpy()


def generated_match(model: Any, encoder: Encoder, items: list[Item], batch_size: int) -> float:
    """Share of examples whose completion, written greedily by the model, contains the whole answer in its place."""
    hits = 0
    for start in range(0, len(items), batch_size):
        batch = items[start : start + batch_size]
        parts = [written_part(item) for item in batch]
        prompts = [item.ids[: part.start] for item, part in zip(batch, parts, strict=True)]
        targets = [item.ids[part] for item, part in zip(batch, parts, strict=True)]
        written = generate(model, encoder.tokenizer, prompts, max(map(len, targets)))
        for row, (item, part, target) in enumerate(zip(batch, parts, targets, strict=True)):
            answer = item.kinds[part] == CODE[Kind.ANSWER]
            padded = np.pad(written[row], (0, len(target)), constant_values=-1)[: len(target)]
            hits += bool((padded[answer] == target[answer]).all())
    return hits / len(items)


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
