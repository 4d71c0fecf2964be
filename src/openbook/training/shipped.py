"""Readers that come with the package: finished runs of `openbook prepare`, each with a name."""

from __future__ import annotations

import contextlib
import json
from importlib import resources
from pathlib import Path
from typing import Any

from openbook.base.errors import InputError


def shipped_readers() -> dict[str, Path]:
    """The folders of the readers by name: student-5-8 reads MLT(5, 8), and writer-2-8 reads MLT(2, 8) as text."""
    folder = Path(str(resources.files("openbook") / "checkpoints"))
    return {path.parents[1].name: path.parents[1] for path in sorted(folder.glob("*/model/config.json"))}


def located(path: str | Path) -> Path:
    """The folder of the shipped reader with this name; if there is none, the path as it is.

    A folder of the same name is refused: a run records what it started from, and the record must have one meaning.
    """
    if (shipped := shipped_readers().get(str(path))) is None:
        return Path(path)
    if Path(path).exists() and not Path(path).samefile(shipped):
        raise InputError(
            f"'{path}' is a reader that comes with openbook and a folder here: to mean the folder, give its full path"
        )
    return shipped


def config_of(path: str | Path) -> dict[str, Any]:
    """The config.json of the model in a folder, a run or a shipped reader; empty if there is none to read."""
    place = located(path)
    for folder in (place / "model", place):
        with contextlib.suppress(OSError, ValueError):
            config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
            if isinstance(config, dict) and "model_type" in config:
                return config
    return {}
