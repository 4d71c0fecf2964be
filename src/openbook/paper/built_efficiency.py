"""The main figure at the paper's task size, with the hand-built transformer as the model that can read."""

from __future__ import annotations

import itertools
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openbook.base import jobs
from openbook.base.errors import InputError, nearest
from openbook.base.files import write_json
from openbook.figures.charts import Axis, Chart, Level, Panel, Series, Table, share
from openbook.paper.curricula import CURVES, mean_by, spread_by
from openbook.paper.experiment import Experiment, Rows, Scale, Unit
from openbook.paper.models import Models
from openbook.paper.published import published
from openbook.report.claims import Claim, judge, unmeasured

LEARNED = 0.9
GUESS = 0.05
NAMES = ("anneal", "fixed:0.2", "no-context", "no-dropout", "wrong-context")


def units(scale: Scale) -> list[Unit]:
    return grid(scale)


def grid(
    scale: Scale,
    chars: Sequence[int] = (),
    samples: Sequence[int] = (),
    seeds: int | None = None,
    curves: Sequence[str] = (),
) -> list[Unit]:
    """The units of a scale; sizes, seeds and curves that are given replace those of the scale."""
    if seeds is not None and seeds < 1:
        raise InputError(f"--seeds is {seeds}: give at least 1")
    if min((*chars, 2)) < 2 or min((*samples, 1)) < 1:
        raise InputError("--chars must be at least 2 and --samples at least 1")
    for name in curves:
        if name not in NAMES:
            raise InputError(f"there is no curriculum '{name}' in this figure{nearest(name, NAMES)}")
    alphabets, sizes, trainings, depth, rate = {
        "smoke": ((3,), (64,), 1, 2, 0.01),
        "laptop": ((8,), (1000, 3000, 10_000), 1, 5, 0.0005),
        "overnight": ((8, 10), (1000, 3000, 10_000, 30_000, 100_000), 3, 5, 0.0015),
        "paper": ((8, 10), (1000, 3000, 10_000, 30_000, 100_000, 300_000, 1_000_000), 3, 5, 0.0015),
    }[scale]
    points = itertools.product(curves or NAMES, samples or sizes, range(seeds or trainings), chars or alphabets)
    return [
        Unit({"curve": name, "samples": n, "seed": seed, "chars": c, "depth": depth}, seconds=0.6 + rate * n)
        for name, n, seed, c in dict.fromkeys(points)
    ]


def run(config: dict[str, Any], models: Models | None = None) -> list[dict[str, Any]]:
    from openbook.theory.construction.curricula import closed_book_accuracy

    settings = {key: config[key] for key in ("depth", "chars", "samples", "seed")}
    accuracy = closed_book_accuracy(CURVES[config["curve"]].curriculum, **settings)
    return [{**config, "accuracy": accuracy, "chance": 1 / config["chars"]}]


@dataclass(frozen=True)
class UnitInFile:
    """A unit as work for the pool of worker processes: its rows are left in a file."""

    key: str
    weight: float
    config: dict[str, Any]
    path: Path
    needs: tuple[str, ...] = ()

    def perform(self, report: Callable[[float, str], None]) -> None:
        write_json(self.path, run(self.config))


