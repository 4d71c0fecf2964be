"""`openbook probe` on the command line, on runs and on plain checkpoints."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from openbook.cli import main
from openbook.figures.charts import Chart, Ranges

SIZE = ["--set", "task.lengths=[12, 12]", "--set", "model.hidden_size=16", "--set", "model.heads=2"]
SHORT = [*SIZE, "--set", "model.layers=3", "--set", "exam.samples=4", "--set", "training.batch_size=4"]
SHORT += ["--samples", "16"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A model that has seen little, and one trained from it: what the probes find in them does not matter here."""
    folder = tmp_path_factory.mktemp("runs")
    reader, trained = folder / "reader", folder / "trained"
    task = ["--depth", "2", "--chars", "4"]
    assert main(["learn", *task, *SHORT, "--curriculum", "no-dropout", "--out", str(reader)]) == 0
    again = ["--model", str(reader), "--learning-rate", "0.01", "--curriculum", "fixed:0.2", "--out", str(trained)]
    assert main(["learn", *task, *SHORT, *again]) == 0
    return reader, trained


@pytest.fixture
def saved(monkeypatch: pytest.MonkeyPatch) -> dict[str, Chart]:
    """Charts that a command saves, by the name of the file, instead of the files."""
    charts: dict[str, Chart] = {}
    for module in ("openbook.figures.terminal", "openbook.cli.probe"):
        monkeypatch.setattr(f"{module}.save", lambda chart, path: charts.update({path.name: chart}))
    return charts


def test_stitch(runs: tuple[Path, Path], told: Any, saved: dict[str, Chart], tmp_path: Path) -> None:
    reader, trained = runs
    charts = ["--chart", tmp_path / "map.png", "--windows", tmp_path / "windows.svg"]
    result, code = told("probe", "stitch", reader, trained, trained, "--samples", 4, *charts)
    assert code == 0 and [section["name"] for section in result["sections"]] == ["level 1", "level 2"]
    assert result["layers"] == 3 and result["trained_on"] == 16 and len(result["runs"]) == 2
    assert result["layer_evaluations"] == 3 + 6 + 4 and result["layer_evaluations_one_by_one"] == 18
    for section in result["sections"]:
        assert len(section["map"]) == 3 and section["map"][2][0] is None and 0 <= section["map"][0][2] <= 1
        assert section["smallest_window"] is None  # nothing is learned in four steps
    assert len(result["published_by_a_3b_model"]) == 50
    assert len(saved["map.png"].panels) == 4
    assert "3B: anneal, 100,000" in [panel.title for panel in saved["windows.svg"].panels]


def test_perturb_and_intermediate(runs: tuple[Path, Path], told: Any, tmp_path: Path) -> None:
    result, code = told("probe", "perturb", runs[0], "--rules", 2, "--samples", 6, "--chart", tmp_path / "map.png")
    assert code == 0 and len(result["sections"]) == 2 and len(result["places"]) == 24
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")
    for section in result["sections"]:
        assert len(section["map"]) == 3 and len(section["map"][0]) == 24 and "first_layer" in section
    everything, _ = told("probe", "perturb", runs[0], "--rules", "all", "--samples", 5, "--sections", "2")
    assert [section["name"] for section in everything["sections"]] == ["level 2"]
    strings, code = told("probe", "intermediate", runs[1], "--samples", 16, "--open", 0, "--chart", tmp_path / "s.svg")
    assert code == 0 and "Logit lens, s_3" in (tmp_path / "s.svg").read_text(encoding="utf-8")
    assert [section["name"] for section in strings["sections"]] == ["s_1", "s_2", "s_3"]
    assert len(strings["sections"][0]["map"]) == 4 and len(strings["sections"][0]["lens"]) == 3


def test_plain_checkpoints_with_a_task_or_data(runs: tuple[Path, Path], told: Any, tmp_path: Path) -> None:
    for run in runs:
        shutil.copytree(run / "model", tmp_path / run.name)
    task = ["--task", "depth=2", "chars=4", "text=compact", "lengths=[12, 12]"]
    result, code = told("probe", "stitch", tmp_path / "reader", tmp_path / "trained", *task, "--samples", 3)
    assert code == 0 and result["trained_on"] is None
    same, _ = told("probe", "stitch", *runs, *task, "--samples", 3)
    assert result["sections"][0]["map"][0][0] == same["sections"][0]["map"][0][0]
    data = tmp_path / "own.jsonl"
    data.write_text('{"prompt": " A B", "completion": " Q R", "privileged_context": {"page": [" A B I J"]}}\n')
    result, code = told("probe", "stitch", *runs, "--data", data)
    assert code == 0 and [section["name"] for section in result["sections"]] == ["page"]


