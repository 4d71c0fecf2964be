"""`openbook surrogate`: what it prints, what it writes, and what it refuses."""

from __future__ import annotations

import json

import pytest

from openbook.cli import main


def run_json(capsys, *arguments: str) -> dict:
    assert main(["surrogate", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("algorithm", ["search", "descent", "layerwise", "full"])
def test_learn_says_how_much_was_recovered(capsys, algorithm):
    result = run_json(capsys, "learn", "--algorithm", algorithm, "--depth", "2", "--chars", "4")
    assert result["recovered"] == 1 and result["recovered_by_layer"] == [1, 1] and result["complete"]
    assert result["characters"] == result["forward_passes"] * result["length"]
    assert result["curve"][-1]["recovered"] == 1 and result["steps"] == result["curve"][-1]["step"]


@pytest.mark.parametrize("algorithm", ["vanilla", "wrong"])
def test_learn_marks_a_control_that_its_budget_ended(capsys, algorithm):
    arguments = ("learn", "--algorithm", algorithm, "--depth", "4", "--chars", "4", "--steps", "30")
    result = run_json(capsys, *arguments)
    assert not result["complete"] and result["stopped"] == "budget" and result["recovered"] < 0.5
    assert main(["surrogate", *arguments]) == 0
    assert "NOT all rules recovered" in capsys.readouterr().out


def test_tables_say_what_json_says(capsys):
    assert main(["surrogate", "learn", "--algorithm", "descent", "--depth", "2", "--chars", "3"]) == 0
    shown = capsys.readouterr().out
    assert "all rules recovered" in shown and "largest difference 0" in shown
    assert main(["surrogate", "learn", "--algorithm", "search", "--depth", "2", "--chars", "3"]) == 0
    assert "the bound n⁴d is 162 forward passes" in capsys.readouterr().out


def test_gap_and_gradient_speak_both_ways_and_draw(capsys, tmp_path):
    gap = ("gap", "--chars", "2", "--depth", "2", "--seeds", "6", "--budget", "2000")
    result = run_json(capsys, *gap, "--chart", str(tmp_path / "gap.html"))
    assert {row["arm"] for row in result["rows"]} == {"vanilla", "enhanced", "search"} and result["fits"]
    assert main(["surrogate", *gap]) == 0
    assert "power of d" in capsys.readouterr().out
    gradient = ("gradient", "--depth", "2", "--chars", "3", "--pairs", "40", "--rates", "0.3", "--batches", "2")
    result = run_json(capsys, *gradient, "--masks", "2", "--chart", str(tmp_path / "gradient.html"))
    assert {row["panel"] for row in result["rows"]} == {"batch", "phrasebooks"}
    assert main(["surrogate", *gradient, "--masks", "2"]) == 0
    assert "chance: 11.1%" in capsys.readouterr().out
    learn = ("learn", "--depth", "2", "--chars", "3", "--chart", str(tmp_path / "learn.html"))
    run_json(capsys, *learn)
    titles = {"gap": "Characters of input", "gradient": "the dropped rule", "learn": "full-parameter descent"}
    for name, title in titles.items():
        assert title in (tmp_path / f"{name}.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("learn", "--algorithm", "descent", "--depth", "3"), "depth 2"),
        (("learn", "--algorithm", "search", "--input", "random", "--pairs", "20"), "not coverable"),
        (("learn", "--algorithm", "search", "--steps", "5"), "leave --steps out"),
        (("learn", "--algorithm", "descent", "--depth", "2", "--noise", "0.1"), "leave --noise out"),
        (("learn", "--chart", "picture.txt"), "saved as one of"),
        (("learn", "--depth", "0"), "depth is 0"),
        (("gradient", "--rates", "1.5"), "drop rate is 1.5"),
        (("gradient", "--depth", "3", "--books", "4"), "4 phrasebooks, but there are 3"),
        (("gradient", "--depth", "2", "--chars", "2", "--rates", "1e-9"), "drops next to none of 4 rules"),
        (("gap", "--seeds", "1"), "6 or more"),
        (("learn", "--delta", "0.1"), "--delta sets the length of the input, but full takes"),
        (("learn", "--algorithm", "search", "--pairs", "99", "--delta", "0.1"), "but --pairs is given"),
        (("learn", "--noise", "nan"), "noise is nan"),
        (("learn", "--rate", "inf"), "learning rate is inf"),
    ],
)
def test_bad_input_is_refused_without_a_traceback(capsys, arguments, complaint):
    assert main(["surrogate", *arguments]) == 2
    answer = capsys.readouterr()
    assert complaint in answer.err and "Traceback" not in answer.err and not answer.out
