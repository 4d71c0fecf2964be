"""The book: examples with droppable pieces, from the task and from a user's data alike."""

from openbook.book.example import Example, Piece, Section
from openbook.book.jsonl import JsonlSource, ListSource, load_source
from openbook.book.record import example_from_record
from openbook.book.shelf import Bank, Shelf, Source, shelve

__all__ = [
    "Bank",
    "Example",
    "JsonlSource",
    "ListSource",
    "Piece",
    "Section",
    "Shelf",
    "Source",
    "example_from_record",
    "load_source",
    "shelve",
]
