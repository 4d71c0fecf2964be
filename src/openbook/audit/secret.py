"""Secrets: the pieces of the book, each split into what an attacker knows and what there is to guess.

    rule of the task     known `a b`, secret `C D`, candidates: all n² bigrams of the next alphabet
    piece of own data    known `Vellmora is ruled by`, secret ` Queen Ilva.`, candidates: the secrets of all pieces
    canary               known `The code of Umbra is`, secret ` 4 1 7 7`, candidates: the codes it was drawn from

For rules and canaries the truth was drawn uniformly from the candidates, so every candidate is an exchangeable decoy:
a model that never met the text cannot prefer the truth. For other pieces nobody tossed that coin, and only the
comparison with models that never met the text tells memory from plausibility.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from openbook.base.errors import InputError
from openbook.book.example import Example
from openbook.book.jsonl import ListSource
from openbook.book.text import Kind, Layout
from openbook.task.source import Translations
from openbook.training.chat import History

Origin = Literal["task", "data", "canaries"]


@dataclass(frozen=True)
class Secret:
    """One piece: `known` + `truth` + `tail` is its text in the book; `candidates` holds the truth and its rivals."""

    group: str  # the section it stands in
    known: str
    truth: str
    candidates: tuple[str, ...]
    tail: str = ""

    @functools.cached_property
    def index(self) -> int:
        """The place of the truth among the candidates."""
        return self.candidates.index(self.truth)

    @property
    def text(self) -> str:
        return self.known + self.truth + self.tail


@dataclass(frozen=True)
class Secrets:
    """All secrets of a run, and how the book is set around them."""

    items: tuple[Secret, ...]
    origin: Origin
    opening: str = ""  # what stands before the book
    headings: tuple[tuple[str, str], ...] = ()  # the heading of each group
    documents: tuple[tuple[str, ...], ...] = ()  # groups that stand in one book, in order
    bijective: bool = False  # no two secrets with the same candidates are the same, so those shown can be ruled out

    def __len__(self) -> int:
        return len(self.items)

    @property
    def exchangeable(self) -> bool:
        """Whether the truth was drawn uniformly from the candidates."""
        return self.origin != "data"

    @functools.cached_property
    def key(self) -> int:
        """Tells sets of secrets apart."""
        return hash(tuple((item.group, item.known, item.truth, len(item.candidates)) for item in self.items))

    @functools.cached_property
    def groups(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(item.group for item in self.items))

    @functools.cached_property
    def group_s(self) -> np.ndarray:
        """The number of each secret's group: [S]."""
        number = {group: k for k, group in enumerate(self.groups)}
        return np.array([number[item.group] for item in self.items])

    @functools.cached_property
    def chance_s(self) -> np.ndarray:
        """The chance of a uniform guess among the candidates: [S]."""
        return np.array([1 / len(item.candidates) for item in self.items])

    def heading(self, group: str) -> str:
        return dict(self.headings).get(group, "")

    def template(self, secret: Secret) -> str:
        """What stands before a secret when its piece is the first of the book."""
        return self.opening + self.heading(secret.group) + secret.known

    def subset(self, keep: Sequence[int]) -> Secrets:
        """These secrets alone, with their candidates as they were."""
        return Secrets(
            tuple(self.items[k] for k in keep),
            self.origin,
            self.opening,
            self.headings,
            self.documents,
            self.bijective,
        )


def checked(secrets: Secrets) -> Secrets:
    """Refuse an audit without anything to look for or to tell apart."""
    if not secrets.items:
        raise InputError("no secrets: the data have no privileged_context, so there is nothing to look for")
    if (lonely := next((s for s in secrets.items if len(s.candidates) < 2), None)) is not None:
        raise InputError(
            f"'{lonely.text.strip()}' has no rival: an audit compares a secret with at least one other candidate, so "
            "give the book two pieces or more, or plant canaries (openbook audit plant)"
        )
    return secrets


