"""Axes: where a value stands, which ticks are shown, and how numbers are written."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from openbook.figures.charts import Axis, Format


def written(value: float | None, form: Format) -> str:
    """A number as people read it: 98.2 %, 12.5k, 0.003."""
    if value is None or not math.isfinite(value):
        return "-"
    if form == "percent":
        return f"{100 * value:.1f}".rstrip("0").rstrip(".") + " %"
    if form == "si" and abs(value) >= 1000:
        for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
            if abs(value) >= unit:
                return f"{value / unit:.4g}{name}"
    if value and abs(value) < 1e-3:
        mantissa, _, exponent = f"{value:.2g}".partition("e")
        return f"{mantissa}e{int(exponent)}" if exponent else mantissa
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


@dataclass(frozen=True)
class Ruler:
    """An axis fitted to its data: `at(value)` is a share of the length from 0 to 1."""

    low: float
    high: float
    log: bool
    form: Format

    @classmethod
    def of(cls, axis: Axis, values: Iterable[float]) -> Ruler:
        log = axis.scale == "log"
        known = [v for v in values if math.isfinite(v) and (v > 0 or not log)]
        low = axis.low if axis.low is not None else min(known, default=0.1 if log else 0.0)
        high = axis.high if axis.high is not None else max(known, default=1.0)
        if log:
            return cls(low / 1.25, high * 1.25, True, axis.form)
        if axis.low is None and low > 0 and low < 0.35 * high:
            low = 0.0
        if high <= low:
            low, high = low - 0.5, low + 0.5
        margin = 0.03 * (high - low)
        return cls(
            low - (0 if axis.low is not None else margin),
            high + (0 if axis.high is not None else margin),
            False,
            axis.form,
        )

    def at(self, value: float) -> float:
        if self.log:
            floor = self.low * 1e-3
            span = math.log(self.high) - math.log(self.low)
            return (math.log(max(value, floor)) - math.log(self.low)) / span
        return (value - self.low) / (self.high - self.low)

    def ticks(self, most: int = 6) -> list[float]:
        if self.log:
            return self._log_ticks(most)
        least = (self.high - self.low) / most
        power = 10.0 ** math.floor(math.log10(least))
        step = next(m * power for m in (1, 2, 5, 10) if m * power >= 0.999 * least)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [round(k * step, 12) for k in range(first, last + 1)]

    def _log_ticks(self, most: int) -> list[float]:
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        for steps in ((1, 2, 5), (1, 3), (1,)):
            found = [m * 10.0**k for k in range(first, last + 1) for m in steps]
            inside = [v for v in found if self.low <= v <= self.high]
            if len(inside) <= most:
                return inside
        decades = [10.0**k for k in range(first, last + 1) if self.low <= 10.0**k <= self.high]
        return decades[:: -(-len(decades) // most)]

    def label(self, value: float) -> str:
        return written(value, self.form)
