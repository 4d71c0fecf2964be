"""A rate that changes over the progress of training, as it is written in a config: `0@0,1@0.6`."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import BeforeValidator, PlainSerializer

from openbook.base.errors import InputError


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
        points = []
        if sum("@" not in item for item in str(text).split(",")) > 1:
            raise InputError(f"schedule '{text}': say at which progress each rate holds, as in '0@0,1@0.6'")
        for item in str(text).split(","):
            rate, _, progress = item.strip().partition("@")
            try:
                points.append((float(progress or 0), float(rate)))
            except ValueError:
                raise InputError(
                    f"'{text}' is no schedule: write rates with their progress, as in '0@0,1@0.6'"
                ) from None
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
