"""Text: how a translation is written down, with a record of what every character is for.

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

`render` joins parts and keeps their spans, so that later code knows which characters carry loss, which may be dropped
and which are examined. Two formats share it: the released code's, and a compact one for tiny word-level models.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from openbook.errors import InputError, nearest
from openbook.task.alphabet import alphabets

THINK = "<THINK>"
PAD = "*"
READ = "<READ>"  # ends the book: what follows is to be translated


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
class Span:
    """Where a part stands in the rendered text: text[start:end]."""

    start: int
    end: int
    kind: Kind
    section: int = -1
    piece: int = -1


@dataclass(frozen=True, slots=True)
class Rendered:
    """A text and its spans, which cover it without gaps or overlaps."""

    text: str
    spans: tuple[Span, ...]

    def of(self, *kinds: Kind) -> str:
        """The characters of the given kinds, joined."""
        return "".join(self.text[span.start : span.end] for span in self.spans if span.kind in kinds)


def render(parts: Iterable[Part]) -> Rendered:
    """Join parts into one text with spans; empty parts vanish."""
    texts: list[str] = []
    spans: list[Span] = []
    position = 0
    for part in parts:
        if part.text:
            end = position + len(part.text)
            spans.append(Span(position, end, part.kind, part.section, part.piece))
            texts.append(part.text)
            position = end
    return Rendered("".join(texts), tuple(spans))


@dataclass(frozen=True)
class Layout:
    """How a book is set: its headings, its pieces, and whether the heading of an empty section stays."""

    name: str
    heading: str  # with {name}; not used for a section without a name
    piece: str  # with {text}
    after: str = ""  # between the book and the prompt, if there is any book
    keep_headings: bool = False

    def parts(self, sections: Sequence[tuple[str, Sequence[tuple[int, str]]]]) -> list[Part]:
        """The parts of a book: sections are (name, [(number, text)]) of the open pieces."""
        parts: list[Part] = []
        for s, (name, pieces) in enumerate(sections):
            if name and (pieces or self.keep_headings):
                parts.append(Part(Kind.HEADING, self.heading.replace("{name}", name), s))
            parts += [Part(Kind.PIECE, self.piece.replace("{text}", text), s, k) for k, text in pieces]
        if parts and self.after:
            parts.append(Part(Kind.HEADING, self.after))
        return parts


LAYOUTS = {
    layout.name: layout
    for layout in (
        Layout("plain", heading="{name}:\n", piece="{text}\n", after="\n"),
        Layout("released", heading="\n{name}:\n", piece=" {text}", keep_headings=True),
        Layout("compact", heading="", piece=" {text}"),
    )
}


def layout_named(name: str) -> Layout:
    if name not in LAYOUTS:
        raise InputError(f"there is no layout '{name}' ({', '.join(LAYOUTS)}){nearest(name, LAYOUTS)}")
    return LAYOUTS[name]


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


class _Writer:
    """What the formats share: their text is their templates, filled in."""

    think: str
    unit = 1  # characters in a word of a string

    def prompt_template(self, task: int) -> list[Slot]:
        raise NotImplementedError

    def completion_template(self) -> list[Slot]:
        raise NotImplementedError

    def prompt(self, task: int, source: Sequence[str]) -> str:
        """The question about one input."""
        return "".join(slot.fill([source], "explicit", self.think).text for slot in self.prompt_template(task))

    def completion(self, strings: Sequence[Sequence[str]], chain: Chain = "silent") -> list[Part]:
        """The parts of the completion: `strings` are s_1 .. s_{d+1} as symbols."""
        return [slot.fill(strings, chain, self.think) for slot in self.completion_template()]


@dataclass(frozen=True)
class ReleasedFormat(_Writer):
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
class CompactFormat(_Writer):
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
class CompositeFormat(_Writer):
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
