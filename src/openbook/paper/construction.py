"""The transformer written by hand: does it do what its lemma says?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from openbook.figures.charts import Axis, Chart, Panel, Series, Table, share
from openbook.paper.drawing import Columns, curve, tabled
from openbook.paper.experiment import Experiment, Json, Rows, Scale, Unit
from openbook.paper.models import Models
from openbook.report.claims import Claim, judge, unmeasured


def units(scale: Scale) -> list[Unit]:
    depth, chars, strings, codebooks, seconds = {
        "smoke": (2, 3, 60, 4, 3.0),
        "laptop": (5, 10, 600, 20, 18.0),
    }.get(scale, (5, 10, 12_000, 200, 400.0))
    return [Unit({"depth": depth, "chars": chars, "strings": strings, "codebooks": codebooks, "seed": 0}, seconds)]


def run(config: Json, models: Models) -> list[Json]:
    from openbook.theory.construction.verify import verify

    return [verify(**config)]


def draw(rows: Rows) -> list[Chart | Table]:
    row = rows[0]
    outputs = [{f"output, {name}": value for name, value in at["output"].items()} for at in row["scales"]]
    scales = [{**at, **output} for at, output in zip(row["scales"], outputs, strict=True)]
    deviations = {"after the shift": "shift", "after reading the context": "context"}
    deviations |= {name: name for name in outputs[0]}
    believed = {"as the context says": "characters_as_context", "as the weights say": "characters_as_weights"}
    products, deviation = Axis("scale N of the products", "log", "si"), Axis("largest deviation", "log")
    disagree, strength = "Outside the lemma: context and weights disagree", Axis("strength of the weights")
    panels = [
        Panel("Deviation from the surrogate", products, deviation, _curves(scales, "scale", deviations)),
        Panel(disagree, strength, share("characters"), _curves(row["outside"], "strength", believed)),
    ]
    modes: Columns = {
        "rules are in": "{name}",
        "strings": "{strings:,}",
        "mismatches": "{mismatches}",
        "largest deviation": "{deviation:.1e}",
    }
    return [
        Chart(
            "construction",
            f"How exact the construction is, MLT({row['depth']}, {row['chars']})",
            f"{row['mismatches']} of {row['strings']:,} strings are translated wrongly; the largest deviation of an "
            f"output from the surrogate is {row['deviation']:.1e}.",
            panels,
            "float32. Each level's normalisation removes most of the error of its products. Right: the context holds "
            "one codebook and the weights, times a strength, another; the lemma says nothing of this case.",
        ),
        tabled("construction-modes", "Strings against the oracle", row["modes"], modes),
        Table(
            "construction-sizes",
            "Sizes against the lemma",
            ["", "module", "lemma"],
            [[name.replace("_", " "), _short(row[name]), _short(value)] for name, value in row["lemma"].items()],
        ),
    ]


def _curves(points: Rows, x: str, keys: Mapping[str, str]) -> list[Series]:
    """A curve for each key, by its name."""
    return [curve(name, colour, points, x, key, None) for colour, (name, key) in enumerate(keys.items())]


def _short(value: Any) -> str:
    return str(sorted(set(value), reverse=True)) if isinstance(value, list) else str(value)


def claims(rows: Rows) -> list[Claim]:
    claim = "A transformer can simulate the surrogate model, whatever part of the codebook is in context or in weights."
    threshold = "no string of random codebooks is translated wrongly, in any of the three divisions"
    sizes = "It has the embedding size and the numbers of layers that the lemma says."
    rule = "every count of the module equals the lemma's"
    if not rows:
        return [unmeasured(claim, threshold, "not verified"), unmeasured(sizes, rule, "not verified")]
    row = rows[0]
    numbers = {"strings": row["strings"], "mismatches": row["mismatches"], "largest deviation": row["deviation"]}
    counts = {
        name.replace("_", " "): f"{_short(row[name])}, lemma {_short(value)}" for name, value in row["lemma"].items()
    }
    same = all(row[name] == value for name, value in row["lemma"].items())
    return [judge(claim, row["mismatches"] == 0, numbers, threshold), judge(sizes, same, counts, rule)]


EXPERIMENT = Experiment(
    name="construction",
    title="A transformer written by hand",
    paper="Appendix H",
    story="The surrogate is not a fantasy: a real transformer with softmax attention and GELU can do the same. It is "
    "written down weight by weight and held against the oracle on random codebooks whose rules are all in the context, "
    "all in the weights, or divided between the two.",
    units=units,
    run=run,
    draw=draw,
    claims=claims,
)
