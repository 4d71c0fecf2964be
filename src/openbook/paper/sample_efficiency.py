"""The main figure: accuracy with the book closed against the size of the dataset, under six curricula."""

from __future__ import annotations

import itertools
from typing import Any

from openbook.figures.charts import Axis, Chart, Level, Panel, Series, Table, share
from openbook.paper.curricula import CURVES, PAPER_SAMPLES, by_alphabet, llama, mean_by, spread_by, student
from openbook.paper.efficiency_claims import claims
from openbook.paper.experiment import Experiment, Rows, Scale, Unit
from openbook.paper.models import Models
from openbook.paper.published import published
from openbook.training.folder import RunFolder

NAME = "sample-efficiency"
PAPER_DEPTH = 5
# Searched for every curve that learns (docs/student-measured.md): the default, 0.02, is best but for the longest run.
RATES = {("no-context", 16_000): {"training.matrix_learning_rate": 0.01}}


def configs(scale: Scale) -> list[Unit]:
    if scale == "paper":
        return [
            unit(name, samples, 0, chars, llama(name, samples, chars))
            for chars, name, samples in itertools.product((8, 10), CURVES, PAPER_SAMPLES)
        ]
    if scale == "smoke":
        return [unit(name, 32, 0, 3, student(scale, name, 32)) for name in ("anneal", "no-context")]
    if scale == "laptop":
        sizes = {"anneal": (1000, 2000, 4000), "fixed:0.2": (2000, 4000), "no-context": (1000, 4000)}
        seeds: tuple[int, ...] = (0,)
    else:
        sizes = {"anneal": (2000, 3000, 4000), "fixed:0.2": (4000, 8000), "no-context": (4000, 8000, 16_000)}
        seeds = (0, 1, 2)
    return [
        unit(name, samples, seed, 8, student(scale, name, samples, seed, **RATES.get((name, samples), {})))
        for name in CURVES
        for samples in sizes.get(name, (4000,))
        for seed in seeds
    ]


def unit(name: str, samples: int, seed: int, chars: int, spec: dict[str, Any]) -> Unit:
    return Unit({"curve": name, "samples": samples, "seed": seed, "chars": chars, "learned": [spec]}, seconds=0.5)


def run(config: dict[str, Any], models: Models) -> list[dict[str, Any]]:
    """What the run of one curve and size wrote down: its exam with the book closed, and how it got there."""
    from openbook.training.config import RunConfig
    from openbook.training.estimate import tokens_of
    from openbook.training.settings import validated

    record = RunFolder(models.place(config["learned"][0]))
    result, settings = record.read("result.json"), record.read("config.json")
    closed = next(row for row in result["exam"] if row["open"] == 0)
    seen = [line for line in record.metrics() if "closed_book" in line]
    return [
        {
            **{key: config[key] for key in ("curve", "samples", "seed", "chars")},
            "depth": settings["task"]["depth"],
            "accuracy": closed["accuracy"],
            "low": closed["low"],
            "high": closed["high"],
            "chance": closed["chance"],
            "exact_match": closed["exact_match"],
            "open_book": result["accuracy"]["open_book"],
            "seconds": result["seconds"],
            "cpu_seconds": result.get("cpu_seconds"),
            "resumed_from": result.get("resumed_from", 0),
            "tokens": tokens_of(validated(RunConfig, settings)),
            "steps": result["steps"],
            "curve_by_step": [{key: line[key] for key in ("step", "closed_book", "open_book")} for line in seen],
        }
    ]


def draw(rows: Rows, name: str = NAME, note: str = "") -> list[Chart | Table]:
    """A panel for each alphabet of ours with the published curves of the same alphabet behind, and how runs went."""
    if not rows:
        return []
    panels = [_panel(mine, chars) for chars, mine in by_alphabet(rows).items()]
    charts: list[Chart | Table] = [
        Chart(
            name,
            "Accuracy with the book closed, by training samples",
            _alt(rows),
            panels,
            "Solid: this machine, mean of the seeds; bars reach from the lowest to the highest end of their 95 % "
            "intervals, clustered by string. Dashed and pale: "
            f"published, Llama-3.2-3B on {_tasks(rows)}; {_apart(rows)}, so compare the order of the curves "
            f"and not their places.{note and f' {note}'}",
        )
    ]
    for chars, mine in by_alphabet(rows).items():
        called = name if len(panels) == 1 else f"{name}-{chars}"
        size = _size(mine)
        runs = [row for row in mine if row["samples"] == size and row["seed"] == 0 and row["curve_by_step"]]
        if runs:
            charts.append(_course(runs, size, called))
        charts += [_costs(mine, called), _table(mine, called)]
    return charts


def _tasks(rows: Rows) -> str:
    return " and ".join(f"MLT({PAPER_DEPTH}, {chars})" for chars in by_alphabet(rows))


def _apart(rows: Rows) -> str:
    return "another model" + (", and a deeper task" if any(row["depth"] < PAPER_DEPTH for row in rows) else "")


def _size(rows: Rows) -> int:
    """The size that most curves share with the one that this is about; of those the largest."""
    sizes = {row["samples"] for row in rows if row["curve"] == "anneal"} or {row["samples"] for row in rows}
    return max(sizes, key=lambda size: (len({row["curve"] for row in rows if row["samples"] == size}), size))