def measure(units: Sequence[Unit], processes: int, advance: Callable[..., object]) -> list[dict[str, Any]]:
    """The rows of units that are trained side by side; `advance` is told the samples of each one that is done."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, f"{place}.json") for place in range(len(units))]
        work = {
            path.stem: UnitInFile(path.stem, unit.seconds, unit.config, path)
            for path, unit in zip(paths, units, strict=True)
        }
        for event in jobs.run_jobs(list(work.values()), processes, Path(folder, "workers.log")):
            config = work[event.key].config
            if event.kind == "failed":
                raise InputError(f"training on {config['samples']:,} samples ({config['curve']}): {event.note}")
            if event.kind == "done":
                advance(config["samples"], note=f"{config['curve']}, n = {config['chars']}")
        rows = [row for path in paths for row in json.loads(path.read_text())]
    return sorted(rows, key=lambda row: (row["chars"], NAMES.index(row["curve"]), row["samples"], row["seed"]))


def draw(rows: Rows) -> list[Chart | Table]:
    if not rows:
        return []
    alphabets = sorted({row["chars"] for row in rows})
    largest = max(row["samples"] for row in rows)
    ends = mean_by([row for row in rows if row["samples"] == largest], "curve")
    alt = ", ".join(f"{CURVES[name].label} {accuracy:.0%}" for name, accuracy in ends.items())
    return [
        Chart(
            "construction-efficiency",
            "Sample efficiency without pre-training: the transformer written by hand",
            f"Accuracy with an empty context after {largest:,} samples: {alt}.",
            [_panel([row for row in rows if row["chars"] == chars]) for chars in alphabets],
            "Solid: this machine. Dashed and pale: published, Llama-3.2-3B on the same task. Not a race: this "
            "model has the task's structure built in. Look at the order of the curves.",
        )
    ]


def _panel(rows: Rows) -> Panel:
    """The curves of one size of alphabet, the published ones behind ours."""
    depth, chars = rows[0]["depth"], rows[0]["chars"]
    behind, ours = [], []
    for name in NAMES:
        label, colour = CURVES[name].label, CURVES[name].colour
        others = [
            row for row in published_rows() if (row["chars"], row["curriculum"]) == (chars, CURVES[name].published)
        ]
        if others:
            points = sorted((row["samples"], row["accuracy"]) for row in others)
            behind.append(Series(label, points, colour, published=True))
        here = [{**row, "low": row["accuracy"], "high": row["accuracy"]} for row in rows if row["curve"] == name]
        if here:
            spread = spread_by(here, "samples").values() if len({row["seed"] for row in here}) > 1 else ()
            ours.append(Series(label, list(mean_by(here, "samples").items()), colour, list(spread)))
    samples = Axis("training samples, one epoch", "log", "si")
    chance = [Level(1 / chars, "chance")]
    return Panel(f"MLT({depth}, {chars})", samples, share("accuracy, empty context"), [*behind, *ours], chance)


def published_rows() -> list[dict[str, Any]]:
    """The published curves of a 3B language model, which are drawn behind ours."""
    names = {CURVES[name].published for name in NAMES}
    keys = {"chars": "n", "curriculum": "curriculum", "samples": "num_samples", "accuracy": "acc_no_context"}
    rows = [row for row in published("sample_efficiency") if row["curriculum"] in names]
    return [{key: row[column] for key, column in keys.items()} for row in rows]


def claims(rows: Rows) -> list[Claim]:
    claim = "At five levels too, only curricula that drop correct rules learn; the others stay at random guesses."
    threshold = (
        f"largest size, every n: annealing and fixed dropout {LEARNED:.0%} or more, "
        f"every other within {GUESS:.0%} of chance"
    )
    if {row["curve"] for row in rows} != set(NAMES) or max(row["depth"] for row in rows) < 5:
        return [unmeasured(claim, threshold, "five curricula at five levels are needed")]
    largest = max(row["samples"] for row in rows)
    holds, numbers = True, {"samples": largest}
    for chars in sorted({row["chars"] for row in rows}):
        ends = mean_by([row for row in rows if (row["samples"], row["chars"]) == (largest, chars)], "curve")
        holds &= all(
            share >= LEARNED if name in NAMES[:2] else abs(share - 1 / chars) <= GUESS for name, share in ends.items()
        )
        numbers[f"n = {chars}"] = ", ".join(f"{name} {share:.3f}" for name, share in ends.items())
    return [judge(claim, holds, numbers, threshold)]


EXPERIMENT = Experiment(
    name="construction-efficiency",
    title="The main figure at five levels, with the constructed transformer",
    paper="Figure 2, with the model of appendix H",
    story="The hand-built transformer can read any codebook from the start, so the paper's main figure can be had at "
    "its own task size without any pre-training: five levels, the paper's curricula, one epoch.",
    units=units,
    run=run,
    draw=draw,
    claims=claims,
)
