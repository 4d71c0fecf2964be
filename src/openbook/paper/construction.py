"""The transformer written by hand: does it do what its lemma says?"""

from __future__ import annotations

from typing import Any

from openbook.figures.charts import Axis, Chart, Panel, Series, Table, share
from openbook.paper.experiment import Experiment, Rows, Scale, Unit
from openbook.paper.models import Models
from openbook.report.claims import Claim, judge, unmeasured

SIZES = ("embedding_size", "attention_layers", "mlp_layers")


def units(scale: Scale) -> list[Unit]:
    depth, chars, strings, codebooks, seconds = {
        "smoke": (2, 3, 60, 4, 3.0),
        "laptop": (5, 10, 600, 20, 18.0),
        "overnight": (5, 10, 12_000, 200, 400.0),
        "paper": (5, 10, 12_000, 200, 400.0),
    }[scale]
    return [Unit({"depth": depth, "chars": chars, "strings": strings, "codebooks": codebooks, "seed": 0}, seconds)]


def run(config: dict[str, Any], models: Models) -> list[dict[str, Any]]:
    from openbook.theory.construction.transformer import SCALE
    from openbook.theory.construction.verify import verify

    found = verify(
        config["depth"],
        config["chars"],
        SCALE,
        config["strings"],
        config["codebooks"],
        config["seed"],
        lambda *_, **__: None,
    )
    return [found.to_json()]


def draw(rows: Rows) -> list[Chart | Table]:
    if not rows:
        return []
    row = rows[0]
    size = f"MLT({row['depth']}, {row['chars']})"
    scales = row["scales"]
    lines = [
        Series("after the shift", [(s["scale"], s["shift"]) for s in scales], 0),
        Series("after reading the context", [(s["scale"], s["context"]) for s in scales], 1),
    ]
    for place, name in enumerate(scales[0]["output"]):
        lines.append(Series(f"output, {name}", [(s["scale"], s["output"][name]) for s in scales], 2 + place))
    outside = row["outside"]
    kinds = (("characters_as_context", "as the context says", 0), ("characters_as_weights", "as the weights say", 1))
    mixed = [Series(label, [(case["strength"], case[key]) for case in outside], colour) for key, label, colour in kinds]
    modes = [[m["name"], f"{m['strings']:,}", str(m["mismatches"]), f"{m['deviation']:.1e}"] for m in row["modes"]]
    sizes = [[name.replace("_", " "), _short(row[name]), _short(row["lemma"][name])] for name in row["lemma"]]
    return [
        Chart(
            "construction",
            f"How exact the construction is, {size}",
            f"{row['mismatches']} of {row['strings']:,} strings are translated wrongly; the largest deviation of an "
            f"output from the surrogate is {row['deviation']:.1e}.",
            [
                Panel(
                    "Deviation from the surrogate",
                    Axis("scale N of the products", "log", "si"),
                    Axis("largest deviation", "log"),
                    lines,
                ),
                Panel(
                    "Outside the lemma: context and weights disagree",
                    Axis("strength of the weights"),
                    share("characters"),
                    mixed,
                ),
            ],
            "float32. Each level's normalisation removes most of the error of its products. Right: the context holds "
            "one codebook and the weights, times a strength, another; the lemma says nothing of this case.",
        ),
        Table(
            "construction-modes",
            "Strings against the oracle",
            ["rules are in", "strings", "mismatches", "largest deviation"],
            modes,
        ),
        Table("construction-sizes", "Sizes against the lemma", ["", "module", "lemma"], sizes),
    ]


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
        name.replace("_", " "): f"{_short(row[name])}, lemma {_short(row['lemma'][name])}" for name in row["lemma"]
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
