"""`openbook reproduce`: runs what is missing, judges, writes the page; can be stopped and continued."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from openbook.base.jobs import Event
from openbook.cli import main
from openbook.figures import svg
from openbook.figures.charts import Chart
from openbook.paper import EXPERIMENTS, reproduce
from openbook.paper.reproduce import JobProgress
from openbook.training.folder import RunFolder

EXECUTABLE = [sys.executable, "-m", "openbook.cli"]
CHEAP = ("reproduce", "translation", "surrogate-dynamics", "--scale", "smoke")


def test_rows_claims_and_page_then_nothing_more_to_do(told: Any, tmp_path: Path) -> None:
    first, code = told(*CHEAP, "--out", tmp_path, "--processes", 1)
    assert code == 0 and first["done_now"] == first["jobs"] == 4 and first["failed"] == {}
    assert {claim["verdict"] for claim in first["claims"]} == {"holds"}
    assert all({"experiment", "claim", "verdict", "numbers", "threshold"} <= set(claim) for claim in first["claims"])
    assert Path(first["page"]).stat().st_size > 10_000
    again, _ = told(*CHEAP, "--out", tmp_path)
    assert again["done_now"] == 0 and again["claims"] == first["claims"]
    third, _ = told(*CHEAP, "--out", tmp_path, "--again", "--processes", 1)
    assert third["done_now"] == 4


def test_rows_are_replaced_and_never_just_removed(told: Any, refused: Any, tmp_path: Path) -> None:
    told("reproduce", "translation", "--scale", "smoke", "--out", tmp_path, "--processes", 1)
    rows = sorted((tmp_path / "rows").rglob("*.json"))
    with RunFolder(tmp_path).lock():
        assert "another process" in refused(
            "reproduce", "translation", "--scale", "smoke", "--out", tmp_path, "--again"
        )
    assert rows and sorted((tmp_path / "rows").rglob("*.json")) == rows
    dry, _ = told("reproduce", "translation", "--scale", "smoke", "--out", tmp_path, "--again", "--dry-run")
    assert len(dry["jobs"]) == len(rows)


def test_the_page_keeps_what_other_calls_have_put_there(told: Any, tmp_path: Path) -> None:
    for name in ("translation", "surrogate-dynamics"):
        told("reproduce", name, "--scale", "smoke", "--out", tmp_path, "--processes", 1)
    text = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert 'id="translation"' in text and 'id="surrogate-dynamics"' in text and 'id="gap"' not in text


def test_readable_output_ends_with_the_claims_and_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "translation", "--scale", "smoke", "--out", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "2 hold, 0 do not" in text and str(tmp_path / "index.html") in text.replace("\n", "")


def test_finished_experiments_are_published_and_others_named(
    told: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = tmp_path / "shown"
    found, _ = told(*CHEAP, "--out", tmp_path / "out", "--processes", 1, "--publish", shown)
    assert found["published"] == sorted(map(str, shown.iterdir()), key=found["published"].index)
    assert {path.name for path in shown.iterdir()} == {
        "translation.json",
        "surrogate-dynamics.json",
        "surrogate-dynamics.svg",
    }
    stored = json.loads((shown / "surrogate-dynamics.json").read_text())
    assert stored["command"] == "openbook reproduce surrogate-dynamics --scale smoke"
    rows = sorted((tmp_path / "out" / "rows" / "surrogate-dynamics").glob("*.json"))
    assert sorted(map(str, stored["units"])) == sorted(str(json.loads(path.read_text())) for path in rows)
    experiment = EXPERIMENTS["surrogate-dynamics"]
    (chart,) = (
        c for c in experiment.draw([r for u in stored["units"] for r in u["rows"]]) if c.name == experiment.name
    )
    assert isinstance(chart, Chart) and (shown / "surrogate-dynamics.svg").read_text() == svg(chart)
    key = f"surrogate-dynamics {rows[0].stem}"
    monkeypatch.setattr(  # its old rows are there
        reproduce, "run_missing", lambda jobs, *_: [(Event("failed", key), JobProgress(jobs, 1, failed={key: "broke"}))]
    )
    again, _ = told(*CHEAP, "--out", tmp_path / "out", "--again", "--publish", shown)
    assert again["not_published"] == ["surrogate-dynamics"] and len(again["published"]) == 1
    monkeypatch.setattr(reproduce, "run_missing", lambda *_: [])  # as if nothing could be done
    rows[0].unlink()
    before = (shown / "surrogate-dynamics.json").read_bytes()
    main([*CHEAP, "--out", str(tmp_path / "out"), "--publish", str(shown)])
    assert "not published, since units are missing: surrogate-dynamics" in capsys.readouterr().out
    assert (shown / "surrogate-dynamics.json").read_bytes() == before


def test_the_list_says_what_there_is(told: Any, tmp_path: Path) -> None:
    listed, _ = told("reproduce", "--list", "--scale", "laptop", "--out", tmp_path)
    assert [row["name"] for row in listed["experiments"]][:3] == [
        "translation",
        "sample-efficiency",
        "context-reliance",
    ]
    assert len(listed["experiments"]) == 14 and all(row["units"] > 0 for row in listed["experiments"])
    assert listed["scales"] == ["smoke", "laptop", "overnight", "paper"]
    assert not (tmp_path / "rows").exists()


def test_a_study_is_listed_and_planned_like_an_experiment(told: Any, refused: Any, tmp_path: Path) -> None:
    study = Path(__file__).parents[2] / "studies" / "five-levels-rates.yaml"
    call = ("reproduce", "--study", study, "--out", tmp_path)
    listed, code = told(*call, "--scale", "overnight", "--list")
    assert code == 0 and [(row["name"], row["units"]) for row in listed["experiments"]] == [("five-levels-rates", 16)]
    planned, _ = told(*call, "translation", "--scale", "overnight", "--dry-run")
    assert {job["job"].partition(":")[0] for job in planned["jobs"]} == {"teach", "five-levels-rates", "translation"}
    assert "has nothing at scale laptop: use --scale overnight" in refused(*call)


def test_a_dry_run_of_the_papers_scale_checks_every_config(told: Any, tmp_path: Path) -> None:
    planned, code = told(
        "reproduce", "sample-efficiency", "recovery", "--scale", "paper", "--dry-run", "--out", tmp_path
    )
    commands = [job["command"] for job in planned["jobs"] if "command" in job]
    assert code == 0 and len(commands) > 70
    assert any(command.startswith("openbook prepare --config llama-3b-stage1-n8") for command in commands)
    assert any("--config llama-3b-stage2-n10" in c and "wrong-context" in c and "1000000" in c for c in commands)
    assert any("meta-llama/Llama-3.2-3B-Instruct" in command for command in commands)  # No ICL
    assert not tmp_path.joinpath("models").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nonsense"], "there is no experiment 'nonsense'"),
        (["gap", "--processes", "0"], "--processes is 0"),
        (["gap", "--out", "file"], "file is a file"),
        (["gap", "--publish", "file"], "file is a file: name a folder with --publish"),
        (["gap", "--reader", "."], "not a student"),
        (["--study", "absent.yaml"], "absent.yaml"),
        (["--scale", "huge"], "--scale"),
        (["sample-efficiency", "--scale", "paper"], "there is no GPU"),
    ],
)
def test_bad_input_is_refused_before_anything(
    refused: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("")
    assert words in refused("reproduce", *arguments)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]


def test_a_unit_that_fails_is_named_and_the_rest_is_done(
    told: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "translation").write_text("in the way")  # its rows cannot be written
    found, code = told(*CHEAP, "--out", tmp_path, "--processes", 1)
    assert code == 1 and [key.split()[0] for key in found["failed"]] == ["translation"]
    assert found["units"] == {"translation": 0, "surrogate-dynamics": 3}
    assert "failed" in Path(found["page"]).read_text(encoding="utf-8")


def _gone(group: int, patience: float = 10.0) -> bool:
    """Whether nobody of a process group is left; Python's own resource tracker takes a moment to notice."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_an_interrupted_call_leaves_no_process_and_is_continued(tmp_path: Path, number: int) -> None:
    command = [
        *EXECUTABLE,
        "reproduce",
        "context-reliance",
        "--scale",
        "smoke",
        "--out",
        str(tmp_path),
        "--processes",
        "1",
        "--json",
    ]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # which tests in the background would ignore
    )
    deadline = time.monotonic() + 120
    while not list((tmp_path / "models").glob("*/config.json")) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(process.pid, number) if number == signal.SIGINT else process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130 and out == "" and "Traceback" not in err
    assert _gone(process.pid)
    if number == signal.SIGTERM:
        return  # going on is the same, and is seen once
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["units"] == {"context-reliance": 2}
