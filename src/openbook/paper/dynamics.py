"""Surrogate dynamics: how gradient descent with context recovers all layers of the surrogate model."""

from __future__ import annotations

from typing import Any

from openbook.figures.charts import Axis, Chart, Level, Panel, Series, Table, share
from openbook.paper.experiment import Experiment, Rows, Scale, Unit
from openbook.paper.models import Models
from openbook.paper.published import published
from openbook.report.claims import Claim, judge, unmeasured

NAMES = {"layerwise": "layer-wise descent", "full": "full-parameter descent", "vanilla": "descent without context"}
COLOURS = {"layerwise": 2, "full": 0, "vanilla": 1}
POINTS = 120  # of a curve, as many as can be seen


def units(scale: Scale) -> list[Unit]:
    sizes = {
        "smoke": [(2, 3, 1.0)],
        "laptop": [(5, 10, 1.5), (10, 10, 4.0), (20, 10, 10.0)],
        "overnight": [(5, 10, 3.0), (10, 10, 9.0), (20, 10, 30.0), (10, 20, 120.0), (20, 20, 400.0)],
    }
    grid = sizes["overnight" if scale == "paper" else scale]
    units = [
        Unit({"algorithm": algorithm, "depth": d, "chars": n, "seed": 0}, seconds)
        for d, n, seconds in grid
        for algorithm in ("layerwise", "full")
    ]
    d, n, seconds = grid[0]
    return [
        *units,
        Unit({"algorithm": "vanilla", "depth": d, "chars": n, "seed": 0, "steps": 4 * d * n * n}, 12 * seconds),
    ]


def run(config: dict[str, Any], models: Models) -> list[dict[str, Any]]:
    from openbook.task.phrasebook import Codebook
    from openbook.theory.surrogate.learn import Plan, learn

    plan = Plan(config["algorithm"], steps=config.get("steps"), seed=config["seed"])
    found = learn(plan, Codebook.sample(config["depth"], config["chars"], config["seed"])).to_json()
    curve = found.pop("curve")
    every = max(1, len(curve) // POINTS)
    kept = [point for place, point in enumerate(curve) if place % every == 0 or place == len(curve) - 1]
    return [{**found, "curve": [{key: point[key] for key in ("step", "recovered", "by_layer")} for point in kept]}]


def draw(rows: Rows) -> list[Chart | Table]:
    if not rows:
        return []
    overall, layers = [], []
    for depth, chars in sorted({(row["depth"], row["chars"]) for row in rows}):
        here = [row for row in rows if (row["depth"], row["chars"]) == (depth, chars)]
        series = []
        for algorithm in ("layerwise", "full"):
            theirs = [
                (row["step"], row["recovered"])
                for row in published("dynamics")
                if (row["depth"], row["chars"], row["algorithm"]) == (depth, chars, algorithm)
            ]
            if theirs:
                series.append(Series(NAMES[algorithm], theirs, COLOURS[algorithm], published=True))
        for row in sorted(here, key=lambda row: -len(row["algorithm"])):
            points = [(point["step"], point["recovered"]) for point in row["curve"]]
            series.append(Series(NAMES[row["algorithm"]], points, COLOURS[row["algorithm"]]))
        held = share("rules in the weights")
        overall.append(
            Panel(f"MLT({depth}, {chars}), all layers", Axis("step"), held, series, [Level(1 / chars**2, "a guess")])
        )
        full = next((row for row in here if row["algorithm"] == "full"), None)
        if full and depth <= 10:  # more layers cannot be told apart
            by_layer = [
                Series(
                    f"W{i + 1}",
                    [(p["step"], p["by_layer"][i]) for p in full["curve"]],
                    100 + round(99 * i / max(1, depth - 1)),
                )
                for i in range(depth)
            ]
            layers.append(Panel(f"MLT({depth}, {chars}), layer by layer", Axis("step"), held, by_layer))
    ends = ", ".join(f"{NAMES[r['algorithm']]} on MLT({r['depth']}, {r['chars']}) {r['recovered']:.0%}" for r in rows)
    charts: list[Chart | Table] = [
        Chart(
            "surrogate-dynamics",
            "Share of the rules that descent has put into the weights",
            f"Recovered at the end: {ends}.",
            overall,
            "Solid: this machine, from zero weights as in the paper's algorithms. Dashed and pale: published, from "
            "N(0, 1)/n as in its released code. At five and ten levels the two algorithms take the same steps "
            "from zero, and their lines coincide.",
        )
    ]
    if layers:
        charts.append(
            Chart(
                "surrogate-layers",
                "The same layer by layer, full-parameter descent",
                "Every layer rises from nothing to all of its rules.",
                layers,
                "From the first layer (dark) to the last (bright).",
                legend=False,
            )
        )
    return charts


def claims(rows: Rows) -> list[Claim]:
    claim = "Learnable parameters of all layers converge to the correct values, whether or not updates are layer-wise."
    threshold = "every layer holds all of its rules at the end, under both algorithms and at every size"
    enhanced = [row for row in rows if row["algorithm"] in ("layerwise", "full")]
    both = {row["algorithm"] for row in enhanced} == {"layerwise", "full"}
    numbers = {
        f"{NAMES[r['algorithm']]}, MLT({r['depth']}, {r['chars']})": f"{r['recovered']:.1%} after {r['steps']:,} steps"
        for r in enhanced
    }
    found = [
        judge(claim, all(row["complete"] for row in enhanced), numbers, threshold)
        if both
        else unmeasured(claim, threshold, "both algorithms are needed")
    ]
    control = [row for row in rows if row["algorithm"] == "vanilla"]
    sentence = "Without context the same descent recovers nothing."
    rule = "at most 5 % of the rules after at least as many steps as context-enhanced descent took"
    if control and both:
        row = control[0]
        same = [r["steps"] for r in enhanced if (r["depth"], r["chars"]) == (row["depth"], row["chars"])]
        found_out = {"recovered": row["recovered"], "a guess": row.get("chance"), "steps": row["steps"]}
        found.append(
            judge(sentence, row["recovered"] <= 0.05, found_out, rule, bool(same) and row["steps"] >= max(same))
        )
    else:
        found.append(unmeasured(sentence, rule, "the control was not run"))
    return found


EXPERIMENT = Experiment(
    name="surrogate-dynamics",
    title="How the surrogate learns, layer by layer",
    paper="Figure 5, appendix G.5",
    story="The surrogate model is a transformer reduced to one matrix for each level. One rule at a time is dropped "
    "from its context, and gradient descent puts it into the weights. The share of rules that the weights hold is "
    "drawn against steps.",
    units=units,
    run=run,
    draw=draw,
    claims=claims,
    differs="Sizes, strings of 10n² bigrams and the learning rate of 100 are the paper's.",
)
