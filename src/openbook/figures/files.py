"""A chart as Vega-Lite, SVG or PNG, and as a file of the kind its name says."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any

from openbook.base.errors import InputError
from openbook.base.files import write_file
from openbook.figures.charts import Chart

PNG_SCALE = 2.0


def spec(chart: Chart) -> dict[str, Any]:
    """The whole chart in Vega-Lite, in light colours: title, panels in rows of three, legend, caption."""
    from openbook.figures.theme import filled
    from openbook.figures.vega import chart_spec

    return json.loads(filled(json.dumps(chart_spec(chart))))


def drawn_svg(view: dict[str, Any], name: str) -> str:
    """Vega-Lite as SVG, the same every time: `name` starts the ids, which Vega counts through a process."""
    import vl_convert

    counted: dict[str, int] = {}
    text = re.sub(
        r'(id="|url\(#)(\w+)',
        lambda m: f"{m[1]}{name}-{counted.setdefault(m[2], len(counted))}",
        vl_convert.vegalite_to_svg(view),
    )
    return re.sub(r' (?:role|class|aria-\w+)="[^"]*"', "", text)  # of marks, which are described as a whole


def svg(chart: Chart) -> str:
    """The chart as SVG, with its title and its description for those who cannot see it."""
    head, rest = drawn_svg(spec(chart), "chart").split(">", 1)
    about = f"<title>{escape(chart.title)}</title><desc>{escape(chart.alt)}</desc>"
    return f'{head} role="img">{about}{rest}\n'


def png(drawn: str) -> bytes:
    """An SVG as PNG, sharp enough for print."""
    import vl_convert

    return vl_convert.svg_to_png(drawn, scale=PNG_SCALE)


def _page(chart: Chart) -> str:
    """The chart as a page that needs no network."""
    import vl_convert

    return vl_convert.vegalite_to_html(spec(chart), bundle=True)


FILES: dict[str, Callable[[Chart], str | bytes]] = {
    ".png": lambda chart: png(svg(chart)),
    ".svg": svg,
    ".html": _page,
    ".json": lambda chart: json.dumps(spec(chart), indent=1) + "\n",
}


def check_path(path: Path | None) -> None:
    """Refuse a chart file whose kind is unknown or whose folder is not there, before anything is computed."""
    if path is None:
        return
    if path.suffix not in FILES:
        raise InputError(f"{path}: a chart is saved as one of {', '.join(FILES)}; give a name that ends in one of them")
    if not path.absolute().parent.is_dir():
        raise InputError(f"{path}: the folder {path.absolute().parent} does not exist; create it or name another")


def save(chart: Chart, path: Path) -> None:
    """Write a chart to a file of the kind its name says: PNG, SVG, a self-contained page, or Vega-Lite."""
    check_path(path)
    write_file(path, FILES[path.suffix](chart))
