"""The attacks that reach a composite student: it reads a rule as one token and can only write output bigrams.

A student whose rules are text answers the task in the same way, so inversion asks it from here too.

Completion, exposure, membership, prompts and budgets need a likelihood of the rule's text, and a composite head has
none to give. What is left goes through the task: inversion from inputs and outputs; strings given in the last alphabet
but one, which the last phrasebook alone translates; relearning and soft prompts on half of that phrasebook's rules.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from openbook.audit.attack import Scores
from openbook.audit.inversion import BATCH, Ints, inverted, unshifted
from openbook.audit.secret import Secret, Secrets
from openbook.audit.statistics import Floats
from openbook.audit.subject import Subject
from openbook.audit.tuning import halves, remaining, soft_prompt
from openbook.base.errors import InputError
from openbook.base.randomness import generator
from openbook.task.phrasebook import Codebook
from openbook.task.source import Translations

STRINGS = 64  # in a step of training
WHY_NOT = (
    "the student's vocabulary has a rule as one token, which its head cannot write: there is no text to complete "
    "and no likelihood of one"
)


def composite_secrets(source: Translations) -> Secrets:
    """The rules, as things to be scored; a student knows no text of them."""
    if source.codebook is None:
        raise InputError("every example of this run has a codebook of its own: there is nothing to audit")
    letters, items = source.codebook.alphabets(), []
    for level, rules in enumerate(source.codebook.rules()):
        candidates = tuple(c + d for c in letters[level + 1] for d in letters[level + 1])
        for rule in rules:
            left, right = rule.replace(" ", "").split("->")
            items.append(Secret(f"level {level + 1}", f"{left}>", right, candidates))
    return Secrets(tuple(items), "task", bijective=True)


def rows_of(model: Any, strings_bl: Ints, level: int, prefix: int = 1) -> Tensor:
    """Tokens that ask for the translation of strings given in the alphabet of a level (0 is the input): [B, T]."""
    config = model.config
    words = strings_bl if config.unit == 1 else strings_bl[:, 0::2] * config.chars + strings_bl[:, 1::2]
    given = words + config.alphabet * (1 + level)
    batch, length = given.shape
    think = config.special("<THINK>")
    parts = [
        np.full((batch, prefix), config.special("<BOOK>")),
        np.full((batch, int(config.writes)), config.special("<READ>")),
        given,
        np.full((batch, length * (config.depth - level - 1) + 1), think),
        np.zeros((batch, length - 1), np.int64),  # any answer will do: a slot does not look at what stands there
    ]
    return torch.from_numpy(np.concatenate(parts, axis=1))


def answer_logits(model: Any, strings_bl: Ints, level: int, prefix: int = 1) -> Tensor:
    """Logits of the n² output bigrams at every place of the answer: [B, P, n²]."""
    config = model.config
    ids = rows_of(model, strings_bl, level, prefix).to(next(model.parameters()).device)
    slots = strings_bl.shape[1] // config.unit
    logits = model(input_ids=ids, use_cache=False).logits[:, -slots:, : config.alphabet]
    if config.unit == 2:
        return logits
    return (logits[:, 0::2, :, None] + logits[:, 1::2, None, :]).flatten(-2)  # each character has a slot of its own


def votes(model: Any, x_bp: Ints, chars: int, level: int, prefix: int = 1) -> Floats:
    """Mean log-probability of every image of every bigram that the strings look up: [n², n²]; NaN for none."""
    size = chars**2
    total, count = np.zeros((size, size)), np.zeros(size)
    for start in range(0, len(x_bp), BATCH):
        part = x_bp[start : start + BATCH]
        with torch.inference_mode():
            logp = torch.log_softmax(answer_logits(model, unshifted(part, chars), level, prefix).float(), -1)
        np.add.at(total, part.reshape(-1), logp.reshape(-1, size).double().cpu().numpy())
        np.add.at(count, part.reshape(-1), 1)
    return np.where(count[:, None] > 0, total / np.maximum(count, 1)[:, None], math.nan)


def level_strings(members: Sequence[int], pairs: int, strings: int, seed: int) -> Ints:
    """Strings that look up these bigrams only, all about equally often: [strings, P]."""
    random = generator(seed, "audit strings")
    rounds = -(-strings * pairs // len(members))
    flat = np.concatenate([random.permutation(members) for _ in range(rounds)])[: strings * pairs]
    return flat.reshape(strings, pairs)


@dataclass(frozen=True)
class CompositeInversion:
    """Inversion from inputs and outputs, and from strings given right before the last phrasebook."""

    codebook: Codebook
    pairs: int
    contexts: int = 12
    seed: int = 0
    name: str = "inversion"

    def __call__(self, model: Subject, secrets: Secrets) -> list[Scores]:
        n, depth, chance_s = self.codebook.chars, self.codebook.depth, secrets.chance_s

        def answer(strings_bl: Ints) -> Ints:
            with torch.inference_mode():
                return answer_logits(model.model, strings_bl, 0).argmax(-1).cpu().numpy()

        x_bp = level_strings(range(n * n), self.pairs, self.contexts * n, self.seed)
        last = np.full((depth, n * n), math.nan)
        last[-1] = votes(model.model, x_bp, n, depth - 1).argmax(1) == self.codebook.tables[-1]
        return [
            inverted(answer, self.codebook, self.pairs, secrets, self.contexts, self.seed),
            Scores(self.name, "last level, asked directly", "behaviour", last.reshape(-1), chance_s, chance_s),
        ]


@dataclass(frozen=True)
class CompositeTuning:
    """Relearning (`vectors` 0) or a soft prompt on half of the rules of the last level; the other half is scored."""

    codebook: Codebook
    pairs: int
    steps: int = 60
    vectors: int = 0
    learning_rate: float = 1e-3
    seed: int = 0

    @property
    def name(self) -> str:
        return "soft-prompt" if self.vectors else "relearning"

    def __call__(self, model: Subject, secrets: Secrets) -> list[Scores]:
        last = np.flatnonzero(secrets.group_s == self.codebook.depth - 1).tolist()
        part = secrets.subset(last)
        hits_s, elimination_s = np.full(len(secrets), math.nan), np.full(len(secrets), math.nan)
        for known, held in halves(part, self.seed):
            scores = self._fold(model.model, known, held)
            for x in held:
                left = remaining(part, known, x)
                hits_s[last[x]] = float(left[int(scores[x, left].argmax())] == part.items[x].index)
                elimination_s[last[x]] = 1 / len(left)
        what = f"{self.vectors} vectors" if self.vectors else "on half of the last level"
        return [Scores(self.name, f"{what}, {self.steps} steps", "behaviour", hits_s, secrets.chance_s, elimination_s)]

    def _fold(self, model: Any, known: list[int], held: list[int]) -> Floats:
        n, level = self.codebook.chars, self.codebook.depth - 1
        asked = level_strings(held, self.pairs, 4 * n, self.seed + 1)
        if not self.vectors:
            model = copy.deepcopy(model)
            for parameter in model.parameters():
                parameter.requires_grad_(True)
            self._train(model, list(model.parameters()), known, 1)
            return votes(model, asked, n, level)
        fixed = [parameter for parameter in model.parameters() if parameter.requires_grad]
        placeholder = n * n * (self.codebook.depth + 1) + 2
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            start = torch.randn(self.vectors, model.config.hidden_size)
        vectors = nn.Parameter(start.to(next(model.parameters()).device))
        for parameter in fixed:
            parameter.requires_grad_(False)
        try:
            with soft_prompt(model, vectors, placeholder):
                self._train(model, [vectors], known, self.vectors)
                return votes(model, asked, n, level, self.vectors)
        finally:
            for parameter in fixed:
                parameter.requires_grad_(True)

    def _train(self, model: Any, parameters: list[nn.Parameter], known: list[int], prefix: int) -> None:
        n, level = self.codebook.chars, self.codebook.depth - 1
        rate = 0.03 if self.vectors else self.learning_rate
        optimiser = torch.optim.AdamW(parameters, lr=rate, weight_decay=0.0)
        images = torch.from_numpy(self.codebook.tables[-1].astype(np.int64))
        for step in range(self.steps):
            x_bp = level_strings(known, self.pairs, STRINGS, 1000 * self.seed + step)
            logits = answer_logits(model, unshifted(x_bp, n), level, prefix)
            labels = images[torch.from_numpy(x_bp)].to(logits.device)
            loss = nn.functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
