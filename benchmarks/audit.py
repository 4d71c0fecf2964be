"""How long the attacks on the text take: MLT(5, 10), 500 rules in 20 orders of the book, a model of 5 million weights.

The baseline of the likelihoods is the obvious way: a pass over the whole context for each of the n² candidates. It is
measured at two places of the book, and that both ways give the same numbers is checked there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

import numpy as np
import torch

from _rows import Row, main
from openbook.audit.completion import Completion
from openbook.audit.context import Asked, books, likelihoods_at
from openbook.audit.exposure import Exposure
from openbook.audit.membership import Membership
from openbook.audit.secret import Secrets, task_secrets
from openbook.audit.subject import Subject
from openbook.task import Codebook
from openbook.task.source import Translations
from openbook.training.config import ModelConfig
from openbook.training.models import make_model, make_tokenizer

T = TypeVar("T")

DEPTH, CHARS, PERMUTATIONS = 5, 10, 20
GOAL_SECONDS = 120  # of one core, where two are allowed


def obvious(subject: Subject, secrets: Secrets, asked: Asked, places: list[int]) -> list[np.ndarray]:
    """Log-likelihoods of all candidates at some places, each by a pass over all that stands before it."""
    found = []
    for k in places:
        place, secret = asked.places[k], secrets.items[asked.secret_k[k]]
        before = asked.texts[place.row][: place.before]
        totals = []
        for candidate in subject.all_tokens(secret.candidates):
            ids = torch.tensor([[*before, *candidate]])
            with torch.inference_mode():
                logits = subject.model(input_ids=ids, use_cache=False).logits[0, len(before) - 1 : -1]
            logp = torch.log_softmax(logits.double(), -1)
            totals.append(float(logp[torch.arange(len(candidate)), torch.tensor(candidate)].sum()))
        found.append(np.array(totals))
    return found


def timed(work: Callable[[], T]) -> tuple[float, T]:
    """CPU seconds of a call that takes several of them, and what it returns."""
    started = time.process_time()
    result = work()
    return time.process_time() - started, result


def measure() -> Iterator[Row]:
    torch.set_num_threads(1)
    source = Translations(DEPTH, CHARS, 10, Codebook.sample(DEPTH, CHARS), text="compact")
    tokenizer, secrets = make_tokenizer(source), task_secrets(source)
    shape = ModelConfig(hidden_size=288, layers=6, heads=4)
    subject, reference = (Subject(make_model(shape, len(tokenizer), seed), tokenizer) for seed in (0, 1))
    weights = sum(parameter.numel() for parameter in subject.model.parameters())
    sizes = {"depth": DEPTH, "chars": CHARS, "permutations": PERMUTATIONS, "weights": weights}

    asked = books(subject, secrets, 1)
    spread = [len(asked.places) // 4, 3 * len(asked.places) // 4]  # on average half of the book stands before them
    shared_s, shared = timed(lambda: likelihoods_at(subject, secrets, asked))
    slow_s, slow = timed(lambda: obvious(subject, secrets, asked, spread))
    for k, expected in zip(spread, slow, strict=True):
        np.testing.assert_allclose(shared[k].total_n, expected, atol=1e-3)
    yield Row(
        "all candidates of a rule, in the book",
        value=1000 * shared_s / len(asked.places),
        unit="ms",
        baseline=1000 * slow_s / len(spread),
        better="less",
        extra=sizes,
    )

    total = 0.0
    attacks = (Completion(PERMUTATIONS), Exposure(PERMUTATIONS), Membership({"before": reference}))
    for attack in attacks:
        spent, _ = timed(partial(attack, subject, secrets))
        total += spent
        yield Row(f"attack: {attack.name}", spent, "CPU s", better="less", extra=sizes)
    yield Row("attacks 1 to 3", total, "CPU s", goal=GOAL_SECONDS, better="less", extra=sizes)


if __name__ == "__main__":
    main("The audit's attacks on the text", measure)
