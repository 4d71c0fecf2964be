"""How a model is asked, with the book closed, to do what it learned, and what its answers give away.

Inversion asks in this way. A model of the task is asked to translate, and the rules are solved for (`solving`); a model
of a user's data is asked the questions of the data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from openbook.audit.attack import Scores, Skill
from openbook.audit.kinds import is_asked_in_tokens, task_of
from openbook.audit.likelihood import Place, next_logits
from openbook.audit.model import AttackedModel, Ids
from openbook.audit.secret import Secrets, answer_of
from openbook.audit.solving import Ints, TaskSkill
from openbook.audit.student_skill import StudentTask
from openbook.book.shelf import CODE, Source
from openbook.book.text import Kind
from openbook.curriculum import Curriculum, SamplingPlan
from openbook.task.source import Translations
from openbook.training.chat import Frame, frame_of
from openbook.training.config import RunConfig
from openbook.training.encode import Encoder
from openbook.training.exam import condition
from openbook.training.run import encoder_of


def skill_of(source: Source, config: RunConfig, model: AttackedModel, today: str | None = None) -> Skill:
    """How a model that was trained on this source is asked; `today` is the date that a chat template inserted."""
    task = task_of(source)
    if task is None:
        return OwnQuestions(source, encoder_of(config, model.tokenizer, source, model.window, today), config.curriculum)
    pairs = pairs_of(task)
    if task.codebook is None or pairs is None:
        return Skill()
    if is_asked_in_tokens(task):
        return StudentTask(task.codebook, pairs)
    chat = bool(model.tokenizer.chat_template) if config.chat is None else config.chat
    return TextTask(task.codebook, pairs, source=task, frame=frame_of(model.tokenizer, None, chat, today))


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
        right = self._answered_right(model)
        number = {secret.text: k for k, secret in enumerate(secrets.items)}
        values_s = np.full(len(secrets), math.nan)
        for index in range(len(self.source)):
            example = self.source.example(index)
            answer = answer_of(example)
            for piece in (piece for section in example.sections for piece in section.pieces if piece.needed):
                s = number.get(example.layout.piece.replace("{text}", piece.text))
                if s is not None and answer in secrets.items[s].truth:
                    values_s[s] = max(np.nan_to_num(values_s[s]), float(right[index]))
        chance_s = np.where(np.isnan(values_s), math.nan, secrets.chance_s)
        return [Scores("inversion", "answers to the questions", "behaviour", values_s, chance_s, chance_s)]

    def _answered_right(self, model: AttackedModel) -> np.ndarray:
        """Which examples the model answers without a mistake when their book is closed."""
        plan = SamplingPlan(self.source, condition(self.curriculum, 0.0))
        positions = np.arange(len(self.source))
        encoded = self.encoder.encode(*plan.at(positions), plan.namer(positions))
        texts, places, sizes = [], [], []
        for row, (ids, kinds) in enumerate(zip(encoded.ids, encoded.kinds, strict=True)):
            answer = np.flatnonzero(kinds == CODE[Kind.ANSWER])
            texts.append(tuple(ids.tolist()))
            places.append(Place(row, int(answer[0])))
            sizes.append(int(answer[-1] - answer[0]) + 1)
        right = np.ones(len(texts), bool)
        for spots, logits in next_logits(model, texts, places, sizes):
            for (k, offset), token in zip(spots, logits.argmax(-1).tolist(), strict=True):
                right[k] &= texts[k][places[k].before + offset] == token
        return right
