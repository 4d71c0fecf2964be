"""Plain fine-tuning where it has the most samples, at several learning rates.

What annealing saves is measured against it, so it is searched at that length and not only where all curves are
(`rates`). It matters: at 0.02, the best rate of shorter runs on three levels, it learns next to nothing from 320,000
samples on five, and at 0.005 it may know the book after 160,000.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from openbook.figures.charts import Axis, Chart, Level, Panel, Series, Table, share
from openbook.paper import efficiency_claims, five_levels, sample_efficiency
from openbook.paper.curricula import CURVES
from openbook.paper.experiment import Experiment, Rows, Scale, Unit
from openbook.paper.five_levels import ALL_WEIGHTS, CHARS, LONGER, RATE, SAMPLES, SEEDS, WARMED, WARMUP, unit
from openbook.paper.models import Models
from openbook.report.claims import Claim

NAME = "five-levels-plain"
SHOWN = {  # of the figure: annealing with too few and with enough, plain fine-tuning with many
    *(("anneal", size) for size in (12_000, SAMPLES[CHARS])),
    *(("no-context", size) for size in LONGER[CHARS]),
}
USUAL_WARMUP = 0.03  # of `student-deep`, a share of training
TEN, TWENTY = 10 * SAMPLES[CHARS], 20 * SAMPLES[CHARS]
OTHERS: list[tuple[int, Iterable[int], dict[str, Any]]] = [  # than those of the figure: samples, seeds and settings
    (TEN, range(SEEDS), ALL_WEIGHTS),
    (TEN, [1], {**ALL_WEIGHTS, WARMUP: WARMED / TEN}),  # on the seed that was best after as many of the longest run
    (TWENTY, range(SEEDS), {**ALL_WEIGHTS, RATE: 0.02}),
]


def configs(scale: Scale) -> list[Unit]:
    """At overnight scale only, as all that is about five levels; what the figure has is the same runs."""
    if scale != "overnight":
        return []
    shown = five_levels.configs(scale, CHARS)
    return [
        *(one for one in shown if (one.config["curve"], one.config["samples"]) in SHOWN),
        *(unit("no-context", size, CHARS, seed, **settings) for size, seeds, settings in OTHERS for seed in seeds),
    ]


def run(config: dict[str, Any], models: Models) -> list[dict[str, Any]]:
    """What the figure of five levels has of a run, its rate, and its warm-up where that is not the usual one."""
    told = models.config(config["learned"][0]).training
    warmup = {} if told.warmup == USUAL_WARMUP else {"warmup": told.warmup}
    return [{**row, "rate": told.matrix_learning_rate, **warmup} for row in sample_efficiency.run(config, models)]


def best(rows: Rows) -> list[dict[str, Any]]:
    """What is known to be possible: for each curve, seed and size the best run, whatever its rate.

    More samples need not be used, so a longer run at a worse rate does not take back what a shorter one has shown. Nor
    is it evidence of its size: a size counts for a seed that does better with it than with fewer.
    """
    kept: dict[tuple[str, int], list[dict[str, Any]]] = {}  # of each curve and seed, by size
    for row in sorted(rows, key=lambda row: (row["samples"], -row["accuracy"])):
        better = kept.setdefault((row["curve"], row["seed"]), [])
        if not better or row["accuracy"] > better[-1]["accuracy"]:
            better.append(row)
    return [row for better in kept.values() for row in better]


def draw(rows: Rows) -> list[Chart | Table]:
    if not rows:
        return []
    ordered = sorted(rows, key=lambda row: (list(CURVES).index(row["curve"]), row["rate"], row["samples"], row["seed"]))
    longest = {(row["curve"], row["rate"]): row["samples"] for row in ordered}
    runs = {key: [row for row in ordered if (row["curve"], row["rate"], row["samples"]) == (*key, size)]
            for key, size in longest.items()}  # fmt: skip
    named = {_name(*key, longest[key]): found for key, found in runs.items()}
    panel = Panel(
        f"MLT({rows[0]['depth']}, {rows[0]['chars']})",
        Axis("samples seen", "log", "si"),
        share("accuracy, book closed"),
        [_course(name, found, colour) for colour, (name, found) in enumerate(named.items())],
        [Level(rows[0]["chance"], "chance")],
    )
    ends = "; ".join(f"{name} {_shares(found)}" for name, found in named.items())
    header = ["curriculum", "samples", "rate", "warm-up", "seed", "book closed", "95 %", "CPU seconds"]
    cells = [
        [CURVES[row["curve"]].label, f"{row['samples']:,}", f"{row['rate']:g}",
         f"{row.get('warmup', USUAL_WARMUP) * row['steps']:.0f} steps", str(row["seed"]),
         f"{row['accuracy']:.1%}", f"{row['low']:.1%} to {row['high']:.1%}", f"{row['cpu_seconds']:,.0f}"]
        for row in ordered
    ]  # fmt: skip
    return [
        Chart(
            NAME,
            "Plain fine-tuning with many samples, by its learning rate",
            f"Accuracy with the book closed at the end: {ends}.",
            [panel],
            "The longest runs at each rate on their way, examined on strings that training never sees: the mean of "
            "their seeds, and bars from the lowest to the highest. All weights of plain fine-tuning are free.",
        ),
        Table(f"{NAME}-table", "The same in numbers", header, cells),
    ]


def _name(curve: str, rate: float, samples: int) -> str:
    label = CURVES[curve].label if curve == "anneal" else "Plain fine-tuning"
    return f"{label}, {samples:,} samples, rate {rate:g}"


def _shares(runs: Rows) -> str:
    return ", ".join(f"{row['accuracy']:.0%}" for row in runs)


def _course(name: str, runs: Rows, colour: int) -> Series:
    """Runs of one kind by how many samples they had seen; all were examined after the same steps."""
    seen: dict[float, list[float]] = {}
    for row in runs:
        for point in row["curve_by_step"]:
            seen.setdefault(point["step"] * row["samples"] / row["steps"], []).append(point["closed_book"])
    points = [(samples, sum(found) / len(found)) for samples, found in seen.items()]
    return Series(name, points, colour, [(min(found), max(found)) for found in seen.values()])


def claims(rows: Rows) -> list[Claim]:
    """The factor of the main figure, with the best that plain fine-tuning had at any rate."""
    fewer = efficiency_claims.fewer(best(rows))
    passed = {f"first passed, seed {seed}": samples for seed, samples in efficiency_claims.first_passed(rows).items()}
    return [replace(fewer, numbers={**fewer.numbers, **passed})]


EXPERIMENT = Experiment(
    name=NAME,
    title="Plain fine-tuning on five levels, by its learning rate",
    paper="Figure 2, section 3.2",
    story="How many samples does plain fine-tuning need where there are five levels? That depends on its learning "
    "rate, on its warm-up and on luck, and what annealing saves is told against the best that was found for each seed.",
    configs=configs,
    run=run,
    draw=draw,
    claims=claims,
    differs="The paper names its rate and shows no search.",
)
