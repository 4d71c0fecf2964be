"""Surrogate dynamics: how gradient descent with context recovers all layers of the surrogate model."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from openbook.figures.charts import Axis, Chart, Level, Panel, Series, Table, share
from openbook.paper.drawing import curve, published_curve, ramp, where
from openbook.paper.experiment import Experiment, Json, Rows, Scale, Unit
from openbook.paper.models import Models
from openbook.paper.published import published
from openbook.report.claims import Claim, judge, unmeasured

NAMES = {
    "search": "search",
    "descent": "surrogate gradient descent",
    "layerwise": "layer-wise descent",
    "full": "full-parameter descent",
    "vanilla": "descent without context",
    "wrong": "descent with wrong context",
}
COLOURS = {"layerwise": 2, "full": 0, "vanilla": 1}
ENHANCED = ("layerwise", "full")
STEPS = Axis("step")
PROGRESS = ("step", "recovered")
HELD = "rules in the weights"
DISTINCT = 10  # layers whose curves can be told apart
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
        for (d, n, seconds), algorithm in itertools.product(grid, ENHANCED)
    ]
    d, n, seconds = grid[0]
    control = {"algorithm": "vanilla", "depth": d, "chars": n, "seed": 0, "steps": 4 * d * n * n}
    return [*units, Unit(control, 12 * seconds)]


def run(config: Json, models: Models) -> list[Json]:
    from openbook.task.phrasebook import Codebook
    from openbook.theory.surrogate.learn import LearnerConfig, learn

    learner = LearnerConfig(config["algorithm"], steps=config.get("steps"), seed=config["seed"])
    result = learn(learner, Codebook.sample(config["depth"], config["chars"], config["seed"])).to_json()
    curve = result["curve"]
    every = max(1, len(curve) // POINTS)
    kept = [point for place, point in enumerate(curve) if place % every == 0 or place == len(curve) - 1]
    return [{**result, "curve": [{key: point[key] for key in ("step", "recovered", "by_layer")} for point in kept]}]


def _size(row: Json) -> tuple[int, int]:
    """Depth and characters: the task that a row is of."""
    return row["depth"], row["chars"]


def draw(rows: Rows) -> list[Chart | Table]:
    panels = []
    for size in sorted(set(map(_size, rows))):
        here = [row for row in rows if _size(row) == size]
        theirs = [row for row in published("dynamics") if _size(row) == size]
        behind = {name: where(theirs, algorithm=name) for name in COLOURS}
        series = [line for name, points in behind.items() for line in published_curve(*_look(name), points, *PROGRESS)]
        for row in sorted(here, key=lambda row: -len(row["algorithm"])):
            series.append(curve(*_look(row["algorithm"]), row["curve"], *PROGRESS, None))
        guess = [Level(1 / size[1] ** 2, "a guess")]
        panels.append(Panel(f"MLT{size}, all layers", STEPS, share(HELD), series, guess))
    ends = ", ".join(f"{NAMES[r['algorithm']]} on MLT{_size(r)} {r['recovered']:.0%}" for r in rows)
    charts: list[Chart | Table] = [
        Chart(
            "surrogate-dynamics",
            "Share of the rules that descent has put into the weights",
            f"Recovered at the end: {ends}.",
            panels,
            "Solid: this machine, from zero weights as in the paper's algorithms. Dashed and pale: published, from "
            "N(0, 1)/n as in its released code. At five and ten levels the two algorithms take the same steps "
            "from zero, and their lines coincide.",
        )
    ]
    full = [row for row in where(rows, algorithm="full") if row["depth"] <= DISTINCT]
    if full:
        alt = "Every layer rises from nothing to all of its rules."
        title = "The same layer by layer, full-parameter descent"
        charts.append(layers_chart(sorted(full, key=_size), title, alt))
    return charts


def _look(algorithm: str) -> tuple[str, int]:
    return NAMES[algorithm], COLOURS[algorithm]


def layers_chart(rows: Rows, title: str, alt: str) -> Chart:
    """A panel for each run, a curve for each of its layers."""
    panels = [Panel(f"MLT{_size(row)}, layer by layer", STEPS, share(HELD), by_layer(row["curve"])) for row in rows]
    caption = "From the first layer (dark) to the last (bright)."
    return Chart("surrogate-layers", title, alt, panels, caption, legend=False)


def by_layer(curve: Sequence[Json], key: str = "by_layer") -> list[Series]:
    """A curve for each layer from points that hold a share for every layer."""
    depth = len(curve[0][key])
    return [Series(f"W{i + 1}", [(p["step"], p[key][i]) for p in curve], ramp(i, depth)) for i in range(depth)]


def claims(rows: Rows) -> list[Claim]:
    claim = "Learnable parameters of all layers converge to the correct values, whether or not updates are layer-wise."
    threshold = "every layer holds all of its rules at the end, under both algorithms and at every size"
    control = "Without context the same descent recovers nothing."
    rule = "at most 5 % of the rules after at least as many steps as context-enhanced descent took"
    enhanced = [row for row in rows if row["algorithm"] in ENHANCED]
    if {row["algorithm"] for row in enhanced} != set(ENHANCED):
        why = "both algorithms are needed"
        return [unmeasured(claim, threshold, why), unmeasured(control, rule, "the control was not run")]
    numbers = {
        f"{NAMES[r['algorithm']]}, MLT{_size(r)}": f"{r['recovered']:.1%} after {r['steps']:,} steps" for r in enhanced
    }
    converges = judge(claim, all(row["complete"] for row in enhanced), numbers, threshold)
    if not (controls := where(rows, algorithm="vanilla")):
        return [converges, unmeasured(control, rule, "the control was not run")]
    vanilla = controls[0]
    steps = [row["steps"] for row in enhanced if _size(row) == _size(vanilla)]
    measured = {"recovered": vanilla["recovered"], "a guess": vanilla.get("chance"), "steps": vanilla["steps"]}
    enough = bool(steps) and vanilla["steps"] >= max(steps)
    return [converges, judge(control, vanilla["recovered"] <= 0.05, measured, rule, enough)]


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
