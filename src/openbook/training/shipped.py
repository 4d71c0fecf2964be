"""Readers that come with the package: finished runs of `openbook prepare`, called by their names."""

from __future__ import annotations

import contextlib
import json
from importlib import resources
from pathlib import Path
from typing import Any

from openbook.base.errors import InputError


def shipped_readers() -> dict[str, Path]:
    """Their folders by name, which says what they read: student-5-8 MLT(5, 8), writer-2-8 MLT(2, 8) as text."""
    folder = Path(str(resources.files("openbook") / "checkpoints"))
    return {path.parents[1].name: path.parents[1] for path in sorted(folder.glob("*/model/config.json"))}


def located(path: str | Path) -> Path:
    """What a path means: the folder of a shipped reader if it is the name of one, else the path as it is.

    A folder of the same name is refused: a run records what it started from, and that must not come to mean another.
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
