"""How often the audit flags a model that never met the text: twenty trainings without it, each audited as if it had.

Small Llamas on MLT(1, 6), book closed throughout, with seeds of their own. Each is compared with the next of them, with
the model before training and with one that had a decoy text, by the attacks on the text. About three CPU minutes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from _rows import Row, main
from openbook.audit.arms import Arms, load_arm
from openbook.audit.attack import Attacker, AuditConfig
from openbook.audit.run import scores_of, secrets_of
from openbook.audit.verdict import LEVEL, findings, measures
from openbook.training.config import RunConfig
from openbook.training.run import run_training
from openbook.training.settings import validated
from openbook.training.sources import sources_of

SEEDS = 20
ON_TEXT = ("completion", "exposure", "membership", "battery", "budget")


def config(seed: int, curriculum: str) -> RunConfig:
    settings = {
        "task": {"depth": 1, "chars": 6, "lengths": [4, 4], "text": "compact"},
        "samples": 14_000,
        "seed": seed,
        "curriculum": curriculum,
        "model": {"hidden_size": 64, "layers": 2},
        "training": {"micro_batch_size": 64, "learning_rate": 3e-3},
        "exam": {"every": 10**6},
    }
    return validated(RunConfig, settings)


def measure() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        runs = [folder / f"seed {seed}" for seed in range(SEEDS)]
        known = [
            run_training(config(seed, "no-context"), run)["accuracy"]["closed_book"] for seed, run in enumerate(runs)
        ]
        base = config(0, "anneal")
        source, _ = sources_of(base)
        secrets = secrets_of(base, source, runs[0])
        for arm in ("before", "decoy"):
            Arms(runs[0], base, folder, secrets).train(arm)
        models = {place.name: load_arm(place, base) for place in (*runs, folder / "before", folder / "decoy")}
        references = {arm: models[arm] for arm in ("before", "decoy")}
        attacker = Attacker(AuditConfig(ON_TEXT, permutations=5), references)
        scores, _ = scores_of({place: [model] for place, model in models.items()}, secrets, attacker)
    measured = {place: measures(each[0]) for place, each in scores.items()}
    flagged = 0
    for run, other in zip(runs, runs[1:] + runs[:1], strict=True):
        controls = {"before": measured["before"], "decoy": measured["decoy"], "without": measured[other.name]}
        flagged += bool(findings(measured[run.name], controls))
    sizes = {"seeds": SEEDS, "secrets": len(secrets), "measures": len(measured["before"])}
    yield Row("closed book, mean", float(np.mean(known)), "", extra=sizes)
    yield Row("flagged", flagged / SEEDS, "of the models", goal=LEVEL, better="less", extra=sizes)


if __name__ == "__main__":
    main("False alarms of the audit", measure)
