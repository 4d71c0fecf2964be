"""The prompts of an audit: secrets asked for bare, in the training template, or after others of the book."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from openbook.audit.likelihood import Likelihoods, Place, candidate_likelihoods
from openbook.audit.secret import Secret, Secrets
from openbook.audit.subject import Ids, Subject
from openbook.base.randomness import generator

Style = Literal["bare", "template", "few-shot"]
SHOTS = 4  # other secrets in a few-shot prompt


@dataclass(frozen=True)
class Asked:
    """Texts in which every place asks for a secret; the truth stands there, and whoever asks looks only before it."""

    texts: list[Ids]
    places: list[Place]
    secret_k: list[int]  # the secret asked for at each place
    shown_k: list[int]  # how many others of its group stand before it


def prompts(subject: Subject, secrets: Secrets, style: Style, seed: int = 0) -> Asked:
    """One text for each secret."""
    texts, places, shown = [], [], []
    truths = subject.all_tokens([secret.truth for secret in secrets.items])
    for number, secret in enumerate(secrets.items):
        others: list[int] = []
        if style == "bare":
            before = subject.prompt(secret.known)
        elif style == "template":
            before = subject.prompt(secrets.opening, secrets.heading(secret.group), secret.known)
        else:
            others = _others(secrets, number, seed)
            before = _shot(subject, secrets, number, others)
            while others and not subject.holds(len(before) + longest(subject, secret)):
                others = others[:-1]
                before = _shot(subject, secrets, number, others)
        texts.append(before + truths[number])
        places.append(Place(number, len(before)))
        shown.append(len(others))
    return Asked(texts, places, list(range(len(secrets))), shown)


def _shot(subject: Subject, secrets: Secrets, number: int, others: Sequence[int]) -> Ids:
    """What stands before a secret after others of the book."""
    secret, pieces = secrets.items[number], [secrets.items[k].text for k in others]
    return subject.prompt(secrets.opening, secrets.heading(secret.group), *pieces, secret.known)


def longest(subject: Subject, secret: Secret) -> int:
    """Tokens of the longest candidate, all of which are asked for in the secret's place."""
    key = ("longest", id(secret.candidates))  # many secrets share one list
    if key not in subject.memo:
        subject.memo[key] = max(map(len, subject.all_tokens(secret.candidates)))
    return subject.memo[key]


def _others(secrets: Secrets, number: int, seed: int) -> list[int]:
    """A few secrets of the same group, or of any where it has no others."""
    same = np.flatnonzero(secrets.group_s == secrets.group_s[number])
    pool = same[same != number]
    if not len(pool):
        pool = np.setdiff1d(np.arange(len(secrets)), [number])
    return generator(seed, "audit shots", number).permutation(pool)[:SHOTS].tolist()


def books(subject: Subject, secrets: Secrets, permutations: int, seed: int = 0) -> Asked:
    """The whole book, in several orders: a secret is asked for with all that stand before it, as in the paper.

    Groups keep their order, pieces are shuffled inside. A book that is longer than the window is cut into several.
    """
    asked = Asked([], [], [], [])
    members = {group: np.flatnonzero(secrets.group_s == k) for k, group in enumerate(secrets.groups)}
    opening = subject.prompt(secrets.opening) if secrets.opening else ()
    for order in range(permutations):
        random = generator(seed, "audit permutation", order)
        for document in secrets.documents:
            text, last, shown = opening, None, 0
            for group in document:
                for number in random.permutation(members[group]).tolist() if group in members else []:
                    secret = secrets.items[number]
                    heading = subject.tokens(secrets.heading(group)) if group != last else ()
                    known, truth, tail = subject.all_tokens([secret.known, secret.truth, secret.tail])
                    size = len(heading) + len(known) + max(len(truth) + len(tail), longest(subject, secret))
                    if not subject.holds(len(text) + size) and last is not None:
                        asked.texts.append(text)
                        text, heading, last = opening, subject.tokens(secrets.heading(group)), None
                    shown = shown + 1 if group == last else 0
                    last = group
                    before = text + heading + known or subject.start
                    asked.places.append(Place(len(asked.texts), len(before)))
                    asked.secret_k.append(number)
                    asked.shown_k.append(shown)
                    text = before + truth + tail
            asked.texts.append(text)
    return asked


def eliminated(asked: Asked, secrets: Secrets) -> np.ndarray:
    """Chance of a guess that rules out what was shown, averaged over the places of each secret: [S]."""
    if not secrets.bijective:
        return secrets.chance_s
    each = [
        1 / (len(secrets.items[s].candidates) - shown) for s, shown in zip(asked.secret_k, asked.shown_k, strict=True)
    ]
    return mean_by_secret(np.array(each), asked.secret_k, len(secrets))


def mean_by_secret(values_k: np.ndarray, secret_k: Sequence[int], secrets: int) -> np.ndarray:
    """Mean over the places that ask for the same secret: [S]."""
    index = np.asarray(secret_k)
    return np.bincount(index, values_k, secrets) / np.maximum(np.bincount(index, minlength=secrets), 1)


def likelihoods(subject: Subject, secrets: Secrets, style: Style, seed: int = 0) -> list[Likelihoods]:
    """Of all candidates of every secret after such a prompt; several attacks want the same, so it is remembered."""
    key = ("likelihoods", secrets.key, style, seed)
    if key not in subject.memo:
        subject.memo[key] = likelihoods_at(subject, secrets, prompts(subject, secrets, style, seed))
    return subject.memo[key]


def likelihoods_at(subject: Subject, secrets: Secrets, asked: Asked) -> list[Likelihoods]:
    lists: dict[int, list[Ids]] = {}  # secrets of a group share one tuple of candidates
    for secret in secrets.items:
        if id(secret.candidates) not in lists:
            lists[id(secret.candidates)] = subject.all_tokens(secret.candidates)
    options = [lists[id(secrets.items[s].candidates)] for s in asked.secret_k]
    return candidate_likelihoods(subject, asked.texts, asked.places, options)
