"""The worked example: one string translated level by level, by the oracle, and its steps to click through."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from openbook.figures.charts import Chart, Table
from openbook.paper.experiment import Experiment, Json, Rows, Scale, Unit
from openbook.paper.models import Models
from openbook.report.claims import Claim, judge, unmeasured

COLOURS = 6  # of pairs in the steps


def units(scale: Scale) -> list[Unit]:
    depth = 2 if scale in ("smoke", "laptop") else 5
    return [Unit({"depth": depth, "chars": 8, "length": 8, "seed": 0}, seconds=0.5)]


def run(config: Json, models: Models) -> list[Json]:
    from openbook.task.inputs import random_inputs
    from openbook.task.phrasebook import Codebook
    from openbook.task.translate import dependencies, invert_batch, translate

    codebook = Codebook.sample(config["depth"], config["chars"], config["seed"])
    length = config["length"]
    string = random_inputs(config["chars"], 1, (length, length), config["seed"])[0][0].tolist()
    letters = codebook.alphabets()
    levels: list[Json] = [
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
    """Nothing: the page shows its steps."""
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


def steps_of(rows: Sequence[Json]) -> list[Json]:
    """Steps of the first worked example; none if there is none."""
    if not rows:
        return []
    row = rows[0]
    levels = row["levels"]
    string, answer = levels[0]["string"], levels[-1]["result"]
    size = f"{len(string)} characters of the first alphabet. The book has {row['rules_in_the_book']} rules; "
    steps = [_step("The string", f"{size}this string needs {row['rules_needed']} of them.", string=_pairs(string))]
    for level in levels:
        title, shifted = f"Level {level['level']}", _pairs(level["shifted"])
        shifted[-1]["moved"] = [1]
        rules = _coloured({"symbols": [*rule["left"], "→", *rule["right"]], "moved": []} for rule in level["rules"])
        steps += [
            _step(
                f"{title}: shift",
                "Every character moves one place to the left; the first wraps around to the end.",
                before=_pairs(level["string"]),
                shifted=shifted,
            ),
            _step(
                f"{title}: look up the pairs",
                f"Phrasebook {level['level']} has a rule for every pair. These are the ones needed here: the pages "
                "that the curriculum may take away.",
                pairs=_coloured(_pairs(level["shifted"])),
                rules=rules,
            ),
            _step(
                f"{title}: the result",
                f"The string in language {level['level'] + 1}. "
                f"It is the {'answer' if level is levels[-1] else 'input of the next level'}.",
                result=_coloured(_pairs(level["result"])),
            ),
        ]
    places = ", ".join(map(str, row["depends_on"]))
    words = (
        "It sees the string and, as long as the book is open, the rules; it must write the answer. In between it may "
        f"think silently. The first character of the answer depends on input characters {places}."
    )
    return [*steps, _step("What the model is asked", words, input=_pairs(string), answer=_pairs(answer))]


def _step(title: str, words: str, **lines: list[Json]) -> Json:
    """A step with its lines of tiles, which are also told in words."""
    return {"title": title, "words": words, "lines": [_line(name, pairs) for name, pairs in lines.items()]}


def _line(name: str, pairs: list[Json]) -> Json:
    spoken = ", ".join(" ".join(pair["symbols"]).replace("→", "becomes") for pair in pairs)
    return {"alt": f"{name}: {spoken}", "pairs": pairs}


def _pairs(symbols: Sequence[str]) -> list[Json]:
    return [{"symbols": list(symbols[k : k + 2]), "colour": None, "moved": []} for k in range(0, len(symbols), 2)]


def _coloured(pairs: Iterable[Json]) -> list[Json]:
    return [{**pair, "colour": k % COLOURS} for k, pair in enumerate(pairs)]


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
