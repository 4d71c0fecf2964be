"""The six curves of the paper's main figure: their names, their colours and how a student is taught under each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from openbook.paper.experiment import Json, Scale, TaughtModel
from openbook.paper.models import taught_student

RATE = "training.matrix_learning_rate"


@dataclass(frozen=True)
class Curve:
    """One curriculum as the figure shows it."""

    name: str
    label: str
    published: str  # its name in the published figure
    colour: int
    curriculum: str  # the value of `openbook learn --curriculum`
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
SMOKE: Json = {"depth": 2, "chars": 3, "task.lengths": [4, 6], "exam.samples": 16}
# On five levels, annealing with the right book or a wrong one has a schedule that hides rules of one phrasebook at a
# time first, and a student that cannot read learns with all its weights.
FIVE_LEVELS: dict[str, Json] = {
    "anneal": {"curriculum": "patient"},
    "wrong-context": {"curriculum": "patient", "curriculum.wrong": True},
    "no-icl": {"curriculum": "patient", "training.freeze": []},
}
# Fixed dropout does better at higher rates (studies/five-levels-rates.yaml); the others have that of `student-deep`.
FIVE_LEVELS_RATE = {("fixed:0.2", 8): 0.096, ("fixed:0.2", 10): 0.048}


def taught(scale: Scale, name: str, samples: int, seed: int = 0, chars: int = 8, **settings: Any) -> TaughtModel:
    """The model of a curve: the paper's, a student of three levels, or at smoke scale a tiny one that cannot read."""
    curve = CURVES[name]
    if scale == "paper":
        return llama(name, samples, chars, **settings)
    if scale == "smoke":
        return taught_student(curve.curriculum, samples, seed=seed, reads=False, **SMOKE, **settings)
    exams = {"exam.every": max(1, -(-samples // 16) // 4)}
    return taught_student(curve.curriculum, samples, seed=seed, reads=curve.reads, **exams, **settings)


def deep_student(name: str, samples: int, chars: int = 8, seed: int = 0, **settings: Any) -> TaughtModel:
    """The model of a curve on five levels: a student with the settings of `student-deep`."""
    curve = CURVES[name]
    rate = {RATE: FIVE_LEVELS_RATE[name, chars]} if (name, chars) in FIVE_LEVELS_RATE else {}
    settings = {"curriculum": curve.curriculum, **FIVE_LEVELS.get(name, {}), **rate, **settings}
    shape: Json = {"depth": 5, "chars": chars, "seed": seed, "reads": curve.reads}
    return replace(taught_student(settings.pop("curriculum"), samples, **shape, **settings), base="student-deep")


def llama(name: str, samples: int, chars: int, **settings: Any) -> TaughtModel:
    """The paper's own model of a curve: the shipped stage-2 config under another curriculum and size."""
    curve = CURVES[name]
    reader = f"llama-3b-stage1-n{chars}" if curve.reads else None
    start = {} if curve.reads else {"model.path": "meta-llama/Llama-3.2-3B-Instruct"}
    given = {"curriculum": curve.curriculum, "samples": samples, **start, **settings}
    return TaughtModel(reader, given, base=f"llama-3b-stage2-n{chars}")
