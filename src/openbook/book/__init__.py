"""The book: examples with droppable pieces, read from records or made by a task."""

from openbook.book.example import Example, Piece, Section
from openbook.book.jsonl import JsonlSource, ListSource, load_source
from openbook.book.record import example_from_record
from openbook.book.shelf import Bank, Shelf, shelve
from openbook.book.source import Source, Vocabulary
from openbook.book.text import Kind, Layout, Part

__all__ = [
    "Bank",
    "Example",
    "JsonlSource",
    "Kind",
    "Layout",
    "ListSource",
    "Part",
    "Piece",
    "Section",
    "Shelf",
    "Source",
    "Vocabulary",
    "example_from_record",
    "load_source",
    "shelve",
]
