"""Attack 2, exact exposure: the rank of the truth among all N candidates by likelihood.

    exposure = log2(N) - log2(rank)

(Carlini and others, "The Secret Sharer"); here the ranks are exact, because all candidates are scored. A secret counts
as recovered at rank 1. In the book, the rank is taken after the true earlier pieces.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from openbook.audit.attack import ATTACKS, AttackedModel, Attacker, Floats, Scores, Secrets
from openbook.audit.prompts import book_prompts, likelihoods_at, likelihoods_of, single_prompts


@ATTACKS.register("exposure")
def exposure(model: AttackedModel, secrets: Secrets, attacker: Attacker) -> list[Scores]:
    """Whether the truth is at rank 1, alone and in the book; alone with the exposure of each secret."""
    likelihoods_s = likelihoods_of(model, secrets, "template")
    ranks = [expected_rank(each.total_n, s.index) for each, s in zip(likelihoods_s, secrets.items, strict=True)]
    bits_s = np.log2([len(secret.candidates) for secret in secrets.items])
    prompts = single_prompts(model, secrets, "template")
    alone = prompts.scores("exposure", "rank 1, alone", prompts.top_shares(likelihoods_s))
    alone = replace(alone, curve={"exposure": (bits_s - np.log2(ranks)).tolist(), "most": bits_s.tolist()})
    prompts = book_prompts(model, secrets, attacker.config.permutations, attacker.config.seed)
    hits_k = prompts.top_shares(likelihoods_at(model, prompts))
    return [alone, prompts.scores("exposure", "rank 1, in the book", hits_k)]


def expected_rank(total_n: Floats, truth: int) -> float:
    """Rank of the truth, 1 is best; among equals the middle."""
    own = total_n[truth]
    return 1 + float((total_n > own).sum()) + (float((total_n == own).sum()) - 1) / 2
