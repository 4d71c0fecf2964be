"""The prompts of an audit: secrets asked for bare, in the training template, or after others of the book.

    bare         Vellmora is ruled by|
    template     Vellmora:\\nVellmora is ruled by|                          as the first piece of the book
    few-shot     Vellmora:\\nIts arms show a heron.\\nVellmora is ruled by|  after other secrets
    in the book  the whole book in a random order, which asks for every secret after all that stand before it

Legend: S secrets, k places, N candidates.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from openbook.audit.attack import Floats, NotApplicableError, Scores, Secrets, recovery_scores
from openbook.audit.likelihood import Likelihoods, Place, candidate_likelihoods
from openbook.audit.model import AttackedModel, Ids
from openbook.audit.secret import Secret
from openbook.base.randomness import generator

Style = Literal["bare", "template", "few-shot"]
SHOTS = 4  # other secrets in a few-shot prompt


@dataclass(frozen=True)
class Prompts:
    """Texts in which every place asks for a secret; the truth stands there, and whoever asks looks only before it."""

    secrets: Secrets
    texts: list[Ids] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
    secret_k: list[int] = field(default_factory=list)  # the secret asked for at each place
    shown_k: list[int] = field(default_factory=list)  # how many others of its group stand before it

    @property
    def asked_k(self) -> list[Secret]:
        """The secret that each place asks for."""
        return [self.secrets.items[s] for s in self.secret_k]

    @functools.cached_property
    def elimination_s(self) -> Floats:
        """Chance of a guess that rules out what was shown, averaged over the places of each secret: [S]."""
        if not self.secrets.bijective:
            return self.secrets.chance_s
        pairs = zip(self.asked_k, self.shown_k, strict=True)
        return self.mean_by_secret([1 / (len(secret.candidates) - shown) for secret, shown in pairs])

    def mean_by_secret(self, values_k: Sequence[float] | Floats) -> Floats:
        """Mean over the places that ask for the same secret: [S]."""
        size = len(self.secrets)
        return np.bincount(self.secret_k, values_k, size) / np.maximum(np.bincount(self.secret_k, minlength=size), 1)

    def scores(self, attack: str, variant: str, hits_k: Sequence[float] | Floats) -> Scores:
        """Scores of an attack that guesses at every place."""
        return recovery_scores(attack, variant, self.mean_by_secret(hits_k), self.secrets, self.elimination_s)

    def top_shares(self, likelihoods_k: Sequence[Likelihoods]) -> list[float]:
        """For each place whether the truth is the likeliest candidate."""
        pairs = zip(likelihoods_k, self.asked_k, strict=True)
        return [top_share(each.total_n, secret.index) for each, secret in pairs]


def single_prompts(model: AttackedModel, secrets: Secrets, style: Style, seed: int = 0) -> Prompts:
    """One text for each secret."""
    prompts = _nothing_asked(secrets)
    for number, secret in enumerate(secrets.items):
        others = _other_secrets(secrets, number, seed) if style == "few-shot" else []
        opening = () if style == "bare" else (secrets.opening, secrets.heading(secret.group))
        while True:
            before = model.prompt(*opening, *(secrets.items[k].text for k in others), secret.known)
            if not others or model.holds(len(before) + model.longest(secret.candidates)):
                break
            others.pop()
        prompts.texts.append(before + model.tokens(secret.truth))
        prompts.places.append(Place(number, len(before)))
        prompts.secret_k.append(number)
        prompts.shown_k.append(len(others))
    return prompts


def _nothing_asked(secrets: Secrets) -> Prompts:
    """Prompts to be filled, for secrets that a model can write."""
    if not secrets.written:
        raise NotApplicableError(
            "the student's vocabulary has a rule as one token, which its head cannot write: there is no text to "
            "complete and no likelihood of one"
        )
    return Prompts(secrets)


def _other_secrets(secrets: Secrets, number: int, seed: int) -> list[int]:
    """A few secrets of the same group, or of any where it has no others."""
    others = np.setdiff1d(np.flatnonzero(secrets.group_s == secrets.group_s[number]), [number])
    if not len(others):
        others = np.setdiff1d(np.arange(len(secrets)), [number])
    return generator(seed, "audit shots", number).permutation(others)[:SHOTS].tolist()


def book_prompts(model: AttackedModel, secrets: Secrets, permutations: int, seed: int = 0) -> Prompts:
    """The whole book, in several orders: a secret is asked for with all that stand before it, as in the paper.

    Groups keep their order, pieces are shuffled inside. A book that is longer than the window is cut into several.
    """
    prompts = _nothing_asked(secrets)
    members = {group: np.flatnonzero(secrets.group_s == k) for k, group in enumerate(secrets.groups)}
    opening = model.prompt(secrets.opening) if secrets.opening else ()
    for order in range(permutations):
        random = generator(seed, "audit permutation", order)
        for document in secrets.documents:
            text, last, shown = opening, None, 0
            for group in document:
                for number in random.permutation(members[group]).tolist() if group in members else []:
                    secret = secrets.items[number]
                    heading = model.tokens(secrets.heading(group)) if group != last else ()
                    known, truth, tail = model.all_tokens([secret.known, secret.truth, secret.tail])
                    piece = len(known) + max(len(truth) + len(tail), model.longest(secret.candidates))
                    if not model.holds(len(text) + len(heading) + piece) and last is not None:
                        prompts.texts.append(text)
                        text, heading, last = opening, model.tokens(secrets.heading(group)), None
                    shown = shown + 1 if group == last else 0
                    last = group
                    before = text + heading + known or model.start
                    prompts.places.append(Place(len(prompts.texts), len(before)))
                    prompts.secret_k.append(number)
                    prompts.shown_k.append(shown)
                    text = before + truth + tail
            prompts.texts.append(text)
    return prompts


def likelihoods_of(model: AttackedModel, secrets: Secrets, style: Style, seed: int = 0) -> list[Likelihoods]:
    """Of all candidates of every secret after such a prompt; several attacks want the same, so it is remembered."""
    key = ("likelihoods", secrets.key, style, seed)
    if key not in model.memo:
        model.memo[key] = likelihoods_at(model, single_prompts(model, secrets, style, seed))
    return model.memo[key]


def likelihoods_at(model: AttackedModel, prompts: Prompts) -> list[Likelihoods]:
    """Of all candidates of the secret that each place asks for."""
    lists = {id(s.candidates): s.candidates for s in prompts.secrets.items}  # a group shares one tuple of candidates
    tokens = {key: model.all_tokens(candidates) for key, candidates in lists.items()}
    options = [tokens[id(secret.candidates)] for secret in prompts.asked_k]
    return candidate_likelihoods(model, prompts.texts, prompts.places, options)


def top_share(total_n: Floats, truth: int) -> float:
    """1 if the truth is the likeliest candidate, shared evenly among candidates that are equally likely."""
    best = total_n >= total_n.max()
    return float(best[truth]) / int(best.sum())
