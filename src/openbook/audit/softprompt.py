"""Attack 8, a soft prompt: a few vectors before the text, optimised on half of the secrets, tested on the other half.

The weights stay as they are, so what the prompt brings out was in them (or in the half that was given away, which is
why it is tested on the other). All arms get the same treatment; elimination is the chance level, as in relearning.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from openbook.audit.attack import Scores, recovery
from openbook.audit.context import longest, prompts
from openbook.audit.secret import Secrets
from openbook.audit.statistics import Floats
from openbook.audit.subject import Subject
from openbook.audit.tuning import held_out_hits, over_folds, soft_prompt, train


@dataclass(frozen=True)
class SoftPrompt:
    """The attack with its budget: vectors, and steps of optimising them."""

    steps: int = 60
    vectors: int = 8
    learning_rate: float = 0.03
    seed: int = 0
    name: str = "soft-prompt"

    def __call__(self, model: Subject, secrets: Secrets) -> list[Scores]:
        asked = prompts(model, secrets, "template")
        ends = [place.before + longest(model, secrets.items[k]) for k, place in enumerate(asked.places)]
        if not model.holds(max(ends) + self.vectors):
            return []  # there is no room for them before the longest of the secrets
        hits_s, elimination_s = over_folds(model, secrets, self.seed, self._fold)
        return [recovery(self.name, f"{self.vectors} vectors, {self.steps} steps", hits_s, secrets, elimination_s)]

    def _fold(self, model: Subject, secrets: Secrets, known: list[int], held: list[int]) -> tuple[Floats, Floats]:
        # Its embedding is replaced, so any token will do but 0, which pads, and those that tell a student where it is.
        placeholder = model.tokenizer.unk_token_id or model.vocabulary - 1
        embeddings = model.model.get_input_embeddings().weight.detach().float()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            start = embeddings.mean(0) + embeddings.std(0) * torch.randn(self.vectors, embeddings.shape[1]).to(
                embeddings.device
            )
        vectors = nn.Parameter(start)
        fixed = [parameter for parameter in model.model.parameters() if parameter.requires_grad]
        prefix = (placeholder,) * self.vectors
        for parameter in fixed:
            parameter.requires_grad_(False)
        try:
            with soft_prompt(model.model, vectors, placeholder):
                train(model, [vectors], secrets, known, self.steps, self.learning_rate, self.seed, prefix)
                return held_out_hits(model, secrets, known, held, prefix)
        finally:
            for parameter in fixed:
                parameter.requires_grad_(True)
