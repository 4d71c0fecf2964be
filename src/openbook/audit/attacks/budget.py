"""Attack 5, a budget of samples: the chance of at least one hit in n samples.

A secret that is sampled with probability p at once is found in n independent samples with probability

    1 - (1 - p)^n

exactly, so nothing need be sampled. The (n, p) curve is the share of secrets found with a chance of at least 1/2
(Hayes and others, "Measuring memorization through probabilistic discoverable extraction").
"""

from __future__ import annotations

import numpy as np

from openbook.audit.attack import ATTACKS, AttackedModel, Attacker, Floats, Scores, Secrets
from openbook.audit.prompts import likelihoods_of

POINTS = 25  # points of the curve
FURTHEST = 1000  # samples the curve goes to at least; it costs nothing


@ATTACKS.register("budget")
def budget(model: AttackedModel, secrets: Secrets, attacker: Attacker) -> list[Scores]:
    """The chance of a hit with any tokens allowed, and with the candidates alone."""
    free, among = [], []
    for secret, each in zip(secrets.items, likelihoods_of(model, secrets, "template"), strict=True):
        free.append(np.exp(each.total_n[secret.index]))
        among.append(np.exp(each.total_n[secret.index] - np.logaddexp.reduce(each.total_n)))
    variants = {"any token": np.array(free), "candidates only": np.array(among)}
    return [_hit_chances(variant, p_s, secrets, attacker.config.samples) for variant, p_s in variants.items()]


def _hit_chances(variant: str, p_s: Floats, secrets: Secrets, samples: int) -> Scores:
    chance_s = at_least_once(secrets.chance_s, samples)
    n = np.unique(np.geomspace(1, max(samples, FURTHEST), POINTS).round())
    hit_sn = at_least_once(p_s[:, None], n[None])
    curve = {
        "samples": n.tolist(),
        "expected": hit_sn.mean(0).tolist(),
        "likely": (hit_sn >= 0.5).mean(0).tolist(),
        "chance": at_least_once(secrets.chance_s[:, None], n[None]).mean(0).tolist(),
    }
    hits_s, name = at_least_once(p_s, samples), f"{variant}, {samples} samples"
    return Scores("budget", name, "recovery", hits_s, chance_s, chance_s, curve=curve)


def at_least_once(p: Floats, n: Floats | float) -> Floats:
    """1 - (1 - p)^n, without losing small p."""
    return -np.expm1(n * np.log1p(-np.minimum(p, 1 - 1e-16)))
