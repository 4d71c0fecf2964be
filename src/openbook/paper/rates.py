"""What the curves of the main figure owe to their learning rate: the same runs at lower and higher ones."""

from __future__ import annotations

import functools
from typing import Any

from openbook.figures.charts import Axis, Chart, Level, Panel, Series, Table, share
from openbook.paper import curricula, efficiency_claims, five_levels, sample_efficiency
from openbook.paper.curricula import CURVES
from openbook.paper.experiment import Experiment, Rows, Scale, Unit
from openbook.paper.models import Models
from openbook.report.claims import Claim
from openbook.training.folder import RunFolder

OF_ALL = 0.036  # of `student-deep`
THREE_LEVELS = 4000, 3  # samples, and a seed that the figure does not have
# By levels and characters; on five levels the curves that learn, there or with more samples, have three or more.
SEARCHED: dict[tuple[int, int], dict[str, tuple[float, ...]]] = {
    (3, 8): dict.fromkeys(CURVES, (0.01, 0.02, 0.04)),
    (5, 8): {
        "anneal": (0.012, 0.024, 0.036, 0.048),
        "fixed:0.2": (0.048, 0.096, 0.144),
        "no-context": (0.012, 0.036, 0.072),
        "no-dropout": (0.018, 0.036),
        "wrong-context": (0.018, 0.036),
        "no-icl": (0.018, 0.036),
    },
    (5, 10): {
        "anneal": (0.024, 0.036, 0.048),
        "fixed:0.2": (0.024, 0.048, 0.096),
        "no-context": (0.012, 0.036, 0.072),
        "no-dropout": (0.036,),  # these three stay at chance at every rate of the smaller tasks
        "wrong-context": (0.036,),
        "no-icl": (0.036,),
    },
}


def configs(scale: Scale, depth: int, chars: int) -> list[Unit]:
    """Every curve at its rates."""
    if scale != "overnight":
        return []
    unit = _of_three if depth == 3 else _of_five
    return [unit(name, chars, rate) for name, rates in SEARCHED[depth, chars].items() for rate in rates]


def _of_three(name: str, chars: int, rate: float) -> Unit:
    samples, seed = THREE_LEVELS
    spec = curricula.student("overnight", name, samples, seed, **{five_levels.RATE: rate})
    return sample_efficiency.unit(name, samples, seed, chars, spec)


def _of_five(name: str, chars: int, rate: float) -> Unit:
    """At the rate that a curve has in the figure it is the very run of the figure."""
    its_own = five_levels.OWN_RATE.get((name, chars), OF_ALL)
    told = {} if rate == its_own else {five_levels.RATE: rate}
    return five_levels.unit(name, five_levels.SAMPLES[chars], chars, 0, **told)


def run(config: dict[str, Any], models: Models) -> list[dict[str, Any]]:
    """What the figure of five levels has of a run, its rate, and the loss that it ended with."""
    record = RunFolder(models.place(config["learned"][0]))
    last_loss = [line["loss"] for line in record.metrics() if "loss" in line][-1]
    told = {"rate": record.read("config.json")["training"]["matrix_learning_rate"], "last_loss": last_loss}
    return [{**row, **told} for row in sample_efficiency.run(config, models)]


def best(rows: Rows) -> list[dict[str, Any]]:
    """Each curve at the rate that is best for it."""
    return [max(_by_rate(rows, name), key=lambda row: row["accuracy"]) for name in _curves(rows)]


def draw(rows: Rows, name: str) -> list[Chart | Table]:
    if not rows:
        return []
    rates = Axis("Muon's rate", "log")
    loss = Axis("training loss at the end, of its own task", low=0.0)
    panels = [
        Panel("Book closed", rates, share("accuracy"), _series(rows, "accuracy"), [Level(rows[0]["chance"], "chance")]),
        Panel("Training", rates, loss, _series(rows, "last_loss")),
    ]
    size = rows[0]["samples"]
    ends = ", ".join(f"{CURVES[row['curve']].label} {row['accuracy']:.0%} at {row['rate']:g}" for row in best(rows))
    header = ["curriculum", "rate", "book closed", "95 %", "book open", "loss at the end"]
    cells = [
        [CURVES[curve].label, f"{row['rate']:g}", f"{row['accuracy']:.1%}", f"{row['low']:.1%} to {row['high']:.1%}",
         f"{row['open_book']:.1%}", f"{row['last_loss']:.3f}"]
        for curve in _curves(rows)
        for row in _by_rate(rows, curve)
    ]  # fmt: skip
    return [
        Chart(
            name,
            f"The curves at other learning rates, {size:,} samples on MLT({rows[0]['depth']}, {rows[0]['chars']})",
            f"Accuracy with the book closed at the rate that is best for each: {ends}.",
            panels,
            "One seed. Each curve trains on a task of its own, so losses are compared along a curve and not between "
            "curves: fixed dropout always has four fifths of the book before it, annealing ends with the book closed.",
        ),
        Table(f"{name}-table", "The same in numbers", header, cells),
    ]


def claims(rows: Rows) -> list[Claim]:
    """The paper's sentences about what is necessary, with every curve at its best rate."""
    return efficiency_claims.necessary(best(rows))


def _curves(rows: Rows) -> list[str]:
    return [name for name in CURVES if any(row["curve"] == name for row in rows)]


def _by_rate(rows: Rows, name: str) -> list[dict[str, Any]]:
    return sorted((row for row in rows if row["curve"] == name), key=lambda row: row["rate"])


def _series(rows: Rows, key: str) -> list[Series]:
    return [
        Series(CURVES[name].label, [(row["rate"], row[key]) for row in _by_rate(rows, name)], CURVES[name].colour)
        for name in _curves(rows)
    ]


def _experiment(name: str, depth: int, chars: int, title: str, story: str) -> Experiment:
    return Experiment(
        name=name,
        title=title,
        paper="Figure 2, section 3.2",
        story=story,
        configs=functools.partial(configs, depth=depth, chars=chars),
        run=run,
        draw=functools.partial(draw, name=name),
        claims=claims,
        differs="The paper names its rate and shows no search. One seed and one size.",
    )


THREE = _experiment(
    "sample-efficiency-rates",
    3,
    8,
    "The six curricula at other learning rates",
    "Does a curve of the main figure lose because its learning rate is wrong? All six at half and at twice the rate "
    "that they have there, on a seed that is not in the figure, and each is judged at its best.",
)
EXPERIMENT = _experiment(
    "five-levels-rates",
    5,
    8,
    "Five levels at other learning rates",
    "Is plain fine-tuning at chance because its learning rate is wrong? Most curves of five levels have the rate "
    "that was found with annealing. Here they have others, and each is judged at its best.",
)
LARGER = _experiment(
    "five-levels-ten-rates",
    5,
    10,
    "Five levels and alphabets of ten at other learning rates",
    "The same for the larger task: annealing, fixed dropout and plain fine-tuning at lower and higher rates, and each "
    "is judged at its best.",
)
