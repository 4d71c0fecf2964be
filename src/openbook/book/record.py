"""Records of a user's data: TRL's names `prompt`, `completion` or `messages`, and `privileged_context`.

    {"prompt": "Capital of Chad?", "completion": "N'Djamena", "privileged_context": {"Africa": ["N'Djamena: Chad."]}}

`privileged_context` is a text, a list of pieces, or an object of section -> pieces; a piece is a text or an object
`{"text": ..., "needed": true}`. Optional: `preamble` (stands before the book), `layout` (how the book is set),
`answer` (the part of the completion that is examined), `thoughts` (parts of it that may be silenced).
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Mapping, Sequence
from typing import Any

from openbook.base.errors import InputError
from openbook.book.text import LAYOUTS, Example, Kind, Part, Piece, Section

PIECE = ("text", "needed")
OPTIONAL = ("privileged_context", "preamble", "layout", "answer", "thoughts")


def example_from_record(record: Any, where: str = "record") -> Example:
    """Read one record (TRL's names, plus `privileged_context`); `where` opens every complaint.

    A column that is null counts as absent, because tables fill gaps with nulls. Columns of the user's own are left
    alone, unless their name is nearly one of ours: a book that is not read for a typo would go unnoticed.
    """
    try:
        return _example(record)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _example(record: Any) -> Example:
    if not isinstance(record, Mapping):
        raise InputError(f"a record is an object with 'prompt' and 'completion', not {type(record).__name__}")
    record = {key: value for key, value in record.items() if value is not None}
    for key in record:
        if typo := _typo(str(key), OPTIONAL):
            raise InputError(f"'{key}' is not read: did you mean '{typo}'? (rename it if it is your own)")
    history: tuple[tuple[str, str], ...] | None = None
    if "messages" in record:
        if "completion" in record:
            raise InputError("'messages' and 'completion' both say what to learn: keep one of them")
        *earlier, (_, prompt), (_, completion) = _messages(record["messages"])
        history = tuple(earlier)
    else:
        for key in ("prompt", "completion"):
            if key not in record:
                raise InputError(f"no '{key}' (a record needs 'prompt' and 'completion', or 'messages')")
        prompt, completion = _text(record, "prompt"), _text(record, "completion")
    if not completion:
        raise InputError("'completion' is empty, so there is nothing to learn: leave this record out")
    return Example(
        prompt=prompt,
        completion=tuple(_completion_parts(record, completion)),
        sections=_sections(record.get("privileged_context")),
        preamble=_text(record, "preamble") if "preamble" in record else "",
        layout=LAYOUTS[str(record.get("layout", "plain"))],
        history=history,
    )


def record_from_example(example: Example) -> dict[str, Any]:
    """The inverse of `example_from_record`."""
    record: dict[str, Any] = {
        "prompt": example.prompt,
        "completion": "".join(part.text for part in example.completion),
        "privileged_context": {
            section.name: [{"text": piece.text, "needed": piece.needed} for piece in section.pieces]
            for section in example.sections
        },
        "preamble": example.preamble,
        "layout": example.layout.name,
    }
    answers, thoughts = _marked(example, Kind.ANSWER), _marked(example, Kind.THOUGHT)
    if len(answers) == 1 and example.completion[-1].kind != Kind.THOUGHT:
        record["answer"] = answers[0]
    if thoughts:
        record["thoughts"] = thoughts
    if example.history is not None:
        turns = [*example.history, ("user", record.pop("prompt")), ("assistant", record.pop("completion"))]
        record["messages"] = [{"role": role, "content": content} for role, content in turns]
    return record


def _marked(example: Example, kind: Kind) -> list[str]:
    """The parts of one kind, so that reading finds them: of two blanks it gives the second to the part by itself."""
    texts, before = [], ""
    for part in example.completion:
        if part.kind == kind:
            texts.append(part.text[before.endswith(" ") and part.text.startswith(" ") :])
        before = "" if part.kind == Kind.THOUGHT else part.text
    return texts


@functools.lru_cache(maxsize=1024)
def _typo(key: str, known: tuple[str, ...]) -> str | None:
    """The key that was probably meant by one that is almost, but not quite, read."""
    return None if key in known else next(iter(difflib.get_close_matches(key, known, n=1, cutoff=0.85)), None)


def _text(holder: Mapping[str, Any], key: str, place: str = "") -> str:
    value = holder[key]
    if not isinstance(value, str):
        raise InputError(f"{place}'{key}' is {type(value).__name__}, not text: write a string")
    return _sound(value, f"{place}'{key}'")


def _sound(value: str, place: str) -> str:
    """The text, if it can be written as UTF-8."""
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        fault = f"a lone surrogate at character {error.start + 1}, which is no text: replace it"
        raise InputError(f"{place} has {fault}") from None
    return value


def _messages(messages: Any) -> list[tuple[str, str]]:
    if not isinstance(messages, Sequence) or len(messages) < 2:
        raise InputError("'messages' needs at least a user and an assistant message: write both")
    pairs = []
    for number, message in enumerate(messages, 1):
        if not isinstance(message, Mapping) or not {"role", "content"} <= set(message):
            raise InputError(f"message {number} has no 'role' and 'content': write both")
        role, content = (_text(message, key, f"message {number}: ") for key in ("role", "content"))
        pairs.append((role, content))
    if pairs[-1][0] != "assistant" or pairs[-2][0] != "user":
        raise InputError("'messages' must end with a user message and the assistant's answer to it")
    return pairs


def _completion_parts(record: Mapping[str, Any], completion: str) -> list[Part]:
    """Find `thoughts` (in order) and `answer` (last occurrence) inside the completion; what is left are words."""
    thoughts = record.get("thoughts", [])
    if isinstance(thoughts, str) or not isinstance(thoughts, Sequence):
        raise InputError(f"'thoughts' is {type(thoughts).__name__}, not a list of parts of 'completion': write a list")
    parts: list[tuple[str, str, Kind]] = []  # what stands before a part, its text, its kind
    left = completion
    for number, thought in enumerate(thoughts, 1):
        if not isinstance(thought, str) or not thought or thought not in left:
            raise InputError(
                f"thought {number} does not occur in 'completion' after the one before it: copy it from there"
            )
        before, _, left = left.partition(thought)
        parts.append((before, thought, Kind.THOUGHT))
    rest = Kind.ANSWER  # if nothing is singled out, everything but the thoughts is examined
    if "answer" in record:
        answer, rest = _text(record, "answer"), Kind.WORDS
        if not answer or answer not in left:
            raise InputError("'answer' does not occur in 'completion' after its thoughts: copy it from there")
        before, _, left = left.rpartition(answer)
        parts.append((before, answer, Kind.ANSWER))
    # A blank in front of a part goes with it, as tokenizers have it: cut off, it would be a token that no text has.
    found = [
        part
        for before, text, kind in parts
        for part in (Part(rest, before.removesuffix(" ")), Part(kind, " " * before.endswith(" ") + text))
    ]
    return [part for part in (*found, Part(rest, left)) if part.text]


def _sections(context: Any) -> tuple[Section, ...]:
    if context is None or context == "":
        return ()
    if not isinstance(context, Mapping):
        return (Section("", _pieces(context)),)
    return tuple(
        Section(_sound(str(name), "the name of a section"), _pieces(pieces, f"'{name}': "))
        for name, pieces in context.items()
        if pieces is not None
    )


def _pieces(pieces: Any, place: str = "") -> tuple[Piece, ...]:
    listed = [pieces] if isinstance(pieces, str | Mapping) else pieces
    if not isinstance(listed, Sequence):
        raise InputError(f"{place}privileged context is text, a list of pieces or an object of such lists")
    result = []
    for number, piece in enumerate(listed, 1):
        if isinstance(piece, str):
            piece = {"text": piece}
        if not isinstance(piece, Mapping) or "text" not in piece:
            raise InputError(f"{place}piece {number} is neither text nor an object with 'text'")
        for key in piece:
            if typo := _typo(str(key), PIECE):
                raise InputError(f"{place}piece {number}: '{key}' is not read: did you mean '{typo}'?")
        needed = piece.get("needed")
        if not isinstance(needed, bool | None):
            raise InputError(f"{place}piece {number}: 'needed' is {needed!r}, not true or false")
        result.append(Piece(_text(piece, "text", f"{place}piece {number}: "), needed is not False))
    return tuple(piece for piece in result if piece.text)
