"""How a model is asked, with the book closed, to do what it learned, and what its answers give away.

Inversion asks in this way. A model of a user's data is asked the questions of the data. A model of the task is
asked to translate, and the rules are solved for (`solving`).

A student is asked in its own tokens, by strings given in the alphabet of any level. A composite student reads a rule as
one token and can only write output bigrams, so what needs a likelihood of the rule's text cannot be had from it. All
else goes through the task: inversion; strings given in the last alphabet but one, which the last phrasebook alone
translates; relearning and soft prompts on half of that phrasebook's rules.

Legend: n characters, B strings, L characters and P bigrams of a string, T tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from openbook.audit.attack import AttackedModel, ScoreKind, Scores, Secrets, Skill
from openbook.audit.model import Ids
from openbook.audit.secret import all_pieces, answer_of
from openbook.audit.solving import BATCH, TaskSkill, unshifted
from openbook.audit.tuning import Practice
from openbook.base.arrays import Floats, Ints
from openbook.base.randomness import generator
from openbook.book.source import Source
from openbook.book.text import Kind
from openbook.curriculum import Curriculum, SamplingPlan
from openbook.task.source import Translations, as_translations
from openbook.training.batches import items
from openbook.training.chat import Frame
from openbook.training.config import RunConfig
from openbook.training.encode import Encoder
from openbook.training.exam import condition, correct_answers
from openbook.training.sources import encoder_for

QUESTIONS = 32  # of a user's data asked at once
STRINGS = 64  # in a step of a student's practice


def skill_of(source: Source, config: RunConfig, model: AttackedModel, today: str | None = None) -> Skill:
    """How a model that was trained on this source is asked; `today` is the date that a chat template inserted."""
    task, encoder = as_translations(source), encoder_for(config, model.tokenizer, source, model.window, today)
    if task is None:
        return OwnQuestions(source, encoder, config.curriculum)
    pairs = pairs_of(task)
    if task.codebook is None or pairs is None:
        return Skill()
    if task.format.complete:
        return StudentTask(task.codebook, pairs)
    return TextTask(task.codebook, pairs, source=task, frame=encoder.frame)


def pairs_of(task: Translations) -> int | None:
    """Bigrams of the strings to ask: the shortest the run was trained on that every level can be told apart in."""
    shortest, longest = task.lengths
    pairs = max(shortest, 2 * task.depth) // 2
    return pairs if 2 * pairs <= longest else None


@dataclass(frozen=True, kw_only=True)
class TextTask(TaskSkill):
    """The task as a model is asked for it that writes its answer as text, greedily."""

    source: Translations
    frame: Frame

    def answers(self, model: AttackedModel, strings_bl: Ints) -> Ints:
        ids = torch.tensor([self.question(model, string) for string in strings_bl.tolist()], device=model.device)
        last = self.codebook.alphabets()[-1]
        output = torch.tensor([model.tokens(f" {letter}")[0] for letter in last], device=model.device)
        cache, letters = None, []
        with torch.inference_mode():
            for _ in range(strings_bl.shape[1]):
                step = model.model(input_ids=ids, past_key_values=cache, use_cache=True)
                letters.append(step.logits[:, -1][:, output].argmax(-1))
                ids, cache = output[letters[-1]][:, None], step.past_key_values
        y_bl = torch.stack(letters, 1).cpu().numpy()
        return y_bl[:, 0::2] * self.codebook.chars + y_bl[:, 1::2]

    def question(self, model: AttackedModel, string: list[int]) -> Ids:
        """The tokens before the answer, as training writes them when the book is closed."""
        fmt, letters = self.source.format, self.codebook.alphabets()[0]
        symbols = [letters[c] for c in string]
        closed = [part.text for part in fmt.layout.parts([(name, ()) for name in fmt.section_names()])]
        parts = fmt.completion([symbols] * (self.codebook.depth + 1), "silent")
        before = [part.text for part in parts[: [part.kind for part in parts].index(Kind.ANSWER)]]
        prompt = fmt.prompt(0, symbols)
        return model.prompt(self.frame.before, fmt.preamble(0), *closed, prompt, self.frame.between, *before)


@dataclass(frozen=True)
class OwnQuestions(Skill):
    """The questions of a user's data. A secret is given away when a question that depends on it is answered right."""

    source: Source
    encoder: Encoder
    curriculum: Curriculum

    def given_away(self, model: AttackedModel, secrets: Secrets, seed: int) -> list[Scores]:
        plan, positions = SamplingPlan(self.source, condition(self.curriculum, 0.0)), np.arange(len(self.source))
        asked = items(self.encoder.encode(*plan.at(positions), plan.namer(positions)), positions.tolist())
        right = correct_answers(model.model, self.encoder, asked, self.source, QUESTIONS)
        number = {secret.text: k for k, secret in enumerate(secrets.items)}
        values_s = np.full(len(secrets), math.nan)
        for index, example, _, piece in all_pieces(self.source):
            s = number.get(example.layout.piece.replace("{text}", piece.text))
            if s is not None and piece.needed and answer_of(example) in secrets.items[s].truth:
                values_s[s] = max(np.nan_to_num(values_s[s]), float(right[index].all()))
        chance_s = np.where(np.isnan(values_s), math.nan, secrets.chance_s)
        return [Scores("inversion", "answers to the questions", "behaviour", values_s, chance_s, chance_s)]


