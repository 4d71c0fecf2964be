"""Perturbation: in which layers a model that can read looks up each phrasebook."""

from __future__ import annotations

from openbook.figures.charts import Chart, Heatmap, Table
from openbook.paper.drawing import grouped
from openbook.paper.experiment import Experiment, Json, Rows, Scale, Unit
from openbook.paper.models import Models, unmet_task
from openbook.paper.published import published
from openbook.probes.draw import by_unused, json_of, numbered, perturb_chart, perturb_table
from openbook.report.claims import Claim, judge, unmeasured

NEGLIGIBLE = 0.1  # of the largest change: what unused rules may do


def units(scale: Scale) -> list[Unit]:
    if scale == "paper":
        return [Unit({"rules": 10, "samples": 32, "readers": [f"llama-3b-stage1-n{n}"]}, 600.0) for n in (8, 10)]
    if scale == "smoke":
        return []  # a student that cannot read has nothing to show
    samples = 24 if scale == "laptop" else 128
    return [Unit({"rules": 10, "samples": samples, "readers": ["student-3-8"]}, seconds=0.35 * samples)]


def run(config: Json, models: Models) -> list[Json]:
    """The maps of a reader on a codebook that it has not met."""
    from openbook.probes.perturb import perturb_map
    from openbook.probes.subject import open_even

    path = models.reader(config["readers"][0])
    subject = open_even(path, task=unmet_task(path))
    return [{**json_of(perturb_map(subject, config["rules"], config["samples"])), "model": config["readers"][0]}]


def draw(rows: Rows) -> list[Chart | Table]:
    return [figure for row in rows for figure in (_summary(row), perturb_chart(row), perturb_table(row))]


def _summary(row: Json) -> Chart:
    """The largest change at any place by layer, as a share of the phrasebook's largest: ours and the published."""
    ours = [[max(layer) / max(1e-12, section["largest"]) for layer in section["map"]] for section in row["sections"]]
    changes = [[line["change"] for line in lines] for _, lines in grouped(published("perturbation"), "phrasebook")]
    theirs = [[change / max(values) for change in values] for values in changes]
    layers = numbered(len(theirs[0]) - 1, first=0)
    first = ", ".join(f"{s['name']} from layer {s['first_large_layer']}" for s in row["sections"])
    title, place = "Published: Llama-3.2-3B, MLT(5, 8)", "layer (0 is the embedding)"
    return Chart(
        "perturbation",
        "Which layers change when a phrasebook is changed",
        f"Large changes begin: {first}.",
        [
            Heatmap("Ours", ours, "layer", "phrasebook", numbered(row["layers"]), numbered(len(ours))),
            Heatmap(title, theirs, place, "phrasebook", layers, numbered(len(theirs)), published=True),
        ],
        "Largest change of a layer's output at any place, as a share of the phrasebook's largest. Left: ours. "
        "Right: published, and not ours.",
    )


def claims(rows: Rows) -> list[Claim]:
    order = "Earlier phrasebooks are read by earlier layers."
    rule = "the first layer with a large change (a tenth of the largest, above the control) rises with the level"
    unused = "Changing only unused rules yields negligible differences."
    bound = f"the largest change by unused rules is below {NEGLIGIBLE:.0%} of that by used ones, at every level"
    if not rows:
        return [unmeasured(order, rule, "no reader was probed"), unmeasured(unused, bound, "no reader was probed")]
    begins = {row["model"]: [section["first_large_layer"] for section in row["sections"]] for row in rows}
    ordered = all(None not in layers and layers == sorted(set(layers)) for layers in begins.values())
    layers = {f"first layers, {name}": ", ".join(map(str, firsts)) for name, firsts in begins.items()}
    shares = {row["model"]: f"at most {by_unused(row):.1%} of the change by used rules" for row in rows}
    negligible = all(by_unused(row) < NEGLIGIBLE for row in rows)
    return [judge(order, ordered, layers, rule), judge(unused, negligible, shares, bound)]


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
