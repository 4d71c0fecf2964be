"""Several runs side by side: what each was told, what came of it, and their curves in one chart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openbook.base.errors import InputError
from openbook.curriculum import PRESETS
from openbook.curriculum.schedule import Schedule
from openbook.figures.charts import Axis, Chart, Level, Panel, Series, Table, share
from openbook.report.page import PageSection
from openbook.training.folder import RunFolder

NAME = "overview"
MOST_CURVES = 8  # colours of the palette
INCOMPLETE = (KeyError, TypeError, ValueError, AttributeError, IndexError)  # what an unexpected file may lead to


@dataclass(frozen=True)
class _Told:
    """What is compared of a run."""

    name: str
    row: list[str]
    curve: list[tuple[float, float]]  # examples trained on, accuracy with the book closed
    chance: float


def overview(runs: Sequence[tuple[str, Path]]) -> PageSection | None:
    """The runs that finished, compared; None where there are fewer than two of them."""
    told = [found for name, folder in runs if (found := _told(name, folder)) is not None]
    if len(told) < 2:
        return None
    header = ["run", "learned", "curriculum", "seed", "examples", "book closed", "95 %", "book open", "chance"]
    figures: list[Chart | Table] = [Table(f"{NAME}-table", "What came of them", header, [one.row for one in told])]
    curves = [one for one in told if len(one.curve) > 1]
    drawn = curves[:MOST_CURVES]
    if len(drawn) > 1:
        series = [Series(one.name, one.curve, colour) for colour, one in enumerate(drawn)]
        chances = {one.chance for one in drawn}
        levels = [Level(chances.pop(), "chance")] if len(chances) == 1 else []
        ends = ", ".join(f"{one.name} ends at {one.curve[-1][1]:.0%}" for one in drawn)
        panel = Panel("Exams during training", Axis("examples trained on"), share("accuracy"), series, levels)
        left_out = f"The first {MOST_CURVES} of {len(curves)} runs." if len(drawn) < len(curves) else ""
        figures.insert(0, Chart(f"{NAME}-curves", "With the book closed", f"{ends}.", [panel], left_out))
    story = (
        "All finished runs of this page, in its order. An interval is of one run's exam, not of runs with other seeds."
    )
    return PageSection(NAME, "The runs side by side", f"{len(told)} runs", story, figures=figures)


def _told(name: str, folder: Path) -> _Told | None:
    try:
        run = RunFolder(folder)
        config, result = run.read("config.json"), run.read("result.json")
        closed = next(row for row in result["exam"] if row["open"] == 0 and row["book"] == "right")
        each = result.get("positions", result["samples"]) / max(1, result["steps"])
        curve = [(line["step"] * each, line["closed_book"]) for line in run.metrics() if "closed_book" in line]
        row = [
            name,
            learned(config),
            curriculum_name(config["curriculum"]),
            str(config.get("seed", "")),
            f"{result['samples']:,}",
            f"{closed['accuracy']:.1%}",
            f"{closed['low']:.1%} to {closed['high']:.1%}",
            f"{result['accuracy']['open_book']:.1%}",
            f"{result['chance']:.1%}",
        ]
        return _Told(name, row, curve, float(result["chance"]))
    except (InputError, OSError, StopIteration, *INCOMPLETE):
        return None  # what is wrong with it stands in its own section


def learned(config: dict[str, Any]) -> str:
    """What a run learned, in a word."""
    task = config.get("task")
    return f"MLT({task['depth']}, {task['chars']})" if isinstance(task, dict) else str(config.get("data"))


def curriculum_name(curriculum: dict[str, Any]) -> str:
    """The preset that a curriculum closes its book by, or its schedule where it is none."""
    drop, wrong = Schedule.parse(curriculum["drop"]), bool(curriculum.get("wrong"))
    for name, preset in PRESETS.items():
        if name != "fixed" and Schedule.parse(preset["drop"]) == drop and preset.get("wrong", False) == wrong:
            return name
    rates = {rate for _, rate in drop.points}
    return f"fixed:{rates.pop():g}" if len(rates) == 1 and not wrong else f"closed at {curriculum['drop']}"
