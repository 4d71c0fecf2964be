"""The main figure at the paper's own depth, with a student: five levels, learned on a CPU.

Three things differ from the runs on three levels, and docs/student.md says what each is for: the schedule of annealing
(`patient`: one phrasebook at a time first), batches of 64, and that only the MLPs learn. All curves have them, except
that a student that cannot read must learn everything. Plain fine-tuning has what the others have, and five times as
many samples with all weights free and the rate that it does best with on three levels.
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
SAMPLES = 24_000
FEWER = 18_000
MORE = 5 * SAMPLES
TOLD: dict[str, dict[str, Any]] = {
    "anneal": {"curriculum": "patient"},
    "wrong-context": {"curriculum": "patient", "curriculum.wrong": True},
    "no-icl": {"curriculum": "patient", "training.freeze": []},
}
PLAIN_AT_ITS_BEST: dict[str, Any] = {
    "training.freeze": [],
    "training.matrix_learning_rate": 0.02,
}


def configs(scale: Scale) -> list[Unit]:
    """At overnight scale only: a minute is too short for it, and the paper's own models are in the main figure."""
    if scale != "overnight":
        return []
    return [
        *(_unit("anneal", SAMPLES, seed) for seed in (0, 1, 2)),
        _unit("anneal", FEWER),
        *(_unit(name, SAMPLES) for name in CURVES if name != "anneal"),
        _unit("no-context", MORE, **PLAIN_AT_ITS_BEST),
    ]


def _unit(name: str, samples: int, seed: int = 0, **settings: Any) -> Unit:
    curve = CURVES[name]
    told = {"curriculum": curve.curriculum, **TOLD.get(name, {}), **settings}
    curriculum = told.pop("curriculum")
    spec = taught(curriculum, samples, depth=DEPTH, chars=CHARS, seed=seed, reads=curve.reads, **told)
    about = {"curve": name, "samples": samples, "seed": seed, "chars": CHARS}
    return Unit({**about, "learned": [{**spec, "base": "student-deep"}]}, seconds=0.5)


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
    version=2,  # rows have tokens
)
