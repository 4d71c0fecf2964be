"""Formats: the words that a translation is written in, from the released code's sentences to a student's few words.

released    full sentences, rules ` A B -> K L;`, a fixed number of thinking tokens
compact     one word for each character, for a tiny model's vocabulary
composite   a student's: a rule is one word `AB>KL`, strings are written bigram by bigram
pairs       the same with two words for a rule, `AB KL`
letters     the same with one word for each character, `A B K L`
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Literal

from openbook.base.errors import InputError, nearest
from openbook.book.text import LAYOUTS, THINK, Kind
from openbook.task.alphabet import alphabets
from openbook.task.text import READ, Slot, Writer

MOST_RULES = 2_000_000  # for which a vocabulary has a word each


@dataclass(frozen=True)
class ReleasedFormat(Writer):
    """The released code's text: full sentences, rules ` A B -> K L;`, `thoughts` thinking tokens for each level."""

    depth: int
    chars: int
    thoughts: int = 40
    think: str = THINK
    layout = LAYOUTS["released"]

    def section_names(self) -> list[str]:
        return [f"Dictionary used from language {i + 1} to language {i + 2}" for i in range(self.depth)]

    def rule(self, rule: str) -> str:
        """A rule `a b -> C D` as the text of a piece."""
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


@dataclass(frozen=True)
class CompactFormat(Writer):
    """Words for a tiny model's word-level vocabulary: a rule is `A B K L` (4 tokens) or `A B -> K L ;` (6 tokens).

    The alphabets differ, so a rule needs no heading to tell its level. A thought is as long as the string it stands
    for, so that thoughts and strings line up.
    """

    depth: int
    chars: int
    tokens_per_rule: Literal[4, 6] = 4
    think: str = THINK
    layout = LAYOUTS["compact"]

    def section_names(self) -> list[str]:
        return [f"level {i + 1}" for i in range(self.depth)]

    def rule(self, rule: str) -> str:
        return rule.replace(" -> ", " ") if self.tokens_per_rule == 4 else f"{rule} ;"

    def preamble(self, task: int) -> str:
        return "<BOOK>"

    def prompt_template(self, task: int) -> list[Slot]:
        return [Slot(Kind.PROMPT, f" {READ}"), Slot(Kind.PROMPT, level=0), Slot(Kind.PROMPT, " <WRITE>")]

    def completion_template(self) -> list[Slot]:
        thoughts = [Slot(Kind.THOUGHT, level=level) for level in range(1, self.depth)]
        return [*thoughts, Slot(Kind.ANSWER, level=self.depth)]

    def vocabulary(self) -> list[str]:
        """Every word this format can write."""
        symbols = [symbol for alphabet in alphabets(self.depth, self.chars) for symbol in alphabet]
        return ["<BOOK>", READ, "<WRITE>", self.think, "->", ";", *symbols]


@dataclass(frozen=True)
class CompositeFormat(Writer):
    """Coarse words for the student: a rule is one word, `AB>KL`, and a string is written bigram by bigram.

    The slots of the answer are the last thought and every answer word but the last, so that each word stands one place
    after the slot that must know it, as next-token prediction wants it. There is no explicit chain of thought.
    """

    depth: int
    chars: int
    think: str = THINK
    layout = LAYOUTS["compact"]
    unit = 2

    def section_names(self) -> list[str]:
        return [f"level {i + 1}" for i in range(self.depth)]

    def rule(self, rule: str) -> str:
        left, right = rule.split(" -> ")
        return f"{left.replace(' ', '')}>{right.replace(' ', '')}"

    def preamble(self, task: int) -> str:
        return "<BOOK>"

    def prompt_template(self, task: int) -> list[Slot]:
        return [Slot(Kind.PROMPT, level=0, unit=self.unit)]

    def completion_template(self) -> list[Slot]:
        thoughts = [Slot(Kind.THOUGHT, level=level, unit=self.unit) for level in range(1, self.depth)]
        return [*thoughts, Slot(Kind.THOUGHT, self.think), Slot(Kind.ANSWER, level=self.depth, unit=self.unit)]

    def vocabulary(self) -> list[str]:
        """Every word in the order of its number: output bigrams, other bigrams, special words, rules."""
        check_vocabulary("composite", self.depth, self.chars)
        bigrams = self._words()
        rules = [f"{x}>{y}" for i in range(self.depth) for x in bigrams[i] for y in bigrams[i + 1]]
        return [*self._unruled(), *rules]

    def _words(self) -> list[list[str]]:
        """The words of strings, alphabet by alphabet."""
        letters_of = alphabets(self.depth, self.chars)
        return [["".join(word) for word in itertools.product(letters, repeat=self.unit)] for letters in letters_of]

    def _unruled(self) -> list[str]:
        """All words but rules: those of the output, of the other alphabets, and the special ones."""
        *others, output = self._words()
        return [*output, *itertools.chain(*others), "<PAD>", "<UNK>", "<BOOK>", self.think]


@dataclass(frozen=True)
class PairsFormat(CompositeFormat):
    """Words for a student that writes: every bigram is one word, a rule is two, `AB KL`, and `<READ>` ends the book."""

    def rule(self, rule: str) -> str:
        return super().rule(rule).replace(">", " ")

    def prompt_template(self, task: int) -> list[Slot]:
        return [Slot(Kind.PROMPT, f" {READ}"), *super().prompt_template(task)]

    def vocabulary(self) -> list[str]:
        """Every word in the order of its number: as above, without rules."""
        return [*self._unruled(), READ]


@dataclass(frozen=True)
class LettersFormat(PairsFormat):
    """Ordinary text for a student that writes: every character is one word, a rule is four, `A B K L`."""

    unit = 1

    def rule(self, rule: str) -> str:
        return rule.replace(" -> ", " ")


Format = ReleasedFormat | CompactFormat | CompositeFormat
FORMATS = ("released", "compact", "composite", "pairs", "letters")
STUDENT_TEXTS = ("composite", "pairs", "letters")  # for a vocabulary made for the task


def check_vocabulary(text: str, depth: int, chars: int) -> None:
    """Refuse alphabets for which there are too few symbols, or too many possible rules to have a word for each."""
    alphabets(depth, chars)
    if text == "composite" and (rules := depth * chars**4) > MOST_RULES:
        raise InputError(
            f"MLT({depth}, {chars}) has {rules:,} possible rules, too many for a word each (at most {MOST_RULES:,}): "
            "use fewer characters, or a text of words, task.text=pairs or letters"
        )


def format_named(name: str, depth: int, chars: int) -> Format:
    """The text format of that name for MLT(depth, chars)."""
    if name == "released":
        return ReleasedFormat(depth, chars)
    if name == "compact":
        return CompactFormat(depth, chars)
    if name == "composite":
        return CompositeFormat(depth, chars)
    if name == "pairs":
        return PairsFormat(depth, chars)
    if name == "letters":
        return LettersFormat(depth, chars)
    raise InputError(f"there is no format '{name}' ({', '.join(FORMATS)}){nearest(name, FORMATS)}")
