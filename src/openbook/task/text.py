"""What the task's text formats are made of: templates with a slot for every string of a translation."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from openbook.base.errors import InputError
from openbook.book.example import Example, Piece, Section
from openbook.book.source import Vocabulary
from openbook.book.text import THINK, Kind, Layout, Part
from openbook.task.alphabet import alphabets

PAD = "*"
READ = "<READ>"  # ends the book: what follows is to be translated

Chain = Literal["silent", "explicit"]
Strings = Sequence[Sequence[str]]  # s_1 .. s_{d+1}, each a list of symbols
Rules = Sequence[Sequence[tuple[str, bool]]]  # of each level, and whether the translation needs them


@dataclass(frozen=True, slots=True)
class Slot:
    """A place in a format's text: fixed words, or the string of a level (each word of it with a blank before it)."""

    kind: Kind
    text: str = ""
    level: int = -1  # 0 is the input, depth the output; -1: fixed words
    width: int = 0  # a thought of this many words, padded; 0: as long as the string


@dataclass(frozen=True)
class Format:
    """A text format: a subclass gives its templates, and the text of an example is the templates filled in."""

    depth: int
    chars: int
    think = THINK  # what stands for a word of thought that is not written out
    layout: ClassVar[Layout]
    unit: ClassVar[int] = 1  # characters in a word of a string: 2 writes a string bigram by bigram
    chains: ClassVar[tuple[Chain, ...]] = ("silent", "explicit")
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

    def thought_slots(self) -> list[Slot]:
        """A slot for every string between input and output."""
        return [Slot(Kind.THOUGHT, level=level) for level in range(1, self.depth)]

    def vocabulary(self) -> Vocabulary | None:
        """The words of the format; None for ordinary text."""
        return None

    def check(self) -> None:
        """Refuse alphabets for which there are too few symbols."""
        alphabets(self.depth, self.chars)

    def words(self) -> list[list[str]]:
        """The words that strings are written with (characters, or bigrams), alphabet by alphabet."""
        letters = alphabets(self.depth, self.chars)
        return [["".join(word) for word in itertools.product(alphabet, repeat=self.unit)] for alphabet in letters]

    def fill(self, slot: Slot, strings: Strings, chain: Chain) -> Part:
        """The part that stands at a slot once the strings are known."""
        if slot.level < 0:
            return Part(slot.kind, slot.text)
        string = strings[slot.level]
        words = ["".join(string[k : k + self.unit]) for k in range(0, len(string), self.unit)]
        if slot.width and len(words) > slot.width:
            raise InputError(f"a string of {len(words)} characters does not fit into {slot.width} thoughts")
        if slot.kind == Kind.THOUGHT and chain == "silent":
            return Part(slot.kind, self.think * (slot.width or len(words)))
        padded = [*words, *[PAD] * (slot.width - len(words))]
        return Part(slot.kind, "".join(f" {word}" for word in padded))

    def prompt(self, task: int, source: Sequence[str]) -> str:
        """The question about one input."""
        return "".join(self.fill(slot, [source], "explicit").text for slot in self.prompt_template(task))

    def completion(self, strings: Strings, chain: Chain = "silent") -> list[Part]:
        """The parts of the completion."""
        return [self.fill(slot, strings, chain) for slot in self.completion_template()]

    def example(self, task: int, strings: Strings, chain: Chain, book: Rules = ()) -> Example:
        """The example of one translation."""
        sections = zip(self.section_names(), book, strict=False)
        return Example(
            prompt=self.prompt(task, strings[0]),
            completion=tuple(self.completion(strings, chain)),
            sections=tuple(Section(name, tuple(Piece(self.rule(r), n) for r, n in rules)) for name, rules in sections),
            preamble=self.preamble(task),
            layout=self.layout,
        )
