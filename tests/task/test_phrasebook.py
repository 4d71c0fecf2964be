import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.strategies import codebooks

from openbook.base.errors import InputError
from openbook.task import Codebook, Phrasebook
from openbook.task.phrasebook import sample_tables


@given(codebooks())
def test_every_phrasebook_is_a_bijection_and_its_inverse_undoes_it(codebook: Codebook) -> None:
    n = codebook.chars
    for level in range(codebook.depth):
        book = codebook[level]
        bigrams = [(a, b) for a in range(n) for b in range(n)]
        images = [book(a, b) for a, b in bigrams]
        assert sorted(images) == bigrams
        assert [book.inverse()(*image) for image in images] == bigrams
        assert book.then(book.inverse()) == Phrasebook(n, np.arange(n * n))


@given(codebooks())
def test_matrix_has_the_left_side_as_column_and_the_right_side_as_row(codebook: Codebook) -> None:
    book = codebook[0]
    matrix = codebook.matrices()[0]
    n = codebook.chars
    assert (matrix.sum(0) == 1).all() and (matrix.sum(1) == 1).all()
    c, d = book(1, 0)
    assert matrix[c * n + d, n] == 1
    assert (matrix.argmax(0) == book.table).all()


def test_composition_of_matrices_is_the_matrix_of_the_composition() -> None:
    first, second = Codebook.sample(1, 4, seed=1)[0], Codebook.sample(1, 4, seed=2)[0]
    tables = np.stack([book.table for book in (first, second, first.then(second))])
    first_matrix, second_matrix, composition = Codebook(4, tables).matrices()
    assert np.array_equal(composition, second_matrix @ first_matrix)


@given(codebooks(), st.randoms(use_true_random=False))
def test_rules_as_text_come_back_in_any_order(codebook: Codebook, random) -> None:  # type: ignore[no-untyped-def]
    data = json.loads(json.dumps(codebook.to_json(), ensure_ascii=False))
    for book in data["phrasebooks"]:
        random.shuffle(book["rules"])
    assert Codebook.from_json(data) == codebook


def test_rules_may_carry_the_semicolon_of_the_released_text() -> None:
    book = Codebook.sample(1, 3)[0]
    rules = [f" {rule};" for rule in book.rules("ABC", "DEF")]
    assert Phrasebook.from_rules(rules, "ABC", "DEF") == book


def test_sampling_is_uniform_over_bijections() -> None:
    """All 24 bijections of {0,1}² turn up equally often: chi-squared with 23 degrees of freedom, 99.99 % point 57."""
    count = 24_000
    seen = Counter(map(tuple, sample_tables(1, 2, seed=7, start=0, count=count)[:, 0].tolist()))
    assert len(seen) == 24
    assert sum((k - count / 24) ** 2 / (count / 24) for k in seen.values()) < 57


def test_codebook_i_is_the_same_however_many_are_drawn() -> None:
    tables = sample_tables(3, 5, seed=11, start=0, count=20)
    assert np.array_equal(sample_tables(3, 5, seed=11, start=7, count=2), tables[7:9])
    assert Codebook.sample(3, 5, seed=11, index=7) == Codebook(5, tables[7])
    assert Codebook.sample(3, 5, seed=12, index=7) != Codebook(5, tables[7])


def test_tables_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        Codebook.sample(1, 2).tables[0, 0] = 3


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ([0, 1, 1, 3], r"bigrams \[1, 2\] all map to bigram 1"),
        ([0, 1, 2], "has 4 rules, not 3"),
        ([0, 1, 2, 65536 + 3], "65539 is not a bigram"),
        ([0, 1, 2, -1], "-1 is not a bigram"),
        ([0.0, 1.0, 2.0, 3.0], "not of float64"),
    ],
)
def test_tables_that_are_no_bijection_are_refused(table: list[int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Phrasebook(2, np.array(table))


GOOD = ["A A -> C C", "A B -> C D", "B A -> D C", "B B -> D D"]
BROKEN_FILES = {
    "not JSON": ("{", "not a JSON file"),
    "not text": (b"\xff\xfe", "not a JSON file"),
    "a number of too many digits": ("1" * 5000, "not a JSON file"),
    "an array": ([], "non-empty list 'phrasebooks'"),
    "no phrasebooks": ({"phrasebooks": []}, "non-empty list 'phrasebooks'"),
    "no rules": ({"phrasebooks": [{"rules": GOOD}, {}]}, "phrasebook 2 has no list 'rules'"),
    "not a rule": ({"phrasebooks": [{"rules": [*GOOD[:3], "B B D D"]}]}, "phrasebook 1: 'B B D D' is not a rule"),
    "a number": ({"phrasebooks": [{"rules": [*GOOD[:3], 7]}]}, "phrasebook 1: 7 is not a rule"),
    "same left side": (
        {"phrasebooks": [{"rules": [*GOOD[:3], "A B -> D D"]}]},
        "'A B -> D D' has the same left side as 'A B -> C D'",
    ),
    "same right side": (
        {"phrasebooks": [{"rules": [*GOOD[:3], "B B -> D C"]}]},
        "'B B -> D C' has the same right side as 'B A -> D C'",
    ),
    "a missing rule": ({"chars": 2, "phrasebooks": [{"rules": GOOD[:3]}]}, "no rule for 'B B'"),
    "a foreign symbol": ({"phrasebooks": [{"rules": [*GOOD[:3], "B X -> D D"]}]}, "'X' is not in the alphabet AB"),
    "wrong depth": ({"depth": 3, "phrasebooks": [{"rules": GOOD}]}, "'depth' is 3, but there are 1"),
    "chars no number": ({"chars": "2", "phrasebooks": [{"rules": GOOD}]}, "'chars' is '2'"),
    "one character": ({"chars": 1, "phrasebooks": [{"rules": GOOD}]}, "chars is 1"),
}


@pytest.mark.parametrize("name", BROKEN_FILES)
def test_a_broken_codebook_file_says_what_breaks_it(name: str, tmp_path: Path) -> None:
    content, message = BROKEN_FILES[name]
    path = tmp_path / "codebook.json"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(InputError) as caught:
        Codebook.load(path)
    assert str(path) in str(caught.value)
    assert message in str(caught.value)


def test_a_good_codebook_file_is_read_with_or_without_a_byte_order_mark(tmp_path: Path) -> None:
    codebook = Codebook.sample(2, 3, seed=5)
    path = tmp_path / "codebook.json"
    for encoding in ("utf-8", "utf-8-sig"):
        path.write_text(json.dumps({"codebook": codebook.to_json(), "input": ["A"]}), encoding=encoding)
        assert Codebook.load(path) == codebook
