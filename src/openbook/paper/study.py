"""Studies: tables of runs that are no figure of the paper, read from YAML and run like any experiment.

    name: rates
    title: Annealing at other learning rates
    story: Does it matter?
    defaults: {reader: student-3-8, chars: 8, samples: 4000}  # of every line of `runs`
    runs:                                                     # a run for each size, seed and value of the grid
      - curve: anneal
        seeds: [0, 1]
        settings: {curriculum: anneal}
        grid: {training.matrix_learning_rate: [0.01, null, 0.04]}  # null: as the config has it
    columns: {rate: training.matrix_learning_rate}            # settings that the rows tell
    panels: [{title: Book closed, x: rate, y: accuracy}]
    claims: {judge: necessary}

A row is what the main figure has of a run, with the settings of `columns` and the loss at the end.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from openbook.figures.charts import Axis, Chart, Level, Panel, Table, share
from openbook.paper import efficiency_claims, sample_efficiency
from openbook.paper.curricula import CURVES
from openbook.paper.drawing import BOUNDS, Columns, curve, tabled, where
from openbook.paper.efficiency_charts import draw
from openbook.paper.experiment import Experiment, Json, Rows, Scale, TaughtModel, Unit
from openbook.paper.models import Models
from openbook.report.claims import Claim
from openbook.training.config import Strict
from openbook.training.folder import RunFolder
from openbook.training.settings import read_yaml, validated

AXES = {
    "accuracy": share("accuracy, book closed"),
    "last_loss": Axis("training loss at the end", low=0.0),
    "rate": Axis("Muon's rate", "log"),
    "samples": Axis("different samples", "log", "si"),
    "seen": Axis("samples seen, repeated ones counted", "log", "si"),
}
COLUMNS = {  # of the table: header and format; other columns of a study have their own name
    "samples": ("samples", ","),
    "rate": ("rate", "g"),
    "others": ("unused rules shown", ".0%"),
    "seed": ("seed", ""),
    "accuracy": ("book closed", ".1%"),
    "low": ("from", ".1%"),
    "high": ("to, at 95 %", ".1%"),
    "open_book": ("book open", ".1%"),
    "last_loss": ("loss at the end", ".3f"),
    "tokens": ("tokens", ","),
    "cpu_seconds": ("CPU seconds", ",.0f"),
}
ORDER = list(CURVES)
MEASURED = ("seed", "accuracy", "low", "high", "open_book", "last_loss", "tokens", "cpu_seconds")


class RunLine(Strict):
    """A line of the table: runs that differ in size, seed and the settings of a grid."""

    curve: Literal["anneal", "fixed:0.2", "no-context", "no-dropout", "wrong-context", "no-icl"]
    samples: int | list[int]
    chars: int
    reader: str | None  # null: a student that cannot read
    base: str | None = None  # a config that the settings lie over
    seeds: list[int] = Field([0])
    settings: Json = Field({})
    grid: dict[str, list[Any]] = Field({})
    labels: dict[str, int | float | str] = Field({})  # further columns of its rows


class StudyPanel(Strict):
    """A panel of the chart: one value of the rows against another, or accuracy on the way if `x` is `seen`."""

    title: str
    x: str
    y: str = "accuracy"
    samples: list[int] = Field([])  # only runs of these sizes; empty: all


class StudyClaims(Strict):
    """Which of the main figure's sentences are judged."""

    judge: Literal["necessary", "factor"]
    curves: list[str] | None = None  # of `necessary`: only the sentences about these
    best: bool = False  # for each curve and seed only what more samples or another setting gained


