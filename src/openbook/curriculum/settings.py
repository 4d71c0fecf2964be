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

from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer

from openbook.base.errors import InputError, nearest
from openbook.curriculum.schedule import Schedule, ScheduleField

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
        "needed", description="which pieces may be shown: all, or those the example needs and a share of the others"
    )
    others: float = Field(0.0, ge=0, le=1, description="share of the pieces not needed that are shown as well")
    drop: ScheduleField = Field(Schedule(((0.0, 0.0),)), description="share of the shown pieces that is closed")
    spread: SpreadField = Field(
        "all",
        description="drop from all sections, from one at random, or toss a fair coin between the two; a schedule is "
        "the chance of 'one'",
    )
    lean: float = Field(
        1.0,
        ge=1e-6,
        le=1e6,
        description="where pieces of one section close: how many times as often it is the first section as the last, "
        "in even ratios between",
    )
    rounding: Literal["floor", "chance"] = Field(
        "floor",
        description="of a share that is no whole number of pieces: down, as in the paper, or down or up by chance, so "
        "that it is right on average",
    )
    order: Literal["shuffled", "given"] = Field("shuffled", description="order of the open pieces in a section")
    wrong: bool = Field(False, description="show a book that misleads")
    silence: ScheduleField = Field(
        Schedule(((0.0, 1.0),)), description="share of the words of a chain of thought replaced by thinking tokens"
    )

    def alone(self, progress: ArrayLike) -> NDArray[np.float64]:
        """Chance that an example's closed pieces are all of one section."""
        if isinstance(self.spread, Schedule):
            return self.spread.at(progress)
        return np.full(np.shape(progress), SPREADS[self.spread])


PRESETS: dict[str, dict[str, Any]] = {
    "no-context": {"candidates": "needed", "drop": "1"},
    "fixed": {"candidates": "needed", "drop": "0.2", "spread": "coin"},
    "anneal": {"candidates": "needed", "others": 0.25, "drop": "0@0,1@0.6", "spread": "coin"},
    "no-dropout": {"candidates": "needed", "drop": "0"},
    "wrong-context": {"candidates": "needed", "others": 0.25, "drop": "0@0,1@0.6", "spread": "coin", "wrong": True},
    "patient": {
        "candidates": "needed",
        "others": 0.25,
        "drop": "0@0,0.25@0.03,0.25@0.2,1@0.4,1@0.58,0.3@0.6,1@0.78",
        "spread": "1@0,1@0.58,0.25@0.6",
        "lean": 6.0,
    },
}
PARAMETERS = {"fixed"}  # presets that take a rate: fixed:0.2


def curriculum_named(name: str, **changes: Any) -> Curriculum:
    """A preset by name (`anneal`, `fixed:0.2`, ...) with changes, for instance `order="given"`."""
    return Curriculum(**{**preset(name), **changes})


def preset(name: str) -> dict[str, Any]:
    """The settings that a name stands for."""
    base, _, parameter = name.partition(":")
    if base not in PRESETS:
        raise InputError(f"there is no curriculum '{base}' ({', '.join(PRESETS)}){nearest(base, PRESETS)}")
    if parameter and base not in PARAMETERS:
        raise InputError(f"curriculum '{base}' takes no parameter, but '{name}' gives one")
    return {**PRESETS[base], "drop": parameter} if parameter else PRESETS[base]
