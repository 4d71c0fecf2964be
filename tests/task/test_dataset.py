import itertools
import json
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.strategies import sizes

from openbook.base.errors import InputError
from openbook.book.text import LAYOUTS, Kind, Part, render
from openbook.task import Codebook
from openbook.task.dataset import DatasetSpec, record, share_of, shown_rules
from openbook.task.encoder import RecordEncoder, shown_rules_batch
from openbook.task.formats import FORMATS, CompactFormat, ReleasedFormat
from openbook.task.phrasebook import Phrasebook
from openbook.task.translate import output, translate


@st.composite
def specs(draw: st.DrawFn) -> DatasetSpec:
    depth, chars = draw(sizes)
    seed = draw(st.integers(0, 2**32))
    shortest = 2 * draw(st.integers(1, 8))
    text = draw(
        st.sampled_from([ReleasedFormat(depth, chars, 24), CompactFormat(depth, chars), CompactFormat(depth, chars, 6)])
    )
    return DatasetSpec(
        text=text,
        samples=draw(st.integers(1, 20)),
        codebook=draw(st.sampled_from([None, Codebook.sample(depth, chars, seed)])),
        seed=seed,
        start=draw(st.integers(0, 10**9)),
        lengths=(shortest, shortest + 2 * draw(st.integers(0, 4))),
        unused=draw(st.sampled_from([0.0, 0.1, 0.25, 0.5, 1.0])),
        chain=draw(st.sampled_from(["silent", "explicit"])),
    )


def _lines(spec: DatasetSpec) -> bytes:
    return b"".join(lines for _, lines in RecordEncoder(spec).chunks())


@given(specs())
def test_the_encoder_writes_what_the_oracle_says(spec: DatasetSpec) -> None:
    slow = [json.dumps(record(spec, spec.start + i), ensure_ascii=False) + "\n" for i in range(spec.samples)]
    assert _lines(spec).decode() == "".join(slow)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("codebook", [Codebook.sample(2, 3), None])
def test_the_encoder_writes_every_format(name: str, codebook: Codebook | None) -> None:
    spec = DatasetSpec(FORMATS[name](2, 3), 5, codebook, lengths=(2, 6))
    slow = [json.dumps(record(spec, i), ensure_ascii=False) + "\n" for i in range(5)]
    assert _lines(spec).decode() == "".join(slow)


def test_the_encoder_goes_on_over_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    for codebook in (Codebook.sample(2, 4), None):
        spec = DatasetSpec(ReleasedFormat(2, 4), 50, codebook, lengths=(2, 40))
        whole = RecordEncoder(spec).lines(0, 50)
        monkeypatch.setattr("openbook.task.encoder.CHUNK", 7)
        assert RecordEncoder(spec).chunk == 7
        assert _lines(spec) == whole
        encoder = RecordEncoder(spec)
        assert encoder.lines(33, 2) + encoder.lines(35, 1) == b"".join(whole.splitlines(keepends=True)[33:36])
        assert b"".join(lines for _, lines in encoder.chunks(done=13)) == b"".join(whole.splitlines(True)[13:])


@given(specs())
def test_the_answer_follows_from_the_prompt_and_the_needed_pieces(spec: DatasetSpec) -> None:
    """Read a record as a model would: translate the prompt's string with the rules marked as needed, nothing else."""
    data = json.loads(_lines(spec).splitlines()[0])
    before, after = spec.text.prompt(spec.task_number(spec.start), ["\0"]).split(" \0")
    assert data["prompt"].startswith(before) and data["prompt"].endswith(after)
    string = data["prompt"][len(before) : len(data["prompt"]) - len(after)].split()
    thoughts = []
    for pieces in data["privileged_context"].values():
        texts = [piece["text"].replace("->", " ").replace(";", " ").split() for piece in pieces]
        rules = {(a, b): (c, d) for (a, b, c, d), p in zip(texts, pieces, strict=True) if p["needed"]}
        shifted = string[1:] + string[:1]
        pairs = list(zip(shifted[0::2], shifted[1::2], strict=True))
        assert set(pairs) == set(rules)
        string = [symbol for pair in pairs for symbol in rules[pair]]
        thoughts.append(string)
        spare = spec.chars**2 - len(rules)
        assert len(pieces) == len(rules) + share_of(spare, spec.unused)
        assert len({tuple(text[:2]) for text in texts}) == len({tuple(text[2:]) for text in texts}) == len(pieces)
    assert data["answer"].split() == string
    assert data["completion"].rindex(data["answer"]) >= 0
    assert ("thoughts" in data) == (spec.chain == "explicit")
    if spec.chain == "explicit":
        assert [[w for w in t.split() if w != "*"] for t in data["thoughts"]] == thoughts[:-1]


