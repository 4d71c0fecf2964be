"""Sources of a user's examples: JSONL files, lists and Hugging Face datasets."""

from __future__ import annotations

import json
import pickle
import tracemalloc
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from openbook.base.errors import InputError
from openbook.book import JsonlSource, ListSource, example_from_record, load, load_source

GOOD = '{"prompt": "a", "completion": "b"}'


def record(number: int, book: list[str] | None = None) -> dict[str, Any]:
    return {"prompt": f"question {number}", "completion": f" answer {number}", "privileged_context": book}


def written(path: Path, lines: list[str] | bytes) -> Path:
    path.write_bytes(lines if isinstance(lines, bytes) else "".join(f"{line}\n" for line in lines).encode())
    return path


FAULTS = {
    "array": (b'[{"prompt": "a", "completion": "b"}]\n', 1, "JSON array"),
    "array over lines": (b'[\n{"prompt": "a", "completion": "b"}\n]\n', 1, "JSON array"),
    "missing key": (f'{GOOD}\n{{"prompt": "a"}}\n'.encode(), 2, "no 'completion'"),
    "blank line": (f"{GOOD}\n\n{GOOD}\n".encode(), 2, "blank line"),
    "byte order mark": (b"\xef\xbb\xbf" + f"{GOOD}\n".encode(), 1, "byte order mark"),
    "lone surrogate": (f'{GOOD}\n{{"prompt": "\\ud800", "completion": "b"}}\n'.encode(), 2, "lone surrogate"),
    "not UTF-8": (f"{GOOD}\n".encode() + b'{"prompt": "\xff"}\n', 2, "not UTF-8"),
    "not JSON": (f"{GOOD}\n{GOOD}\n{{'prompt'\n".encode(), 3, "not JSON"),
    "half a line": (f"{GOOD}\n{GOOD[:20]}".encode(), 2, "not JSON"),
    "a number": (f"{GOOD}\n17\n".encode(), 2, "a record is an object"),
    "too many digits": (f'{GOOD}\n{{"prompt": {"7" * 5000}}}\n'.encode(), 2, "not a record"),
    "nested too deeply": (f"{GOOD}\n".encode() + b"[" * 200_000, 2, "nested too deeply"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_named_with_file_and_line(fault: str, tmp_path: Path) -> None:
    content, line, why = FAULTS[fault]
    path = written(tmp_path / "facts.jsonl", content)
    with pytest.raises(InputError) as caught:
        JsonlSource(path)
    assert str(caught.value).startswith(f"{path}:{line}: ") and why in str(caught.value)


@pytest.mark.parametrize("fault", [name for name, (content, _, _) in FAULTS.items() if content.startswith(b'{"p')])
def test_faults_are_skipped_and_counted_on_request(fault: str, tmp_path: Path) -> None:
    content, line, why = FAULTS[fault]
    source = JsonlSource(written(tmp_path / "facts.jsonl", content), skip_bad=True)
    assert len(source.skipped) == 1 and f":{line}: " in source.skipped[0] and why in source.skipped[0]
    assert len(source) == content.count(GOOD.encode())
    assert all(source.example(k).prompt == "a" for k in range(len(source)))


def test_a_line_too_long_is_refused_without_being_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "LONGEST_LINE", 1 << 20)
    path = tmp_path / "facts.jsonl"
    with path.open("wb") as file:
        file.write(f"{GOOD}\n".encode())
        file.write(b'{"prompt": "')
        for _ in range(100):
            file.write(b"x" * (1 << 20))
        file.write(f'"}}\n{GOOD}\n'.encode())
    tracemalloc.start()
    with pytest.raises(InputError, match=r"facts.jsonl:2: the line is longer than 1 MiB"):
        JsonlSource(path)
    source = JsonlSource(path, skip_bad=True)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 << 20
    assert len(source) == 2 and len(source.skipped) == 1
    assert source.where(1) == f"{path}:3" and source.example(1).prompt == "a"


def test_a_line_just_too_long_does_not_take_the_next_one_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = '{"prompt": "' + "x" * 200
    monkeypatch.setattr(load, "LONGEST_LINE", len(long))
    path = tmp_path / "facts.jsonl"
    path.write_text(f"{GOOD}\n{long}\n{GOOD}\n{GOOD}\n")  # with its end it has one byte more than is allowed
    source = JsonlSource(path, skip_bad=True)
    assert len(source) == 3 and source.where(1) == f"{path}:3" and source.example(1).prompt == "a"


def test_a_thinking_token_of_ones_own_that_is_written_out_stays_as_long_as_it_is() -> None:
    record = {"prompt": "a", "completion": "<p><p><p> b", "thoughts": ["<p><p><p>"]}
    source = ListSource([record], think="<p>")
    assert source.has_thoughts
    shelf = source.shelf(np.array([0]))
    assert shelf.texts(shelf.completion[0]) == ["<p>", "<p>", "<p>", " b"]
    shelf = ListSource([record]).shelf(np.array([0]))
    assert shelf.texts(shelf.completion[0]) == ["<p><p><p>", " b"]


def test_a_file_without_records_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the file is empty"):
        JsonlSource(written(tmp_path / "empty.jsonl", b""))
    with pytest.raises(InputError, match="no records that can be used"):
        JsonlSource(written(tmp_path / "bad.jsonl", b"17\n"), skip_bad=True)
    with pytest.raises(InputError, match="no records"):
        ListSource([])
    with pytest.raises(InputError, match="no such file"):
        load_source(tmp_path / "absent.jsonl")
    with pytest.raises(InputError, match="no saved dataset"):
        load_source(tmp_path)


def test_the_last_line_needs_no_end_and_windows_line_ends_will_do(tmp_path: Path) -> None:
    source = JsonlSource(written(tmp_path / "facts.jsonl", f"{GOOD}\r\n{GOOD}".encode()))
    assert [source.example(k).completion[0].text for k in range(2)] == ["b", "b"]


def test_a_file_a_list_and_a_dataset_are_the_same_source(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    records = [
        {**record(k), "privileged_context": {f"s{k % 2}": [{"text": f"fact {k}", "needed": k > 1}]}} for k in range(4)
    ]
    path = written(tmp_path / "facts.jsonl", [json.dumps(r) for r in records])
    datasets.Dataset.from_list(records).save_to_disk(str(tmp_path / "saved"))
    sources = [ListSource(records), JsonlSource(path), load_source(tmp_path / "saved")]
    for k in range(4):
        assert len({str(source.example(k)) for source in sources}) == 1, k


def test_a_folder_of_several_datasets_is_not_one(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    splits = {"train": datasets.Dataset.from_list([record(1)]), "test": datasets.Dataset.from_list([record(2)])}
    datasets.DatasetDict(splits).save_to_disk(str(tmp_path / "saved"))
    with pytest.raises(InputError, match=r"name the folder of one \(train, test\)"):
        load_source(tmp_path / "saved")
    assert len(load_source(tmp_path / "saved" / "test")) == 1
    with pytest.raises(InputError, match="--skip-bad is for JSONL files"):
        load_source(tmp_path / "saved" / "test", skip_bad=True)


@pytest.mark.parametrize("damaged", ["state.json", "data-00000-of-00001.arrow"])
def test_a_damaged_dataset_is_refused_with_its_folder(damaged: str, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    datasets.Dataset.from_list([json.loads(GOOD)] * 4).save_to_disk(tmp_path / "saved")
    path = tmp_path / "saved" / damaged
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(InputError, match="saved: the saved dataset is damaged"):
        load_source(tmp_path / "saved")


def test_a_change_of_one_letter_changes_the_fingerprint(tmp_path: Path) -> None:
    one = JsonlSource(written(tmp_path / "one.jsonl", [GOOD]))
    same = JsonlSource(written(tmp_path / "same.jsonl", [GOOD]))
    other = JsonlSource(written(tmp_path / "other.jsonl", [GOOD.replace("a", "e")]))
    assert one.fingerprint == same.fingerprint != other.fingerprint
    assert ListSource([record(1)]).fingerprint != ListSource([record(2)]).fingerprint


@pytest.mark.parametrize("kept", [True, False])
def test_a_record_is_parsed_once_if_examples_are_kept(
    kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [json.dumps(record(k, [f"fact {k}"])) for k in range(5)]
    size = sum(len(line) + 1 for line in lines)
    monkeypatch.setattr(load, "KEPT_BYTES", size if kept else size - 1)
    parsed: list[str] = []

    def counting(data: Any, where: str) -> Any:
        parsed.append(where)
        return example_from_record(data, where)

    monkeypatch.setattr(load, "example_from_record", counting)
    path = written(tmp_path / "facts.jsonl", lines)
    source = JsonlSource(path)
    assert parsed == [f"{path}:{k}" for k in range(1, 6)]
    source.shelf(np.arange(5))
    source.wrong(np.arange(5), words_for(5))
    assert len(parsed) == (5 if kept else 20)
    assert [source.example(k) for k in range(5)] == [example_from_record(json.loads(line)) for line in lines]


def _prompts(source: JsonlSource, order: list[int], sent: Any) -> None:
    sent.put([source.example(k).prompt for k in order])


@pytest.mark.parametrize("kept", [2**30, 0])
def test_forked_readers_of_one_open_file_do_not_move_each_other(
    kept: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "KEPT_BYTES", kept)
    path = written(tmp_path / "facts.jsonl", [json.dumps(record(k, ["x" * 3000])) for k in range(200)])
    source = JsonlSource(path)
    source.example(0)  # the file is open now, and its position is shared with whoever is forked
    context = get_context("fork")
    orders = [list(range(200)) * 4, list(range(199, -1, -1)) * 4]
    queues = [context.Queue() for _ in orders]
    children = [
        context.Process(target=_prompts, args=(source, order, queue))
        for order, queue in zip(orders, queues, strict=True)
    ]
    for child in children:
        child.start()
    for order, queue in zip(orders, queues, strict=True):
        assert queue.get(timeout=60) == [f"question {k}" for k in order]
    for child in children:
        child.join()


@pytest.mark.parametrize("kept", [2**30, 0])
def test_a_source_can_be_sent_to_another_process(kept: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "KEPT_BYTES", kept)
    source = JsonlSource(written(tmp_path / "facts.jsonl", [json.dumps(record(k)) for k in range(3)]))
    source.example(0)
    copy = pickle.loads(pickle.dumps(source))
    assert [copy.example(k) for k in range(3)] == [source.example(k) for k in range(3)]


def words_for(count: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 2**63, (count, 4)).astype(np.uint64)


def test_a_wrong_book_is_another_records_and_holds_nothing_that_helps() -> None:
    books = [["shared", f"fact {k // 2}"] for k in range(6)]  # two records have the same book
    source = ListSource([record(k, book) for k, book in enumerate(books)])
    indices = np.repeat(np.arange(6), 200)
    shelf = source.wrong(indices, words_for(len(indices)))
    seen: dict[int, set[str]] = {k: set() for k in range(6)}
    for row, k in enumerate(indices.tolist()):
        pieces = {text.strip() for text in shelf.texts(shelf.pieces[row])}
        assert not pieces & set(books[k])
        assert "".join(shelf.texts(shelf.prompt[row])) == f"question {k}"
        seen[k] |= pieces
    assert all(seen[k] == {f"fact {j}" for j in range(3) if j != k // 2} for k in range(6))


def test_pieces_that_another_record_does_not_need_stay_marked_so() -> None:
    books: list[Any] = [[{"text": "a", "needed": True}], [{"text": "b", "needed": False}]]
    shelf = ListSource([record(k, book) for k, book in enumerate(books)]).wrong(np.arange(2), words_for(2))
    assert shelf.needed[:, 0, 0].tolist() == [False, True]


@pytest.mark.parametrize("books", [[["a"]], [["a"], ["a"]], [None, None]])
def test_where_there_is_no_other_book_there_is_no_wrong_one(books: list[list[str] | None]) -> None:
    source = ListSource([record(k, book) for k, book in enumerate(books)])
    assert not source.can_mislead
    with pytest.raises(InputError, match="all records have the same one"):
        source.wrong(np.array([0]), words_for(1))
