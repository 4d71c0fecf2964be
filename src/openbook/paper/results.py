"""Rows on disk: one JSON file for each unit, with everything that tells where its numbers come from.

OUT/rows/EXPERIMENT/UNIT.json    config, rows, seconds, versions, commit; written aside and renamed
OUT/models/                      runs of the models that were looked at
OUT/charts/                      every chart as PNG and SVG
OUT/index.html                   the page
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openbook.base.console import plain
from openbook.base.environment import environment
from openbook.base.files import file_hash, write_json
from openbook.paper.experiment import Experiment, Json, Unit
from openbook.paper.models import short_hash

KEYS = ("experiment", "scale", "config", "rows", "seconds", "cpu_seconds", "environment")


@dataclass(frozen=True)
class Results:
    """The finished units of an experiment, and why other files cannot be used."""

    units: list[Json]
    damaged: list[str]

    @property
    def rows(self) -> list[Json]:
        return [row for unit in self.units for row in unit["rows"]]


def unit_path(out: Path, experiment: Experiment, unit: Unit, identity: Sequence[Any] = ()) -> Path:
    """Its file, named by what can be read of the config, and by a hash of all that decides its rows.

    `identity`: which readers they are, and the full settings of its models.
    """
    words = "-".join(str(value) for value in unit.config.values() if isinstance(value, str | int | float))
    readable = re.sub(r"[^\w.]+", "-", words).strip("-")[:48]
    decides = short_hash([unit.to_json(), experiment.version, list(identity)])
    return out / "rows" / experiment.name / f"{readable or 'all'}-{decides}.json"


def write_unit(path: Path, record: Json) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, plain({**record, "environment": environment()}))


def read_unit(path: Path) -> Json | str:
    """A unit's record, or a sentence that says why it cannot be used."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        return f"{path.name}: not readable as JSON ({type(error).__name__})"
    missing = [key for key in KEYS if not isinstance(record, dict) or key not in record]
    if missing:
        return f"{path.name}: incomplete, it lacks {', '.join(missing)}"
    if not isinstance(record["rows"], list) or not all(isinstance(row, dict) for row in record["rows"]):
        return f"{path.name}: its rows are not a list of objects"
    return {**record, "file": path.name, "sha256": file_hash(path)}


def read_results(paths: Iterable[Path]) -> Results:
    """Those of the units that are there."""
    found = [read_unit(path) for path in paths if path.exists()]
    damaged = [record for record in found if isinstance(record, str)]
    return Results([record for record in found if not isinstance(record, str)], damaged)
