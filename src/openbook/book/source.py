"""Where examples come from. A source answers questions about its data, so nobody asks what kind of source it is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from openbook.base.errors import InputError
from openbook.book.record import record_from_example
from openbook.book.shelf import Bank, Shelf, shelve
from openbook.book.text import THINK, Example

Indices = NDArray[np.int64]
Tokenize = Callable[[Sequence[str]], list[list[int]]]


@dataclass(frozen=True)
class Vocabulary:
    """The words that examples are written in, separated by blanks.

    A complete vocabulary has its own special words, and the number of each word is its place.
    """

    words: Sequence[str]
    complete: bool = False


class Source(ABC):
    """A numbered collection of examples; example i is the same however and however often it is asked for.

    A subclass sets the attributes without a default, and says its length and its examples.
    """

    bank: Bank
    fingerprint: str  # of all that the examples depend on
    has_thoughts: bool  # whether a completion has thoughts, so that a thinking token is needed
    can_mislead: bool  # whether `wrong` has wrong books to show
    has_books: bool = True  # whether any example has a book
    one_book: bool = True  # whether all books are parts of one text, which can be learned by heart
    uniform: bool = False  # whether examples are alike in form, so that a few can be checked in place of all
    task: Mapping[str, Any] | None = None  # text format, depth and characters, if these are translations
    family: str = "llama"  # the family of models that is made for these examples where no model is named
    writable: bool = True  # whether pieces are made of words that a model can write
    skipped: Sequence[str] = ()  # what is wrong with each record that was left out
    think: str = THINK

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def example(self, index: int) -> Example: ...

    def where(self, index: int) -> str:
        """Where an example comes from, for error messages about it."""
        return f"example {index + 1}"

    def record(self, index: int) -> Mapping[str, Any]:
        """The example as a record with TRL's names."""
        return record_from_example(self.example(index))

    def shelf(self, indices: Indices) -> Shelf:
        return shelve(self.bank, [self.example(index) for index in indices.tolist()], self.think)

    def wrong(self, indices: Indices, words: NDArray[np.uint64]) -> Shelf:
        """The same examples with books that mislead; `words` [B, 4] are their random numbers."""
        raise InputError(f"{type(self).__name__} has no wrong books: leave out the wrong book")

    def section_names(self, indices: Indices) -> list[list[str]]:
        """The names of the sections of each example's book; an unnamed section has an empty name."""
        return [[section.name for section in self.example(index).sections] for index in indices.tolist()]

    def vocabulary(self) -> Vocabulary | None:
        """The words that examples are written in; None for ordinary text."""
        return None

    def score(self, guess: NDArray[np.int64], truth: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which parts of each answer token are right: [tokens, parts]. A token of ordinary text has one part."""
        return (guess == truth)[:, None]

    def chance(self, tokenize: Tokenize) -> float | None:
        """The accuracy of guessing, if the source knows it; None if it must be estimated from the answers."""
        return None

    def overlap(self, exam: Source) -> float:
        """The share of an exam's questions that are among these examples, where the two are drawn at random."""
        return 0.0
