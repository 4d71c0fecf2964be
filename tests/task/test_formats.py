import pytest
from hypothesis import given
from hypothesis import strategies as st

from openbook.base.errors import InputError
from openbook.book.text import COMPLETION_KINDS, LAYOUTS, THINK, Kind, Part, render
from openbook.task.formats import FORMATS, CompactFormat, Format, ReleasedFormat

STRINGS = [list("BHCA"), list("KLMI"), list("QSRT")]


def _whole(text: Format, chain: str = "silent"):  # type: ignore[no-untyped-def]
    """Everything of one sample, with two pieces open at level 1 and none at level 2."""
    book = [(name, []) for name in text.section_names()]
    book[0] = (book[0][0], [(0, text.rule("A B -> K L")), (3, text.rule("H C -> K L"))])
    return render(
        [
            Part(Kind.PREAMBLE, text.preamble(7)),
            *text.layout.parts(book),
            Part(Kind.PROMPT, text.prompt(7, STRINGS[0])),
            *text.completion(STRINGS, chain),  # type: ignore[arg-type]
        ]
    )


def test_released_text_is_the_released_codes() -> None:
    assert _whole(ReleasedFormat(2, 8, thoughts=5)).text == (
        "You are performing a special translation task called language_task_7. The subset of dictionaries used are as "
        "follows:\nDictionary used from language 1 to language 2:\n A B -> K L; H C -> K L;\nDictionary used from "
        "language 2 to language 3:\n Now please perform language_task_7 translation from the following sequence in "
        "language 1 to language 3. Do not use code! You must only reponse in the form: "
        '"Sequence in language 1: [the sequence in language 1]; Sequence in language 2: [the sequence in language 2]; '
        'Sequence in language 3: [the sequence in language 3];". '
        "The sequence you need to translate from language 1 is: B H C A."
        "The translation result is: Sequence in language 1: B H C A; "
        "Sequence in language 2:<THINK><THINK><THINK><THINK><THINK>; Sequence in language 3: Q S R T;"
    )


def test_an_explicit_chain_is_padded_to_the_same_number_of_words() -> None:
    whole = _whole(ReleasedFormat(2, 8, thoughts=6), "explicit")
    assert whole.of(Kind.THOUGHT) == " K L M I * *"
    assert "Sequence in language 2: K L M I * *; Sequence" in whole.text


@pytest.mark.parametrize(("tokens", "rule"), [(4, "A B K L"), (6, "A B -> K L ;")])
def test_compact_rules_have_four_or_six_words(tokens, rule) -> None:  # type: ignore[no-untyped-def]
    text = CompactFormat(2, 8, tokens)
    assert text.rule("A B -> K L") == rule
    assert len(rule.split()) == tokens


def test_compact_text_is_words_of_its_vocabulary() -> None:
    text = CompactFormat(2, 8, 6)
    for chain in ("silent", "explicit"):
        whole = _whole(text, chain)
        words = whole.text.replace(THINK, f" {THINK} ").split()
        assert set(words) <= {text.think, *text.vocabulary().words}
        assert len(whole.of(Kind.THOUGHT).replace(THINK, " x").split()) == 4
    assert whole.text.split()[:1] == ["<BOOK>"]
    assert whole.of(Kind.ANSWER) == " Q S R T"


@pytest.mark.parametrize("text", [ReleasedFormat(2, 8, thoughts=4), CompactFormat(2, 8)], ids=["released", "compact"])
def test_parts_say_what_each_stretch_of_text_is_for(text: Format) -> None:
    whole = _whole(text)
    pieces = [part for part in whole.parts if part.kind == Kind.PIECE]
    assert [(part.section, part.piece) for part in pieces] == [(0, 0), (0, 3)]
    assert whole.of(Kind.PROMPT) == text.prompt(7, STRINGS[0])
    assert whole.of(*COMPLETION_KINDS) == "".join(part.text for part in text.completion(STRINGS))
    assert whole.of(Kind.ANSWER).split() == STRINGS[2]
    assert whole.text.endswith(whole.of(*COMPLETION_KINDS))


@given(st.lists(st.tuples(st.sampled_from(Kind), st.text(max_size=5)), max_size=8))
def test_render_joins_any_parts(parts: list[tuple[Kind, str]]) -> None:
    whole = render(Part(kind, text) for kind, text in parts)
    assert whole.text == "".join(text for _, text in parts)
    assert [(part.kind, part.text) for part in whole.parts] == [(kind, text) for kind, text in parts if text]


def test_a_plain_layout_leaves_out_empty_sections() -> None:
    parts = LAYOUTS["plain"].parts([("first", []), ("second", [(0, "a fact")])])
    assert "".join(part.text for part in parts) == "second:\na fact\n\n"
    assert LAYOUTS["plain"].parts([("first", [])]) == []


def test_unknown_names_and_long_strings_are_refused() -> None:
    with pytest.raises(InputError, match="did you mean 'compact'"):
        LAYOUTS["compct"]
    with pytest.raises(InputError, match="did you mean 'released'"):
        FORMATS["relesed"](2, 8)
    with pytest.raises(InputError, match="4 characters does not fit into 2 thoughts"):
        ReleasedFormat(2, 8, thoughts=2).completion(STRINGS)
    assert FORMATS["released"](2, 8) == ReleasedFormat(2, 8)
    assert FORMATS["compact"](2, 8) == CompactFormat(2, 8)
