"""The charts of the main figure: accuracy by samples with the published curves behind, its costs, and how runs went."""

from __future__ import annotations

from typing import Any

from openbook.figures.charts import Axis, Chart, Level, Panel, Series, Table, share
from openbook.paper.curricula import CURVES, by_alphabet, mean_by, spread_by
from openbook.paper.experiment import Rows
from openbook.paper.published import published

PAPER_DEPTH = 5


def draw(rows: Rows, name: str, note: str = "") -> list[Chart | Table]:
    """A panel for each alphabet of ours with the published curves of the same alphabet behind, and how runs went."""
    if not rows:
        return []
    tasks = by_alphabet(rows)
    deeper = ", and a deeper task" if any(row["depth"] < PAPER_DEPTH for row in rows) else ""
    charts: list[Chart | Table] = [
        Chart(
            name,
            "Accuracy with the book closed, by training samples",
            _alt(rows),
            [_panel(ours, chars) for chars, ours in tasks.items()],
            "Solid: this machine, mean of the seeds; bars reach from the lowest to the highest end of their 95 % "
            "intervals, clustered by string. Dashed and pale: published, Llama-3.2-3B on "
            f"{' and '.join(f'MLT({PAPER_DEPTH}, {chars})' for chars in tasks)}; another model{deeper}, so compare the "
            f"order of the curves and not their places.{note and f' {note}'}",
        )
    ]
    for chars, ours in tasks.items():
        prefix = name if len(tasks) == 1 else f"{name}-{chars}"
        size = _shared_size(ours)
        runs = [row for row in ours if row["samples"] == size and row["seed"] == 0 and row["curve_by_step"]]
        if runs:
            charts.append(_course(runs, size, prefix))
        charts += [_costs(ours, prefix), _table(ours, prefix)]
    return charts


def of_curve(rows: Rows, name: str) -> list[dict[str, Any]]:
    return [row for row in rows if row["curve"] == name]


def by_samples(rows: Rows, name: str, key: str = "samples") -> Series:
    """A curve by a key of its rows: the mean of the seeds, and bars over all their intervals."""
    points, spread = list(mean_by(rows, key).items()), spread_by(rows, key)
    return Series(CURVES[name].label, points, CURVES[name].colour, [spread[x] for x, _ in points])


def _shared_size(rows: Rows) -> int:
    """Of the sizes that annealing has, the one that most curves share; of several the largest."""
    sizes = {row["samples"] for row in of_curve(rows, "anneal") or rows}
    return max(sizes, key=lambda size: (len({row["curve"] for row in rows if row["samples"] == size}), size))


def _panel(rows: Rows, chars: int) -> Panel:
    series = []
    for curve in CURVES.values():
        points = [
            (row["num_samples"], row["acc_no_context"])
            for row in published("sample_efficiency")
            if row["n"] == chars and row["curriculum"] == curve.published
        ]
        if points:
            series.append(Series(curve.label, sorted(points), curve.colour, published=True))
    behind = f"; published: MLT({PAPER_DEPTH}, {chars})" if series else ""
    series += [by_samples(runs, name) for name in CURVES if (runs := of_curve(rows, name))]
    return Panel(
        f"Ours: MLT({rows[0]['depth']}, {chars}){behind}",
        Axis("training samples, one epoch", "log", "si"),
        share("accuracy, book closed"),
        series,
        [Level(1 / chars, "chance")],
    )


def _costs(rows: Rows, name: str) -> Chart:
    """The same accuracies against what they cost: a book in the context makes every sample longer."""

    def series(cost: str) -> list[Series]:
        curves = []
        for key, curve in CURVES.items():
            runs = [row for row in of_curve(rows, key) if cost == "tokens" or not row.get("resumed_from")]
            costs, accuracies = mean_by(runs, "samples", cost), mean_by(runs, "samples")
            if runs:
                curves.append(Series(curve.label, [(costs[n], accuracies[n]) for n in accuracies], curve.colour))
        return curves

    axes = {"tokens": "tokens trained on, books included", "seconds": "seconds of training, by the clock"}
    if all(row.get("cpu_seconds") is not None for row in rows):  # which runs of earlier versions did not write down
        axes = {"tokens": axes["tokens"], "cpu_seconds": "CPU seconds of training"}
    chance, accuracy = [Level(rows[0]["chance"], "chance")], share("accuracy, book closed")
    panels = [
        Panel(f"By {cost.replace('cpu_', 'CPU ')}", Axis(label, "log", "si"), accuracy, series(cost), chance)
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


def _course(runs: Rows, samples: int, name: str) -> Chart:
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
        means = mean_by(of_curve(rows, key), "samples")
        if means:
            cells.append([curve.label, *(f"{means[n]:.1%}" if n in means else "" for n in sizes)])
    title = "The same in numbers: accuracy with the book closed"
    return Table(f"{name}-table", title, ["curriculum", *(f"{n:,} samples" for n in sizes)], cells)


def _alt(rows: Rows) -> str:
    sentences = []
    for chars, ours in by_alphabet(rows).items():
        size = _shared_size(ours)
        ends = mean_by([row for row in ours if row["samples"] == size], "curve")
        shares = ", ".join(f"{curve.label} {ends[name]:.0%}" for name, curve in CURVES.items() if name in ends)
        sentences.append(f"Accuracy with the book closed after {size:,} samples, {chars} characters: {shares}.")
    return " ".join(sentences)
