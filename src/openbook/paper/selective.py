"""Selective internalisation: rules that training never needs are not learned, although the book shows them."""

from __future__ import annotations

import functools
import itertools
from typing import Any

from openbook.figures.charts import Axis, Chart, Level, Panel, Series, Table, share
from openbook.paper import five_levels
from openbook.paper.curricula import llama, mean_by, spread_by, student
from openbook.paper.experiment import Experiment, Rows, Scale, Unit
from openbook.paper.models import Models
from openbook.paper.published import published
from openbook.report.claims import Claim, judge, unmeasured

NAME = "selective-internalisation"
LEARNED = 0.9
GUESS = 0.1  # as far above chance as this still counts as random performance
SETS = {"seen": ("only rules used in training", 0), "held out": ("only held-out rules", 1)}
EXAM_START = 2 * 10**9  # where neither training nor a run's own exam comes


def configs(scale: Scale) -> list[Unit]:
    if scale == "paper":
        published_sizes = (10_000, 50_000, 100_000, 250_000, 500_000)
        grid = [
            (level, n, 0, llama("anneal", n, 10, **{"task.held_out": level}))
            for level in range(1, 6)
            for n in published_sizes
        ]
    else:
        levels = (1, 2) if scale == "smoke" else (1, 2, 3)
        sizes = {"smoke": (32,), "laptop": (4000,), "overnight": (1000, 2000, 4000, 8000)}[scale]
        seeds = (0, 1, 2) if scale == "overnight" else (0,)
        grid = [
            (level, n, seed, student(scale, "anneal", n, seed, **{"task.held_out": level}))
            for level, n, seed in itertools.product(levels, sizes, seeds)
        ]
    return [_unit(*each) for each in grid]


def deep_configs(scale: Scale) -> list[Unit]:
    """The same on five levels."""
    if scale != "overnight":
        return []
    samples = five_levels.AS_SHIPPED
    return [
        _unit(level, samples, 0, five_levels.learned("anneal", samples, **{"task.held_out": level}))
        for level in range(1, five_levels.DEPTH + 1)
    ]


def _unit(level: int, samples: int, seed: int, spec: dict[str, Any]) -> Unit:
    return Unit({"level": level, "samples": samples, "seed": seed, "exam": 256, "learned": [spec]}, seconds=5.0)


def run(config: dict[str, Any], models: Models) -> list[dict[str, Any]]:
    """Examine a model with the book closed on strings of seen rules alone and of held-out rules alone."""
    from openbook.task.inputs import halves
    from openbook.task.phrasebook import Codebook
    from openbook.task.source import Translations
    from openbook.training.exam import examine
    from openbook.training.models import window_of
    from openbook.training.reopen import reopen
    from openbook.training.sources import encoder_for

    settings, model, first, _ = reopen(models.place(config["learned"][0]))
    task = settings.task
    assert task is not None
    codebook = Codebook.sample(task.depth, task.chars, int(task.codebook))
    level = config["level"] - 1
    rows = []
    for name, rules in zip(SETS, halves(task.chars, level, task.seed), strict=True):
        source = Translations(
            task.depth, task.chars, config["exam"], codebook, task.lengths, task.seed, task.text, task.chain,
            EXAM_START, (level, rules),
        )  # fmt: skip
        encoder = encoder_for(settings, first.tokenizer, source, settings.training.max_length or window_of(model))
        shares = (0.0, 1.0)
        for row in examine(model, encoder, source, settings.curriculum, shares, False, config["exam"], settings.seed):
            rows.append(
                {
                    **{key: config[key] for key in ("level", "samples", "seed")},
                    "depth": task.depth,
                    "chars": task.chars,
                    "test": name,
                    "open": row.open,
                    **{key: getattr(row, key) for key in ("accuracy", "low", "high", "chance")},
                }
            )
    return rows