def task_secrets(source: Translations, frame: str = "") -> Secrets:
    """Every rule of the one codebook; `frame` is what a chat template puts before the text."""
    if source.codebook is None:
        raise InputError(
            "every example of this run has a codebook of its own (task.codebook is 'fresh'): no secret was kept, so "
            "there is nothing to audit"
        )
    if source.text == "composite":
        raise InputError("a composite student neither reads nor writes rules as text: see `openbook audit --help`")
    layout, fmt = source.format.layout, source.format
    letters, items = source.codebook.alphabets(), []
    names = fmt.section_names()
    for level, rules in enumerate(source.codebook.rules()):
        target = letters[level + 1]
        between = " " if source.unit == 1 else ""
        candidates = tuple(f" {c}{between}{d}" for c in target for d in target)
        for rule in rules:
            text = layout.piece.replace("{text}", fmt.rule(rule))
            truth = " " + between.join(rule.split(" -> ")[1].split())
            cut = text.rindex(truth)
            items.append(Secret(names[level], text[:cut], truth, candidates, text[cut + len(truth) :]))
    headings = tuple((name, layout.heading.replace("{name}", name)) for name in names)
    return checked(Secrets(tuple(items), "task", frame + fmt.preamble(0), headings, (tuple(names),), True))


def data_secrets(source: ListSource, frame: str = "") -> Secrets:
    """Every different piece of a user's books.

    An attacker knows the piece up to the answer that depends on it; where the answer is not copied from the piece, up
    to the middle of its words. What would make another true piece of it is no rival.
    """
    splits: dict[str, tuple[str, str, Layout]] = {}
    sections: dict[str, str] = {}
    by_answer: set[str] = set()
    for index in range(len(source)):
        example = source.example(index)
        answer = _answer(example)
        for section in example.sections:
            for piece in section.pieces:
                cut = _cut_before(piece.text, answer) if piece.needed else None
                if cut is not None and piece.text not in by_answer:
                    by_answer.add(piece.text)
                    splits[piece.text] = (piece.text[:cut], piece.text[cut:], example.layout)
                elif piece.text not in splits and (cut := _middle(piece.text)) is not None:
                    splits[piece.text] = (piece.text[:cut], piece.text[cut:], example.layout)
                sections.setdefault(piece.text, section.name)
    rivals = tuple(dict.fromkeys(truth for _, truth, _ in splits.values()))
    items, headings = [], {}
    candidates = {layout: tuple(rival + _after(layout) for rival in rivals) for _, _, layout in splits.values()}
    for text, (known, truth, layout) in splits.items():
        group = sections[text]
        before = layout.piece.partition("{text}")[0]
        options = candidates[layout]
        if true := {rival for rival in rivals if rival != truth and known + rival in splits}:
            options = tuple(rival + _after(layout) for rival in rivals if rival not in true)
        items.append(Secret(group, before + known, truth + _after(layout), options))
        headings[group] = layout.heading.replace("{name}", group) if group else ""
    documents = tuple((group,) for group in headings)
    full = all(len(item.candidates) == len(rivals) for item in items)  # or there would be less to rule out
    different = full and len({item.truth for item in items}) == len(items)
    return checked(Secrets(tuple(items), "data", frame, tuple(headings.items()), documents, different))


def usual_setting(source: ListSource) -> tuple[History | None, str]:
    """What was said before and the preamble, as most records with a book have them."""
    examples = map(source.example, range(len(source)))
    found = Counter((example.history, example.preamble) for example in examples if example.sections)
    return found.most_common(1)[0][0] if found else (None, "")


def _after(layout: Layout) -> str:
    """What a layout puts behind a piece."""
    return layout.piece.partition("{text}")[2]


def _answer(example: Example) -> str:
    return "".join(part.text for part in example.completion if part.kind == Kind.ANSWER).strip()


def _cut_before(text: str, answer: str) -> int | None:
    """Where the answer begins in a piece, with the blank before it; None if it does not occur after a word."""
    place = text.find(f" {answer}") if answer else -1
    return place if place > 0 else None


def _middle(text: str) -> int | None:
    """The blank before the second half of the words; None for a single word, which leaves nothing to guess from."""
    blanks = [k for k, character in enumerate(text) if character == " " and 0 < k < len(text) - 1]
    return blanks[len(blanks) // 2] if blanks else None