@pytest.mark.parametrize("kind", ["construction", "surrogate"])
def test_models_whose_truth_is_known(kind: str, told: Any) -> None:
    size = ["--known", kind, "--depth", 3, "--chars", 4, "--samples", 6]
    result, _ = told("probe", "stitch", *size)
    assert [section["smallest_window"] for section in result["sections"]] == [[1, 1], [2, 2], [3, 3]]
    result, _ = told("probe", "perturb", *size, "--rules", 2)
    assert [section["first_layer"] for section in result["sections"]] == [1, 2, 3]


def test_windows_are_drawn_without_marks_where_the_reader_cannot_be_perturbed(
    runs: tuple[Path, Path], told: Any, saved: dict[str, Chart], tmp_path: Path
) -> None:
    shutil.copytree(runs[0] / "model", tmp_path / "reader")
    chart = tmp_path / "windows.html"
    _, code = told("probe", "stitch", tmp_path / "reader", runs[1], "--samples", 3, "--windows", chart)
    ours = saved["windows.html"].panels[0]
    assert code == 0 and isinstance(ours, Ranges) and [row.mark for row in ours.rows] == [None, None]


def test_a_section_that_only_later_records_have_is_not_dropped(
    runs: tuple[Path, Path], refused: Any, tmp_path: Path
) -> None:
    page, more = {"page": [" A B I J"]}, {"more": [" I J Q R"]}
    books = [page] * 4 + [page | more] * 4
    lines = [{"prompt": " A B", "completion": " Q R", "privileged_context": book} for book in books]
    data = tmp_path / "own.jsonl"
    data.write_text("".join(json.dumps(line) + "\n" for line in lines))
    message = refused("probe", "stitch", *runs, "--data", data, "--samples", "3")
    assert "nothing is dropped: no example shows a piece of section 'more'" in message


def test_names_are_not_markup(runs: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(runs[1], tmp_path / "m[" / "k]")
    assert main(["probe", "stitch", str(runs[0]), str(tmp_path / "m[" / "k]"), "--samples", "3"]) == 0
    assert "m[/k]" in "".join(capsys.readouterr().out.split())


def test_sections_of_own_data_are_not_markup(
    runs: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "own.jsonl"
    line = {"prompt": " A B", "completion": " Q R", "privileged_context": {"see [/notes] [draft]": [" A B I J"]}}
    data.write_text((json.dumps(line) + "\n") * 4)
    assert main(["probe", "stitch", *map(str, runs), "--data", str(data), "--samples", "3"]) == 0
    assert "see[/notes][draft]" in "".join(capsys.readouterr().out.split())


def test_tables(runs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    reader, trained = map(str, runs)
    assert main(["probe", "stitch", reader, trained, "--samples", "3"]) == 0
    assert main(["probe", "perturb", reader, "--rules", "2", "--samples", "5"]) == 0
    assert main(["probe", "intermediate", reader, "--samples", "8"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for words in ("13 layer evaluations", "smallest windows", "first layer", "probe | lens", "chance 0.250"):
        assert words in shown


@pytest.mark.parametrize("name", ["stitch", "perturb", "intermediate", "doubt"])
def test_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probe", name, "--help"]) == 0
    text = capsys.readouterr().out
    assert f"openbook probe {name} runs/" in text and "--json" in text and "--no-" not in text
    assert max(map(len, text.splitlines())) <= 80


def test_bad_input_is_refused(runs: tuple[Path, Path], refused: Any, tmp_path: Path) -> None:
    reader, trained = runs
    assert "give a model, or --known" in refused("probe", "stitch")
    assert "not both" in refused("probe", "perturb", reader, "--known", "surrogate")
    assert "leave them out without --known" in refused("probe", "stitch", reader, trained, "--depth", "2")
    assert "--sections is about a model of yours" in refused(
        "probe", "stitch", "--known", "surrogate", "--sections", "1"
    )
    assert "fewer than the 30" in refused("probe", "perturb", "--known", "surrogate", "--rules", "30")
    assert "use at least 1" in refused("probe", "perturb", reader, "--rules", "0")
    assert "typo is no folder here" in refused("probe", "perturb", tmp_path / "typo")
    assert "at least one that was trained" in refused("probe", "stitch", reader)
    assert "there is no section 'level 9'" in refused("probe", "stitch", reader, trained, "--sections", "level 9")
    assert "nothing to stitch" in refused("probe", "stitch", reader, reader)
    assert "fewer than the 40" in refused("probe", "perturb", reader, "--rules", "40")
    assert "not the folder of a run" in refused("probe", "perturb", reader / "model")
    assert "'dept' is not a setting" in refused("probe", "perturb", reader / "model", "--task", "dept=2")
    assert "a chart is saved as" in refused("probe", "intermediate", reader, "--chart", tmp_path / "x.pdf")
    assert "a chart is saved as" in refused("probe", "stitch", reader, trained, "--windows", tmp_path / "x.pdf")
    assert "at least one" in refused("probe", "stitch", reader, trained, "--samples", "0")
    assert "with fewer than 5 no change can be told" in refused("probe", "perturb", reader, "--samples", "4")
