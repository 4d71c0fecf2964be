"""A user's own runs on a page: finished, half-finished, damaged and foreign, each shown as what it is."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from openbook.base.errors import InputError
from openbook.comparison.own_runs import write_report
from openbook.comparison.records import Config
from openbook.curriculum import PRESETS, preset
from openbook.training.folder import RunFolder

EXAM = [
    {"book": "right", "open": share, "accuracy": accuracy, "low": accuracy - 0.01, "high": accuracy, "chance": 0.125,
     "exact_match": 0.5, "samples": 64}
    for share, accuracy in ((0.0, 0.9), (0.5, 0.95), (1.0, 0.99))
]  # fmt: skip
CONFIG = {"task": {"depth": 3, "chars": 8}, "curriculum": {"drop": "0@0,1@0.6"}, "model": {"path": None}}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A finished run, as `openbook learn` leaves it."""
    record = RunFolder.create(tmp_path / "good", CONFIG, {"examples": 10})
    for step in range(1, 21):
        record.log(step=step, loss=2.0 / step)
    record.log(step=10, closed_book=0.5, open_book=0.9)
    record.log(step=20, closed_book=0.9, open_book=0.99)
    accuracy = {"closed_book": 0.9, "open_book": 0.99}
    record.finish({"accuracy": accuracy, "samples": 10, "steps": 20, "chance": 0.125, "exam": [EXAM[0], EXAM[2]]})
    return tmp_path / "good"


def shown(paths: list[Path], out: Path) -> tuple[str, list[dict[str, Any]]]:
    page, described = write_report(paths, out / "report.html")
    return page.read_text(encoding="utf-8"), described


def test_a_finished_run_has_its_curves_its_exam_and_its_record(run: Path, tmp_path: Path) -> None:
    text, (one,) = shown([run], tmp_path)
    assert one["status"] == "done" and one["notices"] == []
    assert "How the training went" in text and "The exam at the end" in text and "MLT(3, 8)" in text
    assert (tmp_path / "charts" / "good-course.png").exists()
    assert "90.0% with the book closed" in text


def test_a_run_that_did_not_finish_is_shown_as_such(run: Path, tmp_path: Path) -> None:
    (run / "manifest.json").unlink()
    (run / "result.json").unlink()
    text, (one,) = shown([run], tmp_path)
    assert one["status"] == "unfinished" and "the last logged step is 20" in one["notices"][0]
    assert "How the training went" in text and "… unfinished" in text


def test_a_reader_that_cannot_read_and_a_run_that_was_changed_say_so(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "main"  # which is also a name of the page's own
    shutil.copytree(run, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "reading": {"most_steps": 3}}))
    result = json.loads((folder / "result.json").read_text())
    (folder / "result.json").write_text(json.dumps({**result, "capable": False, "threshold": 0.98}))
    (folder / "changes.json").write_text(json.dumps([{"lines_logged": 2, "changes": ["config: seed was 0, is 1"]}]))
    text, (described,) = shown([folder], tmp_path)
    (folder / "changes.json").write_text("[5]")
    assert "changes.json is not what openbook writes" in " ".join(shown([folder], tmp_path)[1][0]["notices"])
    said = " ".join(described["notices"])
    assert "It cannot read: its open-book accuracy is below 0.98" in said and "seed was 0, is 1" in said
    assert "Loss of the course" in text and text.count('id="main"') == 1


def test_a_damaged_run_is_shown_with_what_is_left(run: Path, tmp_path: Path) -> None:
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 21, "lo')
    (run / "result.json").write_text("{")
    text, (one,) = shown([run], tmp_path)
    assert one["status"] == "damaged"
    said = " ".join(one["notices"])
    assert "result.json cannot be read" in said and "1 line(s) of metrics.jsonl" in said
    assert "metrics.jsonl was changed after the run" in said
    assert "How the training went" in text


@pytest.mark.parametrize(
    "file", ["config.json", "result.json", "manifest.json", "environment.json", "data.json", "metrics.jsonl"]
)
@pytest.mark.parametrize(
    "content",
    [
        "",
        "null",
        "[]",
        "42",
        '"text"',
        "\x00\xff",
        '{"accuracy": {"closed_book": 0.5}, "curriculum": "anneal"}',
        '{"chance": null, "exam": [{}], "curriculum": {}, "model": "x"}',
    ],
)
def test_no_file_of_a_run_can_break_the_page(run: Path, tmp_path: Path, file: str, content: str) -> None:
    (run / file).write_text(content, encoding="utf-8")
    _, (one,) = shown([run], tmp_path)
    assert one["status"] in ("damaged", "unfinished") and one["notices"]


