"""The main figure at the paper's task size, with the hand-built transformer as the model that can read."""

from __future__ import annotations

import itertools
from typing import Any

from openbook.figures.charts import Axis, Chart, Level, Panel, Series, Table, share
from openbook.paper.curricula import CURVES, mean_by
from openbook.paper.experiment import Experiment, Rows, Scale, Unit
from openbook.paper.models import Models
from openbook.paper.published import published
from openbook.report.claims import Claim, judge, unmeasured

LEARNED = 0.9
GUESS = 0.05
NAMES = ("anneal", "fixed:0.2", "no-context", "no-dropout", "wrong-context")


def units(scale: Scale) -> list[Unit]:
    chars, samples, seeds, depth, rate = {
        "smoke": ((3,), (64,), (0,), 2, 0.01),
        "laptop": ((8,), (1000, 3000, 10_000), (0,), 5, 0.0005),
        "overnight": ((8, 10), (1000, 3000, 10_000, 30_000, 100_000), (0, 1, 2), 5, 0.0015),
        "paper": ((8, 10), (1000, 3000, 10_000, 30_000, 100_000, 300_000, 1_000_000), (0, 1, 2), 5, 0.0015),
    }[scale]
    return [
        Unit({"curve": name, "samples": n, "seed": seed, "chars": c, "depth": depth}, seconds=0.6 + rate * n)
        for name, n, seed, c in itertools.product(NAMES, samples, seeds, chars)
    ]


def run(config: dict[str, Any], models: Models) -> list[dict[str, Any]]:
    from openbook.theory.construction.efficiency import Job, measure

    point = measure(Job(config["chars"], config["curve"], config["samples"], config["seed"], config["depth"]))
    return [{**config, "accuracy": point.accuracy, "chance": point.chance}]


def draw(rows: Rows) -> list[Chart | Table]:
    if not rows:
        return []
    panels = []
    for chars in sorted({row["chars"] for row in rows}):
        here = [row for row in rows if row["chars"] == chars]
        series = []
        for name in NAMES:
            curve = CURVES[name]
            theirs = [
                (row["num_samples"], row["acc_no_context"])
                for row in published("sample_efficiency")
                if row["n"] == chars and row["curriculum"] == curve.published
            ]
            series += [Series(curve.label, sorted(theirs), curve.colour, published=True)] if theirs else []
        for name in NAMES:
            mine = [row for row in here if row["curve"] == name]
            points = list(mean_by(mine, "samples").items())
            spread = [
                (
                    min(r["accuracy"] for r in mine if r["samples"] == n),
                    max(r["accuracy"] for r in mine if r["samples"] == n),
                )
                for n, _ in points
            ]
            several = len({row["seed"] for row in mine}) > 1
            if points:
                series.append(Series(CURVES[name].label, points, CURVES[name].colour, spread if several else ()))
        panels.append(
            Panel(
                f"MLT({here[0]['depth']}, {chars})",
                Axis("training samples, one epoch", "log", "si"),
                share("accuracy, empty context"),
                series,
                [Level(1 / chars, "chance")],
            )
        )
    largest = max(row["samples"] for row in rows)
    ends = mean_by([row for row in rows if row["samples"] == largest], "curve")
    said = ", ".join(f"{CURVES[name].label} {share:.0%}" for name, share in ends.items())
    return [
        Chart("construction-efficiency", "Sample efficiency without pre-training: the transformer written by hand",
              f"Accuracy with an empty context after {largest:,} samples: {said}.", panels,
              "Solid: this machine. Dashed and pale: published, Llama-3.2-3B on the same task. Not a race: this "
              "model has the task's structure built in. Look at the order of the curves.")
    ]  # fmt: skip


def claims(rows: Rows) -> list[Claim]:
    claim = "At five levels too, only curricula that drop correct rules learn; the others stay at random guesses."
    threshold = (
        f"largest size, every n: annealing and fixed dropout {LEARNED:.0%} or more, "
        f"every other within {GUESS:.0%} of chance"
    )
    if {row["curve"] for row in rows} != set(NAMES) or max(row["depth"] for row in rows) < 5:
        return [unmeasured(claim, threshold, "five curricula at five levels are needed")]
    largest = max(row["samples"] for row in rows)
    holds, numbers = True, {"samples": largest}
    for chars in sorted({row["chars"] for row in rows}):
        ends = mean_by([r for r in rows if r["samples"] == largest and r["chars"] == chars], "curve")
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
    units=units,
    run=run,
    draw=draw,
    claims=claims,
)
