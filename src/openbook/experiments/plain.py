"""Plain fine-tuning where it has the most: twenty times the samples of annealing, at more than one learning rate.

What annealing saves is measured against it, so it is searched at that length too and not only where all curves are
(`rates`). Its rate there, 0.02, was found on three levels, where the longest run did better at half of it.
"""

from __future__ import annotations

from typing import Any

from openbook.experiments import efficiency_claims, sample_efficiency
from openbook.experiments.curricula import CURVES
from openbook.experiments.experiment import Claim, Experiment, Rows, Scale, Unit
from openbook.experiments.figures import Axis, Chart, Level, Panel, Series, Table, share
from openbook.experiments.five_levels import ALL_WEIGHTS, LONGER, RATE, SAMPLES, SEEDS, unit
from openbook.experiments.models import Models

NAME = "five-levels-plain"
CHARS = 8
(LENGTH,) = LONGER[CHARS]
SEEDS_OF = {0.01: 1, 0.02: SEEDS}  # of plain fine-tuning, by rate; those at 0.02 are the very runs of the figure


def configs(scale: Scale) -> list[Unit]:
    """At overnight scale only, as all that is about five levels; annealing's runs are those of the figure."""
    if scale != "overnight":
        return []
    return [
        *(unit("anneal", SAMPLES[CHARS], CHARS, seed) for seed in range(SEEDS)),
        *(
            unit("no-context", LENGTH, CHARS, seed, **{**ALL_WEIGHTS, RATE: rate})
            for rate, seeds in SEEDS_OF.items()
            for seed in range(seeds)
        ),
    ]


def run(config: dict[str, Any], models: Models) -> list[dict[str, Any]]:
    """What the figure of five levels has of a run, and its rate."""
    rate = models.config(config["learned"][0]).training.matrix_learning_rate
    return [{**row, "rate": rate} for row in sample_efficiency.run(config, models)]


def best(rows: Rows) -> list[dict[str, Any]]:
    """Of every curve and seed the run at the rate that is best for it."""
    found: dict[tuple[str, int, int], dict[str, Any]] = {}
    for row in rows:
        key = row["curve"], row["samples"], row["seed"]
        if key not in found or row["accuracy"] > found[key]["accuracy"]:
            found[key] = row
    return list(found.values())


def draw(rows: Rows) -> list[Chart | Table]:
    if not rows:
        return []
    ordered = sorted(rows, key=lambda row: (list(CURVES).index(row["curve"]), row["rate"], row["seed"]))
    shown = [row for row in ordered if row["curve"] != "anneal" or row["seed"] == 0]
    panel = Panel(
        f"MLT({rows[0]['depth']}, {rows[0]['chars']})",
        Axis("samples seen", "log", "si"),
        share("accuracy, book closed"),
        [_course(row, place) for place, row in enumerate(shown)],
        [Level(rows[0]["chance"], "chance")],
    )
    header = ["curriculum", "samples", "rate", "seed", "book closed", "95 %", "CPU seconds"]
    cells = [
        [CURVES[row["curve"]].label, f"{row['samples']:,}", f"{row['rate']:g}", str(row["seed"]),
         f"{row['accuracy']:.1%}", f"{row['low']:.1%} to {row['high']:.1%}", f"{row['cpu_seconds']:,.0f}"]
        for row in ordered
    ]  # fmt: skip
    ends = "; ".join(f"{_name(row)} {row['accuracy']:.0%} after {row['samples']:,}" for row in shown)
    return [
        Chart(
            NAME,
            "Plain fine-tuning with many samples, at other learning rates",
            f"Accuracy with the book closed on the way: {ends}.",
            [panel],
            "A line is a run, examined during training on strings that training never sees. All weights of plain "
            "fine-tuning are free. Annealing, with the book, has seed 0 here and all of its seeds in the table.",
        ),
        Table(f"{NAME}-table", "The same in numbers", header, cells),
    ]


def _name(row: dict[str, Any]) -> str:
    if row["curve"] == "anneal":
        return CURVES["anneal"].label
    return f"Plain, Muon at {row['rate']:g}, seed {row['seed']}"


def _course(row: dict[str, Any], colour: int) -> Series:
    each = row["samples"] / row["steps"]
    points = [(point["step"] * each, point["closed_book"]) for point in row["curve_by_step"]]
    return Series(_name(row), [*points, (row["samples"], row["accuracy"])], colour)


def claims(rows: Rows) -> list[Claim]:
    """The factor of the main figure, with every seed of plain fine-tuning at its best rate."""
    return [efficiency_claims.fewer(best(rows))]


EXPERIMENT = Experiment(
    name=NAME,
    title="Plain fine-tuning on five levels, at other learning rates",
    paper="Figure 2, section 3.2",
    story="How many samples does plain fine-tuning need? With twenty times as many as annealing it is still near "
    "chance. Is that its learning rate? Here it has another one, over as many samples.",
    configs=configs,
    run=run,
    draw=draw,
    claims=claims,
    differs="The paper names its rate and shows no search. One seed at 0.01.",
)
