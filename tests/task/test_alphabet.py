import unicodedata

import pytest

from openbook.base.errors import InputError
from openbook.task.alphabet import SYMBOLS, alphabets


def test_no_symbol_occurs_twice_or_combines_with_its_neighbour() -> None:
    assert len(set(SYMBOLS)) == len(SYMBOLS)
    assert unicodedata.normalize("NFC", SYMBOLS) == SYMBOLS
    assert not any(symbol.isspace() or unicodedata.combining(symbol) for symbol in SYMBOLS)


def test_alphabets_begin_as_in_the_released_code() -> None:
    assert alphabets(5, 8)[0] == "ABCDEFGH"
    assert alphabets(5, 8)[5] == "opqrstuv"
    assert alphabets(5, 10)[5] == "yzαβΓγΔδεζ"


def test_alphabets_are_disjoint() -> None:
    letters = alphabets(7, 20)
    assert len(set("".join(letters))) == 8 * 20


@pytest.mark.parametrize(
    ("depth", "chars", "message"),
    [
        (0, 8, "depth is 0.*1 or more"),
        (-1, 8, "depth is -1"),
        (5, 1, "chars is 1.*between 2 and 255"),
        (5, 256, "chars is 256"),
        (5, 200, "needs 1200 symbols.*use at most"),
    ],
)
def test_sizes_without_a_task_are_refused(depth: int, chars: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        alphabets(depth, chars)
