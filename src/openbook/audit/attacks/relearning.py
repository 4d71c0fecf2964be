"""Attack 7, relearning: fine-tune on half of the secrets, ask for the other half.

If the text is in there but out of reach, a little practice in saying it may bring the rest back. All arms get the same
treatment, and the score is of the candidates that the known half does not rule out, so elimination is its chance level.
"""

from __future__ import annotations

from openbook.audit.attack import ATTACKS, AttackedModel, Attacker, Floats, Scores, Secrets
from openbook.audit.tuning import held_out_scores, practice_of, tune


@ATTACKS.register("relearning")
def relearning(model: AttackedModel, secrets: Secrets, attacker: Attacker) -> list[Scores]:
    """Fine-tune a copy on each half, and score the half that was held out."""
    config, practice = attacker.config, practice_of(secrets, attacker)

    def likelihoods(known: list[int], held: list[int]) -> list[Floats]:
        twin = model.copy()
        parameters = list(twin.model.parameters())
        tune(parameters, practice.loss_of_step(twin, known), config.steps, attacker.learning_rate)
        return practice.likelihoods(twin, held)

    return held_out_scores("relearning", f"{practice.material}, {config.steps} steps", practice, likelihoods)
