"""An example as a person reads it: a prompt, a completion, and a book of droppable pieces in sections.

Its text is made of parts, each with what it is for, in this order:

    preamble  You are performing ... The subset of dictionaries used are as follows:
    heading   Dictionary used from language 1 to language 2:
    piece      A B -> K L;                        (any of them may be dropped)
    prompt     Now please perform ... The sequence you need to translate from language 1 is: B H C A.
    words     The translation result is: Sequence in language 1: B H C A; Sequence in language 2:
    thought   <THINK><THINK><THINK><THINK>        (or the string itself: an explicit chain of thought)
    words     ; Sequence in language 3:
    answer     p q s r
    words     ;

Because parts stay apart, later code knows which characters carry loss, which may be dropped and which are examined.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from openbook.base.registry import Registry

THINK = "<THINK>"  # stands for a word of thought that is not written out


class Kind(StrEnum):
    """What a stretch of text is for."""

    PREAMBLE = "preamble"
    HEADING = "heading"
    PIECE = "piece"
    PROMPT = "prompt"
    WORDS = "words"  # from here on: the completion, which carries the loss
    THOUGHT = "thought"
    ANSWER = "answer"


COMPLETION_KINDS = frozenset({Kind.WORDS, Kind.THOUGHT, Kind.ANSWER})


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of text; a piece also knows its section and its number there."""

    kind: Kind
    text: str
    section: int = -1
    piece: int = -1


@dataclass(frozen=True, slots=True)
class Rendered:
    """A whole text as parts, none of them empty."""

    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts)

    def of(self, *kinds: Kind) -> str:
        """The characters of the given kinds, joined."""
        return "".join(part.text for part in self.parts if part.kind in kinds)


def render(parts: Iterable[Part]) -> Rendered:
    """Join parts into one text; empty parts vanish."""
    return Rendered(tuple(part for part in parts if part.text))


@dataclass(frozen=True)
class Layout:
    """How a book is set: its headings, its pieces, and whether the heading of an empty section stays."""

    name: str
    heading: str  # with {name}; not used for a section without a name
    piece: str  # with {text}
    after: str = ""  # between the book and the prompt, if there is any book
    keep_headings: bool = False

    def set_heading(self, name: str) -> str:
        return self.heading.replace("{name}", name) if name else ""

    def set_piece(self, text: str) -> str:
        return self.piece.replace("{text}", text)

    def parts(self, sections: Sequence[tuple[str, Sequence[tuple[int, str]]]]) -> list[Part]:
        """The parts of a book: sections are (name, [(number, text)]) of the open pieces."""
        parts: list[Part] = []
        for s, (name, pieces) in enumerate(sections):
            if name and (pieces or self.keep_headings):
                parts.append(Part(Kind.HEADING, self.set_heading(name), s))
            parts += [Part(Kind.PIECE, self.set_piece(text), s, k) for k, text in pieces]
        if parts and self.after:
            parts.append(Part(Kind.HEADING, self.after))
        return parts


LAYOUTS: Registry[Layout] = Registry("layout")
for _layout in (
    Layout("plain", heading="{name}:\n", piece="{text}\n", after="\n"),
    Layout("released", heading="\n{name}:\n", piece=" {text}", keep_headings=True),
    Layout("compact", heading="", piece=" {text}"),
):
    LAYOUTS.register(_layout.name)(_layout)


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
