"""Attack 3, was it in the text? Scores that should be higher for the truth than for its rivals.

    loss              mean log-probability of the secret's tokens
    Min-K%++          mean over the least likely fifth of its tokens of (log p - mu) / sigma, with mu and sigma over the
                      model's own distribution at that place (Zhang and others)
    likelihood ratio  log-likelihood minus that of a reference: the model before training, the one with a decoy text

Each truth is compared with all its rivals, which are exchangeable with it where the truth was drawn from them.
"""

from __future__ import annotations

import numpy as np

from openbook.audit.attack import ATTACKS, AttackedModel, Attacker, Floats, Scores, Secrets
from openbook.audit.likelihood import Likelihoods
from openbook.audit.prompts import likelihoods_of

LEAST_LIKELY = 0.2  # share of the tokens that Min-K%++ looks at


@ATTACKS.register("membership")
def membership(model: AttackedModel, secrets: Secrets, attacker: Attacker) -> list[Scores]:
    """Score the truth and its rivals: by loss, by Min-K%++ and by the ratio to each reference."""
    own = likelihoods_of(model, secrets, "template")
    scores = {
        "loss": [mean_loss(each) for each in own],
        "Min-K%++": [min_k_plus(each) for each in own],
    }
    for name, reference in attacker.references.items():
        others = likelihoods_of(reference, secrets, "template")
        scores[f"ratio to {name}"] = [each.total_n - other.total_n for each, other in zip(own, others, strict=True)]
    return [_against_rivals(variant, values, secrets) for variant, values in scores.items()]


def mean_loss(likelihoods: Likelihoods) -> Floats:
    """Mean log-probability of each candidate's tokens: [N]."""
    return np.nanmean(likelihoods.logp_nl, axis=1)


def min_k_plus(likelihoods: Likelihoods) -> Floats:
    """Min-K%++ of each candidate: [N]."""
    sizes = (~np.isnan(likelihoods.z_nl)).sum(1)
    kept = np.ceil(LEAST_LIKELY * sizes).astype(int)
    lowest = np.sort(likelihoods.z_nl, axis=1)  # NaN comes last
    sums = np.cumsum(np.nan_to_num(lowest), axis=1)
    return sums[np.arange(len(kept)), kept - 1] / kept


def _against_rivals(variant: str, values_sn: list[Floats], secrets: Secrets) -> Scores:
    pairs = [(values_n, secret.index) for values_n, secret in zip(values_sn, secrets.items, strict=True)]
    true_s = np.array([values_n[truth] for values_n, truth in pairs])
    fewest = min(map(len, values_sn)) - 1
    rivals_sk = np.stack([np.delete(values_n, truth)[:fewest] for values_n, truth in pairs])
    half = np.full(len(secrets), 0.5)
    return Scores("membership", variant, "membership", true_s, half, half, rivals_sk)
