"""Records of a user's data: what is read, and what is refused with its place."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from openbook.base.errors import InputError
from openbook.book import Piece, Section, example_from_record
from openbook.book.record import record_from_example
from openbook.book.text import LAYOUTS, Kind

PLAIN = {"prompt": "Capital of Chad?", "completion": " N'Djamena"}


def test_prompt_and_completion() -> None:
    example = example_from_record(PLAIN)
    assert (example.prompt, example.sections, example.history) == ("Capital of Chad?", (), None)
    assert [(part.kind, part.text) for part in example.completion] == [(Kind.ANSWER, " N'Djamena")]


def test_a_prompt_beside_messages_is_a_column_of_the_users_own() -> None:
    said = [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}]
    assert example_from_record({"messages": said, "prompt": "Sums", "completion": None}).prompt == "2 + 2?"


def test_messages_are_a_prompt_an_answer_and_what_was_said_before() -> None:
    said = [("system", "Be brief."), ("user", "Hi"), ("assistant", "Hi."), ("user", "Who?"), ("assistant", "Orm")]
    example = example_from_record({"messages": [{"role": role, "content": content} for role, content in said]})
    assert example.history == tuple(said[:3])
    assert (example.prompt, example.completion[0].text) == ("Who?", "Orm")


@pytest.mark.parametrize(
    "context, sections",
    [
        (None, ()),
        ("", ()),
        ("one text", (Section("", (Piece("one text"),)),)),
        (["a", "", "b"], (Section("", (Piece("a"), Piece("b"))),)),
        ([{"text": "a", "needed": False}, {"text": "b"}], (Section("", (Piece("a", False), Piece("b", True))),)),
        ({"A": ["a"], "B": "b"}, (Section("A", (Piece("a"),)), Section("B", (Piece("b"),)))),
        ({"A": None, "B": {"text": "b", "needed": None}}, (Section("B", (Piece("b"),)),)),  # tables fill gaps with null
    ],
)
def test_the_forms_of_privileged_context(context: Any, sections: tuple[Section, ...]) -> None:
    assert example_from_record({**PLAIN, "privileged_context": context}).sections == sections


def test_the_answer_and_the_thoughts_are_parts_of_the_completion() -> None:
    record = {"prompt": "?", "completion": "Six by two, twelve: 12!", "thoughts": ["Six by", "twelve"], "answer": "12"}
    parts = [(part.kind, part.text) for part in example_from_record(record).completion]
    assert parts == [
        (Kind.THOUGHT, "Six by"),
        (Kind.WORDS, " two,"),
        (Kind.THOUGHT, " twelve"),
        (Kind.WORDS, ":"),
        (Kind.ANSWER, " 12"),
        (Kind.WORDS, "!"),
    ]


def test_null_columns_and_columns_of_ones_own_are_left_alone() -> None:
    record = {**PLAIN, "answer": None, "thoughts": None, "preamble": None, "layout": None, "id": 7, "source": "web"}
    assert example_from_record(record) == example_from_record(PLAIN)


@pytest.mark.parametrize(
    "record, complaint",
    [
        ([1], "a record is an object"),
        ("text", "a record is an object"),
        ({"prompt": "a"}, "no 'completion'"),
        ({"completion": "a"}, "no 'prompt'"),
        ({"prompt": 3, "completion": "a"}, "'prompt' is int, not text"),
        ({"prompt": "a", "completion": ""}, "'completion' is empty"),
        ({"prompt": "a\ud800", "completion": "b"}, "'prompt' has a lone surrogate at character 2"),
        ({**PLAIN, "privileged_context": {"\udfff": ["a"]}}, "lone surrogate"),
        ({**PLAIN, "privileged_context": ["a", "\udfff"]}, "piece 2: 'text' has a lone surrogate"),
        ({**PLAIN, "privileged_context": 5}, "privileged context is text, a list of pieces"),
        ({**PLAIN, "privileged_context": [5]}, "piece 1 is neither text nor an object"),
        ({**PLAIN, "privileged_context": {"A": [{"txt": "a"}]}}, "'A': piece 1 is neither"),
        ({**PLAIN, "privileged_context": [{"text": "a", "needed": "no"}]}, "'needed' is 'no', not true or false"),
        ({**PLAIN, "privileged_context": [{"text": "a", "neded": False}]}, "did you mean 'needed'"),
        ({**PLAIN, "privilegedcontext": ["a"]}, "did you mean 'privileged_context'"),
        ({**PLAIN, "thought": ["N"]}, "did you mean 'thoughts'"),
        ({**PLAIN, "thoughts": "N'Djamena"}, "'thoughts' is str, not a list"),
        ({**PLAIN, "thoughts": ["Paris"]}, "thought 1 does not occur in 'completion'"),
        ({**PLAIN, "answer": "Paris"}, "'answer' does not occur in 'completion'"),
        ({**PLAIN, "answer": "N'Dj", "thoughts": ["amena"]}, "'answer' does not occur in 'completion' after its"),
        ({**PLAIN, "layout": "plan"}, "did you mean 'plain'"),
        ({"messages": []}, "at least a user and an assistant"),
        ({"messages": [], "completion": "a"}, "'messages' and 'completion' both say what to learn: keep one"),
        ({"messages": [{"role": "user"}, {"role": "assistant", "content": "a"}]}, "message 1 has no 'role' and"),
        ({"messages": [{"role": "user", "content": ["a"]}] * 2}, "'content' is list, not text"),
        ({"messages": [{"role": "user", "content": "a"}] * 2}, "must end with a user message and the assistant's"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(record: Any, complaint: str) -> None:
    with pytest.raises(InputError) as caught:
        example_from_record(record, "facts.jsonl:3")
    assert str(caught.value).startswith("facts.jsonl:3: ") and complaint in str(caught.value)


def test_a_blank_goes_with_the_part_behind_it_and_belongs_to_the_one_before_only_once() -> None:
    record = {"prompt": "?", "completion": "a b  c", "thoughts": ["a ", "b"], "answer": "c"}
    parts = [(part.kind, part.text) for part in example_from_record(record).completion]
    assert parts == [(Kind.THOUGHT, "a "), (Kind.THOUGHT, "b"), (Kind.WORDS, " "), (Kind.ANSWER, " c")]


SHORT = st.text(" ab", max_size=4)
PIECES = st.lists(
    st.one_of(SHORT, st.fixed_dictionaries({"text": SHORT}, optional={"needed": st.booleans()})), max_size=3
)


@st.composite
def records(draw: st.DrawFn) -> dict[str, Any]:
    """Records that use every key, with completions whose parts are easily mistaken for each other."""
    completion = draw(st.text(" ab", min_size=1, max_size=8))
    record: dict[str, Any] = {"prompt": draw(SHORT), "completion": completion}
    if draw(st.booleans()):
        history = [{"role": "system", "content": draw(SHORT)}] if draw(st.booleans()) else []
        turns = [("user", record.pop("prompt")), ("assistant", record.pop("completion"))]
        record["messages"] = history + [{"role": role, "content": content} for role, content in turns]
    position, thoughts = 0, []
    for _ in range(draw(st.integers(0, 2))):
        start = draw(st.integers(position, len(completion)))
        end = draw(st.integers(start, len(completion)))
        if thought := completion[start:end]:
            thoughts.append(thought)
            position = completion.find(thought, position) + len(thought)
    start = draw(st.integers(position, len(completion)))
    answer = completion[start : draw(st.integers(start, len(completion)))]
    optional = {
        "privileged_context": draw(st.one_of(st.none(), SHORT, PIECES, st.dictionaries(SHORT, PIECES, max_size=3))),
        "preamble": draw(st.one_of(st.none(), SHORT)),
        "layout": draw(st.one_of(st.none(), st.sampled_from(list(LAYOUTS)))),
        "answer": answer or None,
        "thoughts": draw(st.sampled_from([thoughts, None])),
    }
    return {**record, **optional}


@given(records())
@example({"prompt": "", "completion": "b  a", "answer": "a"})  # of two blanks the second goes with the answer
@example({"prompt": "", "completion": "b  a b", "thoughts": ["a"], "answer": "b"})
@example({"prompt": "", "completion": "a ba a", "answer": " a"})
@example({"prompt": "", "completion": "ab", "thoughts": ["b"]})  # what is examined stands before the thought
@example({"prompt": "", "completion": "aba", "thoughts": ["b"]})  # and on both sides of it
def test_a_record_made_from_an_example_reads_as_that_example(record: dict[str, Any]) -> None:
    read = example_from_record(record)
    assert example_from_record(record_from_example(read)) == read
