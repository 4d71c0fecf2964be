import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openbook.cli import main
from openbook.task import Codebook
from openbook.task.translate import output, translate


def _json(capsys: Any, *arguments: str) -> dict[str, Any]:
    assert main(["translate", *arguments, "--json"]) == 0
    text = capsys.readouterr().out
    assert text.count("\n") == 1
    return json.loads(text)


def test_the_json_is_the_oracles_translation(capsys: pytest.CaptureFixture[str]) -> None:
    data = _json(capsys, "--depth", "3", "--chars", "8", "--seed", "5", "--length", "12")
    codebook = Codebook.sample(3, 8, seed=5)
    letters = codebook.alphabets()
    source = [letters[0].index(symbol) for symbol in data["input"]]
    assert len(source) == 12
    levels = translate(codebook, source)
    assert data["output"] == [letters[3][char] for char in output(levels)]
    assert [book["rules"] for book in data["codebook"]["phrasebooks"]] == codebook.rules()
    assert [level["string"] for level in data["levels"]] == [
        [letters[i][char] for char in level.string] for i, level in enumerate(levels)
    ]
    for level, rules in zip(data["levels"], codebook.rules(), strict=True):
        assert set(level["rules"]) <= set(rules)
        assert level["shifted"] == level["string"][1:] + level["string"][:1]
        assert [symbol for pair in level["bigrams"] for symbol in pair] == level["shifted"]
        assert [symbol for rule in level["rules"] for symbol in rule.split(" -> ")[1].split()] == level["result"]


@given(seed=st.integers(0, 2**31), depth=st.integers(1, 4), chars=st.integers(2, 12), pairs=st.integers(1, 6))
def test_inverting_the_output_gives_the_input(seed: int, depth: int, chars: int, pairs: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        emitted: list[dict[str, Any]] = []
        patch.setattr("openbook.cli.translate.emit_json", emitted.append)
        size = ["--depth", str(depth), "--chars", str(chars), "--seed", str(seed), "--json"]
        assert main(["translate", *size, "--length", str(2 * pairs)]) == 0
        assert main(["translate", "".join(emitted[0]["output"]), "--invert", *size]) == 0
    there, back = emitted
    assert back["input"] == there["output"]
    assert back["output"] == there["input"]
    assert back["levels"] == there["levels"][::-1]


def test_a_string_is_read_with_or_without_blanks(capsys: pytest.CaptureFixture[str]) -> None:
    found = [_json(capsys, *words)["output"] for words in (["A B C D"], ["ABCD"], ["A", "B", "C", "D"], ["AB", "CD"])]
    assert found[0] == found[1] == found[2] == found[3]


def test_a_codebook_file_is_what_json_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = _json(capsys, "--depth", "2", "--chars", "5", "--seed", "9")
    path = tmp_path / "codebook.json"
    path.write_text(json.dumps(data))
    again = _json(capsys, "".join(data["input"]), "--codebook", str(path))
    assert again["output"] == data["output"]
    assert again["codebook"] == data["codebook"]


@pytest.mark.parametrize("width", ["50", "80", "200"])
def test_the_worked_example_shows_every_step(
    width: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("openbook.base.console.out._width", int(width))
    options = ["--depth", "2", "--chars", "8", "--seed", "0", "--length", "16"]
    assert main(["translate", *options]) == 0
    text = capsys.readouterr().out
    data = _json(capsys, *options)
    for level in data["levels"]:
        assert all(rule in text for rule in level["rules"])
        assert f"Level {level['level']}" in text
    assert " ".join(data["input"]) in text
    assert " ".join(data["output"]) in text
    assert "depends on input characters 2, 3, 4, 5 alone" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= int(width)


def test_the_worked_inverse_ends_with_the_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["translate", "QRST", "--invert"]) == 0
    text = capsys.readouterr().out
    data = _json(capsys, "QRST", "--invert")
    assert text.index("Level 2") < text.index("Level 1")
    assert text.rstrip().endswith(" ".join(data["output"]))


def test_colours_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("openbook.base.console.out._force_terminal", True)
    monkeypatch.setattr("openbook.base.console.out._color_system", 1)
    assert main(["translate"]) == 0
    assert "\x1b[36m" in capsys.readouterr().out
