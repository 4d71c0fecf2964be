"""The worked example: one string translated level by level, by the oracle, with the book it needs."""

from __future__ import annotations

from typing import Any

from openbook.figures.charts import Chart, Table
from openbook.paper.experiment import Experiment, Rows, Scale, Unit
from openbook.paper.models import Models
from openbook.report.claims import Claim, judge, unmeasured


def units(scale: Scale) -> list[Unit]:
    depth = 2 if scale in ("smoke", "laptop") else 5
    return [Unit({"depth": depth, "chars": 8, "length": 8, "seed": 0}, seconds=0.5)]


def run(config: dict[str, Any], models: Models) -> list[dict[str, Any]]:
    from openbook.task.inputs import random_inputs
    from openbook.task.phrasebook import Codebook
    from openbook.task.translate import dependencies, invert_batch, translate

    codebook = Codebook.sample(config["depth"], config["chars"], config["seed"])
    length = config["length"]
    string = random_inputs(config["chars"], 1, (length, length), config["seed"])[0][0].tolist()
    letters = codebook.alphabets()
    levels: list[dict[str, Any]] = [
        {
            "level": i + 1,
            "string": [letters[i][c] for c in level.string],
            "shifted": [letters[i][c] for c in level.shifted],
            "rules": [
                {"left": [letters[i][a] for a in left], "right": [letters[i + 1][c] for c in right]}
                for left, right in zip(level.bigrams, level.images, strict=True)
            ],
            "result": [letters[i + 1][c] for image in level.images for c in image],
        }
        for i, level in enumerate(translate(codebook, string))
    ]
    output = [letters[-1].index(symbol) for symbol in levels[-1]["result"]]
    return [
        {
            "depth": codebook.depth,
            "chars": codebook.chars,
            "levels": levels,
            "depends_on": [place + 1 for place in dependencies(codebook.depth, 0, length)],
            "rules_in_the_book": codebook.depth * codebook.chars**2,
            "rules_needed": sum(len({tuple(rule["left"]) for rule in level["rules"]}) for level in levels),
            "comes_back": invert_batch(codebook, [output])[0].tolist() == string,
        }
    ]


def draw(rows: Rows) -> list[Chart | Table]:
    """Nothing: the page shows its steps (see `stepping`)."""
    return []


def claims(rows: Rows) -> list[Claim]:
    claim = "A codebook is a bijection: every translation can be taken back."
    threshold = "the output of the worked example, inverted, is its input"
    if not rows:
        return [unmeasured(claim, threshold, "no worked example")]
    row = rows[0]
    first = f"characters {', '.join(map(str, row['depends_on']))}"
    return [
        judge(claim, row["comes_back"], {"taken back": row["comes_back"]}, threshold),
        judge(
            "Each output character depends on at most 2d input characters.",
            len(row["depends_on"]) <= 2 * row["depth"],
            {"the first one depends on": first, "2d": 2 * row["depth"]},
            "the oracle's dependencies of the first output character",
        ),
    ]


EXPERIMENT = Experiment(
    name="translation",
    title="The task: multi-level translation",
    paper="Figure 1, section 2.2",
    story="A phrasebook maps every pair of characters of one alphabet to a pair of the next, one to one. At each level "
    "the string is shifted to the left by one, the first character wraps around, and the pairs are looked up. Two "
    "levels are shown; with every further level an output character depends on two more input characters, "
    "which is what makes the task hard to guess from inputs and outputs alone.",
    units=units,
    run=run,
    draw=draw,
    claims=claims,
)
