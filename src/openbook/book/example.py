"""An example as a person reads it: a prompt, a completion, and a book of droppable pieces in sections."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from openbook.book.text import LAYOUTS, THINK, Kind, Layout, Part, Rendered, render


@dataclass(frozen=True, slots=True)
class Piece:
    """A droppable piece of the book; `needed` says whether this example's answer depends on it."""

    text: str
    needed: bool = True


@dataclass(frozen=True, slots=True)
class Section:
    """A named run of pieces: a phrasebook, a chapter, a list of facts."""

    name: str
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Example:
    """One thing to learn: what is asked, what is answered, and the book that helps."""

    prompt: str
    completion: tuple[Part, ...]
    sections: tuple[Section, ...] = ()
    preamble: str = ""
    layout: Layout = LAYOUTS["plain"]
    history: tuple[tuple[str, str], ...] | None = None  # of a conversation: its earlier messages, (role, content)

    def parts(self, opened: Sequence[Sequence[int]] | None = None) -> list[Part]:
        """All parts with the given pieces open, in the given order (all of them, if none are named)."""
        if opened is None:
            opened = [range(len(section.pieces)) for section in self.sections]
        book = [
            (section.name, [(k, section.pieces[k].text) for k in numbers])
            for section, numbers in zip(self.sections, opened, strict=True)
        ]
        return [
            Part(Kind.PREAMBLE, self.preamble),
            *self.layout.parts(book),
            Part(Kind.PROMPT, self.prompt),
            *self.completion,
        ]

    def render(self, opened: Sequence[Sequence[int]] | None = None) -> Rendered:
        return render(self.parts(opened))

    def silenced(self, rate: float = 1.0, think: str = THINK) -> Example:
        """The words of its thoughts replaced by thinking tokens, the first `rate` of them."""
        words = [len(thought_words(p.text, think=think)) if p.kind == Kind.THOUGHT else 0 for p in self.completion]
        left = int(rate * sum(words) + 1e-9)
        parts = []
        for part, count in zip(self.completion, words, strict=True):
            quiet = min(left, count)
            left -= quiet
            parts.append(replace(part, text="".join(thought_words(part.text, quiet, think))) if quiet else part)
        return replace(self, completion=tuple(parts))


def thought_words(text: str, quiet: int = 0, think: str = THINK) -> list[str]:
    """A thought as words with the blanks around them (joined, they give it back); the first are thinking tokens.

    >>> thought_words(" A B", quiet=1)
    ['<THINK>', ' B']
    """
    if not text.replace(think, ""):  # already silent
        return [think] * text.count(think)
    words = re.findall(r"\s*\S+(?:\s+$)?", text) or [text]
    return [think] * quiet + words[quiet:]
