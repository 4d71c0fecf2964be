"""One look for every chart, light and dark: colours by name, fonts and lines.

A chart names its colours as CSS variables, such as `var(--s0)`. The page defines them twice, so the browser follows
the system's choice of light or dark without drawing anything again. A file gets the light colours.
"""

from __future__ import annotations

import re
from typing import Any

# A colour-blind-safe order (Okabe and Ito), used for curricula and arms alike.
PALETTE = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C8C8C", "#000000"]
PALETTE_DARK = ["#4aa8e0", "#ff8c42", "#2fcf9f", "#e79cc6", "#f5b93d", "#8fd0f7", "#a9a9a9", "#f2f2f2"]
# Viridis at ten places, without its lightest end, which is hard to see on white.
SEQUENCE = ["#440154", "#482475", "#414487", "#355f8d", "#2a788e",
            "#21918c", "#22a884", "#44bf70", "#7ad151", "#a5c51f"]  # fmt: skip
SEQUENCE_DARK = ["#7b6fd6", "#6f86d8", "#5f9bd0", "#4fadc0", "#44bcae",
                 "#46c998", "#62d480", "#8bdc67", "#b8e152", "#e6e24a"]  # fmt: skip


def _named(plain: str, palette: list[str], sequence: list[str]) -> dict[str, str]:
    """Colours by name: the plain ones, then s0, s1, ... of the palette and q0, q1, ... of the sequence."""
    named = dict(zip(("page", "ink", "soft", "grid", "axis", "mark"), plain.split(), strict=True))
    return named | {
        f"{kind}{k}": c for kind, colours in (("s", palette), ("q", sequence)) for k, c in enumerate(colours)
    }


LIGHT = _named("#ffffff #1b1b1b #595959 #e4e4e4 #767676 #ff3b1f", PALETTE, SEQUENCE)
DARK = _named("#14171c #e9ebee #b3b9c2 #2e343d #8b929c #ff5c42", PALETTE_DARK, SEQUENCE_DARK)

PAGE, INK, SOFT, GRID, AXIS, MARK = (f"var(--{name})" for name in ("page", "ink", "soft", "grid", "axis", "mark"))
CONFIG: dict[str, Any] = {
    "font": "Helvetica, Arial, Liberation Sans, DejaVu Sans, sans-serif",
    "background": PAGE,
    "aria": False,  # the chart as a whole is described, not each of a thousand marks
    "view": {"stroke": None},
    "axis": {"labelFontSize": 11, "titleFontSize": 11.5, "titleFontWeight": "normal", "titlePadding": 8}
    | {"labelColor": SOFT, "titleColor": INK, "gridColor": GRID, "domainColor": AXIS, "tickColor": AXIS, "tickSize": 4},
    "axisX": {"grid": False},
    "axisY": {"domain": False, "ticks": False, "labelPadding": 6},
    "legend": {"labelFontSize": 11.5, "labelColor": INK, "labelLimit": 420, "titleColor": INK, "symbolStrokeWidth": 3},
    "title": {"fontSize": 12.5, "anchor": "start", "color": INK, "subtitleFontSize": 11, "subtitleColor": SOFT},
    "range": {"category": [f"var(--s{k})" for k in range(len(PALETTE))]},
}


def colour(number: int) -> str:
    """A place of the palette, or from 100 to 199 a place of the sequence from first to last."""
    return f"var(--q{min(9, (number - 100) // 10)})" if number >= 100 else f"var(--s{number % len(PALETTE)})"


def filled(text: str) -> str:
    """A text that names colours, with the light colours in their places."""
    return re.sub(r"var\(--(\w+)\)", lambda match: LIGHT[match[1]], text)


def css() -> str:
    """The colours as CSS variables for a page that follows the system's choice of light or dark."""
    light, dark = ("".join(f"--{name}: {value}; " for name, value in scheme.items()) for scheme in (LIGHT, DARK))
    return f":root {{ {light}}}\n@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark}}} }}\n"


def styled(chart: Any) -> Any:
    """An Altair chart with the project's fonts, grid and colours."""
    return chart.configure(**CONFIG)
