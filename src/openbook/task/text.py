"""What the task's text formats are made of: templates with a slot for every string of a translation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from openbook.base.errors import InputError
from openbook.book.source import Vocabulary
from openbook.book.text import Kind, Layout, Part
from openbook.task.alphabet import alphabets

PAD = "*"
READ = "<READ>"  # ends the book: what follows is to be translated

Chain = Literal["silent", "explicit"]


@dataclass(frozen=True, slots=True)
class Slot:
    """A place in a format's text: fixed words, or the string of a level (each symbol with a blank before it)."""

    kind: Kind
    text: str = ""
    level: int = -1  # 0 is the input, depth the output; -1: fixed words
    width: int = 0  # a thought of this many words, padded; 0: as long as the string
    unit: int = 1  # characters in a word: 2 writes a string bigram by bigram

    def fill(self, strings: Sequence[Sequence[str]], chain: Chain, think: str) -> Part:
        """The part that stands here once the strings s_1 .. s_{d+1} are known."""
        if self.level < 0:
            return Part(self.kind, self.text)
        string = strings[self.level]
        words = ["".join(string[k : k + self.unit]) for k in range(0, len(string), self.unit)]
        if self.width and len(words) > self.width:
            raise InputError(f"a string of {len(words)} characters does not fit into {self.width} thoughts")
        if self.kind == Kind.THOUGHT and chain == "silent":
            return Part(self.kind, think * (self.width or len(words)))
        padded = [*words, *[PAD] * (self.width - len(words))]
        return Part(self.kind, "".join(f" {word}" for word in padded))


class Format:
    """A text format. It says its templates; prompt and completion are the templates filled in."""

    depth: int
    chars: int
    think: str
    layout: Layout
    unit = 1  # characters in a word of a string
    chains: tuple[Chain, ...] = ("silent", "explicit")
    family = "llama"  # of the models that are made for this format
    writable = True  # whether rules are made of words that a completion can have
    complete = False  # whether models have no other words than those of the format

    def section_names(self) -> list[str]:
        return [f"level {i + 1}" for i in range(self.depth)]

    def rule(self, rule: str) -> str:
        """A rule `a b -> C D` as the text of a piece."""
        raise NotImplementedError

    def preamble(self, task: int) -> str:
        """What stands before the book."""
        return "<BOOK>"

    def prompt_template(self, task: int) -> list[Slot]:
        raise NotImplementedError

    def completion_template(self) -> list[Slot]:
        raise NotImplementedError

    def vocabulary(self) -> Vocabulary | None:
        """The words of the format; None for ordinary text."""
        return None

    def check(self) -> None:
        """Refuse alphabets for which there are too few symbols."""
        alphabets(self.depth, self.chars)

    def prompt(self, task: int, source: Sequence[str]) -> str:
        """The question about one input."""
        return "".join(slot.fill([source], "explicit", self.think).text for slot in self.prompt_template(task))

    def completion(self, strings: Sequence[Sequence[str]], chain: Chain = "silent") -> list[Part]:
        """The parts of the completion: `strings` are s_1 .. s_{d+1} as symbols."""
        return [slot.fill(strings, chain, self.think) for slot in self.completion_template()]
