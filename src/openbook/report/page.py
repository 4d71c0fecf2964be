"""The page: sections with charts and tables, put into one HTML file that asks nobody for anything."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment
from markupsafe import Markup

from openbook.base.files import written_aside
from openbook.figures.charts import Chart, Table
from openbook.figures.svg import file_svg, legend_of, panel_svg
from openbook.report.claims import Claim

MANY_ROWS = 16  # a longer table is folded away
PNG_SCALE = 2.0


@dataclass
class Section:
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
    sections: list[Section]
    again: Markup
    foot: Markup
    counts: list[tuple[str, str]] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)


@functools.cache
def _asset(name: str) -> str:
    return resources.files("openbook.report").joinpath(f"assets/{name}").read_text(encoding="utf-8")


def _item(figure: Chart | Table, files: bool) -> dict[str, Any]:
    if isinstance(figure, Table):
        return {"table": figure, "folded": len(figure.rows) > MANY_ROWS}
    legend = legend_of(figure)
    panels = [
        {"title": panel.title, "svg": Markup(panel_svg(panel, f"{figure.title}. {panel.title}. {figure.alt}"))}
        for panel in figure.panels
    ]
    across = {1: "one", 2: "two", 4: "two"}.get(len(panels), "")
    both = any(ours for _, _, ours, _ in legend) and any(theirs for _, _, _, theirs in legend)
    return {
        "chart": figure,
        "legend": [(name, Markup(ink), ours, theirs) for name, ink, ours, theirs in legend],
        "published": both,
        "panels": panels,
        "across": across,
        "files": files,
    }


def _claim(claim: Claim) -> dict[str, Any]:
    return {**claim.to_json(), "numbers": claim.said()}


def render(page: Page, files: bool = True) -> str:
    """The page as HTML; `files`: charts lie beside it in `charts/`."""
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(_asset("page.html.j2"))
    sections = [
        {
            **vars(section),
            "parts": [_item(figure, files) for figure in section.figures],
            "claims": [_claim(claim) for claim in section.claims],
        }
        for section in page.sections
    ]
    last = ([("claims", "All claims")] if page.claims else []) + [("again", "How to run it again")]
    html = template.render(
        **{**vars(page), "sections": sections, "claims": [_claim(claim) for claim in page.claims]},
        last=last,
        style=Markup(_asset("style.css")),
        script=Markup(_asset("page.js")),
    )
    return "\n".join(line.rstrip() for line in html.splitlines() if line.strip()) + "\n"


def write(page: Page, path: Path) -> Path:
    """Write the page and, beside it, every chart as SVG and PNG."""
    import vl_convert

    folder = path.parent / "charts"
    folder.mkdir(parents=True, exist_ok=True)  # it may be a folder of other things too
    charts = [figure for section in page.sections for figure in section.figures if isinstance(figure, Chart)]
    for chart in charts:
        drawn = file_svg(chart)
        with written_aside(folder / f"{chart.name}.svg") as aside:
            aside.write_text(drawn, encoding="utf-8")
        with written_aside(folder / f"{chart.name}.png") as aside:
            aside.write_bytes(vl_convert.svg_to_png(drawn, scale=PNG_SCALE))
    with written_aside(path) as aside:
        aside.write_text(render(page), encoding="utf-8")
    return path


def commands(*lines: str) -> Markup:
    return Markup("<pre><code>{}</code></pre>").format("\n".join(lines))


def paragraphs(*words: str | Markup) -> Markup:
    return Markup("").join(Markup("<p>{}</p>").format(part) for part in words)