def test_what_stands_beside_the_page_is_left_alone(run: Path, tmp_path: Path) -> None:
    (tmp_path / "charts").mkdir()
    (tmp_path / "charts" / "mine.csv").write_text("precious")
    shown([run], tmp_path)
    assert (tmp_path / "charts" / "mine.csv").read_text() == "precious"
    assert (tmp_path / "charts" / "good-course.svg").exists()


def test_a_models_folder_is_not_a_run(run: Path, tmp_path: Path) -> None:
    (run / "model").mkdir()
    (run / "model" / "config.json").write_text('{"model_type": "llama"}')
    _, (one,) = shown([run / "model"], tmp_path)
    assert one["status"] == "damaged" and "is not a run's" in one["notices"][0]


def test_an_empty_folder_and_a_folder_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "runs").mkdir()  # as a folder of one's work may have
    text, (one,) = shown([tmp_path / "empty"], tmp_path)
    assert one["status"] == "foreign" and "not a run" in one["notices"][0] and "damaged" not in text.split("<body>")[1]


def test_a_folder_of_runs_stands_for_them(run: Path, tmp_path: Path) -> None:
    sweep = tmp_path / "sweep"
    for name in ("seed=1", "seed=0"):
        shutil.copytree(run, sweep / name)
    (sweep / "jobs").mkdir()
    (sweep / "sweep.json").write_text("{}")
    (sweep / "lock").touch()  # which `openbook sweep` leaves
    shutil.copytree(run, sweep / "seed=2")
    (sweep / "seed=2" / "data.json").unlink()
    (sweep / "seed=3").mkdir()
    (sweep / "seed=3" / "error.json").write_text('{"error": "out of memory"}')
    text, described = shown([sweep, run], tmp_path)
    assert [one["source"] for one in described] == [*(str(sweep / f"seed={k}") for k in range(4)), str(run)]
    assert [one["status"] for one in described] == ["done", "done", "damaged", "failed", "done"]
    assert described[3]["notices"] == ["It failed: out of memory."] and "✗ failed" in text
    assert f"openbook report {sweep} {run}" in text


def test_runs_are_compared_before_they_are_shown(run: Path, tmp_path: Path) -> None:
    text, _ = shown([run], tmp_path)
    assert "side by side" not in text
    plain = tmp_path / "plain"
    record = RunFolder.create(plain, {**CONFIG, "curriculum": {"drop": "1@0"}, "seed": 7}, {"examples": 10})
    record.log(step=10, closed_book=0.2, open_book=0.2)
    record.log(step=20, closed_book=0.31, open_book=0.3)
    exam = [{**row, "accuracy": 0.31, "low": 0.3, "high": 0.32} for row in (EXAM[0], EXAM[2])]
    accuracy = {"closed_book": 0.31, "open_book": 0.3}
    record.finish({"accuracy": accuracy, "samples": 1280, "steps": 20, "chance": 0.125, "exam": exam})
    unfinished = tmp_path / "begun"
    RunFolder.create(unfinished, CONFIG, {})
    text, described = shown([run, plain, unfinished], tmp_path)
    first, rest = text.split('<section id="good"')
    assert "The runs side by side" in first and len(described) == 3
    cells = [cell.partition("<")[0] for cell in first.split("<td data-label=")[1:]]
    assert [cell.partition(">")[2] for cell in cells] == [
        *("good", "MLT(3, 8)", "anneal", "", "10", "90.0%", "89.0% to 90.0%", "99.0%", "12.5%"),
        *("plain", "MLT(3, 8)", "no-context", "7", "1,280", "31.0%", "30.0% to 32.0%", "30.0%", "12.5%"),
    ]
    chart = tmp_path / "charts" / "overview-curves.svg"
    assert chart.exists() and "plain ends at 31%" in first and "curriculum no-context" in rest


@pytest.mark.parametrize(
    ("curriculum", "name"),
    [
        *(
            (preset("fixed:0.2" if name == "fixed" else name), "fixed:0.2" if name == "fixed" else name)
            for name in PRESETS
        ),
        ({"drop": "0.5@0"}, "fixed:0.5"),
        ({"drop": "0@0,1@0.8"}, "closed at 0@0,1@0.8"),
    ],
)
def test_a_curriculum_is_called_by_its_name(curriculum: dict[str, Any], name: str) -> None:
    assert Config.model_validate({"curriculum": curriculum}).curriculum() == name


