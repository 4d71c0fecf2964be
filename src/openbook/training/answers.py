"""Answers that a model wrote by itself, scored as texts: exact match, normalised match and F1, as SQuAD has them.

Normalised match disregards case, punctuation, articles and white space. F1 is that of the words of both texts, so an
answer with more words or fewer than the reference is partly right.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from openbook.base.intervals import clustered
from openbook.book.text import Example, Kind

ARTICLES = {"a", "an", "the"}
MARKER = 8  # words before the answer by which it is found in a longer text, at most


def normalised(text: str) -> str:
    """Lower case, without punctuation and articles, with single blanks.

    A text that nothing would be left of, such as the choice "A" or the sign "+", keeps what it has.
    """
    lower = text.lower()
    plain = "".join(c for c in lower if c not in string.punctuation and not unicodedata.category(c).startswith("P"))
    words = plain.split()
    return " ".join([word for word in words if word not in ARTICLES] or words or lower.split())


def token_f1(written: str, reference: str) -> float:
    """The harmonic mean of precision and recall on the words of two texts, after normalisation."""
    ours, theirs = normalised(written).split(), normalised(reference).split()
    common = (Counter(ours) & Counter(theirs)).total()
    return 2 * common / (len(ours) + len(theirs)) if common else float(ours == theirs)


@dataclass(frozen=True)
class Written:
    """A question, the answer it should have, and what the model wrote."""

    question: str
    reference: str
    text: str  # all that was written, up to its end
    answer: str  # the part of it that is compared with the reference

    @property
    def exact(self) -> bool:
        return self.answer == self.reference

    @property
    def match(self) -> bool:
        return normalised(self.answer) == normalised(self.reference)

    @property
    def f1(self) -> float:
        return token_f1(self.answer, self.reference)

    def as_dict(self) -> dict[str, Any]:
        """The answer as `--json` prints it."""
        compared = {"question": self.question, "reference": self.reference, "written": self.text}
        return {**compared, "normalised_match": self.match, "f1": self.f1}


def written_to(example: Example, text: str) -> Written:
    """What was written to the question of an example, with the part of it that answers.

    Where an example names its `answer` inside the completion, only what follows the words before the answer is
    compared, without the words after it; if those words were not written, all of the text is.
    """
    parts = example.completion
    places = [k for k, part in enumerate(parts) if part.kind == Kind.ANSWER]
    reference = "".join(parts[k].text for k in places).strip()
    text = answer = text.strip()
    if len(places) == 1:
        (place,) = places
        if place > 0:
            answer = _after(parts[place - 1].text, answer)
        if place + 1 < len(parts):
            answer = answer.removesuffix(parts[place + 1].text.strip()).rstrip()
    return Written(example.prompt, reference, text, answer)


def _after(before: str, text: str) -> str:
    """What follows the last words of `before` in a text, by as many of these words as are found there.

    A single ordinary word, such as "is", counts at the start of the text alone: it stands in too many answers.
    """
    words = before.split()[-MARKER:]
    edge = r"(?!\w)" if words and words[-1][-1].isalnum() else ""  # a word is not found inside a longer one
    for first in range(len(words)):
        marker = r"(?<!\S)" + r"\s+".join(map(re.escape, words[first:])) + edge
        found = list(re.finditer(marker, text))
        telling = len(words) - first > 1 or not edge
        if found and (telling or found[0].start() == 0):
            return text[found[-1 if telling else 0].end() :].strip()
    return text


def written_rates(answers: Sequence[Written]) -> dict[str, float]:
    """F1 and normalised match with their intervals, by the names that a row has for them."""
    f1, match = (clustered([float(getattr(answer, name)) for answer in answers]) for name in ("f1", "match"))
    names = ("f1", "f1_low", "f1_high", "normalised_match", "normalised_low", "normalised_high")
    return dict(zip(names, (*f1, *match), strict=True))
