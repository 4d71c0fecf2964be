"""Examples of the task: the array path says what the readable path says."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from openbook.base.errors import InputError
from openbook.book import Example, Part, Shelf, example_from_record, shelve
from openbook.book.text import THINK, Kind
from openbook.curriculum import PRESETS, Opened, SamplingPlan, curriculum_named, open_fragments, silenced
from openbook.task import Codebook
from openbook.task.formats import FORMATS as FORMATS_BY_NAME
from openbook.task.source import Translations
from openbook.task.translate import output, translate

FORMATS = list(itertools.product(("released", "compact"), ("silent", "explicit"), ("fixed", "fresh")))


def source(text: str, chain: Any, codebook: str, depth: int = 3, chars: int = 3, **options: Any) -> Translations:
    book = Codebook.sample(depth, chars, 5) if codebook == "fixed" else None
    settings: dict[str, Any] = {"lengths": (4, 8), "seed": 3, "start": 11, **options}
    return Translations(depth, chars, 40, book, text=text, chain=chain, **settings)


def shelf_text(shelf: Shelf, opened: Opened, row: int) -> str:
    """A row of a shelf written out, as an encoder lays it out."""
    pieces = open_fragments(shelf, opened)[row]
    keep = bool(shelf.keep_headings[row])
    book = "".join(
        "".join(shelf.texts(shelf.headings[row, s : s + 1]) if keep or (pieces[s] >= 0).any() else [])
        + "".join(shelf.texts(pieces[s]))
        for s in range(len(pieces))
    )
    after = "".join(shelf.texts(shelf.after[row : row + 1])) if book else ""
    completion = silenced(shelf, opened)[row]
    parts = [shelf.preamble[row], None, shelf.prompt[row], completion]
    return "".join(book + after if part is None else "".join(shelf.texts(part)) for part in parts)


@pytest.mark.parametrize("text, chain, codebook", FORMATS)
@pytest.mark.parametrize("name", [name for name in PRESETS if name != "wrong-context"])
def test_a_shelf_says_what_its_examples_say(name: str, text: str, chain: str, codebook: str) -> None:
    task = source(text, chain, codebook)
    plan = SamplingPlan(task, curriculum_named(name, silence="0@0.1,1@0.6"))
    positions = np.array([0, 7, 3, 20, 39])
    shelf, opened = plan.at(positions)
    for row, (position, index) in enumerate(zip(positions, plan.indices(positions), strict=True)):
        example = task.example(int(index))
        quiet = plan.curriculum.silence.at(position / plan.total)  # type: ignore[union-attr]
        expected = example.silenced(float(quiet)).render(opened.numbers(row)).text
        assert shelf_text(shelf, opened, row) == expected


@pytest.mark.parametrize("text, chain, codebook", FORMATS)
def test_the_arrays_are_those_of_the_readable_examples(text: str, chain: str, codebook: str) -> None:
    task = source(text, chain, codebook)
    indices = np.array([4, 5, 6, 30, 2])
    fast, slow = task.shelf(indices), shelve(task.bank, [task.example(int(k)) for k in indices])
    np.testing.assert_array_equal(fast.pieces, slow.pieces)
    np.testing.assert_array_equal(fast.needed, slow.needed)
    np.testing.assert_array_equal(fast.headings, slow.headings)
    for row in range(len(indices)):
        for kind in Kind:
            of_kind = [
                "".join(s.texts(np.where(s.kinds[row] == list(Kind).index(kind), s.completion[row], -1)))
                for s in (fast, slow)
            ]
            assert of_kind[0] == of_kind[1], kind


@pytest.mark.parametrize("text, chain, codebook", FORMATS)
@pytest.mark.parametrize("chars", [2, 3])
def test_wrong_rules_are_all_wrong_and_still_a_bijection(text: str, chain: str, codebook: str, chars: int) -> None:
    task = source(text, chain, codebook, chars=chars)
    indices = np.arange(12)
    words = np.random.default_rng(1).integers(0, 2**63, (12, 4)).astype(np.uint64)
    right, wrong = task.shelf(indices), task.wrong(indices, words)

    def sides(rule: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        symbols = rule.replace("->", "").replace(";", "").split()
        return tuple(symbols[:2]), tuple(symbols[2:])

    for row in range(12):
        for level in range(3):
            true = dict(map(sides, right.texts(right.pieces[row, level])))
            false = dict(map(sides, wrong.texts(wrong.pieces[row, level])))
            assert set(false) == set(true) and set(false.values()) == set(true.values())
            assert all(false[left] != true[left] for left in true)
            needed = {sides(right.text(f))[0] for f in right.pieces[row, level][right.needed[row, level]]}
            misleading = {sides(wrong.text(f))[0] for f in wrong.pieces[row, level][wrong.needed[row, level]]}
            assert needed == misleading
    np.testing.assert_array_equal(right.prompt, wrong.prompt)
    np.testing.assert_array_equal(right.completion, wrong.completion)


def test_wrong_rules_are_drawn_anew_for_every_word_and_by_it_alone() -> None:
    task = source("compact", "silent", "fixed")
    words = np.arange(1, 33, dtype=np.uint64).reshape(8, 4)
    together = task.wrong(np.zeros(8, np.int64), words).pieces
    assert len({row.tobytes() for row in together}) == 8
    np.testing.assert_array_equal(together[5:6], task.wrong(np.array([0]), words[5:6]).pieces)


@pytest.mark.parametrize("codebook", ["fixed", "fresh"])
def test_the_answer_is_the_oracles_and_the_needed_rules_suffice(codebook: str) -> None:
    task = source("compact", "explicit", codebook)
    for index in range(8):
        example = task.example(index)
        rules = [
            {tuple(p.text.split()[:2]): p.text.split()[2:] for p in s.pieces if p.needed} for s in example.sections
        ]
        string = example.prompt.split()[1:-1]
        for level in rules:
            string = [*string[1:], string[0]]
            string = [c for a, b in zip(string[::2], string[1::2], strict=True) for c in level[a, b]]
        assert example.render().of(Kind.ANSWER).split() == string


def test_the_oracle_agrees() -> None:
    task = source("compact", "explicit", "fixed")
    strings = task.translations(np.array([3]))[0]
    size = int(strings.lengths[0])
    assert task.codebook is not None
    expected = output(translate(task.codebook, strings.strings[0, 0, :size].tolist()))
    letters = task.codebook.alphabets()[-1]
    assert task.example(3).render().of(Kind.ANSWER).split() == [letters[c] for c in expected]


def test_an_example_does_not_depend_on_who_is_asked_for_with_it() -> None:
    task = source("released", "explicit", "fresh")
    alone = [shelf_text(task.shelf(np.array([k])), _all_open(task.shelf(np.array([k]))), 0) for k in (9, 2, 3)]
    shelf = task.shelf(np.array([9, 2, 3]))
    assert [shelf_text(shelf, _all_open(shelf), row) for row in range(3)] == alone


def _all_open(shelf: Shelf) -> Opened:
    batch, sections, longest = shelf.pieces.shape
    return Opened(np.broadcast_to(np.arange(longest), (batch, sections, longest)), np.zeros(batch, np.int64))


def test_examples_start_where_they_are_told_to() -> None:
    later = source("compact", "silent", "fresh", start=14)
    assert source("compact", "silent", "fresh", start=11).example(3) == later.example(0)


def test_the_fingerprint_knows_every_setting() -> None:
    prints = {
        source("compact", "silent", "fixed").fingerprint,
        source("compact", "silent", "fresh").fingerprint,
        source("released", "silent", "fixed").fingerprint,
        source("compact", "explicit", "fixed").fingerprint,
        source("compact", "silent", "fixed", seed=4).fingerprint,
        source("compact", "silent", "fixed", start=0).fingerprint,
        source("compact", "silent", "fixed", lengths=(4, 10)).fingerprint,
    }
    assert len(prints) == 7
    assert source("compact", "silent", "fixed").fingerprint in prints


def test_silent_thoughts_are_thinking_tokens() -> None:
    released, compact = (source(text, "silent", "fixed").example(0).render() for text in ("released", "compact"))
    assert released.of(Kind.THOUGHT) == THINK * 80
    assert compact.of(Kind.THOUGHT) == THINK * 2 * len(compact.of(Kind.ANSWER).split())


def test_bad_lengths_and_strings_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InputError, match="even"):
        source("compact", "silent", "fixed", lengths=(3, 8))
    long = source("released", "explicit", "fixed", lengths=(60, 60))
    with pytest.raises(InputError, match="do not fit into 40 thoughts"):
        long.shelf(np.array([0]))
    with pytest.raises(InputError, match="does not fit into 40 thoughts"):
        long.example(0)


@pytest.mark.parametrize("text", FORMATS_BY_NAME)
@pytest.mark.parametrize("chain", ["silent", "explicit"])
@pytest.mark.parametrize("depth", [1, 3])
def test_the_record_of_a_translation_reads_as_its_example(text: str, chain: str, depth: int) -> None:
    if chain not in FORMATS_BY_NAME[text].chains:
        return
    task = source(text, chain, "fresh", depth)
    for index in range(5):
        assert example_from_record(task.record(index)) == joined(task.example(index))


def joined(example: Example) -> Example:
    """The example with neighbouring words of its completion as one part, as a record cannot tell them apart."""
    parts: list[Part] = []
    for part in example.completion:
        if parts and parts[-1].kind == part.kind == Kind.WORDS:
            parts[-1] = Part(Kind.WORDS, parts[-1].text + part.text)
        else:
            parts.append(part)
    return replace(example, completion=tuple(parts))