def draw(rows: Rows, name: str = NAME) -> list[Chart | Table]:
    if not rows:
        return []
    depth, chars = rows[0]["depth"], rows[0]["chars"]
    panels = []
    for level in sorted({row["level"] for row in rows}):
        series = []
        for half, (label, colour) in SETS.items():
            theirs = [
                r for r in published("selective") if r["level"] == level and r["test_set"] == _published_set(half)
            ]
            series.append(Series(label, sorted((r["samples"], r["accuracy"]) for r in theirs), colour, published=True))
        for half, (label, colour) in SETS.items():
            mine = [r for r in rows if r["level"] == level and r["test"] == half and r["open"] == 0]
            points, spread = list(mean_by(mine, "samples").items()), spread_by(mine, "samples")
            series.append(Series(label, points, colour, [spread[x] for x, _ in points]))
        panels.append(
            Panel(
                f"Half of phrasebook {level} held out",
                Axis("training samples, one epoch", "log", "si"),
                share("accuracy, book closed"),
                series,
                [Level(1 / chars, "chance")],
            )
        )
    closed = [row for row in rows if row["open"] == 0]
    largest = [row for row in closed if row["samples"] == max(r["samples"] for r in closed)]
    ends = ", ".join(f"{half} rules {_mean(largest, half):.0%}" for half in SETS)
    header = ["held out at level", "samples", "seed", "exam", "book closed", "book open", "chance"]
    cells = []
    for row in closed:
        key = (row["level"], row["samples"], row["seed"], row["test"])
        opened = next(r for r in rows if (r["level"], r["samples"], r["seed"], r["test"]) == key and r["open"] == 1)
        cells.append(
            [str(row["level"]), f"{row['samples']:,}", str(row["seed"]), SETS[row["test"]][0], f"{row['accuracy']:.1%}",
             f"{opened['accuracy']:.1%}", f"{row['chance']:.1%}"]
        )  # fmt: skip
    return [
        Chart(
            name,
            f"Only rules that training needs are learned, MLT({depth}, {chars})",
            f"Accuracy with the book closed at the largest size, on average over levels: {ends}.",
            panels,
            "Solid: this machine. Dashed and pale: published, Llama-3.2-3B on MLT(5, 10). Half of one phrasebook is "
            "never needed in training, though its rules are shown among the unused ones.",
        ),
        Table(f"{name}-table", "The same in numbers", header, cells),
    ]


def _published_set(name: str) -> str:
    names = sorted({row["test_set"] for row in published("selective")})
    return next(n for n in names if ("seen" in n) == (name == "seen"))


def _mean(rows: Rows, name: str) -> float:
    found = [row["accuracy"] for row in rows if row["test"] == name]
    return sum(found) / max(1, len(found))


def claims(rows: Rows) -> list[Claim]:
    claim = "The model internalizes only the rules used in training: on held-out rules it is random, at every level."
    threshold = (
        f"book closed, largest size: {LEARNED:.0%} or more on seen rules, "
        f"at most {GUESS:.0%} above chance on held-out ones"
    )
    closed = [row for row in rows if row["open"] == 0]
    if not closed:
        return [unmeasured(claim, threshold, "no run with held-out rules")]
    largest = max(row["samples"] for row in closed)
    closed = [row for row in closed if row["samples"] == largest]
    levels = sorted({row["level"] for row in closed})
    numbers: dict[str, Any] = {}
    learned, random = [], []
    for level in levels:
        here = [row for row in closed if row["level"] == level]
        seen, held = _mean(here, "seen"), _mean(here, "held out")
        numbers[f"level {level}"] = f"seen {seen:.3f}, held out {held:.3f}"
        learned.append(seen >= LEARNED)
        random.append(held <= here[0]["chance"] + GUESS)
    numbers["chance"] = closed[0]["chance"]
    enough = all(learned)  # a model that has not learned the seen rules cannot tell anything about the others
    return [judge(claim, all(random), numbers, threshold, enough)]


EXPERIMENT = Experiment(
    name=NAME,
    title="Selective internalisation",
    paper="Appendix C.1",
    story="Does the model copy the book into its weights, or only what it needs? Half of the rules of one phrasebook "
    "appear in contexts but are never needed for an answer in training. Afterwards, with the book closed, the model "
    "is examined on strings that use only rules of the seen half, and on strings that use only the others.",
    configs=configs,
    run=run,
    draw=draw,
    claims=claims,
    differs="The paper holds out rules at each of five levels (n = 10) over 10,000 to 500,000 samples; ours at each of "
    "three levels (n = 8).",
)
DEEP = Experiment(
    name=(_DEEP_NAME := "selective-five-levels"),
    title="Selective internalisation on five levels",
    paper="Appendix C.1",
    story="The same with as many phrasebooks as in the paper: half of each of the five held out in turn.",
    configs=deep_configs,
    run=run,
    draw=functools.partial(draw, name=_DEEP_NAME),
    claims=claims,
    differs="The paper has alphabets of ten, and 10,000 to 500,000 samples. Ours has alphabets of eight, one size and "
    "one seed.",
)
