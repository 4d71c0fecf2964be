"""Examples as a person reads them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openbook.book import Example, Piece, Section
from openbook.book.text import COMPLETION_KINDS, LAYOUTS, THINK, Kind, Part, thought_words

BOOK = (
    Section("kings", (Piece("Orm rules Vell.", True), Piece("Ilva rules Quist.", False))),
    Section("", (Piece("x"),)),
)


def example(**changes: object) -> Example:
    settings: dict[str, object] = {
        "prompt": "Who rules Vell?",
        "completion": (Part(Kind.THOUGHT, " Orm or Ilva"), Part(Kind.WORDS, ": "), Part(Kind.ANSWER, "Orm")),
        "sections": BOOK,
    }
    return Example(**{**settings, **changes})  # type: ignore[arg-type]


def test_the_plain_layout_reads_as_a_person_would_write_it() -> None:
    assert example().render().text == (
        "kings:\nOrm rules Vell.\nIlva rules Quist.\nx\n\nWho rules Vell? Orm or Ilva: Orm"
    )


def test_closed_pieces_leave_no_trace_and_open_ones_keep_their_order() -> None:
    assert example().render([[1, 0], []]).text.startswith("kings:\nIlva rules Quist.\nOrm rules Vell.\n\nWho")
    assert example().render([[], []]).text == "Who rules Vell? Orm or Ilva: Orm"


def test_the_released_layout_keeps_the_headings_of_empty_sections() -> None:
    text = example(layout=LAYOUTS["released"]).render([[], []]).text
    assert text == "\nkings:\nWho rules Vell? Orm or Ilva: Orm"


def test_the_completion_is_what_carries_loss() -> None:
    assert example().render().of(*COMPLETION_KINDS) == " Orm or Ilva: Orm"
    assert example().render().of(Kind.ANSWER) == "Orm"


@pytest.mark.parametrize(
    "rate, thought", [(0.0, " Orm or Ilva"), (0.34, f"{THINK} or Ilva"), (0.99, f"{THINK * 2} Ilva"), (1.0, THINK * 3)]
)
def test_thoughts_fall_silent_from_first_to_last(rate: float, thought: str) -> None:
    silenced = example().silenced(rate)
    assert silenced.render().of(Kind.THOUGHT) == thought
    assert silenced.render().of(Kind.ANSWER) == "Orm"


def test_silencing_what_is_silent_changes_nothing() -> None:
    once = example().silenced()
    assert once.silenced() == once.silenced(0.5) == once


@given(st.text())
def test_the_words_of_a_thought_give_it_back(text: str) -> None:
    assert "".join(thought_words(text)) == text


@given(st.text(), st.integers(0, 5))
def test_as_many_words_are_silent_as_asked_for(text: str, quiet: int) -> None:
    words = thought_words(text)
    silent = thought_words(text, min(quiet, len(words)))
    assert len(silent) == len(words)
    if text.replace(THINK, ""):
        assert silent == [THINK] * min(quiet, len(words)) + words[quiet:]
