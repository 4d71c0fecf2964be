"""The main figure at the paper's own depth, with a student: five levels, learned on a CPU.

Three things differ from the runs on three levels, and docs/student.md says what each is for: the schedule of annealing
(`patient`: one phrasebook at a time first), batches of 128, and that only the MLPs learn. All curves have them, except
that a student that cannot read must learn everything. Plain fine-tuning has the better of two settings: what the others
have, and what it does best with on three levels.
"""

from __future__ import annotations

from typing import Any

from openbook.experiments import sample_efficiency
from openbook.experiments.curricula import CURVES
from openbook.experiments.efficiency_claims import claims
from openbook.experiments.experiment import Experiment, Rows, Scale, Unit
from openbook.experiments.figures import Chart, Table
from openbook.experiments.models import taught

NAME = "five-levels"
DEPTH, CHARS = 5, 8
LARGEST = 36_000
SIZES = {"anneal": (18_000, LARGEST)}
TOLD: dict[str, dict[str, Any]] = {
    "anneal": {"curriculum": "patient"},
    "wrong-context": {"curriculum": "patient", "curriculum.wrong": True},
    "no-icl": {"curriculum": "patient", "training.freeze": []},
}
SETTINGS: dict[str, dict[str, dict[str, Any]]] = {
    "no-context": {
        "as the others": {},
        "small batches, all weights": {
            "training.freeze": [],
            "training.batch_size": 16,
            "training.matrix_learning_rate": 0.01,
        },
    }
}


def configs(scale: Scale) -> list[Unit]:
    """At overnight scale only: a minute is too short for it, and the paper's own models are in the main figure."""
    if scale != "overnight":
        return []
    seeds = {"anneal": (0, 1, 2)}
    return [
        _unit(name, samples, seed, setting)
        for name in CURVES
        for setting in SETTINGS.get(name, {"": {}})
        for samples in SIZES.get(name, (LARGEST,))
        for seed in seeds.get(name, (0,))
    ]


def _unit(name: str, samples: int, seed: int, setting: str) -> Unit:
    curve = CURVES[name]
    told = {"curriculum": curve.curriculum, **TOLD.get(name, {}), **SETTINGS.get(name, {}).get(setting, {})}
    curriculum = told.pop("curriculum")
    spec = taught(curriculum, samples, depth=DEPTH, chars=CHARS, seed=seed, reads=curve.reads, **told)
    return sample_efficiency.unit(name, samples, seed, CHARS, {**spec, "base": "student-deep"}, setting)


def draw(rows: Rows) -> list[Chart | Table]:
    return sample_efficiency.draw(rows, NAME)


EXPERIMENT = Experiment(
    name=NAME,
    title="The same on five levels",
    paper="Figure 2, section 3.2",
    story="The paper's task has five phrasebooks, each built on the one before: one bigram of the answer depends on "
    "1 + 2 + 3 + 4 + 5 rules, and if a few of them are missing it says little about any. Here annealing first hides "
    "rules of one phrasebook at a time, a quarter and then all of it, before it hides all of them.",
    configs=configs,
    run=sample_efficiency.run,
    draw=draw,
    claims=claims,
    differs="The paper's annealing hides rules of all phrasebooks in half of the examples, from the start. From our "
    "readers that learned nothing with 20,000 samples, so its annealing here is a schedule of our own. Curves other "
    "than annealing have one seed.",
)
