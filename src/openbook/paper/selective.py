"""Selective internalisation: rules that training never needs are not learned, although the book shows them."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import partial
from typing import Any

from openbook.figures.charts import Chart, Panel, Table
from openbook.paper.curricula import deep_student, taught
from openbook.paper.drawing import (
    Columns,
    curve,
    grouped,
    largest,
    learning_panel,
    mean_by,
    published_curve,
    tabled,
    where,
)
from openbook.paper.experiment import Experiment, Json, Rows, Scale, TaughtModel, Unit
from openbook.paper.models import Models
from openbook.paper.published import published
from openbook.paper.sample_efficiency import AS_SHIPPED
from openbook.report.claims import Claim, judge, unmeasured

LEARNED = 0.9
GUESS = 0.1  # as far above chance as this still counts as random performance
SETS = {"seen": ("only rules used in training", 0), "held out": ("only held-out rules", 1)}
EXAM_START = 2 * 10**9  # far from the numbers of training examples and of a run's own exam
PAPER_SAMPLES = (10_000, 50_000, 100_000, 250_000, 500_000)
# Levels of which half is held out, sizes and seeds.
GRIDS: dict[Scale, tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = {
    "smoke": ((1, 2), (32,), (0,)),
    "laptop": ((1, 2, 3), (4000,), (0,)),
    "overnight": ((1, 2, 3), (1000, 2000, 4000, 8000), (0, 1, 2)),
    "paper": ((1, 2, 3, 4, 5), PAPER_SAMPLES, (0,)),
}


def units_of_three_levels(scale: Scale) -> list[Unit]:
    return [
        _unit(level, samples, seed, taught(scale, "anneal", samples, seed, chars=10, **{"task.held_out": level}))
        for level, samples, seed in itertools.product(*GRIDS[scale])
    ]


def units_of_five_levels(scale: Scale) -> list[Unit]:
    return [
        _unit(level, AS_SHIPPED, 0, deep_student("anneal", AS_SHIPPED, **{"task.held_out": level}))
        for level in (range(1, 6) if scale == "overnight" else ())
    ]


def _unit(level: int, samples: int, seed: int, model: TaughtModel) -> Unit:
    return Unit({"level": level, "samples": samples, "seed": seed, "exam": 256, "learned": [model]}, seconds=5.0)


def run(config: Json, models: Models) -> list[Json]:
    """Examine a model, book closed and open, on strings of seen rules alone and of held-out rules alone."""
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
    labels = {**{key: config[key] for key in ("level", "samples", "seed")}, "depth": task.depth, "chars": task.chars}
    rows = []
    for name, rules in zip(SETS, halves(task.chars, level, task.seed), strict=True):
        source = Translations(
            task.depth, task.chars, config["exam"], codebook, task.lengths, task.seed, task.text, task.chain,
            EXAM_START, (level, rules),
        )  # fmt: skip
        encoder = encoder_for(settings, first.tokenizer, source, settings.training.max_length or window_of(model))
        exam = examine(model, encoder, source, settings.curriculum, (0.0, 1.0), False, config["exam"], settings.seed)
        kept = ("open", "accuracy", "low", "high", "chance")
        rows += [{**labels, "test": name, **{key: getattr(row, key) for key in kept}} for row in exam]
    return rows


def draw(rows: Rows, name: str) -> list[Chart | Table]:
    depth, chars = rows[0]["depth"], rows[0]["chars"]
    closed, opened = where(rows, open=0), {_place(row): row["accuracy"] for row in where(rows, open=1)}
    ends = ", ".join(f"{half} rules {_mean(largest(closed), half):.0%}" for half in SETS)
    chart = Chart(
        name,
        f"Only rules that training needs are learned, MLT({depth}, {chars})",
        f"Accuracy with the book closed at the largest size, on average over levels: {ends}.",
        [_panel(ours, level, chars) for level, ours in grouped(closed, "level")],
        "Solid: this machine. Dashed and pale: published, Llama-3.2-3B on MLT(5, 10). Half of one phrasebook is "
        "never needed in training, though its rules are shown among the unused ones.",
    )
    columns: Columns = {
        "held out at level": "{level}",
        "samples": "{samples:,}",
        "seed": "{seed}",
        "exam": lambda row: SETS[row["test"]][0],
        "book closed": "{accuracy:.1%}",
        "book open": lambda row: f"{opened[_place(row)]:.1%}",
        "chance": "{chance:.1%}",
    }
    return [chart, tabled(f"{name}-table", "The same in numbers", closed, columns)]


def _place(row: Json) -> tuple[Any, ...]:
    return tuple(row[key] for key in ("level", "samples", "seed", "test"))


def _panel(closed: Rows, level: int, chars: int) -> Panel:
    others = where(published("selective"), level=level)
    behind, ours = [], []
    for half, look in SETS.items():
        behind += published_curve(*look, [row for row in others if ("seen" in row["test_set"]) == (half == "seen")])
        ours.append(curve(*look, where(closed, test=half)))
    return learning_panel(f"Half of phrasebook {level} held out", [*behind, *ours], 1 / chars)


def _mean(rows: Rows, half: str) -> float:
    return mean_by(rows, "test").get(half, 0.0)


def claims(rows: Rows) -> list[Claim]:
    claim = "The model internalizes only the rules used in training: on held-out rules it is random, at every level."
    threshold = (
        f"book closed, largest size: {LEARNED:.0%} or more on seen rules, "
        f"at most {GUESS:.0%} above chance on held-out ones"
    )
    if not (closed := where(rows, open=0)):
        return [unmeasured(claim, threshold, "no run with held-out rules")]
    chance, numbers = closed[0]["chance"], {}
    learned, random = True, True
    for level, runs in grouped(largest(closed), "level"):
        seen, held_out = _mean(runs, "seen"), _mean(runs, "held out")
        numbers[f"level {level}"] = f"seen {seen:.3f}, held out {held_out:.3f}"
        learned &= seen >= LEARNED  # a model that has not learned the seen rules cannot tell anything about the others
        random &= held_out <= chance + GUESS
    return [judge(claim, random, {**numbers, "chance": chance}, threshold, enough=learned)]


THREE_LEVELS = Experiment(
    name="selective-internalisation",
    title="Selective internalisation",
    paper="Appendix C.1",
    story="Does the model copy the book into its weights, or only what it needs? Half of the rules of one phrasebook "
    "appear in contexts but are never needed for an answer in training. Afterwards, with the book closed, the model "
    "is examined on strings that use only rules of the seen half, and on strings that use only the others.",
    units=units_of_three_levels,
    run=run,
    draw=partial(draw, name="selective-internalisation"),
    claims=claims,
    differs="The paper holds out rules at each of five levels (n = 10) over 10,000 to 500,000 samples; ours at each of "
    "three levels (n = 8).",
)
FIVE_LEVELS = replace(
    THREE_LEVELS,
    name="selective-five-levels",
    title="Selective internalisation on five levels",
    story="The same with as many phrasebooks as in the paper: half of each of the five held out in turn.",
    units=units_of_five_levels,
    draw=partial(draw, name="selective-five-levels"),
    differs="The paper has alphabets of ten, and 10,000 to 500,000 samples. Ours has alphabets of eight, one size and "
    "one seed.",
)
