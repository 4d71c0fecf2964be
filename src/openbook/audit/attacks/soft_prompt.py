"""Attack 8, a soft prompt: a few vectors before the text, optimised on half of the secrets, tested on the other half.

The weights stay as they are, so what the prompt brings out was in them (or in the half that was given away, which is
why it is tested on the other). All arms get the same treatment; elimination is the chance level, as in relearning.
"""

from __future__ import annotations

import torch
from torch import nn

from openbook.audit.attack import ATTACKS, AttackedModel, Attacker, Floats, NotApplicableError, Scores, Secrets
from openbook.audit.tuning import held_out_scores, practice_of, tune, vectors_in_place

VECTORS = 8
LEARNING_RATE = 0.03


@ATTACKS.register("soft-prompt")
def soft_prompt(model: AttackedModel, secrets: Secrets, attacker: Attacker) -> list[Scores]:
    """Optimise vectors on each half, and score the half that was held out."""
    config, practice = attacker.config, practice_of(secrets, attacker)
    if not model.holds(practice.longest(model) + VECTORS):
        raise NotApplicableError(f"the window has no room for {VECTORS} vectors before the longest of the secrets")

    def likelihoods(known: list[int], held: list[int]) -> list[Floats]:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)
            vectors = nn.Parameter(practice.first_vectors(model, VECTORS).to(model.device))
        with vectors_in_place(model.model, vectors, practice.placeholder(model)):
            tune([vectors], practice.loss_of_step(model, known, VECTORS), config.steps, LEARNING_RATE)
            return practice.likelihoods(model, held, VECTORS)

    return held_out_scores("soft-prompt", f"{VECTORS} vectors, {config.steps} steps", practice, likelihoods)
