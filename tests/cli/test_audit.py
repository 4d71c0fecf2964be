"""`openbook audit` on the command line: a run, its arms, the verdict and its exit code."""

from __future__ import annotations

import copy
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import FACTS

from openbook.audit.arms import ARMS, DECOY, Arms, config_of, default_folder
from openbook.audit.attack import ATTACKS
from openbook.audit.run import secrets_of
from openbook.audit.secret import Secrets
from openbook.audit.summary import chart_of
from openbook.base.errors import InputError
from openbook.base.files import file_hash, write_json
from openbook.book import JsonlSource
from openbook.cli import main
from openbook.figures.charts import Panel, Ranges
from openbook.training.folder import RunFolder
from openbook.training.sources import plan_for, sources_of

QUICK = ["--attacks", "completion", "exposure", "membership", "inversion", "--permutations", "2"]


@pytest.fixture(scope="session")
def small(learned: Path) -> Path:
    """The run on thirty facts, with its four control models."""
    assert main(["audit", str(learned), "--arms", *QUICK]) == 0
    return learned


def changed(run: Path, name: str, **values: Any) -> None:
    """Change a file of a run as if the run had been made so."""
    write_json(run / name, RunFolder(run).read(name) | values)
    write_json(run / "manifest.json", RunFolder(run).read("manifest.json") | {name: file_hash(run / name)})


@pytest.fixture
def copied(small: Path, tmp_path: Path) -> Path:
    for place in (small, default_folder(small)):
        shutil.copytree(place, tmp_path / place.name)
    return tmp_path / small.name


@pytest.mark.slow
def test_the_report(small: Path, told: Any) -> None:
    report, code = told("audit", small, *QUICK)
    assert code == 0 and report["verdict"] == "not recovered"
    assert "not recovered by these attacks at this budget" in report["statement"]
    assert [arm["name"] for arm in report["arms"]] == list(ARMS)
    assert {row["arm"] for row in report["attacks"]} == set(ARMS)
    for row in report["attacks"]:
        assert row["low"] <= row["rate"] + 1e-9 and row["rate"] - 1e-9 <= row["high"]
        assert 0 < row["chance"] <= row["elimination"] + 1e-12 <= 1
    caught = {row["name"] for row in report["attacks"] if row["arm"] == "positive" and row["caught"]}
    assert caught == {"completion", "exposure", "membership"}  # the positive control is caught by attacks 1 to 3
    skill = [row for row in report["attacks"] if row["name"] == "inversion" and row["arm"] == "trained"]
    assert skill[0]["rate"] > 0.8 and skill[0]["kind"] == "behaviour"


@pytest.mark.slow
@pytest.mark.xfail(reason="ranges are not drawn yet", raises=AttributeError)
def test_the_chart_is_saved(small: Path, told: Any, tmp_path: Path) -> None:
    told("audit", small, "--attacks", "completion", "--permutations", 1, "--chart", tmp_path / "audit.svg")
    assert "share of the secrets" in (tmp_path / "audit.svg").read_text()


@pytest.mark.slow
def test_the_same_twice(small: Path, told: Any) -> None:
    first, again = (told("audit", small, "--attacks", "battery", "soft-prompt", "--steps", 2)[0] for _ in range(2))
    assert first["attacks"] == again["attacks"]


@pytest.mark.slow
def test_a_leak_ends_with_exit_code_three(copied: Path, told: Any) -> None:
    """Audit the positive control as if it were the trained model."""
    loud = default_folder(copied) / "positive"
    shutil.rmtree(copied / "model")
    shutil.copytree(loud / "model", copied / "model")
    write_json(copied / "manifest.json", {"result.json": file_hash(copied / "result.json")})
    report, code = told("audit", copied, *QUICK)
    assert code == 3 and report["verdict"] == "leaked" and report["findings"]
    worst = max(report["findings"], key=lambda finding: finding["excess"])
    assert worst["rate"] > 0.5 and worst["excess"] > 0.4
    assert told("audit", copied, *QUICK, "--threshold", 0.99)[1] == 4  # nothing is a leak then: not even the control is


@pytest.mark.slow
def test_a_control_that_is_not_caught_makes_it_void(copied: Path, told: Any) -> None:
    loud = default_folder(copied) / "positive"
    shutil.rmtree(loud / "model")
    shutil.copytree(default_folder(copied) / "without" / "model", loud / "model")
    write_json(loud / "manifest.json", {"result.json": file_hash(loud / "result.json")})
    report, code = told("audit", copied, *QUICK)
    assert code == 4 and report["verdict"] == "void" and "could not have seen a leak" in report["statement"]


