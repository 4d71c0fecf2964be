"""Plain fine-tuning where it has the most samples, at several learning rates.

What annealing saves is measured against it, so it is searched at that length and not only where all curves are
(`rates`). It matters: at 0.02, the best rate of shorter runs on three levels, it learns next to nothing from 320,000
samples on five.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from openbook.experiments import efficiency_claims, sample_efficiency
from openbook.experiments.curricula import CURVES
from openbook.experiments.experiment import Claim, Experiment, Rows, Scale, Unit
from openbook.experiments.figures import Axis, Chart, Level, Panel, Series, Table, share
from openbook.experiments.five_levels import ALL_WEIGHTS, LONGER, RATE, SAMPLES, SEEDS, unit
from openbook.experiments.models import Models

NAME = "five-levels-plain"
CHARS = 8
ANNEALED = 12_000, SAMPLES[CHARS]  # too few, and enough
RUNS = {  # of plain fine-tuning: seeds by rate and samples; those at 0.01 are the very runs of the figure
    **{(ALL_WEIGHTS[RATE], samples): seeds for samples, seeds in LONGER[CHARS].items()},
    (0.02, 20 * SAMPLES[CHARS]): SEEDS,
}
WARMUP = "training.warmup"
USUAL_WARMUP = 0.03  # of `student-deep`, a share of training
# A run of ten times as many samples with the steps of warm-up that one of twenty times has, on the seed that was best
# there after as many.
WARMED = {"samples": 10 * SAMPLES[CHARS], "seed": 1, WARMUP: 2 * USUAL_WARMUP}


def configs(scale: Scale) -> list[Unit]:
    """At overnight scale only, as all that is about five levels; annealing's runs are those of the figure."""
    if scale != "overnight":
        return []
    return [
        *(unit("anneal", samples, CHARS, seed) for samples in ANNEALED for seed in range(SEEDS)),
        *(
            unit("no-context", samples, CHARS, seed, **{**ALL_WEIGHTS, RATE: rate})
            for (rate, samples), seeds in RUNS.items()
            for seed in range(seeds)
        ),
        unit("no-context", chars=CHARS, **ALL_WEIGHTS, **WARMED),
    ]


def run(config: dict[str, Any], models: Models) -> list[dict[str, Any]]:
    """What the figure of five levels has of a run, its rate, and its warm-up where that is not the usual one."""
    told = models.config(config["learned"][0]).training
    warmup = {} if told.warmup == USUAL_WARMUP else {"warmup": told.warmup}
    return [{**row, "rate": told.matrix_learning_rate, **warmup} for row in sample_efficiency.run(config, models)]


def best(rows: Rows) -> list[dict[str, Any]]:
    """The runs of each curve at the rate at which it comes highest; of two on one seed and size, the better."""
    rising = sorted(rows, key=lambda row: row["accuracy"])
    rates = {row["curve"]: row["rate"] for row in rising}
    better = {(row["curve"], row["seed"], row["samples"]): row for row in rising if row["rate"] == rates[row["curve"]]}
    return list(better.values())


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


def on_the_way(rows: Rows) -> dict[int, int]:
    """By seed, the samples that the longest runs of plain fine-tuning had seen in the first exam that was passed.

    A run that goes on may get there before it ends, and before a shorter one, which starts and ends at another pace.
    """
    plain = [row for row in rows if row["curve"] == "no-context"]
    longest = [row for row in plain if row["samples"] == max(other["samples"] for other in plain)]
    seen = {
        row["seed"]: [
            point["step"] * row["samples"] // row["steps"]
            for point in row["curve_by_step"]
            if point["closed_book"] >= efficiency_claims.LEARNED
        ]
        for row in longest
    }
    return {seed: min(found) for seed, found in seen.items() if found}


def claims(rows: Rows) -> list[Claim]:
    """The factor of the main figure, with plain fine-tuning at its best rate."""
    fewer = efficiency_claims.fewer(best(rows))
    passed = {f"on its way, seed {seed}": samples for seed, samples in on_the_way(best(rows)).items()}
    return [replace(fewer, numbers={**fewer.numbers, **passed})]


EXPERIMENT = Experiment(
    name=NAME,
    title="Plain fine-tuning on five levels, by its learning rate",
    paper="Figure 2, section 3.2",
    story="How many samples does plain fine-tuning need where there are five levels? That depends on its learning rate "
    "more than on anything else that we know of, and what annealing saves is told against the best.",
    configs=configs,
    run=run,
    draw=draw,
    claims=claims,
    differs="The paper names its rate and shows no search.",
)
