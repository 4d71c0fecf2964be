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
from openbook.audit.attack import Attacker, AuditConfig
from openbook.audit.attacks import completion, exposure, membership
from openbook.audit.model import AttackedModel
from openbook.audit.prompts import Prompts, book_prompts, likelihoods_at
from openbook.audit.secret import Secrets, task_secrets
from openbook.task import Codebook
from openbook.task.source import Translations
from openbook.training.config import ModelConfig
from openbook.training.models import make_model, make_tokenizer

T = TypeVar("T")

DEPTH, CHARS, PERMUTATIONS = 5, 10, 20
GOAL_SECONDS = 120  # of one core, where two are allowed


def obvious(model: AttackedModel, secrets: Secrets, prompts: Prompts, places: list[int]) -> list[np.ndarray]:
    """Log-likelihoods of all candidates at some places, each by a pass over all that stands before it."""
    likelihoods = []
    for k in places:
        place, secret = prompts.places[k], secrets.items[prompts.secret_k[k]]
        before = prompts.texts[place.row][: place.before]
        totals = []
        for candidate in model.all_tokens(secret.candidates):
            ids = torch.tensor([[*before, *candidate]])
            with torch.inference_mode():
                logits = model.model(input_ids=ids, use_cache=False).logits[0, len(before) - 1 : -1]
            logp = torch.log_softmax(logits.double(), -1)
            totals.append(float(logp[torch.arange(len(candidate)), torch.tensor(candidate)].sum()))
        likelihoods.append(np.array(totals))
    return likelihoods


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
    model, reference = (AttackedModel(make_model(shape, len(tokenizer), seed), tokenizer) for seed in (0, 1))
    weights = sum(parameter.numel() for parameter in model.model.parameters())
    sizes = {"depth": DEPTH, "chars": CHARS, "permutations": PERMUTATIONS, "weights": weights}

    prompts = book_prompts(model, secrets, 1)
    spread = [len(prompts.places) // 4, 3 * len(prompts.places) // 4]  # on average half of the book stands before them
    shared_s, shared = timed(lambda: likelihoods_at(model, prompts))
    slow_s, slow = timed(lambda: obvious(model, secrets, prompts, spread))
    for k, expected in zip(spread, slow, strict=True):
        np.testing.assert_allclose(shared[k].total_n, expected, atol=1e-3)
    yield Row(
        "all candidates of a rule, in the book",
        value=1000 * shared_s / len(prompts.places),
        unit="ms",
        baseline=1000 * slow_s / len(spread),
        better="less",
        extra=sizes,
    )

    total = 0.0
    attacker = Attacker(AuditConfig(permutations=PERMUTATIONS), {"before": reference})
    for attack in (completion, exposure, membership):
        spent, _ = timed(partial(attack, model, secrets, attacker))
        total += spent
        yield Row(f"attack: {attack.__name__}", spent, "CPU s", better="less", extra=sizes)
    yield Row("attacks 1 to 3", total, "CPU s", goal=GOAL_SECONDS, better="less", extra=sizes)


if __name__ == "__main__":
    main("The audit's attacks on the text", measure)
