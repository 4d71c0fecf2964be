"""One file adds a thing: what a user's file registers is used through the command line like what is shipped."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import FACTS

from openbook.base import registry
from openbook.base.errors import InputError
from openbook.base.registry import Registry
from openbook.cli import main
from openbook.curriculum import PRESETS
from openbook.task.formats import FORMATS
from openbook.training.families import FAMILIES

SMALL = [
    "--set",
    "model.hidden_size=32",
    "--set",
    "model.layers=1",
    "--set",
    "model.heads=2",
    "--set",
    "exam.samples=8",
]

CURRICULUM = '''
from openbook.curriculum import PRESETS

@PRESETS.register("first-half")
def first_half(example, progress, random):
    """The first half of every section, while training is not half over."""
    return [list(range(len(s.pieces) // 2)) if progress < 0.5 else [] for s in example.sections]

PRESETS.register("half-closed")({"candidates": "all", "drop": "0.5"})
'''

FORMAT = """
from dataclasses import dataclass
from openbook.book.text import LAYOUTS, THINK, Kind
from openbook.task.formats import FORMATS
from openbook.task.text import Format, Slot

@FORMATS.register("telegram")
@dataclass(frozen=True)
class Telegram(Format):
    think: str = THINK
    layout = LAYOUTS["plain"]

    def rule(self, rule):
        return rule.replace(" -> ", " STOP ")

    def prompt_template(self, task):
        return [Slot(Kind.PROMPT, "TRANSLATE"), Slot(Kind.PROMPT, level=0)]

    def completion_template(self):
        thoughts = [Slot(Kind.THOUGHT, level=level) for level in range(1, self.depth)]
        return [*thoughts, Slot(Kind.ANSWER, level=self.depth)]
"""

FAMILY = """
from transformers import GPT2Config
from openbook.task.formats import FORMATS, CompactFormat
from openbook.training.families import FAMILIES, Family

@FAMILIES.register("gpt2")
class Gpt2(Family):
    training_defaults = {"learning_rate": 5e-3}

    def shape(self, config, source, vocabulary):
        return GPT2Config(vocab_size=vocabulary, n_embd=config.hidden_size, n_layer=1, n_head=2, n_positions=512)

class ForGpt2(CompactFormat):
    family = "gpt2"

FORMATS.register("compact-gpt2")(ForGpt2)
"""


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    """What a plugin registers is gone after the test."""
    tables: list[Registry[Any]] = [PRESETS, FORMATS, FAMILIES]
    before = [set(table) for table in tables]
    yield
    for table, names in zip(tables, before, strict=True):
        for name in set(table) - names:
            table.remove(name)


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "plugin.py"
    path.write_text(text)
    return str(path)


def test_a_curriculum(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plugin = written(tmp_path, CURRICULUM)
    for name in ("first-half", "half-closed"):
        run = tmp_path / name
        words = ["learn", "--plugin", plugin, "--data", str(FACTS), "--samples", "8", "--curriculum", name, *SMALL]
        assert main([*words, "--out", str(run)]) == 0
        assert main(["exam", str(run), "--open", "0", "--json"]) == 0
    assert json.loads((tmp_path / "first-half" / "config.json").read_text())["curriculum"]["rule"] == "first-half"
    capsys.readouterr()
    assert main(["mask", "--data", str(FACTS), "--model", "scratch", "--curriculum", "first-half", "--json"]) == 0
    (example, *_) = json.loads(capsys.readouterr().out)["examples"]
    pieces = "".join(token["text"] for token in example["tokens"] if token["kind"] == "piece")
    assert pieces.count("\n") == 2  # of five


def test_a_text_format(tmp_path: Path) -> None:
    plugin = written(tmp_path, FORMAT)
    words = ["learn", f"--plugin={plugin}", "--depth", "2", "--chars", "3", "--samples", "8", *SMALL]
    task = ["--set", "task.text=telegram", "--set", "task.lengths=[4, 6]"]
    assert main([*words, *task, "--out", str(tmp_path / "run")]) == 0
    assert json.loads((tmp_path / "run" / "config.json").read_text())["task"]["text"] == "telegram"


def test_a_model_family(tmp_path: Path) -> None:
    plugin = written(tmp_path, FAMILY)
    words = ["learn", "--plugin", plugin, "--depth", "1", "--chars", "3", "--samples", "8", *SMALL]
    task = ["--set", "task.text=compact-gpt2", "--set", "task.lengths=[4, 6]"]
    assert main([*words, *task, "--out", str(tmp_path / "run")]) == 0
    assert json.loads((tmp_path / "run/model/config.json").read_text())["model_type"] == "gpt2"
    assert json.loads((tmp_path / "run/config.json").read_text())["training"]["learning_rate"] == 5e-3


@pytest.mark.parametrize(
    "text, complaint",
    [
        ("raise KeyError('x')", "KeyError: 'x'"),
        (
            "from openbook.curriculum import PRESETS\nPRESETS.register('anneal')({})",
            "already a curriculum called 'anneal'",
        ),
        ("def f(:", "SyntaxError"),
    ],
)
def test_what_is_wrong_with_a_plugin_is_said(
    text: str, complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["translate", "--plugin", written(tmp_path, text)]) == 2
    assert complaint in " ".join(capsys.readouterr().err.split())


def test_a_plugin_that_is_not_there_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["translate", "--plugin", str(tmp_path / "absent.py")]) == 2
    assert "there is no such file" in " ".join(capsys.readouterr().err.split())
    assert main(["translate", "--plugin"]) == 2
    assert "needs a file" in " ".join(capsys.readouterr().err.split())


def test_a_registry_names_what_it_knows_and_the_nearest() -> None:
    things: Registry[str] = Registry("thing", {"lazy": "openbook.base.registry:PLUGINS"})
    things.register("plain")("value")
    assert list(things) == ["lazy", "plain"] and things["lazy"] == registry.PLUGINS and things["plain"] == "value"
    with pytest.raises(InputError, match=r"there is no thing 'plane' \(lazy, plain\); did you mean 'plain'"):
        things["plane"]
    with pytest.raises(InputError, match="already a thing called 'plain'"):
        things.register("plain")("other")
