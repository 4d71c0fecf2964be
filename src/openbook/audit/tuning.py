"""What relearning and soft prompts share: halves of the secrets, a short training on one, a test on the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from openbook.audit.attack import Attacker, Floats, ScoreKind, Scores, Secrets
from openbook.audit.likelihood import Place, padded_rows
from openbook.audit.model import AttackedModel, Ids
from openbook.audit.prompts import Prompts, likelihoods_at, single_prompts, top_share
from openbook.base.randomness import generator
from openbook.training.encode import IGNORED
from openbook.training.targets import target_logits

BATCH = 64  # secrets in a step


@dataclass(frozen=True)
class Practice:
    """How a model practises some secrets, and how it is then asked for others.

    Here the model writes them: the loss is the cross-entropy of the tokens of the truths, after the training template.
    """

    secrets: Secrets
    seed: int
    kind: ScoreKind = "recovery"
    material: str = "on half"  # what is practised on

    @property
    def numbers(self) -> Sequence[int]:
        """The secrets that can be practised and asked for."""
        return range(len(self.secrets))

    def loss_of_step(self, model: AttackedModel, known: Sequence[int], vectors: int = 0) -> Callable[[int], Tensor]:
        """The loss of a training on the known secrets, with room for vectors before the text."""
        prompts = self._prompts(model, known, vectors)

        def loss(step: int) -> Tensor:
            chosen = generator(self.seed, "audit batches", step).permutation(len(known))[:BATCH].tolist()
            ids = padded_rows([prompts.texts[k] for k in chosen])
            labels = padded_rows([prompts.texts[k] for k in chosen], IGNORED)
            for row, k in enumerate(chosen):
                labels[row, : prompts.places[k].before] = IGNORED
            batch = {"input_ids": ids.to(model.device), "labels": labels.to(model.device)}
            logits, targets = target_logits(model.model, batch)
            return nn.functional.cross_entropy(logits.float(), targets)

        return loss

    def likelihoods(self, model: AttackedModel, held: Sequence[int], vectors: int = 0) -> list[Floats]:
        """Log-likelihoods of all candidates of each secret."""
        prompts = self._prompts(model, held, vectors)
        return [each.total_n for each in likelihoods_at(model, prompts)]

    def _prompts(self, model: AttackedModel, numbers: Sequence[int], vectors: int) -> Prompts:
        prompts = single_prompts(model, self.secrets.subset(numbers), "template")
        prefix: Ids = (self.placeholder(model),) * vectors
        places = [Place(place.row, place.before + vectors) for place in prompts.places]
        return replace(prompts, texts=[prefix + text for text in prompts.texts], places=places)

    def longest(self, model: AttackedModel) -> int:
        """Tokens of the longest text."""
        prompts = single_prompts(model, self.secrets, "template")
        asked = zip(prompts.places, prompts.asked_k, strict=True)
        return max(place.before + model.longest(secret.candidates) for place, secret in asked)

    def placeholder(self, model: AttackedModel) -> int:
        """The token whose embedding vectors replace: not 0, which pads, nor one that tells a student where it is."""
        return model.tokenizer.unk_token_id or model.vocabulary - 1

    def first_vectors(self, model: AttackedModel, count: int) -> Tensor:
        embeddings = model.model.get_input_embeddings().weight.detach().float()
        return embeddings.mean(0) + embeddings.std(0) * torch.randn(count, embeddings.shape[1]).to(embeddings.device)


def practice_of(secrets: Secrets, attacker: Attacker) -> Practice:
    seed = attacker.config.seed
    return attacker.skill.practice(secrets, seed) or Practice(secrets, seed)


def tune(parameters: Sequence[nn.Parameter], loss_of_step: Callable[[int], Tensor], steps: int, rate: float) -> None:
    """AdamW on the loss of each step; no other weight is touched."""
    optimiser = torch.optim.AdamW(parameters, lr=rate, weight_decay=0.0)
    for step in range(steps):
        optimiser.zero_grad()
        loss_of_step(step).backward(inputs=parameters)
        optimiser.step()


def held_out_scores(
    attack: str, variant: str, practice: Practice, likelihoods: Callable[[list[int], list[int]], list[Floats]]
) -> list[Scores]:
    """Whether each secret is the likeliest of the candidates that are left, in the fold in which it was held out.

    `likelihoods` practises the known secrets, and gives those of all candidates of each secret that was held out.
    """
    secrets = practice.secrets
    hits_s, elimination_s = np.full((2, len(secrets)), np.nan)
    for known, held in two_folds(secrets, practice.numbers, practice.seed):
        if not (known and held):
            continue
        for s, total_n in zip(held, likelihoods(known, held), strict=True):
            left = remaining(secrets, known, s)
            hits_s[s] = top_share(total_n[left], left.index(secrets.items[s].index))
            elimination_s[s] = 1 / len(left)
    return [Scores(attack, variant, practice.kind, hits_s, secrets.chance_s, elimination_s)]


def two_folds(secrets: Secrets, numbers: Sequence[int], seed: int) -> list[tuple[list[int], list[int]]]:
    """Two folds (trained on, held out): each group is cut in two by lot, and each half is held out once."""
    known: list[int] = []
    for group, number in enumerate(dict.fromkeys(secrets.group_s[list(numbers)].tolist())):
        same = np.flatnonzero(secrets.group_s == number)
        members = generator(seed, "audit halves", group).permutation(same)
        odd = group % 2 if len(members) % 2 else 0  # groups of one go to either side in turn
        known += members[: (len(members) + odd) // 2].tolist()
    rest = sorted(set(numbers) - set(known))
    return [(sorted(known), rest), (rest, sorted(known))]


def remaining(secrets: Secrets, known: Sequence[int], number: int) -> list[int]:
    """The candidates of a secret that the known secrets do not rule out."""
    taken = {secrets.items[k].truth for k in known} if secrets.bijective else set()
    return [n for n, candidate in enumerate(secrets.items[number].candidates) if candidate not in taken]


@contextmanager
def vectors_in_place(model: Any, vectors: nn.Parameter, placeholder: int) -> Iterator[None]:
    """Within, `len(vectors)` placeholder tokens at the start of a text have these embeddings."""
    size = len(vectors)

    def put(_: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        ids = inputs[0]
        if ids.shape[1] <= size or not bool((ids[:, :size] == placeholder).all()):
            return output
        start = vectors.to(output.dtype).expand(len(ids), -1, -1)
        return torch.cat([start, output[:, size:]], dim=1)

    with model.get_input_embeddings().register_forward_hook(put):
        yield