@pytest.mark.slow
def test_the_table(small: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openbook.base.console.out._width", 80)
    assert main(["audit", str(small), *QUICK]) == 0
    shown = capsys.readouterr().out
    for word in (
        "trained",
        "control",
        "positive",
        "guess",
        "sampled, no thinking, in the book",
        "from the skill itself",
    ):
        assert word in shown
    assert "…" not in shown and "Not recovered by these attacks" in shown


FIRST = """
import numpy as np
from openbook.audit.attack import ATTACKS, recovery_scores

@ATTACKS.register("first")
def first(model, secrets, attacker):
    hits_s = np.array([float(secret.index == 0) for secret in secrets.items])
    return [recovery_scores("first", "always the first", hits_s, secrets)]
"""


@pytest.mark.slow
def test_an_attack_of_a_plugin_is_in_the_report(small: Path, told: Any, refused: Any, tmp_path: Path) -> None:
    """An attack that does not ask the model finds as much in every arm, so it cannot catch the positive control."""
    plugin = tmp_path / "first.py"
    plugin.write_text(FIRST)
    before = dict(vars(ATTACKS))
    vars(ATTACKS).update(copy.deepcopy(before))  # what the plugin registers is forgotten after the test
    try:
        report, code = told("audit", small, "--plugin", plugin, "--attacks", "first", "inversion")
    finally:
        vars(ATTACKS).update(before)
    assert (report["verdict"], code) == ("void", 4)
    rows = [row for row in report["attacks"] if row["name"] == "first"]
    assert [row["arm"] for row in rows] == list(ARMS) and len({row["rate"] for row in rows}) == 1
    assert rows[0]["chance"] == pytest.approx(1 / 30, rel=0.1)
    assert "no attack 'first'" in refused("audit", small, "--attacks", "first")


@pytest.mark.slow
def test_the_chart_has_every_arm_and_a_guess(small: Path, told: Any) -> None:
    chart = chart_of(
        told("audit", small, "--attacks", "completion", "exposure", "membership", "budget", "--permutations", "2")[0]
    )
    *rates, budget = chart.panels
    assert all(isinstance(panel, Ranges) for panel in rates) and isinstance(budget, Panel)
    for panel in rates:
        assert isinstance(panel, Ranges) and panel.x.label == "share of the secrets"
        assert [row.name for row in panel.rows] == [*ARMS, "a guess"]
    titles = [panel.title for panel in rates]
    assert (
        "completion: greedy, no filter, in the book" in titles and "completion: sampled, no filter, alone" not in titles
    )
    assert {series.name for series in budget.series} == {*ARMS, "a guess"}


# ---- arms


@pytest.mark.slow
def test_arms_differ_in_one_thing_each(small: Path) -> None:
    folder, config = default_folder(small), config_of(small)
    arms = Arms(small, config, folder, Secrets((), "data"))
    assert arms.config_of("before") == config
    assert plan_for(config_of(folder / "without"), JsonlSource(FACTS)).curriculum.drop.at(0) == 1  # type: ignore[union-attr]
    assert config_of(folder / "positive").training.loss == "everything"
    assert config_of(folder / "decoy").data == folder / DECOY
    assert arms.config_of("without-3").seed == config.seed + 2
    assert RunFolder(folder / "before").read("result.json")["steps"] == 0


@pytest.mark.slow
def test_the_decoy_text_holds_no_secret(small: Path) -> None:
    decoy = (default_folder(small) / DECOY).read_text(encoding="utf-8").splitlines()
    pieces = set()
    for line, true in zip(decoy, FACTS.read_text(encoding="utf-8").splitlines(), strict=True):
        swapped, original = json.loads(line), json.loads(true)
        assert (swapped["prompt"], swapped["completion"]) == (original["prompt"], original["completion"])
        assert [len(p) for p in swapped["privileged_context"].values()] == [
            len(p) for p in original["privileged_context"].values()
        ]
        pieces |= {piece["text"] for section in original["privileged_context"].values() for piece in section}
        shown = {piece["text"] for section in swapped["privileged_context"].values() for piece in section}
        assert not shown & pieces
    assert len(set(decoy)) == 30


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "change", "complaint"),
    [
        ("data.json", {"tokenizer": "other"}, "has another tokenizer"),
        ("data.json", {"fingerprint": "other"}, "was trained on other data"),
        ("config.json", {"seed": 5}, "seed was 0, is 5"),
    ],
)
def test_controls_that_are_none_are_refused(copied: Path, refused: Any, name: str, change: Any, complaint: str) -> None:
    changed(default_folder(copied) / "without", name, **change)
    assert complaint in refused("audit", copied)


