"""Rows on disk: one JSON file for each unit, with everything needed to know where its numbers come from.

OUT/rows/EXPERIMENT/UNIT.json    config, rows, seconds, versions, commit; written aside and renamed
OUT/models/                      runs of the models that were looked at
OUT/charts/                      every chart as PNG and SVG
OUT/index.html                   the page
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from openbook.base.console import plain
from openbook.base.environment import environment
from openbook.base.files import file_hash, write_json
from openbook.paper.experiment import Unit
from openbook.paper.models import short_hash

KEYS = ("experiment", "scale", "config", "rows", "seconds", "cpu_seconds", "environment")


@dataclass
class Found:
    """What a results folder holds of one experiment: finished units, and files that cannot be used, with the reason."""

    units: list[dict[str, Any]] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [row for unit in self.units for row in unit["rows"]]


def unit_name(unit: Unit, version: int = 1, identity: Sequence[Any] = ()) -> str:
    """A file name: what can be read of the config, and a hash of all that decides its rows.

    `identity`: which readers they are, and what the settings of its models come to.
    """
    words = "-".join(str(value) for value in unit.config.values() if isinstance(value, str | int | float))
    readable = re.sub(r"[^\w.]+", "-", words).strip("-")[:48]
    return f"{readable or 'all'}-{short_hash([unit.config, version, list(identity)])}"


def unit_path(out: Path, experiment: str, name: str) -> Path:
    return out / "rows" / experiment / f"{name}.json"


def write_unit(path: Path, record: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, plain({**record, "environment": environment()}))


def read_unit(path: Path) -> dict[str, Any] | str:
    """A unit's record, or in words why it cannot be used."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        return f"{path.name}: not readable as JSON ({type(error).__name__})"
    if not isinstance(record, dict) or any(key not in record for key in KEYS):
        missing = [key for key in KEYS if not isinstance(record, dict) or key not in record]
        return f"{path.name}: incomplete, it lacks {', '.join(missing)}"
    if not isinstance(record["rows"], list) or not all(isinstance(row, dict) for row in record["rows"]):
        return f"{path.name}: its rows are not a list of objects"
    return {**record, "file": path.name, "sha256": file_hash(path)}


def is_done(path: Path) -> bool:
    return path.exists() and not isinstance(read_unit(path), str)


def collect(out: Path, experiment: str, names: list[str]) -> Found:
    """The named units of an experiment that are there."""
    found = Found()
    for name in names:
        path = unit_path(out, experiment, name)
        if path.exists():
            record = read_unit(path)
            if isinstance(record, str):
                found.damaged.append(record)
            else:
                found.units.append(record)
    return found
