"""Axes: how far they reach, which ticks they show, and how numbers are written."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import altair as alt

from openbook.figures.charts import Axis, Format

# How Vega writes the number of a tick; `written` is the same for people who read tables and tooltips.
LABELS: dict[Format, str] = {
    "percent": "format(100 * datum.value, '~r') + ' %'",
    "si": "format(datum.value, '~s')",
    "number": "format(datum.value, abs(datum.value) >= 1000 ? ',' : '~g')",
}
MOST_TICKS = 6


def written(value: float | None, form: Format) -> str:
    """A number as people read it: 98.2 %, 12.5k, 0.003."""
    if value is None or not math.isfinite(value):
        return "-"
    if form == "percent":
        return f"{100 * value:.1f}".removesuffix(".0") + " %"
    if form == "si" and abs(value) >= 1000:
        unit, name = next(pair for pair in ((1e9, "G"), (1e6, "M"), (1e3, "k")) if abs(value) >= pair[0])
        return f"{value / unit:.4g}{name}"
    if value and abs(value) < 1e-3:
        mantissa, _, exponent = f"{value:.2g}".partition("e")
        return f"{mantissa}e{int(exponent)}" if exponent else mantissa
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def domain(axis: Axis, values: Iterable[float]) -> tuple[float, float]:
    """The lowest and the highest number of an axis: as given, or as far as the data reach and a little more."""
    log = axis.scale == "log"
    known = [v for v in values if math.isfinite(v) and (v > 0 or not log)]
    low = axis.low if axis.low is not None else min(known, default=0.1 if log else 0.0)
    high = axis.high if axis.high is not None else max(known, default=1.0)
    if log:
        return low / 1.25, high * 1.25
    if axis.low is None and 0 < low < 0.35 * high:
        low = 0.0
    if high <= low:
        low, high = low - 0.5, low + 0.5
    margin = 0.03 * (high - low)
    return low - margin * (axis.low is None), high + margin * (axis.high is None)


def log_ticks(low: float, high: float) -> list[float]:
    """At most `MOST_TICKS` round numbers on a logarithmic axis."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    inside: list[float] = []
    for steps in ((1, 2, 3, 5), (1, 2, 5), (1, 3), (1,)):
        inside = [step * 10.0**k for k in decades for step in steps if low <= step * 10.0**k <= high]
        if len(inside) <= MOST_TICKS:
            return inside
    return inside[:: -(-len(inside) // MOST_TICKS)]


def encoding(axis: Axis, reach: tuple[float, float]) -> dict[str, Any]:
    """Title, scale and ticks of an axis for Altair."""
    scale: dict[str, Any] = {"type": "log"} if axis.scale == "log" else {"type": "linear", "zero": False}
    ticks: dict[str, Any] = {"values": log_ticks(*reach)} if axis.scale == "log" else {"tickCount": MOST_TICKS - 1}
    return {
        "title": axis.label,
        "scale": alt.Scale(domain=list(reach), nice=False, **scale),
        "axis": alt.Axis(labelExpr=LABELS[axis.form], labelFlush=False, **ticks),
    }
