"""Attack 7, relearning: fine-tune on half of the secrets as text, ask for the other half.

If the text is in there but out of reach, a little practice in saying it may bring the rest back. All arms get the same
treatment, and the score is of the candidates that the known half does not rule out, so elimination is its chance level.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

from openbook.audit.attack import Scores, recovery
from openbook.audit.secret import Secrets
from openbook.audit.statistics import Floats
from openbook.audit.subject import Subject
from openbook.audit.tuning import held_out_hits, over_folds, train


@dataclass(frozen=True)
class Relearning:
    """The attack with its budget: steps of fine-tuning."""

    steps: int = 60
    learning_rate: float = 1e-3
    seed: int = 0
    name: str = "relearning"

    def __call__(self, model: Subject, secrets: Secrets) -> list[Scores]:
        hits_s, elimination_s = over_folds(model, secrets, self.seed, self._fold)
        return [recovery(self.name, f"on half, {self.steps} steps", hits_s, secrets, elimination_s)]

    def _fold(self, model: Subject, secrets: Secrets, known: list[int], held: list[int]) -> tuple[Floats, Floats]:
        changed = Subject(copy.deepcopy(model.model), model.tokenizer, model.window, model.think)
        for parameter in changed.model.parameters():
            parameter.requires_grad_(True)
        train(changed, changed.model.parameters(), secrets, known, self.steps, self.learning_rate, self.seed)
        return held_out_hits(changed, secrets, known, held)
