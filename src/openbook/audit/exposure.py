"""Attack 2, exact exposure: the rank of the truth among all candidates by likelihood.

Exposure is log2(N) - log2(rank) (Carlini and others, "The Secret Sharer"); here the ranks are exact, because all
candidates are scored. A recovery is rank 1. In context the rank is taken after the true earlier pieces.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from openbook.audit.attack import Scores, expected_rank, recovery, top_share
from openbook.audit.context import books, eliminated, likelihoods, likelihoods_at, mean_by_secret
from openbook.audit.secret import Secrets
from openbook.audit.subject import Subject


@dataclass(frozen=True)
class Exposure:
    """The attack with its budget: orders of the book."""

    permutations: int = 20
    seed: int = 0
    name: str = "exposure"

    def __call__(self, model: Subject, secrets: Secrets) -> list[Scores]:
        alone = likelihoods(model, secrets, "template")
        truths = [secret.index for secret in secrets.items]
        top_s = np.array([top_share(found.total_n, truth) for found, truth in zip(alone, truths, strict=True)])
        ranks = [expected_rank(found.total_n, truth) for found, truth in zip(alone, truths, strict=True)]
        sizes = np.array([len(secret.candidates) for secret in secrets.items])
        bits = np.log2(sizes) - np.log2(ranks)
        first = recovery(self.name, "rank 1, alone", top_s, secrets)
        first.curve.update(exposure=bits.tolist(), most=np.log2(sizes).tolist())
        if self.permutations < 1:
            return [first]
        asked = books(model, secrets, self.permutations, self.seed)
        found_k = likelihoods_at(model, secrets, asked)
        top_k = [top_share(found.total_n, truths[s]) for found, s in zip(found_k, asked.secret_k, strict=True)]
        shown_s = mean_by_secret(np.array(top_k), asked.secret_k, len(secrets))
        return [
            first,
            recovery(self.name, "rank 1, in the book", shown_s, secrets, eliminated(asked, secrets)),
        ]
