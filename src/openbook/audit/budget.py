"""Attack 5, a budget of samples: the chance of at least one hit in n samples.

A secret that is sampled with probability p at once is found in n independent samples with probability 1 - (1 - p)^n,
exactly, so nothing need be sampled. The (n, p) curve is the share of secrets found with a chance of at least 1/2
(Hayes and others, "Measuring memorization through probabilistic discoverable extraction").
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from openbook.audit.attack import Scores
from openbook.audit.context import likelihoods
from openbook.audit.secret import Secrets
from openbook.audit.statistics import Floats
from openbook.audit.subject import Subject

POINTS = 25  # of the curve
FURTHEST = 1000  # samples the curve goes to at least; it costs nothing


def at_least_once(p: Floats, n: Floats | float) -> Floats:
    """1 - (1 - p)^n, without losing small p."""
    return -np.expm1(n * np.log1p(-np.minimum(p, 1 - 1e-16)))


@dataclass(frozen=True)
class Budget:
    """The attack with its budget of samples for each secret."""

    samples: int = 10
    name: str = "budget"

    def __call__(self, model: Subject, secrets: Secrets) -> list[Scores]:
        found = likelihoods(model, secrets, "template")
        truths = [secret.index for secret in secrets.items]
        free_s = np.array([np.exp(each.total_n[truth]) for each, truth in zip(found, truths, strict=True)])
        among_s = np.array(
            [np.exp(each.total_n[truth] - _log_sum(each.total_n)) for each, truth in zip(found, truths, strict=True)]
        )
        return [self._scores("any token", free_s, secrets), self._scores("candidates only", among_s, secrets)]

    def _scores(self, variant: str, p_s: Floats, secrets: Secrets) -> Scores:
        chance_s = at_least_once(secrets.chance_s, self.samples)
        n = np.unique(np.geomspace(1, max(self.samples, FURTHEST), POINTS).round())
        hit_sn = at_least_once(p_s[:, None], n[None])
        curve = {
            "samples": n.tolist(),
            "expected": hit_sn.mean(0).tolist(),
            "likely": (hit_sn >= 0.5).mean(0).tolist(),
            "chance": at_least_once(secrets.chance_s[:, None], n[None]).mean(0).tolist(),
        }
        values_s = at_least_once(p_s, self.samples)
        called = f"{variant}, {self.samples} samples"
        return Scores("budget", called, "recovery", values_s, chance_s, chance_s, curve=curve)


def _log_sum(values: Floats) -> float:
    highest = float(values.max())
    return highest + float(np.log(np.exp(values - highest).sum()))
