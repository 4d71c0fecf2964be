"""The page: sections with charts and tables, put into one HTML file that asks nobody for anything."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment
from markupsafe import Markup

from openbook.base.files import write_file
from openbook.figures import Chart, Table, drawn_svg, png, svg
from openbook.figures.theme import css
from openbook.report.claims import Claim

MANY_ROWS = 16  # a longer table is folded away


@dataclass
class PageSection:
    """One part of the page."""

    name: str
    title: str
    where: str
    story: str
    differs: str = ""
    status: str = ""  # done, unfinished, failed, damaged or foreign, for runs
    badge: str = ""  # shown instead of the status: an audit's verdict
    notices: list[str] = field(default_factory=list)
    steps: list[dict[str, Any]] = field(default_factory=list)
    figures: list[Chart | Table] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    provenance: Table | None = None
    command: str = ""


@dataclass
class Page:
    """What the page says around its sections."""

    title: str
    tagline: str
    lead: Markup
    sections: list[PageSection]
    again: Markup
    foot: Markup = field(default_factory=Markup)
    counts: list[tuple[str, str]] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)


def _asset(name: str) -> str:
    return resources.files("openbook.report").joinpath(f"assets/{name}").read_text(encoding="utf-8")


@functools.cache
def _vega() -> str:
    """The libraries that make charts live, which come with the wheel of vl-convert."""
    import vl_convert

    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")


def _shown(figure: Chart | Table) -> dict[str, Any]:
    """What the template needs of a chart or a table."""
    from openbook.figures.vega import PUBLISHED, legend_of, numbers, panel_spec

    if isinstance(figure, Table):
        return {"table": figure, "folded": len(figure.rows) > MANY_ROWS}
    legend = legend_of(figure)
    curves = [series for panel in figure.panels for series in getattr(panel, "series", ())]
    if any(curve.published for curve in curves) and not all(entry["dashed"] for entry in legend):
        legend.append({"key": PUBLISHED, "words": "published curves", "ink": "currentColor", "dashed": True})
    panels = []
    for number, panel in enumerate(figure.panels):
        view = panel_spec(panel)
        picture = Markup(drawn_svg(view, f"{figure.name}-{number}"))
        text = Markup(json.dumps(view).replace("<", "\\u003c"))
        panels.append({"title": panel.title, "svg": picture, "spec": text, "numbers": numbers(panel)})
    across = {1: "one", 2: "two", 4: "two"}.get(len(panels), "")
    return {"chart": figure, "legend": legend, "panels": panels, "across": across}


def render(page: Page) -> str:
    """The page as HTML; its charts lie beside it in `charts/`."""
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    html = environment.from_string(_asset("page.html.j2")).render(
        **vars(page),
        shown=_shown,
        last=[("claims", "All claims")] * bool(page.claims) + [("again", "How to run it again")],
        style=Markup(css() + _asset("style.css")),
        vega=Markup(_vega()) if _charts(page) else "",
        script=Markup(_asset("page.js")),
    )
    return "\n".join(line.rstrip() for line in html.splitlines() if line.strip()) + "\n"


def _charts(page: Page) -> list[Chart]:
    return [figure for section in page.sections for figure in section.figures if isinstance(figure, Chart)]


def write(page: Page, path: Path) -> Path:
    """Write the page and, beside it, every chart as SVG and PNG."""
    folder = path.parent / "charts"
    folder.mkdir(parents=True, exist_ok=True)  # it may be a folder of other things too
    for chart in _charts(page):
        drawn = svg(chart)
        write_file(folder / f"{chart.name}.svg", drawn)
        write_file(folder / f"{chart.name}.png", png(drawn))
    write_file(path, render(page))
    return path


def commands(*lines: str) -> Markup:
    """Lines to type, as a block of code."""
    return Markup("<pre><code>{}</code></pre>").format("\n".join(lines))


def paragraphs(*words: str | Markup) -> Markup:
    """Each text as a paragraph."""
    return Markup("").join(Markup("<p>{}</p>").format(part) for part in words)
