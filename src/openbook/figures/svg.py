"""Charts as SVG. One drawing serves the page (colours are CSS variables, so dark mode is the page's) and the files
(the same with the light values filled in). What a pointer or the keyboard tells is in `data-t` of each mark."""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Iterator
from html import escape

from openbook.figures.charts import Chart, Heatmap, Panel, Series
from openbook.figures.scales import Ruler, written
from openbook.figures.theme import PALETTE

WIDTH, HEIGHT = 380, 260  # of a panel: as wide as a phone, so that nothing is scaled down there
LEFT, RIGHT, TOP, BOTTOM = 54, 16, 12, 44
NAMED, LINE, LETTER = 36, 14, 6  # what the name of a level takes, how high a line of text is, how wide a letter
FEW = 40  # a curve of at most so many points shows them
ALONE = 1.35  # a file's only panel is drawn larger
HIDDEN = 24  # places of a longer curve that tell their numbers

# viridis at ten places, without its lightest end, which is hard to see on white
SEQUENCE = (
    "#440154", "#482475", "#414487", "#355f8d", "#2a788e", "#21918c", "#22a884", "#44bf70", "#7ad151", "#a5c51f",
)  # fmt: skip
_HEAT = ("#440154", "#414487", "#2a788e", "#22a884", "#7ad151", "#fde725")
_VAR = re.compile(r"var\(--[\w-]+,(#[0-9a-fA-F]{3,8})\)")


def _ink(name: str, light: str) -> str:
    return f"var(--{name},{light})"


INK, SOFT, GRID, AXIS = (
    _ink(*pair) for pair in (("ink", "#1b1b1b"), ("soft", "#595959"), ("grid", "#e4e4e4"), ("axis", "#767676"))
)


HALO = f' paint-order="stroke" stroke="{_ink("page", "#ffffff")}" stroke-width="3"'  # legible over curves


def colour(number: int) -> str:
    """A place of the palette, or from 100 to 199 a place of the sequence from first to last."""
    if number >= 100:
        place = min(9, (number - 100) // 10)
        return _ink(f"q{place}", SEQUENCE[place])
    place = number % len(PALETTE)
    return _ink(f"s{place}", PALETTE[place])


def heat(share: float) -> str:
    """A colour of the heatmaps, 0 dark to 1 bright."""
    scaled = min(1.0, max(0.0, share)) * (len(_HEAT) - 1)
    place = min(int(scaled), len(_HEAT) - 2)
    a, b = ([int(_HEAT[k][i : i + 2], 16) for i in (1, 3, 5)] for k in (place, place + 1))
    return "#" + "".join(f"{round(x + (y - x) * (scaled - place)):02x}" for x, y in zip(a, b, strict=True))


def text(
    x: float, y: float, words: str, size: float = 11, fill: str = SOFT, anchor: str = "middle", more: str = ""
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" fill="{fill}" text-anchor="{anchor}"{more}>'
        f"{escape(words)}</text>"
    )


def panel_body(panel: Panel | Heatmap, chart: str) -> str:
    """What is inside a panel's SVG, without its title; `chart` is what tells its chart from others of a page."""
    return _heatmap(panel) if isinstance(panel, Heatmap) else _curves(panel, chart)


def panel_svg(panel: Panel | Heatmap, alt: str) -> str:
    """A panel for the page."""
    size = heatmap_height(panel) if isinstance(panel, Heatmap) else HEIGHT
    return (
        f'<svg class="plot" viewBox="0 0 {WIDTH} {size}" role="img" tabindex="0" '
        f'aria-label="{escape(alt, quote=True)}">{panel_body(panel, alt)}</svg>'
    )


def _curves(panel: Panel, chart: str) -> str:
    levels = [level.value for level in panel.levels]
    x = Ruler.of(panel.x, [p[0] for s in panel.series for p in s.points])
    spreads = [edge for s in panel.series for low, high in s.spread for edge in (low, high)]
    y = Ruler.of(panel.y, [*(p[1] for s in panel.series for p in s.points), *spreads, *levels])
    parts, levels_named = [], []
    for level in panel.levels:
        at = _y(y, level.value)
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}" stroke="{AXIS}" '
            'stroke-dasharray="2 3"/>'
        )
        levels_named.append(text(WIDTH - RIGHT - 2, _beside(panel, x, y, at), level.label, 10, SOFT, "end", HALO))
    for series in sorted(panel.series, key=lambda s: not s.published):
        parts.append(_series(series, panel, x, y))
    frame, drawn = "".join(_frame(panel, x, y)), "".join([*parts, *levels_named])
    name = f"c{zlib.crc32(''.join([chart, panel.title, frame, drawn]).encode()):08x}"  # the same, whatever is around it
    clip = (
        f'<clipPath id="{name}"><rect x="{LEFT - 5}" y="{TOP - 6}" width="{WIDTH - LEFT - RIGHT + 10}" '
        f'height="{HEIGHT - TOP - BOTTOM + 12}"/></clipPath>'
    )
    return f'{frame}{clip}<g clip-path="url(#{name})">{drawn}</g>'


