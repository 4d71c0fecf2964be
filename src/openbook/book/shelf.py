"""A shelf: a batch of examples as arrays of fragment numbers.

Curricula choose from these arrays and encoders turn them into tokens, many examples at once. A fragment's text is kept
once in a bank, so it is also tokenised once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from openbook.book.example import Example, thought_words
from openbook.book.text import THINK, Kind

NONE = -1  # no fragment here
LOCAL = 1 << 30  # fragments from here on are texts of one shelf only (a prompt that occurs once is not kept)

Fragments = NDArray[np.int32]
KINDS = list(Kind)
CODE = {kind: np.uint8(code) for code, kind in enumerate(KINDS)}


class Bank:
    """Texts of fragments, each kept once and known by its number."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._numbers: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self.texts)

    def number(self, text: str) -> int:
        """The number of a text, which is remembered from now on."""
        if not text:
            return NONE
        known = self._numbers.get(text)
        if known is None:
            known = self._numbers[text] = len(self.texts)
            self.texts.append(text)
        return known

    def numbers(self, texts: Sequence[str]) -> Fragments:
        return np.array([self.number(text) for text in texts], dtype=np.int32)


@dataclass(frozen=True)
class Shelf:
    """A batch of examples as arrays of fragments (B examples, S sections, P pieces at most; NONE pads)."""

    bank: Bank
    preamble: Fragments  # [B, *]
    headings: Fragments  # [B, S]
    pieces: Fragments  # [B, S, P]
    needed: NDArray[np.bool_]  # [B, S, P]
    after: Fragments  # [B]: what the layout puts between book and prompt
    keep_headings: NDArray[np.bool_]  # [B]
    prompt: Fragments  # [B, *]
    completion: Fragments  # [B, *]
    kinds: NDArray[np.uint8]  # [B, *]: the kind of each completion fragment
    local: list[str] = field(default_factory=list)  # texts of the fragments LOCAL, LOCAL + 1, ...
    histories: tuple[tuple[tuple[str, str], ...] | None, ...] | None = None  # if any example is a conversation

    def __len__(self) -> int:
        return len(self.pieces)

    def text(self, fragment: int) -> str:
        return self.local[fragment - LOCAL] if fragment >= LOCAL else self.bank.texts[fragment]

    def texts(self, fragments: NDArray[Any]) -> list[str]:
        return [self.text(f) for f in fragments.reshape(-1).tolist() if f != NONE]


def shelve(bank: Bank, examples: Sequence[Example], think: str = THINK) -> Shelf:
    """Put examples on a shelf. Pieces and headings go to the bank; prompts and completions are kept for this shelf."""
    local: list[str] = []

    def once(text: str) -> int:
        if not text:
            return NONE
        local.append(text)
        return LOCAL + len(local) - 1

    sections = max((len(example.sections) for example in examples), default=0)
    longest = max((len(s.pieces) for example in examples for s in example.sections), default=0)
    batch = len(examples)
    headings = np.full((batch, sections), NONE, np.int32)
    pieces = np.full((batch, sections, longest), NONE, np.int32)
    needed = np.zeros((batch, sections, longest), bool)
    completions: list[list[tuple[int, np.uint8]]] = []
    for b, example in enumerate(examples):
        layout = example.layout
        for s, section in enumerate(example.sections):
            if section.name:
                headings[b, s] = bank.number(layout.heading.replace("{name}", section.name))
            for k, piece in enumerate(section.pieces):
                pieces[b, s, k] = bank.number(layout.piece.replace("{text}", piece.text))
                needed[b, s, k] = piece.needed
        row: list[tuple[int, np.uint8]] = []
        for part in example.completion:
            if part.kind == Kind.THOUGHT:
                row += [(bank.number(word), CODE[Kind.THOUGHT]) for word in thought_words(part.text, think=think)]
            elif part.text:
                row.append((once(part.text), CODE[part.kind]))
        completions.append(row)
    width = max((len(row) for row in completions), default=0)
    completion = np.full((batch, width), NONE, np.int32)
    kinds = np.zeros((batch, width), np.uint8)
    for b, row in enumerate(completions):
        for c, (fragment, kind) in enumerate(row):
            completion[b, c], kinds[b, c] = fragment, kind
    return Shelf(
        bank=bank,
        preamble=np.array([[once(example.preamble)] for example in examples], np.int32).reshape(batch, 1),
        headings=headings,
        pieces=pieces,
        needed=needed,
        after=np.array([bank.number(example.layout.after) for example in examples], np.int32),
        keep_headings=np.array([example.layout.keep_headings for example in examples], bool),
        prompt=np.array([[once(example.prompt)] for example in examples], np.int32).reshape(batch, 1),
        completion=completion,
        kinds=kinds,
        local=local,
        histories=tuple(example.history for example in examples)
        if any(e.history is not None for e in examples)
        else None,
    )
