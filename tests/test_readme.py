"""The README is true: its commands run, its output is what they print, its Python works, its links lead somewhere."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from openbook.cli.app import COMMANDS, main

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, re.DOTALL)


def _commands(block: str) -> list[list[str]]:
    return [shlex.split(line, comments=True) for line in block.splitlines() if line.strip()]


def test_there_is_something_to_check() -> None:
    assert {language for language, _ in BLOCKS} == {"bash", "text", "python"}


def shortened(arguments: list[str]) -> list[str]:
    """The command as it stands, but a training of the real model ends after one step."""
    if arguments[0] == "learn" and "--data" in arguments and "--dry-run" not in arguments:
        quick = ("exam.retention=false", "training.checkpoint_every=0")
        return [*arguments, "--samples", "8", "--epochs", "1", *(w for s in quick for w in ("--set", s))]
    return [*arguments, "--samples", "4"] if arguments[0] == "exam" and "--data" in arguments else arguments


@pytest.mark.slow
@pytest.mark.real_model
def test_every_command_line_runs_and_prints_what_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.setattr("openbook.base.console.out._width", 80)
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    spoken = ""
    for language, block in BLOCKS:
        if language == "bash":
            for program, *arguments in _commands(block):
                assert program in ("make", "openbook")
                if program == "make":
                    assert set(arguments) <= targets
                else:
                    assert main(shortened(arguments)) == 0, arguments
            spoken = capsys.readouterr().out
        elif language == "text":
            assert [line.rstrip() for line in spoken.splitlines()] == block.splitlines()


@pytest.mark.slow
def test_the_python_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    names: dict[str, Any] = {}
    for language, block in BLOCKS:
        if language == "python":
            exec(block, names)  # the reader would do the same
    assert names["run"].exam().closed.accuracy > 0.9
    assert names["trainer"].state.global_step == 2 * 4  # thirty examples in steps of eight


def test_the_commands_in_the_table_exist_as_described() -> None:
    table = dict(re.findall(r"^\| `openbook (\w+)` \| (.*) \|$", README, re.MULTILINE))
    known = {name: line for name, _, _, line in COMMANDS}
    assert table == known


PAGES = ["README.md", "CONTRIBUTING.md", *sorted(f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("name", PAGES)
def test_links_and_paths_lead_somewhere(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    links = re.findall(r"\]\((?!http)([^)]+)\)", text)
    paths = [p for p in re.findall(r"`((?:src|tests|benchmarks)/[\w/.]+)`", text) if "NAME" not in p]
    assert links or paths
    here = (ROOT / name).parent
    lost = [link for link in links if link[0] != "#" and not (here / link.partition("#")[0]).exists()]
    assert lost + [path for path in paths if not (ROOT / path).exists()] == []