def _beside(panel: Panel, x: Ruler, y: Ruler, at: float) -> float:
    """Where the name of a level stands at the right: above its line, or below if fewer points are there."""
    right = WIDTH - RIGHT - NAMED
    ends = [_y(y, py) - at for s in panel.series for px, py in s.points if math.isfinite(py) and _x(x, px) > right]
    above, below = (sum(0 < side * end < LINE for end in ends) for side in (-1, 1))
    return at + 12 if below < above and at + LINE < HEIGHT - BOTTOM else at - 4


def _x(ruler: Ruler, value: float) -> float:
    return LEFT + ruler.at(value) * (WIDTH - LEFT - RIGHT)


def _y(ruler: Ruler, value: float) -> float:
    return HEIGHT - BOTTOM - ruler.at(value) * (HEIGHT - TOP - BOTTOM)


def _frame(panel: Panel, x: Ruler, y: Ruler) -> Iterator[str]:
    bottom = HEIGHT - BOTTOM
    for tick in y.ticks(5):
        at = _y(y, tick)
        yield f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}" stroke="{GRID}"/>'
        yield text(LEFT - 6, at + 4, y.label(tick), anchor="end")
    for tick in x.ticks(6):
        at = _x(x, tick)
        yield f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{bottom}" y2="{bottom + 4}" stroke="{AXIS}"/>'
        half = LETTER * len(x.label(tick)) / 2  # no label reaches over the edge
        yield text(min(at, WIDTH - half), bottom + 16, x.label(tick))
    yield f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{bottom}" y2="{bottom}" stroke="{AXIS}"/>'
    yield text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, panel.x.label, 11.5, INK)
    middle = (TOP + bottom) / 2
    yield text(0, 0, panel.y.label, 11.5, INK, more=f' transform="translate(11 {middle:.0f}) rotate(-90)"')


