"""Attack 1, the paper's: complete `a b ->` (section 4 and its appendix on verbatim memorisation).

For a secret with tokens x_1 .. x_m and logits s_1 .. s_m in front of them, over the tokens A that a filter allows,

    greedy    prod_i 1[argmax_A s_i = x_i]
    sampled   prod_i softmax_A(s_i)[x_i]          temperature 1

which is what decoding would give, computed without decoding. Asked with the true earlier rules in context, in 20 orders
of the book, and without any.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from openbook.audit.attack import Scores, recovery
from openbook.audit.context import Asked, books, eliminated, mean_by_secret, prompts
from openbook.audit.likelihood import next_logits
from openbook.audit.secret import Secrets
from openbook.audit.subject import Subject

Filter = Literal["no filter", "no thinking", "alphabet"]
FILTERS: tuple[Filter, ...] = ("no filter", "no thinking", "alphabet")


@dataclass(frozen=True)
class Completion:
    """The attack with its budget: orders of the book."""

    permutations: int = 20
    seed: int = 0
    name: str = "completion"

    def __call__(self, model: Subject, secrets: Secrets) -> list[Scores]:
        scores = []
        for context, asked in (
            ("in the book", books(model, secrets, self.permutations, self.seed)),
            ("alone", prompts(model, secrets, "template")),
        ):
            elimination_s = eliminated(asked, secrets)
            for filter_, (greedy_k, sampled_k) in completed(model, secrets, asked).items():
                for how, values_k in (("greedy", greedy_k), ("sampled", sampled_k)):
                    values_s = mean_by_secret(values_k, asked.secret_k, len(secrets))
                    scores.append(recovery(self.name, f"{how}, {filter_}, {context}", values_s, secrets, elimination_s))
        return scores


def allowed(subject: Subject, secrets: Secrets) -> dict[Filter, Tensor]:
    """Which tokens a filter lets through, for every group: [groups, V]. The alphabet is what candidates are made of."""
    size = (len(secrets.groups), subject.vocabulary)
    alphabet = torch.zeros(size, dtype=torch.bool)
    for group, number in zip(secrets.groups, range(len(secrets.groups)), strict=True):
        for candidates in {secret.candidates for secret in secrets.items if secret.group == group}:
            alphabet[number, [token for ids in subject.all_tokens(candidates) for token in ids]] = True
    speaking = torch.ones(size, dtype=torch.bool)
    if (think := subject.think_token()) is not None:
        speaking[:, think] = False
    return {
        "no filter": torch.ones(size, dtype=torch.bool),
        "no thinking": speaking,
        "alphabet": alphabet,
    }


def completed(subject: Subject, secrets: Secrets, asked: Asked) -> dict[Filter, tuple[np.ndarray, np.ndarray]]:
    """For each filter, whether greedy decoding writes the truth at each place, and the chance that sampling does."""
    truths = subject.all_tokens([secret.truth for secret in secrets.items])
    sizes = [len(truths[s]) for s in asked.secret_k]
    masks = {name: mask.to(subject.device) for name, mask in allowed(subject, secrets).items()}
    greedy = {name: np.ones(len(sizes)) for name in masks}
    sampled = {name: np.zeros(len(sizes)) for name in masks}
    group_s = torch.from_numpy(secrets.group_s)
    for spots, logits in next_logits(subject, asked.texts, asked.places, sizes):
        place = np.array([k for k, _ in spots])
        token = torch.tensor([truths[asked.secret_k[k]][offset] for k, offset in spots], device=logits.device)
        group = group_s[[asked.secret_k[k] for k in place]].to(logits.device)
        for name, mask in masks.items():
            kept = logits.float().masked_fill(~mask[group], -torch.inf)
            right = (kept.argmax(-1) == token).cpu().numpy()
            logp = torch.log_softmax(kept, -1).gather(1, token[:, None])[:, 0]
            np.multiply.at(greedy[name], place, right)
            np.add.at(sampled[name], place, logp.double().cpu().numpy())
    return {name: (greedy[name], np.exp(sampled[name])) for name in masks}
