"""The text formats of a translation, one class each: templates with a slot for every string.

released    full sentences, rules ` A B -> K L;`, a fixed number of thinking tokens
compact     one word for each character, for a tiny model's vocabulary
composite   for the student: a rule is one word `AB>KL`, strings are written bigram by bigram
pairs       the same with two words for a rule, `AB KL`
letters     the same with one word for each character, `A B K L`
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from openbook.base.errors import InputError
from openbook.base.registry import Registry
from openbook.book.source import Vocabulary
from openbook.book.text import LAYOUTS, THINK, Example, Kind, Layout, Part, Piece, Section
from openbook.task.alphabet import alphabets

PAD = "*"
READ = "<READ>"  # ends the book: what follows is to be translated
MOST_RULES = 2_000_000  # for which a vocabulary has a word each

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
    think: str = field(default=THINK, kw_only=True)  # what stands for a word of thought that is not written out
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


FORMATS: Registry[type[Format]] = Registry("text format")


@FORMATS.register("released")
@dataclass(frozen=True)
class ReleasedFormat(Format):
    """The released code's text: full sentences, rules ` A B -> K L;`, `thoughts` thinking tokens for each level."""

    thoughts: int = 40
    layout = LAYOUTS["released"]

    def section_names(self) -> list[str]:
        return [f"Dictionary used from language {i + 1} to language {i + 2}" for i in range(self.depth)]

    def rule(self, rule: str) -> str:
        return f"{rule};"

    def preamble(self, task: int) -> str:
        return (
            f"You are performing a special translation task called language_task_{task}. "
            "The subset of dictionaries used are as follows:"
        )

    def prompt_template(self, task: int) -> list[Slot]:
        last = self.depth + 1
        form = " ".join(f"Sequence in language {i}: [the sequence in language {i}];" for i in range(1, last + 1))
        asked = (
            f" Now please perform language_task_{task} translation from the following sequence in language 1 to "
            f'language {last}. Do not use code! You must only reponse in the form: "{form}". '
            f"The sequence you need to translate from language 1 is:"
        )
        return [Slot(Kind.PROMPT, asked), Slot(Kind.PROMPT, level=0), Slot(Kind.PROMPT, ".")]

    def completion_template(self) -> list[Slot]:
        slots = [Slot(Kind.WORDS, "The translation result is: Sequence in language 1:"), Slot(Kind.WORDS, level=0)]
        for level in range(1, self.depth):
            slots.append(Slot(Kind.WORDS, f"; Sequence in language {level + 1}:"))
            slots.append(Slot(Kind.THOUGHT, level=level, width=self.thoughts))
        slots.append(Slot(Kind.WORDS, f"; Sequence in language {self.depth + 1}:"))
        return [*slots, Slot(Kind.ANSWER, level=self.depth), Slot(Kind.WORDS, ";")]


@FORMATS.register("compact")
@dataclass(frozen=True)
class CompactFormat(Format):
    """Words for a tiny model's word-level vocabulary: a rule is `A B K L` (4 tokens) or `A B -> K L ;` (6 tokens).

    The alphabets differ, so a rule needs no heading to tell its level. A thought is as long as the string it stands
    for, so that thoughts and strings line up.
    """

    tokens_per_rule: Literal[4, 6] = 4
    layout = LAYOUTS["compact"]

    def rule(self, rule: str) -> str:
        return rule.replace(" -> ", " ") if self.tokens_per_rule == 4 else f"{rule} ;"

    def prompt_template(self, task: int) -> list[Slot]:
        return [Slot(Kind.PROMPT, f" {READ}"), Slot(Kind.PROMPT, level=0), Slot(Kind.PROMPT, " <WRITE>")]

    def completion_template(self) -> list[Slot]:
        return [*self.thought_slots(), Slot(Kind.ANSWER, level=self.depth)]

    def vocabulary(self) -> Vocabulary:
        """Every word this format can write."""
        return Vocabulary(["<BOOK>", READ, "<WRITE>", "->", ";", *itertools.chain(*self.words()), PAD])


@FORMATS.register("composite")
class CompositeFormat(Format):
    """Coarse words for the student: a rule is one word, `AB>KL`, and a string is written bigram by bigram.

    The slots of the answer are the last thought and every answer word but the last, so that each word stands one place
    after the slot that must know it, as next-token prediction wants it. There is no explicit chain of thought.
    """

    layout = LAYOUTS["compact"]
    unit = 2
    chains = ("silent",)
    family = "openbook_student"
    writable = False
    complete = True

    def rule(self, rule: str) -> str:
        left, right = rule.split(" -> ")
        return f"{left.replace(' ', '')}>{right.replace(' ', '')}"

    def prompt_template(self, task: int) -> list[Slot]:
        return [Slot(Kind.PROMPT, level=0)]

    def completion_template(self) -> list[Slot]:
        return [*self.thought_slots(), Slot(Kind.THOUGHT, self.think), Slot(Kind.ANSWER, level=self.depth)]

    def vocabulary(self) -> Vocabulary:
        """Every word in the order of its number: of outputs, of other strings, special words, rules of one word."""
        self.check()
        *others, output = levels = self.words()
        special = ["<PAD>", "<UNK>", "<BOOK>", self.think]
        rules = (f"{x}>{y}" for source, target in itertools.pairwise(levels) for x in source for y in target)
        last = [READ] if self.writable else rules
        return Vocabulary([*output, *itertools.chain(*others), *special, *last], complete=True)

    def check(self) -> None:
        """Refuse a task with too many possible rules to have a word for each."""
        super().check()
        if not self.writable and (rules := self.depth * self.chars**4) > MOST_RULES:
            raise InputError(
                f"MLT({self.depth}, {self.chars}) has {rules:,} possible rules, too many for a word each (at most "
                f"{MOST_RULES:,}): use fewer characters, or set task.text to pairs or letters"
            )


@FORMATS.register("pairs")
class PairsFormat(CompositeFormat):
    """Words for a student that writes: every bigram is one word, a rule is two, `AB KL`, and `<READ>` ends the book."""

    writable = True

    def rule(self, rule: str) -> str:
        return super().rule(rule).replace(">", " ")

    def prompt_template(self, task: int) -> list[Slot]:
        return [Slot(Kind.PROMPT, f" {READ}"), *super().prompt_template(task)]


@FORMATS.register("letters")
class LettersFormat(PairsFormat):
    """Ordinary text for a student that writes: every character is one word, a rule is four, `A B K L`."""

    unit = 1

    def rule(self, rule: str) -> str:
        return rule.replace(" -> ", " ")
