"""Retention: what a model lost of what it could do before it learned the book.

Three questions, each put to the model and to the one it started from:

    text       KL(start ‖ now) per token and the ratio of the perplexities on public-domain prose
    prompts    KL(start ‖ now) per token on the user's own prompts, without their book
    new books  questions about facts that were invented by chance, with the facts in the context: is it still a reader?
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from importlib import resources
from typing import Any

import numpy as np
import torch
from torch import Tensor

from openbook.base.randomness import generator
from openbook.book.load import ListSource
from openbook.book.shelf import CODE
from openbook.book.source import Source
from openbook.book.text import Kind
from openbook.curriculum import SamplingPlan, curriculum_named
from openbook.training.batches import Collator, items, pad_id_of
from openbook.training.config import RunConfig
from openbook.training.encode import IGNORED, Encoder, is_unknown
from openbook.training.exam import condition, examine
from openbook.training.models import examined, load
from openbook.training.targets import target_logits

WINDOW = 256  # tokens of prose that are read at a time
TARGETS = 512  # tokens whose logits of two models are in memory at once
PROMPTS = 32  # of the user's prompts, at most
NEW = 24  # questions about invented facts
UNREAD = 0.01  # a vocabulary that lacks a larger share of the prose is none of a language's

_ROLES = ("harbour master", "baker", "clockmaker", "ferryman", "bell founder", "beekeeper", "glazier", "lamplighter")
_SYLLABLES = (
    "ka",
    "ro",
    "ve",
    "lin",
    "mor",
    "ta",
    "shi",
    "bel",
    "dun",
    "ira",
    "osk",
    "pel",
    "quin",
    "su",
    "wen",
    "zan",
)


@dataclass(frozen=True)
class Retention:
    """What is left of what a model could do; each pair is before and after. KL is in nats for a token."""

    start: str
    text_kl: float
    text_perplexity: tuple[float, float]
    prompts_kl: float | None
    new_books: tuple[float, float]  # accuracy on answers with the book open

    @property
    def perplexity_ratio(self) -> float:
        return self.text_perplexity[1] / self.text_perplexity[0]

    def as_dict(self) -> dict[str, Any]:
        """As it is printed by `--json` and recorded."""
        return asdict(self) | {"perplexity_ratio": self.perplexity_ratio}


def retention(
    config: RunConfig, model: Any, encoder: Encoder, source: Source, start: Any = None, batch_size: int = 16
) -> Retention | None:
    """What a model has retained of the one it started from; None where there is nothing to compare it with.

    `start` is that model, if it is at hand; adapters are turned off instead of loading it again.
    """
    if config.model.path is None or not _reads_prose(encoder.tokenizer):
        return None
    with _before(config, model, start) as (before, context):
        kl, nats_before, nats_now = _compared(before, model, _prose(encoder), context)
        asked = _asked(encoder, source, batch_size)
        prompts = _compared(before, model, asked, context)[0] if asked else None
        new = _new_books()
        reader = encoder.of_bank(new.bank)
        now = _read(model, reader, new, batch_size)
        with context():
            then = _read(before, reader, new, batch_size)
    perplexities = math.exp(nats_before), math.exp(nats_now)
    return Retention(str(config.model.path), kl, perplexities, prompts, (then, now))


def _reads_prose(tokenizer: Any) -> bool:
    """Whether a vocabulary is one of a language, and not only of the task."""
    tokens = np.array(tokenizer(_text()[:2000], add_special_tokens=False)["input_ids"])
    return bool(len(tokens) and is_unknown(tokenizer, tokens).mean() < UNREAD)


def _text() -> str:
    return (resources.files("openbook.training") / "texts" / "northanger-abbey.txt").read_text(encoding="utf-8")


@contextmanager
def _before(config: RunConfig, model: Any, start: Any) -> Iterator[tuple[Any, Any]]:
    """The model that training started from, and a context in which it is that one."""
    if start is not None:
        yield start, nullcontext
    elif hasattr(model, "disable_adapter"):
        yield model, model.disable_adapter
    else:
        before, _ = load(str(config.model.path), config.model.dtype)
        size = model.get_input_embeddings().weight.shape[0]
        if before.get_input_embeddings().weight.shape[0] < size:  # a thinking token was added
            before.resize_token_embeddings(size)
        yield before.to(next(model.parameters()).device), nullcontext


def _prose(encoder: Encoder) -> list[dict[str, Tensor]]:
    """The prose in windows, every token of which but the first is to be predicted."""
    tokens = encoder.tokenizer(_text(), add_special_tokens=False)["input_ids"]
    size = min(WINDOW, encoder.max_length or WINDOW)
    rows = torch.tensor([tokens[k : k + size] for k in range(0, len(tokens) - size + 1, size)])
    return [{"input_ids": row[None], "labels": row[None]} for row in rows]


def _asked(encoder: Encoder, source: Source, batch_size: int) -> list[dict[str, Tensor]]:
    """The user's prompts without their book, whose own tokens are to be predicted."""
    count = min(PROMPTS, len(source))
    plan = SamplingPlan(source, condition(curriculum_named("anneal"), 0.0), samples=count)
    positions = np.arange(count)
    examples = items(encoder.encode(*plan.at(positions), plan.namer(positions)), positions.tolist())
    batches = Collator(pad_id_of(encoder.tokenizer), batch_size)
    kinds = {item.position: item.kinds for item in examples}
    found = []
    for batch in batches(examples)["micro_batches"]:
        labels = torch.full_like(batch["labels"], IGNORED)
        for row, position in enumerate(batch["positions"].tolist()):
            own = torch.from_numpy(np.flatnonzero(kinds[position] == CODE[Kind.PROMPT]))
            labels[row, own] = batch["input_ids"][row, own]
        if (labels[:, 1:] != IGNORED).any():
            found.append({"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"], "labels": labels})
    return found


