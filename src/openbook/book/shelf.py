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

from openbook.book.text import THINK, Example, Kind, Part, thought_words

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
        number = self._numbers.setdefault(text, len(self.texts))
        if number == len(self.texts):
            self.texts.append(text)
        return number

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
        local.extend([text] if text else [])
        return LOCAL + len(local) - 1 if text else NONE

    def fragments(part: Part) -> list[int]:
        if part.kind == Kind.THOUGHT:
            return [bank.number(word) for word in thought_words(part.text, think=think)]
        return [once(part.text)]

    shape = (
        len(examples),
        max((len(example.sections) for example in examples), default=0),
        max((len(section.pieces) for example in examples for section in example.sections), default=0),
    )
    headings = np.full(shape[:2], NONE, np.int32)
    pieces = np.full(shape, NONE, np.int32)
    needed = np.zeros(shape, bool)
    for b, example in enumerate(examples):
        for s, section in enumerate(example.sections):
            count = len(section.pieces)
            headings[b, s] = bank.number(example.layout.set_heading(section.name))
            pieces[b, s, :count] = [bank.number(example.layout.set_piece(piece.text)) for piece in section.pieces]
            needed[b, s, :count] = [piece.needed for piece in section.pieces]
    rows = [[(f, CODE[part.kind]) for part in e.completion for f in fragments(part)] for e in examples]
    width = max(map(len, rows), default=0)
    completion = np.array([[*row, *[(NONE, 0)] * (width - len(row))] for row in rows]).reshape(len(rows), width, 2)
    histories = tuple(example.history for example in examples)
    return Shelf(
        bank=bank,
        preamble=np.array([once(example.preamble) for example in examples], np.int32)[:, None],
        headings=headings,
        pieces=pieces,
        needed=needed,
        after=bank.numbers([example.layout.after for example in examples]),
        keep_headings=np.array([example.layout.keep_headings for example in examples], bool),
        prompt=np.array([once(example.prompt) for example in examples], np.int32)[:, None],
        completion=completion[..., 0].astype(np.int32),
        kinds=completion[..., 1].astype(np.uint8),
        local=local,
        histories=histories if any(history is not None for history in histories) else None,
    )
