"""Text of an example: parts, each with what it is for, and how a book is set.

A text is made of parts, in this order:

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

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
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
