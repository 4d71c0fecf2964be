"""Attack 3, was it in the text? Scores that should be higher for the truth than for its rivals.

    loss              mean log-probability of the secret's tokens
    Min-K%++          mean over the least likely fifth of its tokens of (log p - mu) / sigma, with mu and sigma over the
                      model's own distribution at that place (Zhang and others)
    likelihood ratio  log-likelihood minus that of a reference: the model before training, the one with a decoy text

Each truth is compared with all its rivals, which are exchangeable with it where the truth was drawn from them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from openbook.audit.attack import Scores
from openbook.audit.context import likelihoods
from openbook.audit.likelihood import Likelihoods
from openbook.audit.secret import Secrets
from openbook.audit.statistics import FALSE_POSITIVES, Floats
from openbook.audit.subject import Subject

LEAST_LIKELY = 0.2  # share of the tokens that Min-K%++ looks at


def mean_loss(found: Likelihoods) -> Floats:
    """Mean log-probability of each candidate's tokens: [N]."""
    return np.nanmean(found.logp_nl, axis=1)


def min_k_plus(found: Likelihoods) -> Floats:
    """Min-K%++ of each candidate: [N]."""
    sizes = (~np.isnan(found.z_nl)).sum(1)
    kept = np.ceil(LEAST_LIKELY * sizes).astype(int)
    lowest = np.sort(found.z_nl, axis=1)  # NaN comes last
    sums = np.cumsum(np.nan_to_num(lowest), axis=1)
    return sums[np.arange(len(kept)), kept - 1] / kept


@dataclass(frozen=True)
class Membership:
    """The attack; `references` are models that never met the text, by what they are called."""

    references: Mapping[str, Subject] = field(default_factory=dict)
    name: str = "membership"

    def __call__(self, model: Subject, secrets: Secrets) -> list[Scores]:
        own = likelihoods(model, secrets, "template")
        scores = [
            self._scores("loss", [mean_loss(found) for found in own], secrets),
            self._scores("Min-K%++", [min_k_plus(found) for found in own], secrets),
        ]
        for called, reference in self.references.items():
            other = likelihoods(reference, secrets, "template")
            ratios = [mine.total_n - theirs.total_n for mine, theirs in zip(own, other, strict=True)]
            scores.append(self._scores(f"ratio to {called}", ratios, secrets))
        return scores

    def _scores(self, variant: str, per_secret: list[Floats], secrets: Secrets) -> Scores:
        truths = [secret.index for secret in secrets.items]
        true_s = np.array([float(values[truth]) for values, truth in zip(per_secret, truths, strict=True)])
        rivals = [np.delete(values, truth) for values, truth in zip(per_secret, truths, strict=True)]
        fewest = min(map(len, rivals))
        decoys_sk = np.stack([values[:fewest] for values in rivals])
        half = np.full(len(secrets), 0.5)
        return Scores(self.name, variant, "membership", true_s, half, half, decoys_sk)


def enough_decoys(decoys_sk: Floats) -> bool:
    """Whether a false-positive rate of 1 % can be told at all."""
    return decoys_sk.size >= math.ceil(1 / FALSE_POSITIVES)
