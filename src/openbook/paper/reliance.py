"""Context reliance: how accuracy depends on how much of the book is open, before and after learning."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

from openbook.figures.charts import Axis, Chart, Level, Panel, Table, share
from openbook.paper.curricula import CURVES, deep_student, taught
from openbook.paper.drawing import curve, mean_by, where
from openbook.paper.experiment import Experiment, Json, Rows, Scale, TaughtModel, Unit
from openbook.paper.models import Models
from openbook.paper.sample_efficiency import SAMPLES
from openbook.report.claims import Claim, judge, unmeasured

CAPABLE = 0.98  # open-book accuracy from which a model can read
LEARNED = 0.9
INDEPENDENT = 0.05  # closed and open book closer than this: the model does not need the book
GUESS = 0.05
READER = "reader"
FRESH = "fresh"  # a codebook of its own for every string
OTHER_BOOKS = {"wrong": "wrong book", FRESH: "a new book for each string"}
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
KEPT = ("book", "open", "pieces", "samples", "accuracy", "low", "high", "chance", "exact_match")


def units_of_three_levels(scale: Scale) -> list[Unit]:
    names = ("anneal", "no-context") if scale == "smoke" else CURVES
    samples, reader = {"smoke": (32, None), "paper": (100_000, "llama-3b-stage1-n8")}.get(scale, (4000, "student-3-8"))
    return _units({name: taught(scale, name, samples) for name in names}, reader)


def units_of_five_levels(scale: Scale) -> list[Unit]:
    """The models of five levels and ten characters, which are made for their own figure, at overnight scale only."""
    if scale != "overnight":
        return []
    return _units({name: deep_student(name, SAMPLES[10], 10) for name in CURVES}, "student-5-10", seconds=20.0)


def _units(models: dict[str, TaughtModel], reader: str | None, seconds: float = 7.0) -> list[Unit]:
    before = [{"model": READER, "exam": 256, "learned": [models["anneal"]], "readers": [reader]}] if reader else []
    after = [{"model": name, "exam": 256, "learned": [model]} for name, model in models.items()]
    return [Unit(config, seconds) for config in [*before, *after]]


def run(config: Json, models: Models) -> list[Json]:
    """The exam with the book closed, partly open, open and wrong.

    The reader sits that of the annealed model, and one in which every string comes with a codebook of its own.
    """
    from openbook.training.exam import examine
    from openbook.training.models import load_placed, window_of
    from openbook.training.reopen import reopen
    from openbook.training.sources import EXAM_START, encoder_for, task_source

    count = config["exam"]
    settings, model, encoder, source = reopen(models.place(config["learned"][0]), samples=count)
    assert settings.task is not None
    labels = {"model": config["model"], "depth": settings.task.depth, "chars": settings.task.chars}
    if config["model"] == READER:
        model, _ = load_placed(str(models.reader(config["readers"][0])), settings.model.dtype)
    exam = examine(model, encoder, source, settings.curriculum, SHARES, True, count, settings.seed)
    if config["model"] == READER:
        fresh = task_source(settings.task.model_copy(update={"codebook": "fresh"}), count, EXAM_START)
        encoder = encoder_for(settings, encoder.tokenizer, fresh, settings.training.max_length or window_of(model))
        found = examine(model, encoder, fresh, settings.curriculum, (1.0,), False, count, settings.seed)
        exam += [replace(row, book=FRESH) for row in found]
    return [{**labels, **{key: getattr(row, key) for key in KEPT}} for row in exam]


def _look(name: str) -> tuple[str, int]:
    return ("Before: can read, knows nothing", 7) if name == READER else (CURVES[name].label, CURVES[name].colour)


def draw(rows: Rows, name: str) -> list[Chart | Table]:
    series, cells, ends = [], [], []
    for model in dict.fromkeys(row["model"] for row in rows):
        label, colour = _look(model)
        own = where(rows, model=model)
        right = mean_by(where(own, book="right"), "open")
        others = [_accuracy(own, model, 1, book) for book in OTHER_BOOKS]
        series.append(curve(label, colour, where(own, book="right"), "open"))
        cells.append([label, *(f"{value:.1%}" if value == value else "" for value in [*right.values(), *others])])
        closed, opened = _accuracy(rows, model, 0), _accuracy(rows, model, 1)
        ends.append(f"{label}: {closed:.0%} closed and {opened:.0%} open")
    x, chance = (
        Axis("share of the book that is open", form="percent", low=0, high=1),
        Level(rows[0]["chance"], "chance"),
    )
    title = f"MLT({rows[0]['depth']}, {rows[0]['chars']}), right book"
    shares = sorted({row["open"] for row in rows})
    header = ["model", *(f"{share:.0%} open" for share in shares), *OTHER_BOOKS.values()]
    return [
        Chart(
            name,
            "How much the models lean on the book",
            f"Accuracy: {', '.join(ends)}.",
            [Panel(title, x, share("accuracy"), series, [chance])],
            "256 new strings for each point; intervals are clustered by string.",
        ),
        Table(f"{name}-table", "The same in numbers", header, cells),
    ]


def _accuracy(rows: Rows, name: str, share: float, book: str = "right") -> float:
    return next((row["accuracy"] for row in where(rows, model=name, open=share, book=book)), math.nan)


def claims(rows: Rows) -> list[Claim]:
    rows = [row for row in rows if row["depth"] >= 3]  # two levels (smoke) say nothing about the paper's five
    return [_capable(rows), _independent(rows)]


def _capable(rows: Rows) -> Claim:
    claim = "An ICL-capable model translates by any codebook in its context, and not without."
    threshold = (
        f"the reader: {CAPABLE:.0%} or more with the book open, one codebook for all strings or one for each; within "
        f"{GUESS:.0%} of chance with it closed"
    )
    if not where(rows, model=READER):
        return unmeasured(claim, threshold, "no reader was examined")
    closed, opened, fresh = (_accuracy(rows, READER, *where) for where in ((0,), (1,), (1, FRESH)))
    chance = rows[0]["chance"]
    numbers = {"open": opened, "open, a codebook for each string": fresh, "closed": closed, "chance": chance}
    holds = min(opened, fresh) >= CAPABLE and abs(closed - chance) <= GUESS
    return judge(claim, holds, {name: round(number, 3) for name, number in numbers.items()}, threshold)


def _independent(rows: Rows) -> Claim:
    claim = "After context-enhanced learning the capability no longer depends on the book."
    threshold = f"annealing: closed and open book at most {INDEPENDENT:.0%} apart, both {LEARNED:.0%} or more"
    if not where(rows, model="anneal"):
        return unmeasured(claim, threshold, "no annealed model was examined")
    closed, opened = _accuracy(rows, "anneal", 0), _accuracy(rows, "anneal", 1)
    numbers = {"open": round(opened, 3), "closed": round(closed, 3), "chance": rows[0]["chance"]}
    return judge(claim, min(closed, opened) >= LEARNED and abs(opened - closed) <= INDEPENDENT, numbers, threshold)


THREE_LEVELS = Experiment(
    name="context-reliance",
    title="How much the models lean on the book",
    paper="Sections 2.4 and 3.2; no figure",
    story="The exam with the book closed, a quarter, half, three quarters and fully open, and with a wrong book. A "
    "reader rises from chance to certainty as the book opens. A model that has internalised the book is flat at the "
    "top; one that was always shown the book stays a reader. The wrong book shows whom the model believes.",
    units=units_of_three_levels,
    run=run,
    draw=partial(draw, name="context-reliance"),
    claims=claims,
    version=2,  # the reader sits an exam of many codebooks
)
FIVE_LEVELS = replace(
    THREE_LEVELS,
    name="context-reliance-five-levels",
    title="How much they lean on five books of ten characters",
    story="The same exam of the models that were taught five levels with alphabets of ten.",
    units=units_of_five_levels,
    draw=partial(draw, name="context-reliance-five-levels"),
)
