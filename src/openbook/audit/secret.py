"""Secrets: the pieces of the book, each split into what an attacker knows and what there is to guess.

    rule of the task     known `a b`, secret `C D`, candidates: all n² bigrams of the next alphabet
    piece of own data    known `Vellmora is ruled by`, secret ` Queen Ilva.`, candidates: the secrets of all pieces
    canary               known `The code of Umbra is`, secret ` 4 1 7 7`, candidates: the codes it was drawn from

For rules and canaries the truth was drawn uniformly from the candidates, so its rivals are exchangeable with it: a
model that never met the text cannot prefer the truth. The pieces of own data were not drawn by lot, and only the
comparison with models that never met the text tells memory from plausibility.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from openbook.base.errors import InputError
from openbook.book.example import Example, Piece
from openbook.book.source import Source
from openbook.book.text import Kind, Layout
from openbook.task.source import Translations
from openbook.training.chat import History

Origin = Literal["task", "data", "canaries"]
CutPiece = tuple[str, str, tuple[str, ...]]  # known, truth, candidates
Places = dict[str, tuple[str, Layout]]  # the section and the layout in which each piece stands


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
    written: bool = True  # the model can write them, so that they have a likelihood

    def __len__(self) -> int:
        return len(self.items)

    @property
    def exchangeable(self) -> bool:
        """Whether the truth was drawn uniformly from the candidates."""
        return self.origin != "data"

    @functools.cached_property
    def key(self) -> int:
        """A number that differs between different sets of secrets."""
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
        return replace(self, items=tuple(self.items[k] for k in keep))


def checked(secrets: Secrets) -> Secrets:
    """Refuse an audit without anything to look for or to tell apart."""
    if not secrets.items:
        raise InputError(
            "no secrets: the data have no privileged_context, so there is nothing to look for; audit a run whose "
            "records have one"
        )
    if (lonely := next((s for s in secrets.items if len(s.candidates) < 2), None)) is not None:
        raise InputError(
            f"'{lonely.text.strip()}' has no rival: an audit compares a secret with at least one other candidate, so "
            "give the book two pieces or more, or plant canaries (openbook audit plant)"
        )
    return secrets


def task_secrets(source: Translations, frame: str = "", written: bool = True) -> Secrets:
    """Every rule of the one codebook; `frame` is what a chat template puts before the text."""
    if source.codebook is None:
        raise InputError(
            "every example of this run has a codebook of its own (task.codebook is 'fresh'): no secret was kept, so "
            "there is nothing to audit. Audit a run with task.codebook=0 or another number"
        )
    layout, fmt = source.format.layout, source.format
    letters, names, items = source.codebook.alphabets(), fmt.section_names(), []
    between = " " if source.unit == 1 else ""
    for level, rules in enumerate(source.codebook.rules()):
        candidates: tuple[str, ...] = ()
        for rule in rules:
            text = layout.piece.replace("{text}", fmt.rule(rule))
            right = between.join(rule.split(" -> ")[1].split())
            before, _, tail = text.rpartition(right)
            known = before.removesuffix(" ")
            blank = before[len(known) :]  # none where a rule is one word
            candidates = candidates or tuple(
                f"{blank}{c}{between}{d}" for c in letters[level + 1] for d in letters[level + 1]
            )
            items.append(Secret(names[level], known, blank + right, candidates, tail))
    headings = tuple((name, layout.heading.replace("{name}", name)) for name in names)
    opening = frame + fmt.preamble(0)
    return checked(Secrets(tuple(items), "task", opening, headings, (tuple(names),), True, written))


def data_secrets(source: Source, opening: str = "") -> Secrets:
    """Every different piece of a user's books.

    An attacker knows the piece up to the answer that depends on it; where the answer is not copied from the piece, up
    to the middle of its words. What would make another true piece of it is no rival.
    """
    places = pieces_in_place(source)
    cuts = {text: cut for text in places if (cut := _middle(text)) is not None}
    before_answer = dict[str, int]()
    for _, example, _, piece in all_pieces(source):
        if piece.needed and (cut := _cut_before(piece.text, answer_of(example))) is not None:
            before_answer.setdefault(piece.text, cut)
    cuts |= before_answer
    rivals = tuple(dict.fromkeys(text[cut:] for text, cut in cuts.items()))
    pieces: list[CutPiece] = []
    for text, cut in cuts.items():
        known, truth = text[:cut], text[cut:]
        true = {rival for rival in rivals if rival != truth and known + rival in cuts}
        candidates = tuple(rival for rival in rivals if rival not in true) if true else rivals
        pieces.append((known, truth, candidates))
    secrets = secrets_in_records(pieces, places, "data", opening)
    full = all(len(item.candidates) == len(rivals) for item in secrets.items)  # or there would be less to rule out
    return replace(secrets, bijective=full and len({item.truth for item in secrets.items}) == len(secrets))


def secrets_in_records(pieces: Sequence[CutPiece], places: Places, origin: Origin, opening: str) -> Secrets:
    """Pieces of a user's records as their layouts set them; each section stands in a book of its own."""
    items, headings, tailed = [], {}, dict[tuple[int, str], tuple[str, ...]]()
    for known, truth, candidates in pieces:
        section, layout = places[known + truth]
        before, _, after = layout.piece.partition("{text}")
        key = id(candidates), after  # many pieces share one tuple of candidates, as their secrets should
        if key not in tailed:
            tailed[key] = tuple(candidate + after for candidate in candidates)
        items.append(Secret(section, before + known, truth + after, tailed[key]))
        headings[section] = layout.heading.replace("{name}", section) if section else ""
    documents = tuple((section,) for section in headings)
    return checked(Secrets(tuple(items), origin, opening, tuple(headings.items()), documents))


def usual_setting(source: Source) -> tuple[History | None, str]:
    """The conversation before the question and the preamble, as most records with a book have them."""
    examples = map(source.example, range(len(source)))
    settings = Counter((example.history, example.preamble) for example in examples if example.sections)
    return settings.most_common(1)[0][0] if settings else (None, "")


def all_pieces(source: Source) -> Iterator[tuple[int, Example, str, Piece]]:
    """Every piece of every example, with the number of the example and the name of the section."""
    for index in range(len(source)):
        example = source.example(index)
        for section in example.sections:
            for piece in section.pieces:
                yield index, example, section.name, piece


def pieces_in_place(source: Source) -> Places:
    """Every different piece, and where it stands first."""
    places: Places = {}
    for _, example, section, piece in all_pieces(source):
        places.setdefault(piece.text, (section, example.layout))
    return places


def answer_of(example: Example) -> str:
    return "".join(part.text for part in example.completion if part.kind == Kind.ANSWER).strip()


def _cut_before(text: str, answer: str) -> int | None:
    """Where the answer begins in a piece, with the blank before it; None if it does not occur after a word."""
    place = text.find(f" {answer}") if answer else -1
    return place if place > 0 else None


def _middle(text: str) -> int | None:
    """The blank before the second half of the words; None for a single word, which leaves nothing to guess from."""
    blanks = [k for k, character in enumerate(text) if character == " " and 0 < k < len(text) - 1]
    return blanks[len(blanks) // 2] if blanks else None
