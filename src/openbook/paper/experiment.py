"""What an experiment is: one figure or table of the paper as four functions.

    configs(scale)            its units of work, each a plain JSON object with a stated time; units are independent
    run(config, models)       the rows of one unit, plain JSON
    draw(rows)                charts and tables of all rows
    claims(rows)              the paper's sentences, each with a verdict, the numbers and the threshold they are held to

Rows are all that is kept, so charts and claims can be had from the files alone, and never run a model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from openbook.figures.charts import Chart, Table
from openbook.report.claims import Claim

if TYPE_CHECKING:
    from openbook.paper.models import Models

Scale = Literal["smoke", "laptop", "overnight", "paper"]
SCALES: tuple[Scale, ...] = get_args(Scale)
Rows = Sequence[dict[str, Any]]


@dataclass(frozen=True)
class Unit:
    """A piece of an experiment that can be done by itself."""

    config: dict[str, Any]
    seconds: float  # CPU time it may take on one core of a laptop, without the models it needs

    @property
    def learned(self) -> list[dict[str, Any]]:
        """The taught models that it looks at, by what made them (see `models`)."""
        return self.config.get("learned", [])

    @property
    def readers(self) -> list[str]:
        """The readers that it looks at or that its models start from."""
        named = [*self.config.get("readers", []), *(spec["reader"] for spec in self.learned)]
        return list(dict.fromkeys(name for name in named if name))


@dataclass(frozen=True)
class Experiment:
    """One figure or table."""

    name: str
    title: str
    paper: str  # where it is in the paper
    story: str  # what is asked and how to read the answer, in a few sentences
    configs: Callable[[Scale], list[Unit]]
    run: Callable[[dict[str, Any], Models], list[dict[str, Any]]]
    draw: Callable[[Rows], list[Chart | Table]]
    claims: Callable[[Rows], list[Claim]]
    differs: str = ""  # how ours differs from the paper's at the scales that run on a laptop
    version: int = 1  # of its rows: rows of another version are not used, and measured again
