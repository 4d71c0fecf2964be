"""What an experiment is: one figure or table of the paper as four functions.

    units(scale)              its units of work, each described by plain JSON and a time; units are independent
    run(config, models)       the rows of one unit, plain JSON
    draw(rows)                charts and tables of all rows; it is called with some
    claims(rows)              the paper's sentences, each with a verdict, the numbers and the threshold they are held to

Rows are all that is kept, so that charts and claims are made from the files alone and never run a model.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from openbook.figures.charts import Chart, Table
from openbook.report.claims import Claim

if TYPE_CHECKING:
    from openbook.paper.models import Models

Scale = Literal["smoke", "laptop", "overnight", "paper"]
SCALES: dict[Scale, str] = {
    "smoke": "a toy size that only shows that everything runs: seconds",
    "laptop": "small models and tasks: 10 minutes on two cores",
    "overnight": "more sizes and seeds: hours on a CPU",
    "paper": "Llama-3.2-3B on a GPU",
}
Json = dict[str, Any]  # plain: it is kept as JSON
Rows = Sequence[Json]


@dataclass(frozen=True)
class TaughtModel:
    """A model that was taught a codebook, described by how `openbook learn` is called to make it."""

    reader: str | None  # the model it starts from, as student-3-8; None: it starts untrained and cannot read
    settings: Json  # dotted key -> value
    base: str | None = None  # a shipped config that the settings lie over

    def to_json(self) -> Json:
        """What names the model on disk: files of earlier versions are found by it, so it must stay as it is."""
        return {"reader": self.reader, "settings": self.settings, **({"base": self.base} if self.base else {})}


@dataclass(frozen=True)
class Unit:
    """A piece of an experiment that can be done by itself."""

    config: Json  # plain JSON; only `learned`, if it has models to look at, is a list of TaughtModel
    seconds: float  # expected CPU time on one core of a laptop, without making the models that it needs

    @property
    def learned(self) -> list[TaughtModel]:
        """The taught models that it looks at."""
        return self.config.get("learned", [])

    @property
    def readers(self) -> list[str]:
        """The readers that it looks at or that its models start from."""
        names = [*self.config.get("readers", []), *(model.reader for model in self.learned)]
        return list(dict.fromkeys(name for name in names if name))

    def to_json(self) -> Json:
        models = {"learned": [model.to_json() for model in self.learned]} if "learned" in self.config else {}
        return {**self.config, **models}


@dataclass(frozen=True)
class Experiment:
    """One figure or table."""

    name: str
    title: str
    paper: str  # where it is in the paper
    story: str  # what is asked and how to read the answer, in a few sentences
    units: Callable[[Scale], list[Unit]]
    run: Callable[[Json, Models], list[Json]]
    draw: Callable[[Rows], list[Chart | Table]]
    claims: Callable[[Rows], list[Claim]]
    differs: str = ""  # how ours differs from the paper's at the scales that run on a laptop
    version: int = 1  # of its rows: rows of another version are not used, and are measured again
    study: str = ""  # the file it was read from, if it is a study and no figure of the paper

    def figures(self, rows: Rows) -> list[Chart | Table]:
        """What is drawn of rows; of none, nothing."""
        return self.draw(rows) if rows else []

    def command(self, scale: Scale) -> str:
        """The command that runs it."""
        return f"openbook reproduce {f'--study {shlex.quote(self.study)}' if self.study else self.name} --scale {scale}"
