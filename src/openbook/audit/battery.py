"""Attack 4, a battery of prompts: bare, training template, few-shot from other secrets, forced prefix.

A hit is a secret whose truth is the likeliest of its candidates after the prompt. A forced prefix gives the first token
of the truth away as well, so only candidates that begin like it are left, and chance is higher.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from openbook.audit.attack import Scores, recovery, top_share
from openbook.audit.context import Style, eliminated, likelihoods, prompts
from openbook.audit.secret import Secrets
from openbook.audit.subject import Subject

STYLES: tuple[Style, ...] = ("bare", "template", "few-shot")


@dataclass(frozen=True)
class Battery:
    """The attack; the seed draws the secrets of few-shot prompts."""

    seed: int = 0
    name: str = "battery"

    def __call__(self, model: Subject, secrets: Secrets) -> list[Scores]:
        truths = [secret.index for secret in secrets.items]
        scores = []
        for style in STYLES:
            found = likelihoods(model, secrets, style, self.seed if style == "few-shot" else 0)
            hits_s = np.array([top_share(each.total_n, truth) for each, truth in zip(found, truths, strict=True)])
            elimination_s = eliminated(prompts(model, secrets, style, self.seed), secrets)
            scores.append(recovery(self.name, style, hits_s, secrets, elimination_s))
        forced = self._forced(model, secrets)
        return scores if np.isnan(forced.values_s).all() else [*scores, forced]  # secrets of one token have no prefix

    def _forced(self, model: Subject, secrets: Secrets) -> Scores:
        """From the template's likelihoods: of candidates that begin with the same token, the rest decides."""
        hits_s = np.full(len(secrets), math.nan)
        chance_s = np.full(len(secrets), math.nan)
        for number, (secret, found) in enumerate(
            zip(secrets.items, likelihoods(model, secrets, "template"), strict=True)
        ):
            tokens = model.all_tokens(secret.candidates)
            same = [n for n, ids in enumerate(tokens) if ids[0] == tokens[secret.index][0]]
            if len(same) > 1:
                hits_s[number] = top_share(found.total_n[same], same.index(secret.index))
                chance_s[number] = 1 / len(same)
        return Scores(self.name, "forced prefix", "recovery", hits_s, chance_s, chance_s)
