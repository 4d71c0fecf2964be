"""Attack 4, a battery of prompts: bare, training template, few-shot from other secrets, forced prefix.

A hit is a secret whose truth is the likeliest of its candidates after the prompt. A forced prefix gives the first token
of the truth away as well, so only candidates that begin like it are left, and chance is higher.
"""

from __future__ import annotations

import math

import numpy as np

from openbook.audit.attack import ATTACKS, AttackedModel, Attacker, Scores, Secrets
from openbook.audit.prompts import Style, likelihoods_of, single_prompts, top_share

STYLES: tuple[Style, ...] = ("bare", "template", "few-shot")


@ATTACKS.register("battery")
def battery(model: AttackedModel, secrets: Secrets, attacker: Attacker) -> list[Scores]:
    """Whether the truth is the likeliest candidate after each prompt; the seed draws what few-shot prompts show."""
    scores = []
    for style in STYLES:
        seed = attacker.config.seed if style == "few-shot" else 0
        prompts = single_prompts(model, secrets, style, seed)
        hits_k = prompts.top_shares(likelihoods_of(model, secrets, style, seed))
        scores.append(prompts.scores("battery", style, hits_k))
    forced = _forced_prefix(model, secrets)
    return scores if np.isnan(forced.values_s).all() else [*scores, forced]  # secrets of one token have no prefix


def _forced_prefix(model: AttackedModel, secrets: Secrets) -> Scores:
    """From the template's likelihoods: of candidates that begin with the same token, the rest decides."""
    hits_s, chance_s = np.full((2, len(secrets)), math.nan)
    for number, each in enumerate(likelihoods_of(model, secrets, "template")):
        secret = secrets.items[number]
        tokens = model.all_tokens(secret.candidates)
        same = [n for n, ids in enumerate(tokens) if ids[0] == tokens[secret.index][0]]
        if len(same) > 1:
            hits_s[number] = top_share(each.total_n[same], same.index(secret.index))
            chance_s[number] = 1 / len(same)
    return Scores("battery", "forced prefix", "recovery", hits_s, chance_s, chance_s)
