"""Datasets: which samples there are, and what the record of one says.

A record is one line of JSON:

    prompt              Now please perform language_task_0 translation ... is: B H C A.
    completion          The translation result is: Sequence in language 1: B H C A; ...
    privileged_context  {"Dictionary used from language 1 to language 2": [{"text": "A B -> K L;", "needed": true}]}
    preamble            the text before the book
    layout              how the book is set: the name of a layout of `openbook.book.text`
    answer              the part of the completion that is examined (its last occurrence)
    thoughts            with an explicit chain of thought: the parts of the completion that thinking tokens may replace

The book of a sample holds, for each level, every rule that its translation uses and a random share of the others, in
random order. Sample i is a pure function of (specification, i). `record` is slow and obvious; `openbook.task.encoder`
writes the same bytes fast, and a test holds them equal.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from openbook.base.errors import InputError
from openbook.base.randomness import words
from openbook.book.record import record_from_example
from openbook.book.text import Example
from openbook.task.formats import Chain, Format, ReleasedFormat
from openbook.task.inputs import check_lengths, random_inputs
from openbook.task.phrasebook import Codebook
from openbook.task.translate import output, translate


@dataclass(frozen=True)
class DatasetSpec:
    """What is written: samples `start .. start+samples-1` under one codebook, or each under its own (None)."""

    text: Format
    samples: int
    codebook: Codebook | None = None
    seed: int = 0
    start: int = 0
    lengths: tuple[int, int] = (20, 40)
    unused: float = 0.25  # the share of unused rules in the book: 0 = only used rules, 1 = the whole phrasebook
    chain: Chain = "silent"

    def __post_init__(self) -> None:
        if self.samples < 1:
            raise InputError(f"samples is {self.samples}: ask for at least one")
        if self.start < 0:
            raise InputError(f"start is {self.start}: samples are numbered from 0")
        if not 0 <= self.unused <= 1:
            raise InputError(f"unused is {self.unused}: the share of unused rules is between 0 and 1")
        check_lengths(*self.lengths)
        if isinstance(self.text, ReleasedFormat) and self.lengths[1] > self.text.thoughts:
            raise InputError(
                f"strings of {self.lengths[1]} characters do not fit into {self.text.thoughts} thoughts: "
                f"use lengths up to {self.text.thoughts} or at least {self.lengths[1]} thoughts"
            )
        if self.codebook and (self.codebook.depth, self.codebook.chars) != (self.depth, self.chars):
            raise InputError(
                f"the codebook is for MLT({self.codebook.depth}, {self.codebook.chars}), "
                f"but the text for MLT({self.depth}, {self.chars}): use a codebook of that size"
            )
        self.text.check()

    @property
    def depth(self) -> int:
        return self.text.depth

    @property
    def chars(self) -> int:
        return self.text.chars

    def codebook_number(self, index: int) -> int:
        """Which codebook of the seed sample i has: 0 is *the* codebook, so fresh ones begin at 1 and never meet it."""
        return 0 if self.codebook else index + 1

    def task_number(self, index: int) -> int:
        """The number in `language_task_{k}`: 0 for one codebook, else the running number of the sample."""
        return 0 if self.codebook else index

    def describe(self) -> dict[str, Any]:
        """Everything the records depend on, as plain JSON: two datasets with equal descriptions are equal."""
        tables = self.codebook and hashlib.sha256(self.codebook.tables.tobytes()).hexdigest()[:16]
        return {
            "record_version": 1,
            "format": self.text.layout.name,
            **asdict(self.text),
            "samples": self.samples,
            "start": self.start,
            "seed": self.seed,
            "lengths": list(self.lengths),
            "unused": self.unused,
            "chain": self.chain,
            "codebook": tables or "a fresh one for each sample",
        }


def share_of(count: int, share: float) -> int:
    """floor(share · count), with room for rounding: 0.7 of 10 is 7."""
    return int(share * count + 1e-9)


def shown_rules(used: Sequence[bool], keys: Sequence[int], unused: float) -> list[int]:
    """The rules of one level that the book shows, in their order, from one random word for each rule.

    The high half of a rule's word decides whether an unused rule is drawn, the low half where a shown one stands; so
    the choice and the order are independent. Equal halves go by the number of the rule.
    """
    spare = sorted((x for x in range(len(used)) if not used[x]), key=lambda x: (keys[x] >> 32, x))
    shown = [x for x in range(len(used)) if used[x]] + spare[: share_of(len(spare), unused)]
    return sorted(shown, key=lambda x: (keys[x] & 0xFFFFFFFF, x))


def piece_words(spec: DatasetSpec, start: int, count: int) -> Any:
    """The random words behind the books of samples start..: [count, depth, chars²]."""
    size = spec.chars**2
    drawn = words(spec.seed, f"pieces {spec.depth} {spec.chars}", start, count, spec.depth * size)
    return drawn.reshape(count, spec.depth, size)


def as_record(spec: DatasetSpec, example: Example) -> dict[str, Any]:
    """An example as a record; tokens of a silent thought are words like others, as nothing is left to silence."""
    written = record_from_example(example)
    thoughts = written.pop("thoughts", [])
    return written if spec.chain == "silent" else {**written, "thoughts": thoughts}


def record(spec: DatasetSpec, index: int) -> dict[str, Any]:
    """The record of sample `index`, made with the oracle, one rule after another."""
    codebook = spec.codebook or Codebook.sample(spec.depth, spec.chars, spec.seed, spec.codebook_number(index))
    inputs, lengths = random_inputs(spec.chars, 1, spec.lengths, spec.seed, index)
    levels = translate(codebook, inputs[0, : lengths[0]].tolist())
    strings = codebook.in_symbols([*(level.string for level in levels), output(levels)])
    book = []
    for level, rules, keys in zip(levels, codebook.rules(), piece_words(spec, index, 1)[0].tolist(), strict=True):
        used = {a * spec.chars + b for a, b in level.bigrams}
        shown = shown_rules([x in used for x in range(len(rules))], keys, spec.unused)
        book.append([(rules[x], x in used) for x in shown])
    return as_record(spec, spec.text.example(spec.task_number(index), strings, spec.chain, book))
