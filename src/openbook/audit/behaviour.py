"""Attack 6 on text models: ask the task with the book closed, and count what the answers give away.

For the task the rules are solved for (`inversion`); for own data a secret is given away when a question that depends on
it is answered right, and the answer is a part of the secret. Neither needs any memory of the text.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from openbook.audit.attack import Scores
from openbook.audit.inversion import Ints, inverted
from openbook.audit.likelihood import Place, next_logits
from openbook.audit.secret import Secrets
from openbook.audit.subject import Subject
from openbook.book.jsonl import ListSource
from openbook.book.shelf import CODE
from openbook.book.text import Kind
from openbook.curriculum import Curriculum, SamplingPlan
from openbook.task.source import Translations
from openbook.training.chat import Frame
from openbook.training.encode import Encoder
from openbook.training.exam import condition


def pairs_of(source: Translations) -> int | None:
    """Bigrams of the strings to ask: the shortest the run was trained on that every level can be told apart in."""
    shortest, longest = source.lengths
    pairs = max(shortest, 2 * source.depth) // 2
    return pairs if 2 * pairs <= longest else None


@dataclass(frozen=True)
class TaskInversion:
    """Behavioural inversion of a model that writes its answer as text, greedily."""

    source: Translations
    frame: Frame
    contexts: int = 12
    seed: int = 0
    name: str = "inversion"

    def __call__(self, model: Subject, secrets: Secrets) -> list[Scores]:
        codebook, pairs = self.source.codebook, pairs_of(self.source)
        if codebook is None or pairs is None:
            return []

        def answer(strings_bl: Ints) -> Ints:
            y_bl = self._answers(model, strings_bl)
            return y_bl[:, 0::2] * codebook.chars + y_bl[:, 1::2]

        return [inverted(answer, codebook, pairs, secrets, self.contexts, self.seed)]

    def _answers(self, model: Subject, strings_bl: Ints) -> Ints:
        """The model's own answers to strings of one length, letter by letter: [B, L]."""
        letters, fmt = self.source.codebook.alphabets(), self.source.format  # type: ignore[union-attr]
        closed = [part.text for part in fmt.layout.parts([(name, ()) for name in fmt.section_names()])]
        output = torch.tensor([model.tokens(f" {letter}")[0] for letter in letters[-1]], device=model.device)
        rows = []
        for string in strings_bl.tolist():
            symbols = [letters[0][c] for c in string]
            parts = fmt.completion([symbols] * (self.source.depth + 1), "silent")
            before = [part.text for part in parts[: [part.kind for part in parts].index(Kind.ANSWER)]]
            rows.append(
                model.prompt(
                    self.frame.before, fmt.preamble(0), *closed, fmt.prompt(0, symbols), self.frame.between, *before
                )
            )
        ids, cache, answer = torch.tensor(rows, device=model.device), None, []
        with torch.inference_mode():
            for _ in range(strings_bl.shape[1]):
                found = model.model(input_ids=ids, past_key_values=cache, use_cache=True)
                choice = found.logits[:, -1][:, output].argmax(-1)
                answer.append(choice)
                ids, cache = output[choice][:, None], found.past_key_values
        return torch.stack(answer, 1).cpu().numpy()


@dataclass(frozen=True)
class DataInversion:
    """Behavioural inversion of a model trained on a user's data: its own answers, with the book closed."""

    source: ListSource
    encoder: Encoder
    curriculum: Curriculum
    name: str = "inversion"

    def __call__(self, model: Subject, secrets: Secrets) -> list[Scores]:
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
            guess = logits.argmax(-1).tolist()
            for (k, offset), token in zip(spots, guess, strict=True):
                right[k] &= texts[k][places[k].before + offset] == token
        number = {secret.text: k for k, secret in enumerate(secrets.items)}
        told: dict[int, bool] = {}
        for index in positions.tolist():
            example = self.source.example(index)
            answer_text = "".join(part.text for part in example.completion if part.kind == Kind.ANSWER).strip()
            for piece in (piece for section in example.sections for piece in section.pieces):
                its = number.get(example.layout.piece.replace("{text}", piece.text))
                if its is not None and piece.needed and answer_text in secrets.items[its].truth:
                    told[its] = told.get(its, False) or bool(right[index])
        values_s = np.array([float(told[k]) if k in told else math.nan for k in range(len(secrets))])
        chance_s = np.where(np.isnan(values_s), math.nan, secrets.chance_s)
        return [Scores(self.name, "answers to the questions", "behaviour", values_s, chance_s, chance_s)]
