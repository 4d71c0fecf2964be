"""The curriculum: which pieces of the book are open at a position of training, a pure function of (seed, position)."""

from openbook.curriculum.choice import HEADER, Opened, choose, open_fragments, silenced
from openbook.curriculum.plan import Chooser, SamplingPlan, curriculum_for
from openbook.curriculum.schedule import Schedule, ScheduleField
from openbook.curriculum.settings import (
    PARAMETERS,
    PRESETS,
    SPREADS,
    Curriculum,
    curriculum_named,
    expanded,
    preset,
    text_settings,
)

__all__ = [
    "HEADER",
    "PARAMETERS",
    "PRESETS",
    "SPREADS",
    "Chooser",
    "Curriculum",
    "Opened",
    "SamplingPlan",
    "Schedule",
    "ScheduleField",
    "choose",
    "curriculum_for",
    "curriculum_named",
    "expanded",
    "open_fragments",
    "preset",
    "silenced",
    "text_settings",
]