@torch.inference_mode()
def _compared(before: Any, now: Any, batches: Sequence[dict[str, Tensor]], context: Any) -> tuple[float, float, float]:
    """KL(before ‖ now), and what each of the two models needs for a token, in nats: means over all tokens."""
    device = next(now.parameters()).device
    sums, count = torch.zeros(3, dtype=torch.float64), 0
    with examined(before), examined(now):
        for batch in batches:
            batch = {name: value.to(device) for name, value in batch.items()}
            new, targets = target_logits(now, batch)
            with context():
                old, _ = target_logits(before, batch)
            for start in range(0, len(targets), TARGETS):
                part = slice(start, start + TARGETS)
                p, q = (logits[part].float().log_softmax(-1) for logits in (old, new))
                own = targets[part, None]
                kl = (p.exp() * (p - q)).sum()
                sums += torch.stack([kl, -p.gather(1, own).sum(), -q.gather(1, own).sum()]).double().cpu()
            count += len(targets)
    kl, nats_before, nats_now = (sums / count).tolist()
    return kl, nats_before, nats_now


def _new_books() -> ListSource:
    """Questions about invented facts, each with the fact it needs among four others: the same ones for every model."""
    records = []
    for number in range(NEW):
        draw = generator(0, "retention", number)
        roles = draw.choice(_ROLES, 5, replace=False)
        names = ["".join(draw.choice(_SYLLABLES, 3)).capitalize() for _ in range(10)]
        facts = list(zip(roles, names[:5], names[5:], strict=True))
        role, town, person = facts[int(draw.integers(5))]
        pieces = [f"The {one} of {place} is called {who}." for one, place, who in facts]
        records.append(
            {
                "prompt": f"What is the {role} of {town} called?",
                "completion": person,
                "privileged_context": {"facts": pieces},
            }
        )
    return ListSource(records)


def _read(model: Any, encoder: Encoder, source: Source, batch_size: int) -> float:
    """Share of the answers' tokens that are right with the book open, each after the right ones before it."""
    rule = curriculum_named("anneal")
    (row,) = examine(model, encoder, source, rule, (1.0,), wrong=False, samples=NEW, batch_size=batch_size)
    return row.accuracy
