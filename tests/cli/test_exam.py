"""`openbook exam` on the command line."""

from __future__ import annotations

import json
import shutil
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import FACTS
from tests.training.test_harness import RESULTS, given

import openbook
from openbook.base.files import file_hash, write_json
from openbook.cli import main
from openbook.training.folder import RunFolder


def test_the_curve_of_a_model_that_has_learned(learned: Path, told: Any) -> None:
    exam, code = told("exam", learned, "--generate")
    assert code == 0
    rows = exam["rows"]
    assert [(row["book"], row["open"]) for row in rows] == [
        *[("right", share) for share in (0.0, 0.25, 0.5, 0.75, 1.0)],
        ("wrong", 1.0),
    ]
    for row in rows:
        assert 0 <= row["low"] <= row["accuracy"] <= row["high"] <= 1 and row["chance"] < 0.2
    closed, wrong = rows[0], rows[-1]
    assert closed["accuracy"] >= 0.95 and wrong["accuracy"] < closed["accuracy"]
    assert closed["pieces"] == 0 and rows[4]["pieces"] == 2  # the one needed, and a quarter of the four others
    assert 1 < wrong["pieces"] <= 2
    # written greedily or examined token by token, a whole answer is right in the same cases
    assert [row["generated_match"] for row in rows] == [row["exact_match"] for row in rows]
    for row in rows:
        assert row["f1_low"] <= row["f1"] <= row["f1_high"] and row["normalised_match"] <= row["f1"]
        assert row["normalised_low"] <= row["normalised_match"] <= row["normalised_high"]
        assert row["normalised_match"] >= row["generated_match"]  # it ends where its answer ends


