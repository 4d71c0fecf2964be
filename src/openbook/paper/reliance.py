"""Context reliance: how accuracy depends on how much of the book is open, before and after learning."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from openbook.figures.charts import Axis, Chart, Level, Panel, Series, Table, share
from openbook.paper import five_levels
from openbook.paper.curricula import CURVES, llama, student
from openbook.paper.experiment import Experiment, Rows, Scale, Unit
from openbook.paper.models import Models
from openbook.report.claims import Claim, judge, unmeasured

CAPABLE = 0.98  # open-book accuracy from which a model can read
INDEPENDENT = 0.05  # closed and open book closer than this: the model does not need the book
GUESS = 0.05
READER = "reader"
FRESH = "fresh"  # a codebook of its own for every string
OTHER_BOOKS = {"wrong": "wrong book", FRESH: "a new book for each string"}
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)


def configs(scale: Scale) -> list[Unit]:
    if scale == "paper":
        return _units({name: llama(name, 100_000, 8) for name in CURVES}, "llama-3b-stage1-n8")
    if scale == "smoke":
        return _units({name: student(scale, name, 32) for name in ("anneal", "no-context")}, None)
    return _units({name: student(scale, name, 4000) for name in CURVES}, "student-3-8")


def configs_of_ten(scale: Scale) -> list[Unit]:
    """The models of five levels and ten characters, which are there for their own figure, at overnight scale only."""
    if scale != "overnight":
        return []
    specs = {name: five_levels.learned(name, five_levels.SAMPLES[10], 10) for name in CURVES}
    return _units(specs, "student-5-10", seconds=20.0)


def _units(specs: dict[str, dict[str, Any]], reader: str | None, seconds: float = 7.0) -> list[Unit]:
    units = [Unit({"model": name, "exam": 256, "learned": [spec]}, seconds) for name, spec in specs.items()]
    if reader is not None:
        before = {"model": READER, "exam": 256, "learned": [specs["anneal"]], "readers": [reader]}
        units.insert(0, Unit(before, seconds))
    return units


def run(config: dict[str, Any], models: Models) -> list[dict[str, Any]]:
    """Sit the exam with the book closed, partly open, open and wrong.

    The reader sits that of the annealed model, and one in which every string comes with a codebook of its own.
    """
    from openbook.training.exam import examine
    from openbook.training.models import load_placed, window_of
    from openbook.training.reopen import reopen
    from openbook.training.sources import EXAM_START, encoder_for, task_source

    count = config["exam"]
    settings, model, encoder, source = reopen(models.place(config["learned"][0]), samples=count)
    assert settings.task is not None
    keep = ("book", "open", "pieces", "samples", "accuracy", "low", "high", "chance", "exact_match")
    about = {"model": config["model"], "depth": settings.task.depth, "chars": settings.task.chars}
    if config["model"] == READER:
        model, _ = load_placed(str(models.reader(config["readers"][0])), settings.model.dtype)
    found = examine(model, encoder, source, settings.curriculum, SHARES, True, count, settings.seed)
    rows = [{**about, **{key: getattr(row, key) for key in keep}} for row in found]
    if config["model"] == READER:
        fresh = task_source(settings.task.model_copy(update={"codebook": "fresh"}), count, EXAM_START)
        encoder = encoder_for(settings, encoder.tokenizer, fresh, settings.training.max_length or window_of(model))
        (row,) = examine(model, encoder, fresh, settings.curriculum, (1.0,), False, count, settings.seed)
        rows.append({**about, **{key: getattr(row, key) for key in keep}, "book": FRESH})
    return rows


def _label(name: str) -> str:
    return "Before: can read, knows nothing" if name == READER else CURVES[name].label


def draw(rows: Rows, name: str) -> list[Chart | Table]:
    if not rows:
        return []
    names = list(dict.fromkeys(row["model"] for row in rows))
    series, cells = [], []
    for model in names:
        mine = sorted((r for r in rows if r["model"] == model and r["book"] == "right"), key=lambda r: r["open"])
        colour = 7 if model == READER else CURVES[model].colour
        points = [(row["open"], row["accuracy"]) for row in mine]
        series.append(Series(_label(model), points, colour, [(row["low"], row["high"]) for row in mine]))
        others = [next((r for r in rows if r["model"] == model and r["book"] == book), None) for book in OTHER_BOOKS]
        cells.append([_label(model), *(f"{row['accuracy']:.1%}" if row else "" for row in [*mine, *others])])
    said = ", ".join(
        f"{_label(model)}: {_at(rows, model, 0):.0%} closed and {_at(rows, model, 1):.0%} open" for model in names
    )
    panel = Panel(
        f"MLT({rows[0]['depth']}, {rows[0]['chars']}), right book",
        Axis("share of the book that is open", form="percent", low=0, high=1),
        share("accuracy"),
        series,
        [Level(rows[0]["chance"], "chance")],
    )
    return [
        Chart(name, "How much the models lean on the book", f"Accuracy: {said}.", [panel],
              "256 new strings for each point; intervals are clustered by string."),
        Table(f"{name}-table", "The same in numbers",
              ["model", *(f"{share:.0%} open" for share in sorted({r["open"] for r in rows})), *OTHER_BOOKS.values()],
              cells),
    ]  # fmt: skip


def _at(rows: Rows, name: str, share: float, book: str = "right") -> float:
    found = [r["accuracy"] for r in rows if r["model"] == name and r["open"] == share and r["book"] == book]
    return found[0] if found else float("nan")


def claims(rows: Rows) -> list[Claim]:
    rows = [row for row in rows if row["depth"] >= 3]  # two levels (smoke) say nothing about the paper's five
    names = {row["model"] for row in rows}
    chance = rows[0]["chance"] if rows else float("nan")
    capable = "An ICL-capable model translates by any codebook in its context, and not without."
    rule = (
        f"the reader: {CAPABLE:.0%} or more with the book open, one codebook for all strings or one for each; within "
        f"{GUESS:.0%} of chance with it closed"
    )
    independent = "After context-enhanced learning the capability no longer depends on the book."
    bound = f"annealing: closed and open book at most {INDEPENDENT:.0%} apart, both {0.9:.0%} or more"
    found = []
    if READER in names:
        closed, opened, fresh = _at(rows, READER, 0), _at(rows, READER, 1), _at(rows, READER, 1, FRESH)
        numbers = {"open": opened, "open, a codebook for each string": fresh, "closed": closed, "chance": chance}
        reads = min(opened, fresh) >= CAPABLE and abs(closed - chance) <= GUESS
        found.append(judge(capable, reads, {name: round(number, 3) for name, number in numbers.items()}, rule))
    else:
        found.append(unmeasured(capable, rule, "no reader was examined"))
    if "anneal" in names:
        closed, opened = _at(rows, "anneal", 0), _at(rows, "anneal", 1)
        numbers = {"open": round(opened, 3), "closed": round(closed, 3), "chance": chance}
        found.append(
            judge(independent, min(closed, opened) >= 0.9 and abs(opened - closed) <= INDEPENDENT, numbers, bound)
        )
    else:
        found.append(unmeasured(independent, bound, "no annealed model was examined"))
    return found


def _experiment(name: str, title: str, story: str, planned: Callable[[Scale], list[Unit]]) -> Experiment:
    return Experiment(
        name=name,
        title=title,
        paper="Sections 2.4 and 3.2; no figure",
        story=story,
        configs=planned,
        run=run,
        draw=functools.partial(draw, name=name),
        claims=claims,
        version=2,  # the reader sits an exam of many codebooks
    )


EXPERIMENT = _experiment(
    "context-reliance",
    "How much the models lean on the book",
    "The exam with the book closed, a quarter, half, three quarters and fully open, and with a wrong book. A "
    "reader rises from chance to certainty as the book opens. A model that has internalised the book is flat at the "
    "top; one that was always shown the book stays a reader. The wrong book shows whom the model believes.",
    configs,
)
OF_TEN = _experiment(
    "context-reliance-five-levels",
    "How much they lean on five books of ten characters",
    "The same exam of the models that were taught five levels with alphabets of ten.",
    configs_of_ten,
)
