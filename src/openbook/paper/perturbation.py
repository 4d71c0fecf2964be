"""Perturbation: in which layers a model that can read looks up each phrasebook."""

from __future__ import annotations

import itertools
from typing import Any

from openbook.figures.charts import Chart, Heatmap, Table
from openbook.paper.experiment import Experiment, Rows, Scale, Unit
from openbook.paper.models import Models
from openbook.paper.published import published
from openbook.report.claims import Claim, judge, unmeasured

NEGLIGIBLE = 0.1  # of the largest change: what unused rules may do


def units(scale: Scale) -> list[Unit]:
    if scale == "paper":
        return [Unit({"rules": 10, "samples": 32, "readers": [f"llama-3b-stage1-n{n}"]}, 600.0) for n in (8, 10)]
    if scale == "smoke":
        return []  # a student that cannot read has nothing to show
    samples = 24 if scale == "laptop" else 128
    return [Unit({"rules": 10, "samples": samples, "readers": ["student-3-8"]}, seconds=0.35 * samples)]


def run(config: dict[str, Any], models: Models) -> list[dict[str, Any]]:
    """The maps of a reader on a codebook that it has not met."""
    from openbook.paper.models import unmet_task
    from openbook.probes.perturb import perturb_map

    path = models.reader(config["readers"][0])
    found = perturb_map(path, config["rules"], config["samples"], task=unmet_task(path)).to_json()
    return [{**found, "model": config["readers"][0]}]


def _by_layer(matrix: list[list[float]]) -> list[float]:
    """The largest change at any place, for each layer."""
    return [max(row) for row in matrix]


def draw(rows: Rows) -> list[Chart | Table]:
    charts: list[Chart | Table] = []
    for row in rows:
        charts += _drawn(row)
    return charts


def _drawn(row: dict[str, Any]) -> list[Chart | Table]:
    layers = [str(layer + 1) for layer in range(row["layers"])]
    top = max(section["largest"] for section in row["sections"])
    places = [str(k + 1) for k in range(len(row["places"]))]
    maps = [
        Heatmap(
            f"{what}, {section['name']}",
            section[key],
            "place (thoughts, then answer)",
            "layer",
            places,
            layers,
            0,
            top,
            "number",
        )
        for key, what in (("map", "Used rules changed"), ("control", "Unused rules changed"))
        for section in row["sections"]
    ]
    ours = [
        [value / max(1e-12, section["largest"]) for value in _by_layer(section["map"])] for section in row["sections"]
    ]
    theirs: dict[int, list[float]] = {}
    for line in published("perturbation"):
        theirs.setdefault(line["phrasebook"], []).append(line["change"])
    summary = [
        Heatmap("Ours", ours, "layer", "phrasebook", layers, [str(k + 1) for k in range(len(ours))]),
        Heatmap(
            "Published: Llama-3.2-3B, MLT(5, 8)",
            [[change / max(values) for change in values] for values in theirs.values()],
            "layer (0 is the embedding)",
            "phrasebook",
            [str(k) for k in range(len(next(iter(theirs.values()))))],
            [str(k) for k in theirs],
            published=True,
        ),
    ]
    first = ", ".join(f"{s['name']} from layer {s['first_large_layer']}" for s in row["sections"])
    header = ["phrasebook changed", "first layer that differs", "first large change", "largest change", "unused rules"]
    cells = [
        [
            s["name"],
            str(s["first_layer"]),
            str(s["first_large_layer"]),
            f"{s['largest']:.2f}",
            f"{s['largest_in_control']:.3f}",
        ]
        for s in row["sections"]
    ]
    return [
        Chart(
            "perturbation",
            "Which layers change when a phrasebook is changed",
            f"Large changes begin: {first}.",
            summary,
            "Largest change of a layer's output at any place, as a share of the phrasebook's largest. Left: ours. "
            "Right: published, and not ours.",
        ),
        Chart(
            "perturbation-maps",
            f"The change at every layer and place, {row['samples']} strings",
            f"Large changes begin: {first}; unused rules change a layer by at most {_by_unused(row):.0%} of what used "
            "ones do.",
            maps,
            f"l2 norm of the change when {row['rules']} rules get other images.",
        ),
        Table("perturbation-table", "The same in numbers", header, cells),
    ]


def claims(rows: Rows) -> list[Claim]:
    order = "Earlier phrasebooks are read by earlier layers."
    rule = "the first layer with a large change (a tenth of the largest, above the control) rises with the level"
    unused = "Changing only unused rules yields negligible differences."
    bound = f"the largest change by unused rules is below {NEGLIGIBLE:.0%} of that by used ones, at every level"
    if not rows:
        return [unmeasured(order, rule, "no reader was probed"), unmeasured(unused, bound, "no reader was probed")]
    found, layers, shares = [], {}, {}
    ordered, negligible = True, True
    for row in rows:
        begins = [section["first_large_layer"] for section in row["sections"]]
        known = all(layer is not None for layer in begins)
        ordered &= known and all(a < b for a, b in itertools.pairwise(begins))
        negligible &= _by_unused(row) < NEGLIGIBLE
        layers[row["model"]] = ", ".join(map(str, begins))
        shares[row["model"]] = f"at most {_by_unused(row):.1%} of the change by used rules"
    found.append(judge(order, ordered, {f"first layers, {name}": said for name, said in layers.items()}, rule))
    return [*found, judge(unused, negligible, shares, bound)]


def _by_unused(row: dict[str, Any]) -> float:
    """The largest change by unused rules as a share of that by used ones, over the sections."""
    return max(section["largest_in_control"] / max(1e-12, section["largest"]) for section in row["sections"])


EXPERIMENT = Experiment(
    name="perturbation",
    title="Where the book is read",
    paper="Figure 3, appendix C.2",
    story="How does a model that can read use the book? Some rules that a string needs are given other images, one "
    "phrasebook at a time, and the change of every layer's output is measured at every thinking and answer place. As a "
    "control, as many rules that the string does not need are changed.",
    units=units,
    run=run,
    draw=draw,
    claims=claims,
    differs="The paper probes Llama-3.2-3B with 28 layers and five levels; ours has six layers and three levels.",
)
