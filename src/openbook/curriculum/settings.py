"""The settings of a curriculum, and the presets that fill them in.

The paper's curricula by name, over the progress of training:

    no-context      every piece closed (plain fine-tuning)
    fixed:0.2       needed pieces, a fifth of them closed
    anneal          needed pieces and a quarter of the others; closed share 0 -> 1 over the first 60 %, then 1
    no-dropout      needed pieces, all open
    wrong-context   as anneal, but the pieces are wrong

and one of ours, for books of many sections that build on each other:

    patient         as anneal, but first one section at a time, a quarter and then all of it, the first sections more
                    often than the last; then all sections, and in a quarter of the examples still one, so that
                    reading is not forgotten
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer

from openbook.base.errors import InputError
from openbook.base.registry import Registry
from openbook.book.source import Source


@dataclass(frozen=True)
class Schedule:
    """A rate over progress: points `rate@progress` joined by straight lines, constant before and after.

    >>> Schedule.parse("0@0,1@0.6").at(0.3)
    array(0.5)
    """

    points: tuple[tuple[float, float], ...]  # (progress, rate)

    @classmethod
    def parse(cls, text: Any) -> Schedule:
        """`0.2` is a constant; `0@0,1@0.6` rises from 0 at the start to 1 at 60 % of training."""
        if isinstance(text, Schedule):
            return text
        items = [item.strip().partition("@") for item in str(text).split(",")]
        if sum(not at for _, at, _ in items) > 1:
            raise InputError(f"schedule '{text}': say at which progress each rate holds, as in '0@0,1@0.6'")
        try:
            points = [(float(progress or 0), float(rate)) for rate, _, progress in items]
        except ValueError:
            raise InputError(f"'{text}' is no schedule: write rates with their progress, as in '0@0,1@0.6'") from None
        if any(not 0 <= number <= 1 for point in points for number in point):
            raise InputError(f"schedule '{text}': rates and progress are between 0 and 1")
        if any(a[0] > b[0] for a, b in itertools.pairwise(points)):
            raise InputError(f"schedule '{text}': progress must not go back")
        return cls(tuple(points))

    def at(self, progress: ArrayLike) -> NDArray[np.float64]:
        times, rates = np.array(self.points).T
        return np.asarray(np.interp(np.asarray(progress, dtype=np.float64), times, rates))

    def __str__(self) -> str:
        """What `parse` reads back exactly."""
        return ",".join("@".join(repr(x).removesuffix(".0") for x in (rate, at)) for at, rate in self.points)


ScheduleField = Annotated[Schedule, BeforeValidator(Schedule.parse), PlainSerializer(str, return_type=str)]

SPREADS = {"all": 0.0, "one": 1.0, "coin": 0.5}  # share of the examples whose closed pieces are all of one section


def _spread(value: Any) -> Any:
    """A name stays a name; everything else is a schedule, or an error that tells both."""
    if isinstance(value, str) and value in SPREADS:
        return value
    try:
        return Schedule.parse(value)
    except InputError as error:
        raise ValueError(f"spread is all, one, coin, or a schedule of the share of 'one': {error}") from None


SpreadField = Annotated[str | Schedule, BeforeValidator(_spread), PlainSerializer(str, return_type=str)]


class Curriculum(BaseModel):
    """What is open when. All of it can be set in a config; presets fill it in."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    candidates: Literal["all", "needed"] = Field(
        "needed",
        description="Show all pieces, or those that the example needs and a share of the others",
    )
    others: float = Field(0.0, ge=0, le=1, description="Share of the pieces not needed that are shown as well")
    drop: ScheduleField = Field(Schedule(((0.0, 0.0),)), description="Share of the shown pieces that is closed")
    spread: SpreadField = Field(
        "all",
        description="Close pieces in all sections, in one at random, or toss a coin; a schedule is the chance of 'one'",
    )
    lean: float = Field(
        1.0,
        ge=1e-6,
        le=1e6,
        description="Where pieces of one section close: how many times as often in the first section as in the last",
    )
    rounding: Literal["floor", "chance"] = Field(
        "floor",
        description="Round a share that is no whole number of pieces down, as the paper does, or by chance, which is "
        "right on average",
    )
    order: Literal["shuffled", "given"] = Field("shuffled", description="Order of the open pieces in a section")
    wrong: bool = Field(False, description="Show a book that misleads")
    silence: ScheduleField = Field(
        Schedule(((0.0, 1.0),)), description="Share of the words of a chain of thought replaced by thinking tokens"
    )
    rule: str | None = Field(
        None, description="Name of a registered function that chooses the open pieces, in place of all of the above"
    )

    @classmethod
    def for_source(cls, name: str, source: Source) -> Curriculum:
        """A preset as it suits the examples: a text of one's own keeps its order, and few pieces close by chance."""
        return cls(**{**preset(name), **({} if source.uniform else text_settings(name))})

    def alone(self, progress: ArrayLike) -> NDArray[np.float64]:
        """Chance that an example's closed pieces are all of one section."""
        return Schedule.parse(SPREADS.get(str(self.spread), self.spread)).at(progress)


PRESETS: Registry[dict[str, Any] | Callable[..., Any]] = Registry("curriculum")
_NEEDED: dict[str, Any] = {"candidates": "needed"}
_ANNEAL = {**_NEEDED, "others": 0.25, "drop": "0@0,1@0.6", "spread": "coin"}
_PATIENT = {"drop": "0@0,0.25@0.03,0.25@0.2,1@0.4,1@0.58,0.3@0.6,1@0.78", "spread": "1@0,1@0.58,0.25@0.6", "lean": 6.0}
PRESETS.register("no-context")({**_NEEDED, "drop": "1"})
PRESETS.register("fixed")({**_NEEDED, "drop": "0.2", "spread": "coin"})
PRESETS.register("anneal")(_ANNEAL)
PRESETS.register("no-dropout")({**_NEEDED, "drop": "0"})
PRESETS.register("wrong-context")({**_ANNEAL, "wrong": True})
PRESETS.register("patient")({**_ANNEAL, **_PATIENT})
PARAMETERS = {"fixed"}  # presets that take a rate: fixed:0.2


def curriculum_named(name: str, **changes: Any) -> Curriculum:
    """A preset by name (`anneal`, `fixed:0.2`, ...) with changes, for instance `order="given"`."""
    return Curriculum(**{**preset(name), **changes})


def preset(name: str) -> dict[str, Any]:
    """The settings that a name stands for; a registered function is a rule that chooses the open pieces itself."""
    base, _, parameter = name.partition(":")
    settings = PRESETS[base]
    if parameter and base not in PARAMETERS:
        raise InputError(f"curriculum '{base}' takes no parameter, but '{name}' gives one: write '{base}'")
    if callable(settings):
        return {"rule": base}
    return {**settings, "drop": parameter} if parameter else settings


def expanded(value: Any) -> Any:
    """The settings of a curriculum that a config names: by a preset, or by an object that may start from a `preset`."""
    if isinstance(value, str):
        return preset(value)
    if isinstance(value, dict) and "preset" in value:
        return {**preset(str(value["preset"])), **{k: v for k, v in value.items() if k != "preset"}}
    return value


def text_settings(name: str) -> dict[str, Any]:
    """What suits a text of one's own: it keeps its order, and few pieces close by chance and not all at once."""
    base = name.partition(":")[0]
    settings = PRESETS.get(base, {})
    tosses_coin = isinstance(settings, dict) and settings.get("spread") == "coin"
    return {"order": "given", "rounding": "chance", **({"spread": "all"} if tosses_coin else {})}