class Study(Strict):
    """A study's file."""

    name: str = Field(pattern=r"^[\w.-]+$")  # of its files
    title: str
    story: str
    differs: str = ""
    paper: str = "Figure 2, section 3.2"
    scale: Scale = "overnight"  # the only one at which it runs
    runs: list[RunLine]
    columns: dict[str, str] = Field({})  # column -> dotted setting of the run
    series: list[str] = Field(["curve"])  # columns that tell one curve of the chart from another
    only: Json = Field({})  # runs that are drawn and judged, by columns; the table has all
    panels: list[StudyPanel] = Field([])  # none: the charts of the main figure
    note: str = ""
    claims: StudyClaims | None = None

    def units(self, scale: Scale) -> list[Unit]:
        return [unit for line in self.runs for unit in _units_of(line)] if scale == self.scale else []

    def run(self, config: Json, models: Models) -> list[Json]:
        run = RunFolder(models.place(config["learned"][0]))
        settings = run.read("config.json")
        columns = {name: _setting(settings, key) for name, key in self.columns.items()}
        losses = [line["loss"] for line in run.metrics() if "loss" in line]
        labels = {key: value for key, value in config.items() if key != "learned"}
        rows = sample_efficiency.run(config, models)
        return [{**row, **labels, **columns, "last_loss": losses[-1]} for row in rows]

    def draw(self, rows: Rows) -> list[Chart | Table]:
        shown, table = where(rows, **self.only), self._table(rows)
        if not shown:
            return [table]
        if not self.panels:
            return [*draw(shown, self.name, self.note), table]
        best = [max(runs, key=lambda row: row["accuracy"]) for _, runs in self._series_of(shown)]
        ends = "; ".join(f"{self._name(row)} {row['accuracy']:.0%}{self._where(row)}" for row in best)
        alt = f"Accuracy with the book closed, the best run of each: {ends}."
        title = f"{self.title}, MLT({rows[0]['depth']}, {rows[0]['chars']})"
        return [Chart(self.name, title, alt, [self._panel(panel, shown) for panel in self.panels], self.note), table]

    def judge(self, rows: Rows) -> list[Claim]:
        if self.claims is None:
            return []
        shown = where(rows, **self.only)
        kept = best_runs(shown) if self.claims.best else shown
        if self.claims.judge == "necessary":
            return efficiency_claims.necessary(kept, self.claims.curves)
        passed = {f"first passed, seed {k}": n for k, n in efficiency_claims.first_passed(shown).items()}
        factor = efficiency_claims.fewer(kept)
        return [replace(factor, numbers={**factor.numbers, **passed})]

    def _series_of(self, rows: Rows) -> list[tuple[str, list[Json]]]:
        """The rows of each curve of the chart, by its name."""
        ordered = sorted(rows, key=lambda row: (ORDER.index(row["curve"]), *(row[key] for key in self.series[1:])))
        return [(name, list(runs)) for name, runs in itertools.groupby(ordered, self._name)]

    def _name(self, row: Json) -> str:
        return ", ".join([CURVES[row["curve"]].label, *(f"{key} {_cell(row, key)}" for key in self.series[1:])])

    def _where(self, row: Json) -> str:
        x = self.panels[0].x
        return f" at {x} {_cell(row, x)}" if x in row and x not in self.series else ""

    def _panel(self, panel: StudyPanel, rows: Rows) -> Panel:
        shown = [row for row in rows if not panel.samples or row["samples"] in panel.samples]
        bounds = BOUNDS if panel.y == "accuracy" else None
        series = []
        for k, (name, runs) in enumerate(self._series_of(shown)):
            points = _course(runs) if panel.x == "seen" else runs
            colour = CURVES[runs[0]["curve"]].colour if self.series == ["curve"] else k
            series.append(curve(name, colour, points, panel.x, panel.y, bounds))
        chance = [Level(rows[0]["chance"], "chance")] if panel.y == "accuracy" else []
        x, y = (AXES.get(key, Axis(key)) for key in (panel.x, panel.y))
        return Panel(panel.title, x, y, series, chance)

    def _table(self, rows: Rows) -> Table:
        labels = dict.fromkeys(key for line in self.runs for key in line.labels)
        keys = ["samples", *labels, *self.columns, *MEASURED]
        ordered = sorted(rows, key=lambda row: (ORDER.index(row["curve"]), row["samples"], self._name(row)))
        columns: Columns = {"curriculum": lambda row: CURVES[row["curve"]].label}
        columns |= {COLUMNS.get(key, (key, ""))[0]: functools.partial(_cell, key=key) for key in keys}
        return tabled(f"{self.name}-runs", "Every run", ordered, columns)


def _setting(settings: Json, key: str) -> Any:
    return functools.reduce(lambda group, part: group[part], key.split("."), settings)


def _cell(row: Json, key: str) -> str:
    """A value in words; rows of earlier versions do not have all of them."""
    return "" if row.get(key) is None else format(row[key], COLUMNS.get(key, ("", ""))[1])


def _units_of(line: RunLine) -> Iterator[Unit]:
    sizes = line.samples if isinstance(line.samples, list) else [line.samples]
    for samples, seed, *values in itertools.product(sizes, line.seeds, *line.grid.values()):
        changed = {key: value for key, value in zip(line.grid, values, strict=True) if value is not None}
        settings = {"samples": samples, "seed": seed, "task.codebook": seed, **line.settings, **changed}
        model = TaughtModel(line.reader, settings, line.base)
        yield sample_efficiency.unit(line.curve, samples, seed, line.chars, model, **line.labels)


def _course(runs: Rows) -> list[Json]:
    """Accuracy on the way, by samples seen; bars reach over the runs."""
    return [
        {"seen": point["step"] * each, **dict.fromkeys(("accuracy", *BOUNDS), point["closed_book"])}
        for row in runs
        if (each := row["samples"] * row.get("passes", 1) / row["steps"])
        for point in row["curve_by_step"]
    ]


def best_runs(rows: Rows) -> list[Json]:
    """What is known to be possible: for each curve, seed and size the best run, whatever its settings.

    More samples need not be used, so a longer run with worse settings does not take back what a shorter one has shown.
    Nor is it evidence of its size: a size counts for a seed that does better with it than with fewer.
    """
    kept: dict[tuple[str, int], list[Json]] = {}  # of each curve and seed, by size
    for row in sorted(rows, key=lambda row: (row["samples"], -row["accuracy"])):
        better = kept.setdefault((row["curve"], row["seed"]), [])
        if not better or row["accuracy"] > better[-1]["accuracy"]:
            better.append(row)
    return [row for better in kept.values() for row in better]


def load_study(file: Path) -> Experiment:
    """The experiment that a study's file describes."""
    values = read_yaml(file)
    defaults, runs = values.pop("defaults", {}), values.get("runs")
    if isinstance(defaults, dict) and isinstance(runs, list) and all(isinstance(line, dict) for line in runs):
        values["runs"] = [{**defaults, **line} for line in runs]
    study = validated(Study, values)
    return Experiment(
        **study.model_dump(include={"name", "title", "paper", "story", "differs"}),
        units=study.units,
        run=study.run,
        draw=study.draw,
        claims=study.judge,
        study=str(file),
    )
