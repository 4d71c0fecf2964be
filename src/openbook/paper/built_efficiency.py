"""The main figure at the paper's task size, with the hand-built transformer as the model that can read."""

from __future__ import annotations

import functools
import itertools
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from openbook.base import jobs
from openbook.base.errors import InputError, nearest
from openbook.figures.charts import Chart, Panel, Table, share
from openbook.paper.curricula import CURVES
from openbook.paper.drawing import grouped, largest, learning_panel, mean_by
from openbook.paper.efficiency_charts import learning_curves
from openbook.paper.experiment import Experiment, Json, Rows, Scale, Unit
from openbook.paper.jobs import RowsJob
from openbook.paper.models import Models
from openbook.paper.results import read_results, unit_path
from openbook.report.claims import Claim, judge, unmeasured

LEARNED = 0.9
GUESS = 0.05
NAMES = ("anneal", "fixed:0.2", "no-context", "no-dropout", "wrong-context")


def grid(
    scale: Scale,
    chars: Sequence[int] = (),
    samples: Sequence[int] = (),
    seeds: int | None = None,
    curves: Sequence[str] = (),
) -> list[Unit]:
    """The units of a scale; sizes, seeds and curves that are given replace those of the scale."""
    if seeds is not None and seeds < 1:
        raise InputError(f"--seeds is {seeds}: give at least 1")
    if min((*chars, 2)) < 2 or min((*samples, 1)) < 1:
        raise InputError("--chars must be at least 2 and --samples at least 1")
    for name in curves:
        if name not in NAMES:
            raise InputError(f"there is no curriculum '{name}' in this figure{nearest(name, NAMES)}")
    alphabets, sizes, trainings, depth, rate = {
        "smoke": ((3,), (64,), 1, 2, 0.01),
        "laptop": ((8,), (1000, 3000, 10_000), 1, 5, 0.0005),
        "overnight": ((8, 10), (1000, 3000, 10_000, 30_000, 100_000), 3, 5, 0.0015),
        "paper": ((8, 10), (1000, 3000, 10_000, 30_000, 100_000, 300_000, 1_000_000), 3, 5, 0.0015),
    }[scale]
    points = itertools.product(curves or NAMES, samples or sizes, range(seeds or trainings), chars or alphabets)
    return [
        Unit({"curve": name, "samples": n, "seed": seed, "chars": c, "depth": depth}, seconds=0.6 + rate * n)
        for name, n, seed, c in dict.fromkeys(points)
    ]


def run(config: Json, models: Models) -> list[Json]:
    from openbook.theory.construction.curricula import closed_book_accuracy

    settings = {key: config[key] for key in ("depth", "chars", "samples", "seed")}
    accuracy = closed_book_accuracy(CURVES[config["curve"]].curriculum, **settings)
    return [{**config, "accuracy": accuracy, "chance": 1 / config["chars"]}]


def measure(units: Sequence[Unit], processes: int, advance: Callable[..., object]) -> list[Json]:
    """The rows of units that are trained side by side; `advance` is told the samples of each one that is done."""
    with tempfile.TemporaryDirectory() as folder:
        place = functools.partial(unit_path, Path(folder), EXPERIMENT)
        work = [RowsJob(Models(Path(folder)), EXPERIMENT.name, "laptop", unit, place(unit), run) for unit in units]
        configs = {job.key: job.unit.config for job in work}
        for event in jobs.run_jobs(work, processes, Path(folder, "workers.log")):
            config = configs[event.key]
            if event.kind == "failed":
                raise InputError(f"training on {config['samples']:,} samples ({config['curve']}): {event.note}")
            if event.kind == "done":
                advance(config["samples"], note=f"{config['curve']}, n = {config['chars']}")
        rows = read_results(job.path for job in work).rows
    return sorted(rows, key=lambda row: (row["chars"], NAMES.index(row["curve"]), row["samples"], row["seed"]))


def draw(rows: Rows) -> list[Chart | Table]:
    runs = largest(rows)
    ends = mean_by(runs, "curve")
    alt = ", ".join(f"{CURVES[name].label} {accuracy:.0%}" for name, accuracy in ends.items())
    return [
        Chart(
            "construction-efficiency",
            "Sample efficiency without pre-training: the transformer written by hand",
            f"Accuracy with an empty context after {runs[0]['samples']:,} samples: {alt}.",
            [_panel(ours, chars) for chars, ours in grouped(rows, "chars")],
            "Solid: this machine. Dashed and pale: published, Llama-3.2-3B on the same task. Not a race: this "
            "model has the task's structure built in. Look at the order of the curves.",
        )
    ]


def _panel(rows: Rows, chars: int) -> Panel:
    """The curves of one size of alphabet, the published ones behind ours; bars over several seeds."""
    bounds = ("accuracy", "accuracy") if len({row["seed"] for row in rows}) > 1 else None
    series = learning_curves(rows, chars, NAMES, bounds)
    return learning_panel(f"MLT({rows[0]['depth']}, {chars})", series, 1 / chars, share("accuracy, empty context"))


def claims(rows: Rows) -> list[Claim]:
    claim = "At five levels too, only curricula that drop correct rules learn; the others stay at random guesses."
    threshold = (
        f"largest size, every n: annealing and fixed dropout {LEARNED:.0%} or more, "
        f"every other within {GUESS:.0%} of chance"
    )
    if {row["curve"] for row in rows} != set(NAMES) or max(row["depth"] for row in rows) < 5:
        return [unmeasured(claim, threshold, "five curricula at five levels are needed")]
    holds, numbers = True, {"samples": largest(rows)[0]["samples"]}
    for chars, runs in grouped(largest(rows), "chars"):
        ends = mean_by(runs, "curve")
        holds &= all(
            share >= LEARNED if name in NAMES[:2] else abs(share - 1 / chars) <= GUESS for name, share in ends.items()
        )
        numbers[f"n = {chars}"] = ", ".join(f"{name} {share:.3f}" for name, share in ends.items())
    return [judge(claim, holds, numbers, threshold)]


EXPERIMENT = Experiment(
    name="construction-efficiency",
    title="The main figure at five levels, with the constructed transformer",
    paper="Figure 2, with the model of appendix H",
    story="The hand-built transformer can read any codebook from the start, so the paper's main figure can be had at "
    "its own task size without any pre-training: five levels, the paper's curricula, one epoch.",
    units=grid,
    run=run,
    draw=draw,
    claims=claims,
)