@dataclass(frozen=True)
class StudentTask(TaskSkill):
    """The task as a student is asked for it."""

    def answers(self, model: AttackedModel, strings_bl: Ints) -> Ints:
        with torch.inference_mode():
            return bigram_logits(model.model, strings_bl, 0).argmax(-1).cpu().numpy()

    def given_away(self, model: AttackedModel, secrets: Secrets, seed: int) -> list[Scores]:
        n, depth, chance_s = self.codebook.chars, self.codebook.depth, secrets.chance_s
        x_bp = level_strings(range(n * n), self.pairs, self.contexts * n, seed)
        last = np.full((depth, n * n), math.nan)
        last[-1] = votes(model.model, x_bp, n, depth - 1).argmax(1) == self.codebook.tables[-1]
        direct = Scores("inversion", "last level, asked directly", "behaviour", last.reshape(-1), chance_s, chance_s)
        return [*super().given_away(model, secrets, seed), direct]

    def practice(self, secrets: Secrets, seed: int) -> Practice | None:
        return None if secrets.written else StudentPractice(secrets, seed, task=self)


@dataclass(frozen=True, kw_only=True)
class StudentPractice(Practice):
    """The student translates strings that look up some rules of the last level alone, given right before it."""

    task: StudentTask
    kind: ScoreKind = "behaviour"
    material: str = "on half of the last level"

    @property
    def numbers(self) -> Sequence[int]:
        """The rules of the last level."""
        return np.flatnonzero(self.secrets.group_s == self.task.codebook.depth - 1).tolist()

    def _bigrams(self, numbers: Sequence[int]) -> list[int]:
        return [number % self.task.codebook.chars**2 for number in numbers]

    def loss_of_step(self, model: AttackedModel, known: Sequence[int], vectors: int = 0) -> Callable[[int], Tensor]:
        codebook, pairs = self.task.codebook, self.task.pairs
        images = torch.from_numpy(codebook.tables[-1].astype(np.int64))

        def loss(step: int) -> Tensor:
            x_bp = level_strings(self._bigrams(known), pairs, STRINGS, 1000 * self.seed + step)
            strings = unshifted(x_bp, codebook.chars)
            logits = bigram_logits(model.model, strings, codebook.depth - 1, vectors or 1)
            labels = images[torch.from_numpy(x_bp)].to(logits.device)
            return nn.functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())

        return loss

    def likelihoods(self, model: AttackedModel, held: Sequence[int], vectors: int = 0) -> list[Floats]:
        n, level = self.task.codebook.chars, self.task.codebook.depth - 1
        asked = level_strings(self._bigrams(held), self.task.pairs, 4 * n, self.seed + 1)
        return list(votes(model.model, asked, n, level, vectors or 1)[self._bigrams(held)])

    def longest(self, model: AttackedModel) -> int:
        return 0  # a string of the task fits

    def placeholder(self, model: AttackedModel) -> int:
        return model.model.config.special("<BOOK>")

    def first_vectors(self, model: AttackedModel, count: int) -> Tensor:
        return torch.randn(count, model.model.config.hidden_size)


def question_tokens(model: Any, strings_bl: Ints, level: int, prefix: int = 1) -> Tensor:
    """Tokens that ask for the translation of strings given in the alphabet of a level (0 is the input): [B, T]."""
    config = model.config
    words = strings_bl if config.unit == 1 else strings_bl[:, 0::2] * config.chars + strings_bl[:, 1::2]
    given = words + config.alphabet * (1 + level)
    batch, length = given.shape
    parts = [
        np.full((batch, prefix), config.special("<BOOK>")),
        np.full((batch, int(config.writes)), config.special("<READ>")),
        given,
        np.full((batch, length * (config.depth - level - 1) + 1), config.special("<THINK>")),
        np.zeros((batch, length - 1), np.int64),  # any answer will do: a slot does not look at what stands there
    ]
    return torch.from_numpy(np.concatenate(parts, axis=1))


def bigram_logits(model: Any, strings_bl: Ints, level: int, prefix: int = 1) -> Tensor:
    """Logits of the n² output bigrams at every place of the answer: [B, P, n²]."""
    config = model.config
    ids = question_tokens(model, strings_bl, level, prefix).to(next(model.parameters()).device)
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
            logp = torch.log_softmax(bigram_logits(model, unshifted(part, chars), level, prefix).float(), -1)
        np.add.at(total, part.reshape(-1), logp.reshape(-1, size).double().cpu().numpy())
        np.add.at(count, part.reshape(-1), 1)
    return np.where(count[:, None] > 0, total / np.maximum(count, 1)[:, None], math.nan)


def level_strings(members: Sequence[int], pairs: int, strings: int, seed: int) -> Ints:
    """Strings that look up these bigrams only, all about equally often: [strings, P]."""
    random = generator(seed, "audit strings")
    rounds = -(-strings * pairs // len(members))
    flat = np.concatenate([random.permutation(members) for _ in range(rounds)])[: strings * pairs]
    return flat.reshape(strings, pairs)