def _panel(rows: Rows, chars: int) -> Panel:
    depth = rows[0]["depth"]
    series = []
    for curve in CURVES.values():
        theirs = [
            (row["num_samples"], row["acc_no_context"])
            for row in published("sample_efficiency")
            if row["n"] == chars and row["curriculum"] == curve.published
        ]
        if theirs:
            series.append(Series(curve.label, sorted(theirs), curve.colour, published=True))
    for name, curve in CURVES.items():
        mine = [row for row in rows if row["curve"] == name]
        if mine:
            points, spread = list(mean_by(mine, "samples").items()), spread_by(mine, "samples")
            series.append(Series(curve.label, points, curve.colour, [spread[x] for x, _ in points]))
    behind = f"; published: MLT(5, {chars})" if any(one.published for one in series) else ""
    return Panel(
        f"Ours: MLT({depth}, {chars}){behind}",
        Axis("training samples, one epoch", "log", "si"),
        share("accuracy, book closed"),
        series,
        [Level(1 / chars, "chance")],
    )


def _costs(rows: Rows, name: str) -> Chart:
    """The same accuracies against what they cost: a book in the context makes every sample longer."""

    def series(cost: str) -> list[Series]:
        found = []
        for key, curve in CURVES.items():
            mine = [row for row in rows if row["curve"] == key and not (cost != "tokens" and row.get("resumed_from"))]
            costs, accuracies = mean_by(mine, "samples", cost), mean_by(mine, "samples")
            if mine:
                found.append(Series(curve.label, [(costs[n], accuracies[n]) for n in accuracies], curve.colour))
        return found

    chance = [Level(rows[0]["chance"], "chance")]
    axes = {"tokens": "tokens trained on, books included", **_seconds(rows)}
    panels = [
        Panel(
            f"By {cost.replace('cpu_', 'CPU ')}",
            Axis(label, "log", "si"),
            share("accuracy, book closed"),
            series(cost),
            chance,
        )
        for cost, label in axes.items()
    ]
    return Chart(
        f"{name}-costs",
        "The same by what it costs",
        "Accuracy with the book closed against tokens and against seconds of training.",
        panels,
        "A dot is a size of the dataset, the mean of its seeds. Seconds are of training and the exams during it, one "
        "thread a run; what else ran shows in them, most of all where they are by the clock, and not in the tokens. "
        "Runs that were interrupted have no place there.",
    )


def _seconds(rows: Rows) -> dict[str, str]:
    """Those of the processor, where all runs wrote them down, or else those of the clock."""
    if all(row.get("cpu_seconds") is not None for row in rows):
        return {"cpu_seconds": "CPU seconds of training"}
    return {"seconds": "seconds of training, by the clock"}


def _course(runs: list[dict[str, Any]], samples: int, name: str) -> Chart:
    def series(key: str) -> list[Series]:
        return [
            Series(
                CURVES[row["curve"]].label,
                [(point["step"] / row["steps"], point[key]) for point in row["curve_by_step"]],
                CURVES[row["curve"]].colour,
            )
            for row in runs
        ]

    chance = [Level(runs[0]["chance"], "chance")]
    panels = [
        Panel(title, Axis("share of training", form="percent", low=0, high=1), share("accuracy"), series(key), chance)
        for title, key in (("Book closed", "closed_book"), ("Book open", "open_book"))
    ]
    return Chart(
        f"{name}-course",
        f"How the runs on {samples:,} samples went",
        "Accuracy of each curriculum during training, with the book closed and open.",
        panels,
        "Examined a few times during training on strings that training never sees.",
    )


def _table(rows: Rows, name: str) -> Table:
    sizes = sorted({row["samples"] for row in rows})
    cells = []
    for key, curve in CURVES.items():
        mine = mean_by([row for row in rows if row["curve"] == key], "samples")
        if mine:
            cells.append([curve.label, *(f"{mine[n]:.1%}" if n in mine else "" for n in sizes)])
    title = "The same in numbers: accuracy with the book closed"
    return Table(f"{name}-table", title, ["curriculum", *(f"{n:,} samples" for n in sizes)], cells)


def _alt(rows: Rows) -> str:
    said = []
    for chars, mine in by_alphabet(rows).items():
        size = _size(mine)
        ends = mean_by([row for row in mine if row["samples"] == size], "curve")
        shares = ", ".join(f"{curve.label} {ends[name]:.0%}" for name, curve in CURVES.items() if name in ends)
        said.append(f"Accuracy with the book closed after {size:,} samples, {chars} characters: {shares}.")
    return " ".join(said)


EXPERIMENT = Experiment(
    name=NAME,
    title="Sample efficiency of six curricula",
    paper="Figure 2, section 3.2",
    story="Can a model learn a codebook faster with the book in its context, although no loss is computed on the book? "
    "Each dot is a model that was trained for one epoch on that many translations and then examined on new strings "
    "with the book closed. Annealing closes the book little by little; fixed dropout always hides a fifth of it. The "
    "other four each lack one thing: the book, its removal, its truth, or a model that can read it.",
    configs=configs,
    run=run,
    draw=draw,
    claims=claims,
    differs="The paper fine-tunes Llama-3.2-3B on five levels with 10,000 to 1,000,000 samples. Ours is a student of "
    "0.5 million weights on three levels with 1,000 to 4,000, and plain fine-tuning overnight with 16,000.",
    version=3,  # tokens are counted
)
