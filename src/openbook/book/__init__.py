"""The book: examples with droppable pieces, read from records or made by a task."""

from openbook.book.load import JsonlSource as JsonlSource
from openbook.book.load import ListSource as ListSource
from openbook.book.load import load_source as load_source
from openbook.book.record import example_from_record as example_from_record
from openbook.book.shelf import Shelf as Shelf
from openbook.book.shelf import shelve as shelve
from openbook.book.source import Source as Source
from openbook.book.text import Example as Example
from openbook.book.text import Part as Part
from openbook.book.text import Piece as Piece
from openbook.book.text import Section as Section
