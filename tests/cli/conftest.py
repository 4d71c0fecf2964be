"""Runs that several tests look at, made once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from openbook.cli import main

FACTS = Path(__file__).parents[2] / "examples" / "facts.jsonl"
LEARN_FACTS = ["learn", "--data", str(FACTS), "--model", "scratch", "--epochs", "40"]


@pytest.fixture(scope="session")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on thirty invented facts, by the command that the README gives."""
    folder = tmp_path_factory.mktemp("runs") / "facts"
    assert main([*LEARN_FACTS, "--out", str(folder)]) == 0
    return folder


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Any:
    """Run a command with --json and return its one object and its exit code."""

    def run(*arguments: Any) -> tuple[dict[str, Any], int]:
        capsys.readouterr()
        code = main([*map(str, arguments), "--json"])
        return json.loads(capsys.readouterr().out), code

    return run


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Any:
    """Run a command that must end with exit code 2 and no traceback; returns what it complained."""

    def run(*arguments: Any) -> str:
        capsys.readouterr()
        assert main([*map(str, arguments)]) == 2
        caught = capsys.readouterr()
        assert caught.out == "" and "Traceback" not in caught.err
        return " ".join(caught.err.split())

    return run