def test_runs_of_the_same_name_do_not_get_into_each_others_way(run: Path, tmp_path: Path) -> None:
    other = tmp_path / "elsewhere" / "good"
    shutil.copytree(run, other)
    text, described = shown([run, other], tmp_path)
    assert [one["name"] for one in described] == ["good", "good-2"]
    assert 'id="good-2"' in text and (tmp_path / "charts" / "good-2-course.svg").exists()


def test_an_exam_gives_the_curve_of_context_reliance(tmp_path: Path) -> None:
    file = tmp_path / "exam.json"
    file.write_text(json.dumps({"run": "runs/x", "rows": [*EXAM, {**EXAM[2], "book": "wrong", "accuracy": 0.3}]}))
    text, (one,) = shown([file], tmp_path)
    assert one["status"] == "done" and "Context reliance" in text and "wrong book" in text
    file.write_text(json.dumps({"rows": [{**EXAM[0], "book": "another"}]}))
    assert shown([file], tmp_path)[1][0]["status"] == "done"


def test_an_audit_shows_its_attacks_and_its_verdict(tmp_path: Path) -> None:
    attack = {"name": "completion", "variant": "greedy", "arm": "trained", "rate": 0.02, "low": 0.01, "high": 0.03,
              "chance": 0.0156, "elimination": 0.074}  # fmt: skip
    file = tmp_path / "audit.json"
    file.write_text(json.dumps({"verdict": "not recovered", "attacks": [attack], "run": "runs/x"}))
    text, (one,) = shown([file], tmp_path)
    assert one["status"] == "done" and "✓ not recovered" in text and "7.40%" in text
    for verdict, badge in (("void", "? void"), ("leaked", "✗ leaked"), ("unheard of", "✓ finished")):
        file.write_text(json.dumps({"verdict": verdict, "attacks": [attack], "run": "runs/x"}))
        assert badge in shown([file], tmp_path)[0]


def test_an_audit_says_what_it_measured_and_what_it_could_not(tmp_path: Path) -> None:
    """Canaries are in no answer, so what answers give away of them is not known; an area is no share of secrets."""
    levels = {"chance": 0.5, "elimination": 0.5}
    area = {"name": "membership", "variant": "loss", "metric": "AUC", "arm": "trained", "rate": 0.994, **levels}
    unknown = {"name": "inversion", "variant": "answers", "metric": "rate", "arm": "trained", "rate": None}
    file = tmp_path / "audit.json"
    attacks = [{**area, "low": 0.98, "high": 1.0, "caught": True}, {**unknown, "low": None, "high": None}]
    file.write_text(json.dumps({"verdict": "leaked", "attacks": attacks, "run": "runs/x"}))
    text, (one,) = shown([file], tmp_path)
    assert one["status"] == "done" and "✗ leaked" in text
    assert "0.994 *" in text and "AUC" in text and "99.40%" not in text and "– to –" in text


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"rows": []}',
        '{"rows": [{"open": 1}]}',
        '{"attacks": [{}]}',
        '{"rows": 3}',
        '{"attacks": 3}',
    ],
)
def test_a_file_that_is_nothing_of_the_kind_is_shown_as_such(tmp_path: Path, content: str) -> None:
    file = tmp_path / "x.json"
    file.write_text(content)
    _, (one,) = shown([file], tmp_path)
    assert one["status"] == "damaged" and one["notices"]


def test_names_are_not_code(run: Path, tmp_path: Path) -> None:
    evil = tmp_path / "<script>alert(1)<"
    shutil.copytree(run, evil)
    text, _ = shown([evil], tmp_path)
    assert "<script>alert" not in text


def test_what_does_not_exist_is_refused_before_anything(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        write_report([tmp_path / "nothing"], tmp_path / "report.html")
    with pytest.raises(InputError, match="no run was named"):
        write_report([], tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


def test_a_bug_in_what_draws_a_run_is_loud(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise KeyError("a bug")

    monkeypatch.setattr("openbook.comparison.own_runs.Chart", broken)
    with pytest.raises(KeyError, match="a bug"):
        write_report([run], tmp_path / "report.html")


def test_what_is_wrong_with_a_file_is_named(run: Path, tmp_path: Path) -> None:
    result = json.loads((run / "result.json").read_text())
    (run / "result.json").write_text(json.dumps({**result, "steps": "many"}))
    _, (described,) = shown([run], tmp_path)
    assert described["status"] == "damaged"
    assert described["notices"][0].startswith("result.json is not what openbook writes: steps: ")
