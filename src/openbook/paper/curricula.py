"""The six curves of the paper's main figure: their names, colours and how a student is taught under each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from openbook.paper.experiment import Scale
from openbook.paper.models import taught

PAPER_SAMPLES = (10_000, 50_000, 100_000, 250_000, 500_000, 1_000_000)


@dataclass(frozen=True)
class Curve:
    """One curriculum as the figure shows it."""

    name: str
    label: str
    published: str  # its name in the published figure
    colour: int
    curriculum: str  # what `openbook learn --curriculum` is told
    reads: bool = True


CURVES = {
    curve.name: curve
    for curve in (
        Curve("anneal", "Annealing dropout", "Annealing Dropout", 0, "anneal"),
        Curve("fixed:0.2", "Fixed dropout, 20 %", "Fixed Dropout", 2, "fixed:0.2"),
        Curve("no-context", "No context (plain fine-tuning)", "No Context", 1, "no-context"),
        Curve("no-dropout", "No dropout", "No Dropout", 3, "no-dropout"),
        Curve("wrong-context", "Wrong context", "Wrong Context", 4, "wrong-context"),
        Curve("no-icl", "Annealing, cannot read", "No ICL", 6, "anneal", reads=False),
    )
}
SMOKE: dict[str, Any] = {"depth": 2, "chars": 3, "task.lengths": [4, 6], "exam.samples": 16}


def student(scale: Scale, name: str, samples: int, seed: int = 0, **settings: Any) -> dict[str, Any]:
    """The model of a curve: a student of three levels, or at smoke scale a tiny one that cannot read."""
    curve = CURVES[name]
    if scale == "smoke":
        return taught(curve.curriculum, samples, seed=seed, reads=False, **SMOKE, **settings)
    steps = -(-samples // 16)
    watched = {"exam.every": max(1, steps // 4)}
    return taught(curve.curriculum, samples, seed=seed, reads=curve.reads, **watched, **settings)


def llama(name: str, samples: int, chars: int, **settings: Any) -> dict[str, Any]:
    """The paper's own model of a curve: the shipped stage-2 config under another curriculum and size."""
    curve = CURVES[name]
    reader = f"llama-3b-stage1-n{chars}" if curve.reads else None
    start = {} if curve.reads else {"model.path": "meta-llama/Llama-3.2-3B-Instruct"}
    told = {"curriculum": curve.curriculum, "samples": samples, **start, **settings}
    return {"reader": reader, "base": f"llama-3b-stage2-n{chars}", "settings": told}


def mean_by(rows: Iterable[Mapping[str, Any]], key: str, value: str = "accuracy") -> dict[Any, float]:
    """The mean of a value for each value of a key."""
    return {where: sum(row[value] for row in found) / len(found) for where, found in _grouped(rows, key)}


def spread_by(rows: Iterable[Mapping[str, Any]], key: str) -> dict[Any, tuple[float, float]]:
    """From the lowest lower to the highest upper bound for each value of a key: what seeds differ by is not hidden."""
    return {
        where: (min(row["low"] for row in found), max(row["high"] for row in found))
        for where, found in _grouped(rows, key)
    }


def by_alphabet(rows: Iterable[Mapping[str, Any]]) -> dict[int, list[Any]]:
    """Rows of each size of alphabet: another one is another task."""
    return dict(_grouped(rows, "chars"))


def _grouped(rows: Iterable[Mapping[str, Any]], key: str) -> list[tuple[Any, list[Mapping[str, Any]]]]:
    grouped: dict[Any, list[Mapping[str, Any]]] = {}
    for row in rows:
        grouped.setdefault(row[key], []).append(row)
    return sorted(grouped.items())