def test_what_was_written_is_shown(
    learned: Path, told: Any, refused: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    exam, _ = told("exam", learned, "--show", 2, "--open", 0)
    assert len(exam["written"]) == 2 and exam["rows"][0]["f1"] > 0.9
    question, reference, written = (exam["written"][0][key] for key in ("question", "reference", "written"))
    assert (question, reference) == ("Who rules Vellmora?", "Queen Ilva") and written == reference
    monkeypatch.setattr("openbook.base.console.out._width", 120)
    assert main(["exam", str(learned), "--show", "1", "--open", "0"]) == 0
    shown = capsys.readouterr().out
    for word in ("F1", "normalised", "question, book closed", question, reference):
        assert word in shown
    assert "0 among the --open" in refused("exam", learned, "--show", 3, "--open", 1)
    assert "0 among the --open" in refused("exam", learned, "--show", -1)


def answering(replies: bytes) -> HTTPServer:
    """A server that has one answer to every question."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(replies)

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    return server


def test_a_server_is_examined_on_a_file_or_on_the_data_of_a_run(
    learned: Path, told: Any, refused: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = answering(json.dumps({"choices": [{"message": {"content": "Queen Ilva!"}}]}).encode())
    there = ("--endpoint", f"http://127.0.0.1:{server.server_port}", "--endpoint-model", "any")
    chart = tmp_path / "curve.svg"
    exam, code = told("exam", *there, "--data", FACTS, "--samples", 4, "--show", 1, "--chart", chart)
    assert code == 0 and exam["run"] is None and exam["endpoint"].endswith("/v1") and exam["model"] == "any"
    assert [(row["normalised_match"], row["exact_match"]) for row in exam["rows"]] == [(0.25, 0.0)] * 6
    assert exam["written"][0]["written"] == "Queen Ilva!" and "F1 on the answer" in chart.read_text()
    other, _ = told("exam", learned, *there)
    assert other["rows"][0]["samples"] == 30 and other["rows"][0]["accuracy"] is None
    assert main(["exam", *there, "--data", str(FACTS), "--samples", "4"]) == 0
    shown = capsys.readouterr().out
    assert "normalised" in shown and "chance" not in shown
    assert "name a run, or give a file" in refused("exam", *there)
    assert "leave out --endpoint" in refused("exam", learned, *there, "--sections")
    assert "leave out --endpoint" in refused("exam", learned, *there, "--tasks", "hellaswag")
    server.shutdown()
    server.server_close()
    assert main(["exam", *there, "--data", str(FACTS)]) == 1
    assert "nobody listens there" in capsys.readouterr().err


def test_an_exam_is_of_somebody(learned: Path, refused: Any) -> None:
    assert "name a run, or a server with --endpoint" in refused("exam")
    assert "--endpoint-model is about a server" in refused("exam", learned, "--endpoint-model", "m")


def test_tasks_of_the_harness_stand_beside_the_exam(
    learned: Path, told: Any, refused: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    assert "pip install 'openbook[lm-eval]'" in refused("exam", learned, "--tasks", "hellaswag")
    given(monkeypatch, lambda model, tasks, **_: RESULTS)
    exam, code = told("exam", learned, "--tasks", "hellaswag,gsm8k", "--open", 0, "--samples", 2)
    assert code == 0 and [row["task"] for row in exam["tasks"]] == ["hellaswag", "hellaswag", "gsm8k"]
    assert main(["exam", str(learned), "--tasks", "gsm8k", "--open", "0", "--samples", "2"]) == 0
    assert "strict-match" in capsys.readouterr().out


def test_a_run_says_the_same_at_its_end_and_in_the_exam(learned: Path, told: Any) -> None:
    exam, _ = told("exam", learned, "--open", 0, "--open", 1)
    ended = RunFolder(learned).read("result.json")
    assert [row["accuracy"] for row in exam["rows"] if row["book"] == "right"] == [
        ended["accuracy"]["closed_book"],
        ended["accuracy"]["open_book"],
    ]


def test_the_table_and_the_chart(learned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("curve.png", "curve.svg"):
        assert main(["exam", str(learned), "--chart", str(tmp_path / name)]) == 0
    shown = capsys.readouterr().out
    for word in ("accuracy", "95 % interval", "chance", "exact match", "wrong", "30 examples", "clustered by example"):
        assert word in shown
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert "share of the book" in (tmp_path / "curve.svg").read_text()


def test_sections_are_closed_one_at_a_time(
    learned: Path, told: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every record has one section, that of its country: closed, it is as closed as a book can be."""
    exam, code = told("exam", learned, "--sections", "--open", 0)
    found = exam["sections"]
    assert code == 0 and len(found) == 6 and found[0]["section"] == "Vellmora"
    assert {(row["samples"], row["pieces"]) for row in found} == {(5, 2)}
    for key in ("accuracy", "exact_match"):
        assert sum(row[key] for row in found) / 6 == pytest.approx(exam["rows"][0][key])
    assert main(["exam", str(learned), "--sections", "--samples", "3"]) == 0
    assert "one section closed, the others open" in capsys.readouterr().out
    path = tmp_path / "bare.jsonl"
    path.write_text('{"prompt": "Who rules Vellmora?", "completion": " Queen Ilva"}\n')
    assert main(["exam", str(learned), "--sections", "--data", str(path)]) == 2
    assert "no section to close" in capsys.readouterr().err


def test_other_data_can_be_examined(learned: Path, tmp_path: Path, told: Any) -> None:
    path = tmp_path / "other.jsonl"
    path.write_text('{"prompt": "Who rules Vellmora?", "completion": " Queen Ilva"}\n')
    exam, code = told("exam", learned, "--data", path)
    assert code == 0 and exam["rows"][0]["samples"] == 1
    assert exam["rows"][0]["accuracy"] == 1.0 and len(exam["rows"]) == 5  # one record has no wrong book


def test_data_that_were_changed_since_are_refused(learned: Path, tmp_path: Path, told: Any, refused: Any) -> None:
    run, facts = tmp_path / "run", tmp_path / "facts.jsonl"
    shutil.copytree(learned, run)
    facts.write_text(FACTS.read_text(encoding="utf-8"), encoding="utf-8")
    record = RunFolder(run).read("config.json") | {"data": str(facts)}
    write_json(run / "config.json", record)
    write_json(
        run / "manifest.json", RunFolder(run).read("manifest.json") | {"config.json": file_hash(run / "config.json")}
    )
    assert told("exam", run, "--open", 0)[1] == 0
    facts.write_text(facts.read_text(encoding="utf-8").replace("Vellmora", "Vellmoor"), encoding="utf-8")
    assert "was changed since" in refused("exam", run)
    assert told("exam", run, "--open", 0, "--data", facts)[1] == 0
    facts.unlink()
    said = refused("exam", run)
    assert "no such file" in said and "--data" in said


def test_an_exam_of_its_own_that_was_changed_since_is_refused(tmp_path: Path, told: Any, refused: Any) -> None:
    facts, run = tmp_path / "facts.jsonl", tmp_path / "run"
    facts.write_text('{"prompt": "Who rules Vellmora?", "completion": " Queen Ilva"}\n')
    few = ["--samples", 2, "--set", "exam.samples=1", "--set", "model.hidden_size=16", "--set", "model.layers=1"]
    _, code = told("learn", "--data", FACTS, "--set", f"exam.data={facts}", *few, "--out", run)
    assert code == 0 and told("exam", run, "--open", 0)[1] == 0
    facts.write_text(facts.read_text().replace("Ilva", "Orm"))
    assert "examined on in training, it was changed since" in refused("exam", run)


def test_what_is_not_a_run_or_not_an_exam_is_refused(learned: Path, refused: Any) -> None:
    assert "no share of the book is named" in refused("exam", learned, "--open")
    assert "is a model and not a run" in refused("exam", learned / "model")


def test_a_student_is_not_examined_on_words_it_does_not_have(tmp_path: Path, told: Any, refused: Any) -> None:
    run = tmp_path / "student"
    size = ["--depth", 1, "--chars", 3, "--samples", 16, "--set", "task.text=composite", "--set", "task.lengths=[4,6]"]
    assert told("learn", *size, "--set", "exam.samples=4", "--out", run)[1] == 0
    assert "is a student, whose words are those of its task" in refused("exam", run, "--data", FACTS)


def test_fewer_samples_and_another_seed(learned: Path, told: Any) -> None:
    exam, _ = told("exam", learned, "--samples", 4, "--seed", 5, "--open", 0.5)
    assert [row["samples"] for row in exam["rows"]] == [4, 4]


def test_a_student_is_examined_on_longer_strings_than_it_knows(told: Any, refused: Any, learned: Path) -> None:
    reader = Path(openbook.__file__).parent / "checkpoints" / "student-3-8"
    asked = ("exam", reader, "--samples", 16, "--open", 1)
    (trained, _), (longer, _) = (told(*asked, *more)[0]["rows"] for more in ([], ["--lengths", 70, 80]))
    assert longer["pieces"] > trained["pieces"]  # longer strings need more of the rules
    assert 0.125 < longer["accuracy"] < trained["accuracy"]
    assert "even" in refused("exam", reader, "--lengths", 7, 9)
    assert "records of a file" in refused("exam", learned, "--lengths", 20, 20)


def test_a_student_is_examined_on_a_codebook_of_ones_choice(told: Any, refused: Any, learned: Path) -> None:
    reader = Path(openbook.__file__).parent / "checkpoints" / "student-3-8"
    asked = ("exam", reader, "--samples", 16, "--open", 1, "--codebook")
    fresh, one, other = (told(*asked, which)[0]["rows"][0] for which in ("fresh", 5, 6))
    assert min(row["accuracy"] for row in (fresh, one, other)) > 0.98  # it reads them all
    assert len({row["pieces"] for row in (fresh, one, other)}) == 3  # and they are different ones
    assert "which is none of these" in refused("exam", reader, "--codebook", "absent.json")
    assert "have another codebook; this exam is on records" in refused("exam", learned, "--codebook", 5)


def test_the_book_has_as_much_of_what_is_not_needed_as_one_says(told: Any, refused: Any) -> None:
    reader = Path(openbook.__file__).parent / "checkpoints" / "student-3-8"
    asked = ("exam", reader, "--samples", 16, "--open", 1)
    exams = [told(*asked, *more)[0] for more in (["--others", 0], [], ["--others", 1])]
    brief, usual, whole = (exam["rows"][0] for exam in exams)
    assert [exam["others"] for exam in exams] == [0, 0.25, 1]
    assert brief["pieces"] < usual["pieces"] < whole["pieces"] == 3 * 64  # every rule of three phrasebooks
    assert min(row["accuracy"] for row in (brief, usual)) > 0.98
    assert "a share from 0 to 1" in refused("exam", reader, "--others", 1.5)


def test_a_book_of_all_pieces_has_no_others(tmp_path: Path, told: Any, refused: Any) -> None:
    run = tmp_path / "run"
    size = ["--set", "model.hidden_size=16", "--set", "model.layers=1", "--set", "exam.samples=2"]
    assert (
        told("learn", "--data", FACTS, "--samples", 2, "--set", "curriculum.candidates=all", *size, "--out", run)[1]
        == 0
    )
    assert "has all pieces, needed or not" in refused("exam", run, "--others", 0.5)


def test_a_book_of_nothing_but_what_is_needed_has_no_others(learned: Path, tmp_path: Path, refused: Any) -> None:
    """Pieces are needed unless it is said that they are not, so that any share of the others would be none."""
    path = tmp_path / "plain.jsonl"
    record = {"prompt": "Who rules Vellmora?", "completion": " Queen Ilva", "privileged_context": ["Ilva rules."]}
    path.write_text(json.dumps(record) + "\n")
    assert "a piece that it does not need" in refused("exam", learned, "--data", path, "--others", 0.5)


def test_bad_input_is_refused(learned: Path, tmp_path: Path, refused: Any) -> None:
    assert "has no config.json" in refused("exam", tmp_path / "absent")
    assert "between 0 and 1" in refused("exam", learned, "--open", "1.5")
    assert "at least one" in refused("exam", learned, "--samples", "0")
    assert "a chart is saved as" in refused("exam", learned, "--chart", tmp_path / "curve.pdf")
    assert "no such file" in refused("exam", learned, "--data", tmp_path / "absent.jsonl")


def test_a_run_that_was_tampered_with_is_refused(learned: Path, tmp_path: Path, refused: Any) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(learned, copy)
    weights = copy / "model" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    assert "model/model.safetensors was changed after the run" in refused("exam", copy)
    (copy / "manifest.json").unlink()
    assert "did not finish" in refused("exam", copy)
