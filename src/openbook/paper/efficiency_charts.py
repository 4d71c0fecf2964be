"""The charts of the main figure: accuracy by samples with the published curves behind, its costs, and how runs went."""

from __future__ import annotations

from collections.abc import Iterable

from openbook.figures.charts import Axis, Chart, Level, Panel, Series, Table, share
from openbook.paper.curricula import CURVES
from openbook.paper.drawing import BOOK_CLOSED, BOUNDS, curve, grouped, learning_panel, mean_by, published_curve, where
from openbook.paper.experiment import Json, Rows
from openbook.paper.published import published

PAPER_DEPTH = 5


def draw(rows: Rows, name: str, note: str = "") -> list[Chart | Table]:
    """A panel for each alphabet of ours with the published curves of the same alphabet behind, and how runs went."""
    tasks = grouped(rows, "chars")
    deeper = ", and a deeper task" if any(row["depth"] < PAPER_DEPTH for row in rows) else ""
    charts: list[Chart | Table] = [
        Chart(
            name,
            "Accuracy with the book closed, by training samples",
            " ".join(_in_words(ours, chars) for chars, ours in tasks),
            [_panel(ours, chars) for chars, ours in tasks],
            "Solid: this machine, mean of the seeds; bars reach from the lowest to the highest end of their 95 % "
            "intervals, clustered by string. Dashed and pale: published, Llama-3.2-3B on "
            f"{' and '.join(f'MLT({PAPER_DEPTH}, {chars})' for chars, _ in tasks)}; another model{deeper}, so compare "
            f"the order of the curves and not their places.{note and f' {note}'}",
        )
    ]
    for chars, ours in tasks:
        prefix = name if len(tasks) == 1 else f"{name}-{chars}"
        charts += [*_course(ours, prefix), _costs(ours, prefix), _table(ours, prefix)]
    return charts


def learning_curves(
    rows: Rows, chars: int, names: Iterable[str] = CURVES, bounds: tuple[str, str] | None = BOUNDS
) -> list[Series]:
    """The published curve of each curriculum for this alphabet, then ours: the mean of the seeds."""
    others = where(published_rows(names), chars=chars)
    behind, ours = [], []
    for name in names:
        look = CURVES[name].label, CURVES[name].colour
        behind += published_curve(*look, where(others, curriculum=CURVES[name].published))
        ours += [curve(*look, runs, bounds=bounds)] if (runs := where(rows, curve=name)) else []
    return [*behind, *ours]


def published_rows(names: Iterable[str]) -> list[Json]:
    """The published curves of a 3B language model under these curricula."""
    wanted = {CURVES[name].published for name in names}
    keys = {"chars": "n", "curriculum": "curriculum", "samples": "num_samples", "accuracy": "acc_no_context"}
    rows = [row for row in published("sample_efficiency") if row["curriculum"] in wanted]
    return [{key: row[column] for key, column in keys.items()} for row in rows]


def _at_shared_size(rows: Rows) -> list[Json]:
    """The runs on that size of annealing's that most curves share; of several the largest."""
    sizes = {row["samples"] for row in where(rows, curve="anneal") or rows}
    runs = {size: where(rows, samples=size) for size in sizes}
    return runs[max(sizes, key=lambda size: (len({row["curve"] for row in runs[size]}), size))]


def _in_words(rows: Rows, chars: int) -> str:
    runs = _at_shared_size(rows)
    ends = mean_by(runs, "curve")
    shares = ", ".join(f"{curve.label} {ends[name]:.0%}" for name, curve in CURVES.items() if name in ends)
    return f"Accuracy with the book closed after {runs[0]['samples']:,} samples, {chars} characters: {shares}."


def _panel(rows: Rows, chars: int) -> Panel:
    series = learning_curves(rows, chars)
    behind = f"; published: MLT({PAPER_DEPTH}, {chars})" if any(line.published for line in series) else ""
    return learning_panel(f"Ours: MLT({rows[0]['depth']}, {chars}){behind}", series, 1 / chars)


def _costs(rows: Rows, name: str) -> Chart:
    """The same accuracies against what they cost: a book in the context makes every sample longer."""
    by_clock = any(row.get("cpu_seconds") is None for row in rows)  # runs of earlier versions did not write it down
    axes = {"tokens": "tokens trained on, books included"}
    axes |= {"seconds": "seconds of training, by the clock"} if by_clock else {"cpu_seconds": "CPU seconds of training"}
    chance, panels = [Level(rows[0]["chance"], "chance")], []
    for cost, label in axes.items():
        series = []
        for key, look in CURVES.items():
            runs = [row for row in where(rows, curve=key) if cost == "tokens" or not row.get("resumed_from")]
            points = list(zip(mean_by(runs, "samples", cost).values(), mean_by(runs, "samples").values(), strict=True))
            series += [Series(look.label, points, look.colour)] if points else []
        x = Axis(label, "log", "si")
        panels.append(Panel(f"By {cost.replace('cpu_', 'CPU ')}", x, BOOK_CLOSED, series, chance))
    return Chart(
        f"{name}-costs",
        "The same by what it costs",
        "Accuracy with the book closed against tokens and against seconds of training.",
        panels,
        "A dot is a size of the dataset, the mean of its seeds. Seconds are of training and the exams during it, one "
        "thread a run; what else ran shows in them, most of all where they are by the clock, and not in the tokens. "
        "Runs that were interrupted have no place there.",
    )


def _course(rows: Rows, name: str) -> list[Chart]:
    runs = [row for row in where(_at_shared_size(rows), seed=0) if row["curve_by_step"]]
    if not runs:
        return []
    x, chance = Axis("share of training", form="percent", low=0, high=1), [Level(runs[0]["chance"], "chance")]
    panels = []
    for title, key in (("Book closed", "closed_book"), ("Book open", "open_book")):
        series = []
        for row in runs:
            points = [(point["step"] / row["steps"], point[key]) for point in row["curve_by_step"]]
            series.append(Series(CURVES[row["curve"]].label, points, CURVES[row["curve"]].colour))
        panels.append(Panel(title, x, share("accuracy"), series, chance))
    return [
        Chart(
            f"{name}-course",
            f"How the runs on {runs[0]['samples']:,} samples went",
            "Accuracy of each curriculum during training, with the book closed and open.",
            panels,
            "Examined a few times during training on strings that training never sees.",
        )
    ]


def _table(rows: Rows, name: str) -> Table:
    means = {look.label: mean_by(where(rows, curve=key), "samples") for key, look in CURVES.items()}
    sizes = sorted({row["samples"] for row in rows})
    header = ["curriculum", *(f"{n:,} samples" for n in sizes)]
    cells = [[label, *(f"{own[n]:.1%}" if n in own else "" for n in sizes)] for label, own in means.items() if own]
    return Table(f"{name}-table", "The same in numbers: accuracy with the book closed", header, cells)