@pytest.mark.slow
def test_a_decoy_that_was_made_for_other_secrets_is_refused(copied: Path) -> None:
    """One that hides a few canaries has all other pieces in it, and would make a leak look like luck."""
    config = config_of(copied)
    secrets = secrets_of(config, sources_of(config)[0], copied)
    arms = Arms(copied, config, default_folder(copied), secrets)
    arms.check("decoy")
    with pytest.raises(InputError, match="no decoy for these secrets"):
        replace(arms, secrets=secrets.subset([0, 1, 2])).check("decoy")


@pytest.mark.slow
def test_what_is_averaged_over_is_the_same_training_with_another_seed(copied: Path, refused: Any) -> None:
    other = copied.with_name("other")
    shutil.copytree(copied, other)
    assert "has the seed of" in refused("audit", copied, "--seeds", other)
    changed(other, "config.json", seed=1, samples=7)
    complaint = refused("audit", copied, "--seeds", other)
    assert "no other seed of" in complaint and "is 7" in complaint and "seed was" not in complaint


@pytest.mark.slow
def test_a_damaged_arm_is_refused(copied: Path, refused: Any) -> None:
    (default_folder(copied) / "decoy" / "model" / "config.json").write_text("{}")
    assert "the arm 'decoy'" in refused("audit", copied)


@pytest.mark.slow
def test_missing_arms_are_named(copied: Path, refused: Any) -> None:
    shutil.rmtree(default_folder(copied) / "positive")
    complaint = refused("audit", copied)
    assert "positive: no such arms" in complaint and "--arms" in complaint
    assert "without-2: no such arms" in refused("audit", copied, "--controls", 2).replace(", positive", "")


@pytest.mark.slow
def test_data_that_changed_are_refused_before_anything_is_trained(copied: Path, tmp_path: Path, refused: Any) -> None:
    data = tmp_path / "facts.jsonl"
    data.write_text(Path(config_of(copied).data or "").read_text() + Path(config_of(copied).data or "").read_text())
    changed(copied, "config.json", data=str(data))
    shutil.rmtree(default_folder(copied))
    complaint = refused("audit", copied, "--arms")
    assert "is not what" in complaint and "changed since" in complaint
    assert not default_folder(copied).exists()


@pytest.mark.slow
def test_an_arm_that_is_no_control_is_refused_before_others_are_trained(copied: Path, refused: Any) -> None:
    folder = default_folder(copied)
    shutil.rmtree(folder / "positive")
    changed(folder / "without", "config.json", seed=7)
    assert "no control for" in refused("audit", copied, "--arms")
    assert not (folder / "positive").exists()


@pytest.mark.slow
def test_where_no_attack_on_the_text_applies_nothing_is_proved(small: Path, told: Any) -> None:
    report, code = told("audit", small, "--attacks", "inversion")
    assert (report["verdict"], code) == ("inapplicable", 4)


@pytest.mark.slow
def test_a_run_that_learned_nothing_is_refused(copied: Path, refused: Any) -> None:
    result = RunFolder(copied).read("result.json")
    for row in result["exam"]:
        row |= {"low": 0.0, "accuracy": 0.1}
    changed(copied, "result.json", **result)
    assert "failed its exam" in refused("audit", copied)


@pytest.mark.slow
def test_other_bad_input(small: Path, tmp_path: Path, refused: Any) -> None:
    assert "no attack 'exposre'" in refused("audit", small, "--attacks", "exposre")
    assert "threshold and level" in refused("audit", small, "--threshold", 2)
    assert "at least 1" in refused("audit", small, "--budget", 0)
    assert "no such folder" in refused("audit", tmp_path / "nothing")
    assert "no such file" in refused("audit", small, "--canaries", tmp_path / "none.json")


def test_planting(tmp_path: Path, told: Any, refused: Any) -> None:
    planted, code = told("audit", "plant", FACTS, "--out", tmp_path / "p.jsonl", "--canaries", 5, "--repeats", 3)
    assert code == 0 and planted["count"] == 5
    assert len((tmp_path / "p.jsonl").read_text().splitlines()) == 30
    assert len(json.loads((tmp_path / "p.canaries.json").read_text())["canaries"]) == 5
    assert "exists already" in refused("audit", "plant", FACTS, "--out", tmp_path / "p.jsonl")