def _series(series: Series, panel: Panel, x: Ruler, y: Ruler) -> str:
    ink = colour(series.colour)
    shown = [(k, _x(x, px), _y(y, py)) for k, (px, py) in enumerate(series.points) if math.isfinite(py)]
    path = " ".join(f"{px:.1f},{py:.1f}" for _, px, py in shown)
    few = len(shown) <= FEW
    look = ' stroke-dasharray="5 4" opacity=".5"' if series.published else ""
    width = 1.6 if series.published else 2.2
    parts = [f'<g class="se{" pub" if series.published else ""}" data-k="{escape(series.name, quote=True)}"{look}>']
    if series.spread and few:
        for k, px, _ in shown:
            low, high = (_y(y, edge) for edge in series.spread[k])
            parts.append(
                f'<line x1="{px:.1f}" x2="{px:.1f}" y1="{low:.1f}" y2="{high:.1f}" stroke="{ink}" opacity=".6"/>'
            )
    parts.append(
        f'<polyline points="{path}" fill="none" stroke="{ink}" stroke-width="{width}" stroke-linejoin="round"/>'
    )
    every = 1 if few else -(-len(shown) // HIDDEN)
    for k, px, py in shown[::every]:
        if not few:
            look = 'r="5" fill="transparent"'
        elif series.published:
            look = f'r="2.6" fill="var(--page,#ffffff)" stroke="{ink}" stroke-dasharray="none"'
        else:
            look = f'r="3.3" fill="{ink}"'
        told = escape(_told(series, panel, k), quote=True)
        parts.append(f'<circle class="pt" cx="{px:.1f}" cy="{py:.1f}" {look} data-t="{told}"/>')
    return "".join([*parts, "</g>"])


def _told(series: Series, panel: Panel, k: int) -> str:
    px, py = series.points[k]
    told = f"{series.name}{' (published)' if series.published else ''}: {written(py, panel.y.form)}"
    if series.spread:
        low, high = series.spread[k]
        told += f" ({written(low, panel.y.form)} to {written(high, panel.y.form)})"
    return f"{told}, {panel.x.label} {written(px, panel.x.form)}"


def heatmap_height(panel: Heatmap) -> int:
    return round(TOP + BOTTOM + len(panel.rows) * _cell(panel)[1])


def _cell(panel: Heatmap) -> tuple[float, float]:
    """Width and height of a cell: square if that is high enough to see, and never very high."""
    width = (WIDTH - LEFT - 56) / max(1, len(panel.columns))
    return width, min(max(width, 150 / max(1, len(panel.rows))), 40.0)


def _heatmap(panel: Heatmap) -> str:
    wide, high = _cell(panel)
    span = (panel.high - panel.low) or 1.0
    bottom = TOP + high * len(panel.rows)
    parts = ['<g class="se heat">']
    for r, row in enumerate(panel.values):
        for c, value in enumerate(row):
            if value is None:
                continue
            told = f"{panel.y} {panel.rows[r]}, {panel.x} {panel.columns[c]}: {written(value, panel.form)}"
            parts.append(
                f'<rect class="pt" x="{LEFT + c * wide:.1f}" y="{TOP + r * high:.1f}" width="{wide + 0.3:.1f}" '
                f'height="{high + 0.3:.1f}" fill="{heat((value - panel.low) / span)}" data-r="{r}" data-c="{c}" '
                f'data-t="{escape(told, quote=True)}"/>'
            )
    parts.append("</g>")
    for k in range(0, len(panel.columns), max(1, math.ceil(26 / wide))):
        parts.append(text(LEFT + (k + 0.5) * wide, bottom + 15, panel.columns[k]))
    for k in range(0, len(panel.rows), max(1, math.ceil(13 / high))):
        parts.append(text(LEFT - 6, TOP + (k + 0.5) * high + 4, panel.rows[k], anchor="end"))
    end = LEFT + wide * len(panel.columns)
    parts.append(text((LEFT + end) / 2, bottom + 36, panel.x, 11.5, INK))
    parts.append(
        text(0, 0, panel.y, 11.5, INK, more=f' transform="translate(11 {(TOP + bottom) / 2:.0f}) rotate(-90)"')
    )
    steps = 24
    tall = bottom - TOP
    for k in range(steps):
        parts.append(
            f'<rect x="{end + 10:.1f}" y="{bottom - (k + 1) * tall / steps:.1f}" width="9" '
            f'height="{tall / steps + 0.4:.1f}" fill="{heat(k / (steps - 1))}"/>'
        )
    parts.append(text(end + 22, bottom, written(panel.low, panel.form), 10, anchor="start"))
    parts.append(text(end + 22, TOP + 9, written(panel.high, panel.form), 10, anchor="start"))
    return "".join(parts)


def legend_of(chart: Chart) -> list[tuple[str, str, bool, bool]]:
    """(name, colour, ours is drawn, published is drawn) of every curve, in order."""
    found: dict[str, list[object]] = {}
    for panel in chart.panels if chart.legend else ():
        for series in panel.series if isinstance(panel, Panel) else ():
            entry = found.setdefault(series.name, [colour(series.colour), False, False])
            entry[1 + series.published] = True
    return [(name, str(ink), bool(ours), bool(theirs)) for name, (ink, ours, theirs) in found.items()]


def file_svg(chart: Chart) -> str:
    """The whole chart as a file of its own: title, panels in rows of three, legend, caption."""
    across = min(3, len(chart.panels))
    zoom = ALONE if across == 1 else 1.0
    rows = [chart.panels[k : k + across] for k in range(0, len(chart.panels), across)]
    width = round(across * WIDTH * zoom)
    parts = [text(14, 26, chart.title, 15, INK, "start", ' font-weight="600"')]
    top = 44.0
    for row in rows:
        tallest = 0.0
        for place, panel in enumerate(row):
            left = place * WIDTH + LEFT * zoom
            parts.append(text(left, top + 10, panel.title, 12.5, INK, "start", ' font-weight="600"'))
            where = f"translate({place * WIDTH} {top + 16:.0f}) scale({zoom:g})"
            parts.append(f'<g transform="{where}">{panel_body(panel, chart.name)}</g>')
            tallest = max(tallest, zoom * (heatmap_height(panel) if isinstance(panel, Heatmap) else HEIGHT))
        top += tallest + 30
    x = 16.0
    for name, ink, ours, _ in legend_of(chart):
        words = name if ours else f"{name} (published)"
        length = 46 + 6.4 * len(words)
        if x + length > width - 10 and x > 16:
            x, top = 16.0, top + 18
        dash = "" if ours else ' stroke-dasharray="5 4"'
        parts.append(f'<line x1="{x}" x2="{x + 20}" y1="{top}" y2="{top}" stroke="{ink}" stroke-width="3"{dash}/>')
        parts.append(text(x + 26, top + 4, words, 11.5, INK, "start"))
        x += length
    top += 16 if legend_of(chart) else 0
    for line in _wrapped(chart.caption, int(width / 6)):
        top += 15
        parts.append(text(16, top, line, 11, SOFT, "start"))
    height = round(top + 18)
    body = _VAR.sub(r"\1", "".join(parts))
    body = re.sub(r' (?:data-(?:t|k|r|c)|class)="[^"]*"', "", body)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'font-family="Helvetica, Arial, Liberation Sans, DejaVu Sans, sans-serif"><title>{escape(chart.title)}</title>'
        f'<desc>{escape(chart.alt)}</desc><rect width="100%" height="100%" fill="#ffffff"/>{body}</svg>\n'
    )


def _wrapped(words: str, width: int) -> list[str]:
    import textwrap

    return textwrap.wrap(words, width)
