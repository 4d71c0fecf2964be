"""Retention: what a model lost of what it could do before it learned the book.

Three questions, each put to the model and to the one it started from:

    text       KL(start ‖ now) per token and the ratio of the perplexities on public-domain prose
    prompts    KL(start ‖ now) per token on the user's own prompts, without their book
    new books  questions about facts that were invented by chance, with the facts in the context: is it still a reader?
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
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
from openbook.training.models import examined, load_or_make
from openbook.training.targets import target_logits

WINDOW = 256  # tokens of prose that are read at a time
TARGETS = 512  # tokens whose logits of two models are in memory at once
PROMPTS = 32  # of the user's prompts, at most
NEW = 24  # questions about invented facts
BATCH = 16
UNREAD = 0.01  # a vocabulary that lacks a larger share of the prose is none of a language's

_ROLES = ("harbour master", "baker", "clockmaker", "ferryman", "bell founder", "beekeeper", "glazier", "lamplighter")
_SYLLABLES = [
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
]


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


def retention(config: RunConfig, model: Any, encoder: Encoder, source: Source) -> Retention | None:
    """What a model has retained of the one it started from; None where there is nothing to compare it with."""
    if config.model.path is None or not _reads_prose(encoder.tokenizer):
        return None
    before, as_it_was = _before(config, model, source)
    kl, nats_before, nats_now = _compared(before, model, _prose(encoder), as_it_was)
    asked = _asked(encoder, source)
    prompts = _compared(before, model, asked, as_it_was)[0] if asked else None
    new = _new_books()
    reader = encoder.of_bank(new.bank)
    now = _read(model, reader, new)
    with as_it_was():
        then = _read(before, reader, new)
    perplexities = math.exp(nats_before), math.exp(nats_now)
    return Retention(str(config.model.path), kl, perplexities, prompts, (then, now))


def _reads_prose(tokenizer: Any) -> bool:
    """Whether a vocabulary is one of a language, and not only of the task."""
    tokens = np.array(tokenizer(_text()[:2000], add_special_tokens=False)["input_ids"])
    return bool(len(tokens) and is_unknown(tokenizer, tokens).mean() < UNREAD)


def _text() -> str:
    return (resources.files("openbook.training") / "texts" / "northanger-abbey.txt").read_text(encoding="utf-8")


def _before(config: RunConfig, model: Any, source: Source) -> tuple[Any, Callable[[], AbstractContextManager[Any]]]:
    """The model that training started from, and a context in which it is that one: adapters are turned off there."""
    if hasattr(model, "disable_adapter"):
        return model, model.disable_adapter
    before, _ = load_or_make(config.model, source, config.seed, config.think)
    return before.to(next(model.parameters()).device), nullcontext


def _prose(encoder: Encoder) -> list[dict[str, Tensor]]:
    """The prose in windows, every token of which but the first is to be predicted."""
    tokens = encoder.tokenizer(_text(), add_special_tokens=False)["input_ids"]
    size = min(WINDOW, encoder.max_length or WINDOW)
    rows = torch.tensor([tokens[k : k + size] for k in range(0, len(tokens) - size + 1, size)])
    return [{"input_ids": row[None], "labels": row[None]} for row in rows]


def _asked(encoder: Encoder, source: Source) -> list[dict[str, Tensor]]:
    """The user's prompts without their book, whose own tokens are to be predicted; none if no prompt has any."""
    positions = np.arange(min(PROMPTS, len(source)))
    plan = SamplingPlan(source, condition(curriculum_named("anneal"), 0.0), samples=len(positions))
    examples = [
        replace(item, labels=np.where(item.kinds == CODE[Kind.PROMPT], item.ids, IGNORED))
        for item in items(encoder.encode(*plan.at(positions), plan.namer(positions)), positions.tolist())
    ]
    asked = [item for item in examples if (item.labels[1:] != IGNORED).any()]
    return Collator(pad_id_of(encoder.tokenizer), BATCH)(asked)["micro_batches"]


@torch.inference_mode()
def _compared(
    before: Any, now: Any, batches: Sequence[dict[str, Tensor]], as_it_was: Callable[[], AbstractContextManager[Any]]
) -> tuple[float, float, float]:
    """KL(before ‖ now), and what each of the two models needs for a token, in nats: means over all tokens."""
    device = next(now.parameters()).device
    sums, count = torch.zeros(3, dtype=torch.float64), 0
    with examined(before), examined(now):
        for batch in batches:
            batch = {name: value.to(device) for name, value in batch.items()}
            new, targets = target_logits(now, batch)
            with as_it_was():
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


def _read(model: Any, encoder: Encoder, source: Source) -> float:
    """Share of the answers' tokens that are right with the book open, each after the right ones before it."""
    rule = curriculum_named("anneal")
    (row,) = examine(model, encoder, source, rule, (1.0,), wrong=False, samples=NEW, batch_size=BATCH)
    return row.accuracy
