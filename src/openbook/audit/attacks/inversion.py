"""Attack 6, behavioural inversion: ask the task with the book closed, and count what the answers give away.

For the task the rules are solved for, from inputs and outputs alone (`solving`); for own data a secret is given away
when a question that depends on it is answered right. Neither needs any memory of the text.
"""

from __future__ import annotations

from openbook.audit.attack import ATTACKS, AttackedModel, Attacker, Scores, Secrets


@ATTACKS.register("inversion")
def inversion(model: AttackedModel, secrets: Secrets, attacker: Attacker) -> list[Scores]:
    """What the model's own answers give away."""
    return attacker.skill.given_away(model, secrets, attacker.config.seed)