@given(specs())
def test_a_record_gives_back_the_text_and_its_parts(spec: DatasetSpec) -> None:
    """Preamble, book, prompt and completion, set in the record's layout, are the rendered text of the sample."""
    data = record(spec, spec.start)
    position, found = 0, []
    for thought in data.get("thoughts", []):
        position = data["completion"].index(thought, position)
        found.append((position, Kind.THOUGHT))
        position += len(thought)
    found.append((data["completion"].rindex(data["answer"]), Kind.ANSWER))
    book = [(name, list(enumerate(p["text"] for p in ps))) for name, ps in data["privileged_context"].items()]
    text = render([Part(Kind.PREAMBLE, data["preamble"]), *LAYOUTS[data["layout"]].parts(book)]).text
    assert text.startswith(spec.text.preamble(spec.task_number(spec.start)))
    codebook = spec.codebook or Codebook.sample(spec.depth, spec.chars, spec.seed, spec.start + 1)
    letters = codebook.alphabets()
    before, after = spec.text.prompt(spec.task_number(spec.start), ["\0"]).split(" \0")
    source = [letters[0].index(x) for x in data["prompt"][len(before) : len(data["prompt"]) - len(after)].split()]
    levels = translate(codebook, source)
    numbers = [*(level.string for level in levels), output(levels)]
    strings = [[alphabet[c] for c in row] for alphabet, row in zip(letters, numbers, strict=True)]
    completion = render(spec.text.completion(strings, spec.chain))
    assert completion.text == data["completion"]
    starts = itertools.accumulate((len(part.text) for part in completion.parts), initial=0)
    kinds = (Kind.THOUGHT, Kind.ANSWER)
    marked = [(start, part.kind) for start, part in zip(starts, completion.parts, strict=False) if part.kind in kinds]
    assert (marked if spec.chain == "explicit" else marked[-1:]) == found


def test_fresh_codebooks_are_fresh_and_never_the_codebook_of_the_seed() -> None:
    spec = DatasetSpec(CompactFormat(1, 4), 30, None, seed=5, unused=1.0)
    books = []
    for line in _lines(spec).splitlines():
        rules = [piece["text"].split() for piece in json.loads(line)["privileged_context"]["level 1"]]
        books.append(Phrasebook.from_rules([f"{a} {b} -> {c} {d}" for a, b, c, d in rules], "ABCD", "EFGH"))
    assert len(set(books)) == 30
    assert Codebook.sample(1, 4, seed=5)[0] not in books


def test_unused_rules_and_the_order_are_uniform() -> None:
    """Each unused rule is drawn equally often, and stands equally often in each place (the released code's do not)."""
    used = np.zeros((20_000, 1, 9), dtype=bool)
    used[..., 0] = True
    words = np.random.default_rng(1).integers(0, 2**64, used.shape, dtype=np.uint64)
    rules, needed, there = shown_rules_batch(used, words, 0.25)  # rule 0 and two of the other eight
    assert there.all() and rules.shape == (20_000, 1, 3)
    assert (needed.sum(-1) == 1).all()
    for place in range(3):
        seen = np.bincount(rules[:, 0, place], minlength=9)
        expected = np.array([20_000 / 3] + [20_000 / 12] * 8)
        assert ((seen - expected) ** 2 / expected).sum() < 31.9  # 8 degrees of freedom, 99.99 %


@given(st.integers(1, 40), st.floats(0, 1), st.integers(0, 2**32), st.integers(1, 2**32 - 1))
def test_batch_choice_equals_the_obvious_one_with_equal_keys_too(
    size: int, unused: float, seed: int, mask: int
) -> None:
    random = np.random.default_rng(seed)
    used = random.random((3, 2, size)) < 0.4
    keys = random.integers(0, 2**64, used.shape, dtype=np.uint64) & np.uint64(mask << 32 | mask)  # many ties
    rules, needed, there = shown_rules_batch(used, keys, unused)
    for b in range(3):
        for i in range(2):
            expected = shown_rules(used[b, i].tolist(), keys[b, i].tolist(), unused)
            assert rules[b, i][there[b, i]].tolist() == expected
            assert needed[b, i][there[b, i]].tolist() == [int(used[b, i, x]) for x in expected]


def test_chunks_shrink_as_phrasebooks_grow() -> None:
    """A chunk's arrays have an entry for each rule of each level: 60 characters must not take a gigabyte."""
    for chars in (2, 8, 10, 60, 130):
        encoder = RecordEncoder(DatasetSpec(CompactFormat(1, chars), 10, None, lengths=(2, 4)))
        assert encoder.chunk == 512 or encoder.chunk * chars**2 <= 2**18
        assert encoder.lines(0, 2).count(b"\n") == 2


def test_a_million_samples_need_no_more_memory_than_a_chunk() -> None:
    """The encoder keeps nothing between chunks: its table does not grow, under fresh codebooks neither."""
    encoder = RecordEncoder(DatasetSpec(ReleasedFormat(2, 4), 10**6, None))
    encoder.lines(0, 512)
    before = len(pickle.dumps(encoder))
    encoder.lines(900_000, 512)
    assert len(pickle.dumps(encoder)) == before


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"samples": 0}, "at least one"),
        ({"start": -1}, "numbered from 0"),
        ({"unused": 1.5}, "between 0 and 1"),
        ({"unused": float("nan")}, "between 0 and 1"),
        ({"lengths": (3, 7)}, "odd length"),
        ({"lengths": (20, 42)}, "42 characters do not fit into 40 thoughts"),
        ({"codebook": Codebook.sample(2, 3)}, r"MLT\(2, 3\), but the text for MLT\(2, 4\)"),
        ({"text": ReleasedFormat(20, 200)}, "needs 4200 symbols"),
    ],
)
def test_specifications_without_a_dataset_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        DatasetSpec(**{"text": ReleasedFormat(2, 4), "samples": 1, **changes})


def test_descriptions_tell_datasets_apart() -> None:
    description = DatasetSpec(ReleasedFormat(2, 4), 10, Codebook.sample(2, 4)).describe()
    same = DatasetSpec(ReleasedFormat(2, 4), 10, Codebook.sample(2, 4)).describe()
    other = DatasetSpec(ReleasedFormat(2, 4), 10, Codebook.sample(2, 4, seed=1), seed=1).describe()
    assert description == same
    assert {key for key in other if other[key] != description[key]} == {"seed", "codebook"}
    assert json.loads(json.dumps(description)) == description
