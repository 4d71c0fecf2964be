"""How many examples have to be different: training of one length on fewer examples, with more passes over them.

The paper fixes one epoch. Under a curriculum that hides other rules each time, an example that comes again is not the
same: its answer says something about other rules than before. Plain fine-tuning has the same examples for ten times as
long, with all weights free and Muon at 0.02. That is too high a rate where it has many examples (`plain`).
"""

from __future__ import annotations

from typing import Any

from openbook.figures.charts import Axis, Chart, Level, Panel, Series, Table, share
from openbook.paper import efficiency_claims, rates
from openbook.paper.curricula import CURVES, mean_by, spread_by
from openbook.paper.experiment import Experiment, Rows, Scale, Unit
from openbook.paper.five_levels import ALL_WEIGHTS, RATE, SAMPLES, learned
from openbook.paper.models import Models
from openbook.report.claims import Claim

NAME = "five-levels-passes"
POSITIONS = SAMPLES[8]  # examples times passes
MOST = 8000
SEEDS = {500: (0,), 1000: (0, 1, 2), MOST: (0,)}  # of annealing, by different examples
LONGER = 10  # times as long is plain fine-tuning


def configs(scale: Scale) -> list[Unit]:
    """At overnight scale only, as all that is about five levels."""
    if scale != "overnight":
        return []
    annealed = [_unit("anneal", size, POSITIONS, seed) for size, seeds in SEEDS.items() for seed in seeds]
    return [*annealed, _unit("no-context", MOST, LONGER * POSITIONS, 0, **{**ALL_WEIGHTS, RATE: 0.02})]


def _unit(name: str, samples: int, positions: int, seed: int, **settings: Any) -> Unit:
    passes = positions // samples
    settings = {**settings, "training.epochs": passes}
    spec = learned(name, samples, seed=seed, **settings)
    about = {"curve": name, "samples": samples, "seed": seed, "chars": 8, "passes": passes}
    return Unit({**about, "learned": [spec]}, seconds=0.5)


def run(config: dict[str, Any], models: Models) -> list[dict[str, Any]]:
    """What the figure of five levels and its search have of a run, and how often it saw each example."""
    return [{**row, "passes": config["passes"]} for row in rates.run(config, models)]


def draw(rows: Rows) -> list[Chart | Table]:
    if not rows:
        return []
    depth, chars = rows[0]["depth"], rows[0]["chars"]
    names = [name for name in CURVES if any(row["curve"] == name for row in rows)]
    chance = [Level(rows[0]["chance"], "chance")]
    fewest, most = (pick(row["samples"] for row in rows) for pick in (min, max))
    different = Axis("different examples", "log", "si", fewest / 1.25, 2 * most)  # room for what the line is called
    seen = Axis("examples seen, repeated ones counted", form="si")
    panels = [
        Panel("At the end", different, share("accuracy, book closed"), [_ends(rows, name) for name in names], chance),
        Panel(
            f"On the way, with {most:,} different",
            seen,
            share("accuracy, book closed"),
            [_course(row) for row in rows if row["samples"] == most and row["seed"] == 0],
            chance,
        ),
    ]
    ordered = sorted(rows, key=lambda row: (names.index(row["curve"]), row["samples"], row["seed"]))
    cells = [
        [CURVES[row["curve"]].label, f"{row['samples']:,}", str(row["passes"]), str(row["seed"]),
         f"{row['accuracy']:.1%}", f"{row['low']:.1%} to {row['high']:.1%}", f"{row['open_book']:.1%}",
         f"{row['last_loss']:.3f}"]
        for row in ordered
    ]  # fmt: skip
    told = "; ".join(
        f"{CURVES[row['curve']].label} {row['accuracy']:.0%} with {row['samples']:,} examples, {row['passes']} passes, "
        f"seed {row['seed']}"
        for row in ordered
    )
    header = ["curriculum", "different", "passes", "seed", "book closed", "95 %", "book open", "loss at the end"]
    return [
        Chart(
            NAME,
            f"Fewer examples, more passes, on MLT({depth}, {chars})",
            f"Accuracy with the book closed: {told}.",
            panels,
            "Left: the mean of the seeds; bars reach from the lowest to the highest end of their 95 % intervals. "
            "Right: seed 0. Examined on strings that training never sees.",
        ),
        Table(f"{NAME}-table", "The same in numbers", header, cells),
    ]


def _ends(rows: Rows, name: str) -> Series:
    mine = [row for row in rows if row["curve"] == name]
    points, spread = list(mean_by(mine, "samples").items()), spread_by(mine, "samples")
    return Series(CURVES[name].label, points, CURVES[name].colour, [spread[size] for size, _ in points])


def _course(row: dict[str, Any]) -> Series:
    each = row["samples"] * row["passes"] / row["steps"]
    points = [(point["step"] * each, point["closed_book"]) for point in row["curve_by_step"]]
    return Series(CURVES[row["curve"]].label, points, CURVES[row["curve"]].colour)


def claims(rows: Rows) -> list[Claim]:
    """The paper's sentence about plain fine-tuning, with several passes for both."""
    return efficiency_claims.necessary(rows, ["no-context"])


EXPERIMENT = Experiment(
    name=NAME,
    title="Five levels with fewer examples and more passes",
    paper="Figure 2, section 3.2, footnote on one epoch",
    story="What if there are only a few thousand examples? Each is shown several times, and each time other rules are "
    "hidden. Training is as long as for 16,000 examples that are all different, and ten times as long without a book.",
    configs=configs,
    run=run,
    draw=draw,
    claims=claims,
    differs="The paper trains for one epoch throughout.",
)
