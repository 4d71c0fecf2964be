"""What relearning and soft prompts share: halves of the secrets, a short training on one, a test on the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from openbook.audit.attack import top_share
from openbook.audit.context import Asked, likelihoods_at, prompts
from openbook.audit.likelihood import Place
from openbook.audit.secret import Secrets
from openbook.audit.statistics import Floats
from openbook.audit.subject import Ids, Subject
from openbook.base.randomness import generator
from openbook.training.targets import gathered

BATCH = 64  # secrets in a step


def halves(secrets: Secrets, seed: int) -> list[tuple[list[int], list[int]]]:
    """Two folds (trained on, held out): each group is cut in two by lot, and each half is held out once."""
    known: list[int] = []
    for group in range(len(secrets.groups)):
        members = generator(seed, "audit halves", group).permutation(np.flatnonzero(secrets.group_s == group))
        odd = group % 2 if len(members) % 2 else 0  # groups of one go to either side in turn
        known += members[: (len(members) + odd) // 2].tolist()
    rest = np.setdiff1d(np.arange(len(secrets)), known).tolist()
    return [(sorted(known), rest), (rest, sorted(known))]


def remaining(secrets: Secrets, known: Sequence[int], number: int) -> list[int]:
    """The candidates of a secret that the known secrets do not rule out."""
    secret = secrets.items[number]
    if not secrets.bijective:
        return list(range(len(secret.candidates)))
    taken = {secrets.items[k].truth for k in known}
    return [n for n, candidate in enumerate(secret.candidates) if candidate not in taken]


def held_out_hits(
    subject: Subject, secrets: Secrets, known: Sequence[int], held: Sequence[int], prefix: Ids = ()
) -> tuple[Floats, Floats]:
    """Whether the truth is the likeliest of the candidates that are left, and the chance of that: [held] each."""
    part = secrets.subset(held)
    asked = prompts(subject, part, "template")
    texts = [prefix + text for text in asked.texts]
    places = [Place(place.row, place.before + len(prefix)) for place in asked.places]
    found = likelihoods_at(subject, part, Asked(texts, places, asked.secret_k, asked.shown_k))
    left = [remaining(secrets, known, number) for number in held]
    hits = [
        top_share(each.total_n[kept], kept.index(secrets.items[number].index))
        for each, kept, number in zip(found, left, held, strict=True)
    ]
    return np.array(hits), np.array([1 / len(kept) for kept in left])


def train(
    subject: Subject,
    parameters: Iterable[nn.Parameter],
    secrets: Secrets,
    known: Sequence[int],
    steps: int,
    learning_rate: float,
    seed: int,
    prefix: Ids = (),
) -> None:
    """AdamW on the cross-entropy of the truths of the known secrets, after the training template."""
    asked = prompts(subject, secrets.subset(known), "template")
    rows = [(prefix + text, place.before + len(prefix)) for text, place in zip(asked.texts, asked.places, strict=True)]
    optimiser = torch.optim.AdamW(list(parameters), lr=learning_rate, weight_decay=0.0)
    for step in range(steps):
        chosen = generator(seed, "audit batches", step).permutation(len(rows))[:BATCH].tolist()
        loss = _loss(subject.model, [rows[k] for k in chosen], subject.device)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()


def _loss(model: Any, rows: Sequence[tuple[Ids, int]], device: torch.device) -> Tensor:
    """Mean cross-entropy of the tokens of each row from a place on."""
    longest = max(len(ids) for ids, _ in rows)
    ids = torch.zeros(len(rows), longest, dtype=torch.long)
    index: list[int] = []
    targets: list[int] = []
    for b, (text, before) in enumerate(rows):
        ids[b, : len(text)] = torch.tensor(text)
        index += [b * longest + place - 1 for place in range(before, len(text))]
        targets += text[before:]
    with gathered(model, torch.tensor(index, device=device)):
        logits = model(input_ids=ids.to(device), use_cache=False).logits[0]
    return nn.functional.cross_entropy(logits.float(), torch.tensor(targets, device=device))


@contextmanager
def soft_prompt(model: Any, vectors: nn.Parameter, placeholder: int) -> Iterator[None]:
    """Within, `len(vectors)` placeholder tokens at the start of a text have these embeddings."""
    size = len(vectors)

    def put(_: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        ids = inputs[0]
        if ids.shape[1] <= size or not bool((ids[:, :size] == placeholder).all()):
            return output
        start = vectors.to(output.dtype).expand(len(ids), -1, -1)
        return torch.cat([start, output[:, size:]], dim=1)

    handle = model.get_input_embeddings().register_forward_hook(put)
    try:
        yield
    finally:
        handle.remove()


Fold = Callable[[Subject, Secrets, list[int], list[int]], tuple[Floats, Floats]]


def over_folds(subject: Subject, secrets: Secrets, seed: int, fold: Fold) -> tuple[Floats, Floats]:
    """Hits and their elimination level for every secret, from the fold in which it was held out."""
    hits_s, elimination_s = np.full(len(secrets), np.nan), np.full(len(secrets), np.nan)
    for known, held in halves(secrets, seed):
        if known and held:
            hits_s[held], elimination_s[held] = fold(subject, secrets, known, held)
    return hits_s, elimination_s
