"""Charts drawn by Altair: curves, heatmaps and ranges as views of one page, or side by side in one file."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

import altair as alt

from openbook.figures.axes import LABELS, domain, encoding, written
from openbook.figures.charts import Chart, Heatmap, Panel, Ranges, Series, Table
from openbook.figures.theme import AXIS, CONFIG, MARK, PAGE, SOFT, colour, styled

WIDTH, HEIGHT = 380, 260  # of a panel on the page: as wide as a phone, so that nothing is scaled down there
INNER_WIDTH, INNER_HEIGHT = 310, 204  # of a panel in a file, without what stands around its axes
AROUND_FILE = 85  # what stands around them, in pixels
ALONE = 1.35  # a file's only panel is drawn larger
ACROSS = 3  # panels side by side in a file
AROUND = 48  # pixels that the horizontal axis of a panel takes
FEW = 40  # a curve of at most so many points shows them
READ = 24  # places of a longer curve whose numbers can be read
PUBLISHED = "*published*"  # hides all published curves at once
VISIBLE = f"indexof(hidden, datum.curve) < 0 && !(datum.published && indexof(hidden, '{PUBLISHED}') >= 0)"


def legend_of(chart: Chart) -> list[dict[str, Any]]:
    """An entry for every curve of a chart, in order; it is dashed where nothing but a published curve has the name."""
    curves = [series for panel in chart.panels if isinstance(panel, Panel) for series in panel.series if chart.legend]
    own = {series.name for series in curves if not series.published}
    return [
        {"key": name, "words": _shown(name, name not in own), "ink": ink, "dashed": name not in own}
        for name, ink in {series.name: colour(series.colour) for series in curves}.items()
    ]


def panel_spec(panel: Panel | Heatmap | Ranges) -> dict[str, Any]:
    """A panel as a view of its own, without its title; the page hides curves by the parameter `hidden`."""
    height = HEIGHT if isinstance(panel, Panel) else AROUND + _height(panel)
    fitted = alt.AutoSizeParams(type="fit", contains="padding")
    drawn = styled(_view(panel).properties(width=WIDTH, height=height, autosize=fitted, padding=1))
    hiding = {"params": [{"name": "hidden", "value": []}], "transform": [{"filter": VISIBLE}]}
    return drawn.to_dict(validate=False) | (hiding if isinstance(panel, Panel) else {})


def chart_spec(chart: Chart) -> dict[str, Any]:
    """The whole chart for a file: title, panels in rows of three, legend, caption.

    Views are put side by side as Vega-Lite: `alt.concat` copies all their data at every step.
    """
    zoom, columns = (ALONE, 1) if len(chart.panels) == 1 else (1.0, min(ACROSS, len(chart.panels)))
    width, entries = round(INNER_WIDTH * zoom), legend_of(chart)
    across = columns * (width + AROUND_FILE)
    views: list[dict[str, Any]] = []
    datasets: dict[str, Any] = {}
    for panel in chart.panels:
        view = _view(panel)
        if isinstance(panel, Panel) and entries:
            view = alt.layer(view, _legend(entries, across))
        height = round(zoom * (INNER_HEIGHT if isinstance(panel, Panel) else _height(panel)))
        title = alt.TitleParams(textwrap.wrap(panel.title, width // 7), offset=8)
        views.append(view.properties(width=width, height=height, title=title).to_dict(validate=False))
        datasets |= views[-1].pop("datasets", {})
        views[-1] = {key: value for key, value in views[-1].items() if key not in ("$schema", "config")}
    heading = {"text": textwrap.wrap(chart.title, columns * width // 8), "fontSize": 15, "offset": 14}
    caption = {"text": textwrap.wrap(chart.caption, min(150, int(across / 5.2))), "orient": "bottom", "offset": 12}
    look = {"fontSize": 11, "fontWeight": "normal", "color": SOFT}
    shared = {"scale": {"strokeDash": "shared", "fill": "independent", "color": "independent"}}
    panels = {"concat": views, "columns": columns, "title": heading, "spacing": 24, "resolve": shared}
    whole = {"vconcat": [panels], "title": caption | look, "resolve": {"scale": {"strokeDash": "shared"}}}
    about = {"$schema": alt.SCHEMA_URL, "description": chart.alt, "padding": 14, "config": CONFIG}
    return {**about, **whole, "datasets": datasets}


def numbers(panel: Panel | Heatmap | Ranges) -> Table:
    """What a panel shows, in numbers, for those who cannot see or point."""
    if isinstance(panel, Heatmap):
        header = [f"{panel.y} \\ {panel.x}", *panel.columns]
        written_rows = ([written(value, panel.form) for value in row] for row in panel.values)
        rows = [[name, *values] for name, values in zip(panel.rows, written_rows, strict=True)]
    elif isinstance(panel, Ranges):
        header = ["", panel.x.label, "mark"]
        rows = [[row["name"], row["stretches"], row["mark"]] for row in _stretches(panel)]
    else:
        header = ["curve", panel.x.label, panel.y.label]
        points = (row for series in panel.series for row in _points(series, panel))
        rows = [[row["name"], row["at"], row["value"]] for row in points if "value" in row]
    return Table("", panel.title, header, rows)


def _view(panel: Panel | Heatmap | Ranges) -> Any:
    if isinstance(panel, Heatmap):
        return _heatmap(panel)
    return _ranges(panel) if isinstance(panel, Ranges) else _curves(panel)


def _data(rows: Iterable[dict[str, Any]]) -> alt.Chart:
    return alt.Chart(alt.Data(values=tuple(rows)))  # Altair copies a list at every step


def _read(**titles: str) -> list[alt.Tooltip]:
    """What a tooltip shows: fields and their titles."""
    return [alt.Tooltip(f"{field}:N", title=title or field) for field, title in titles.items()]


def _shown(name: str, published: bool) -> str:
    return f"{name} (published)" if published else name


def _legend(entries: list[dict[str, Any]], width: int) -> alt.Chart:
    """The legend of all panels, hung on lines that are not seen."""
    words, inks = [entry["words"] for entry in entries], [entry["ink"] for entry in entries]
    look: dict[str, Any] = {"symbolType": "stroke", "symbolSize": 300, "symbolOpacity": 1}
    look["symbolStrokeColor"] = alt.ExprRef(f"{json.dumps(inks)}[indexof({json.dumps(words)}, datum.value)]")
    columns = max(1, int(width / (50 + 5.7 * max(map(len, words)))))
    legend = alt.Legend(title=None, orient="bottom", columns=columns, **look)
    scale = alt.Scale(domain=words, range=[[5, 4] if entry["dashed"] else [1, 0] for entry in entries])
    return _data(entries).mark_line(opacity=0).encode(strokeDash=alt.StrokeDash("words:N", scale=scale, legend=legend))


def _points(series: Series, panel: Panel) -> list[dict[str, Any]]:
    """The points of a curve that can be drawn, as exactly as a screen shows them; those with a `value` can be read."""
    spread: Sequence[Sequence[float]] = series.spread or [()] * len(series.points)
    points = [(*p, s) for p, s in zip(series.points, spread, strict=True) if all(map(math.isfinite, p))]
    few = len(points) <= FEW
    every = 1 if few else -(-len(points) // READ)
    rows = []
    for k, (x, y, edges) in enumerate(points):
        row: dict[str, Any] = {"x": float(f"{x:.5g}"), "y": float(f"{y:.5g}"), "curve": series.name}
        row |= {key: True for key, value in (("published", series.published), ("few", few)) if value}
        if edges and few:
            row["low"], row["high"] = edges
        if k % every == 0:
            interval = " ({} to {})".format(*(written(edge, panel.y.form) for edge in edges)) if edges else ""
            row |= {"name": _shown(series.name, series.published), "at": written(x, panel.x.form)}
            row["value"] = written(y, panel.y.form) + interval
        rows.append(row)
    return rows


def _curves(panel: Panel) -> Any:
    """Curves over levels to compare with: ours in front, published ones behind, dashed and pale."""
    behind_first = sorted(panel.series, key=lambda series: not series.published)
    rows = [row for series in behind_first for row in _points(series, panel)]
    levels = [{"y": level.value, "name": level.label} for level in panel.levels]
    edges = [row[edge] for row in rows for edge in ("low", "high") if edge in row]
    (x_low, x_high), (y_low, y_high) = x_reach, y_reach = (
        domain(panel.x, [row["x"] for row in rows]),
        domain(panel.y, [*(row["y"] for row in [*rows, *levels]), *edges]),
    )
    clip = any(not (x_low <= row["x"] <= x_high and y_low <= row["y"] <= y_high) for row in rows)
    for row in rows:  # a logarithmic axis has no zero: such a point is far below it
        row["x"] = max(row["x"], x_low / 1e3) if panel.x.scale == "log" else row["x"]
        row["y"] = max(row["y"], y_low / 1e3) if panel.y.scale == "log" else row["y"]
    x, y = alt.X("x:Q", **encoding(panel.x, x_reach)), alt.Y("y:Q", **encoding(panel.y, y_reach))
    inks = {series.name: colour(series.colour) for series in panel.series}
    ink: dict[str, Any] = {"scale": alt.Scale(domain=list(inks), range=list(inks.values())), "legend": None}
    pale = {"opacity": alt.condition("datum.published", alt.value(0.5), alt.value(1))}
    dashed = alt.condition("datum.published", alt.value([5, 4]), alt.value([1, 0]))
    hollow = alt.condition("datum.published", alt.value(PAGE), alt.Fill("curve:N", **ink))
    base = alt.Chart().encode(x=x, y=y, color=alt.Color("curve:N", **ink))
    few, readable = base.transform_filter("datum.few"), base.transform_filter("isValid(datum.value)")
    read = _read(name="curve", at=panel.x.label, value=panel.y.label)
    return alt.layer(
        _data(levels).mark_rule(color=AXIS, strokeDash=[2, 3]).encode(y=y),
        _data(levels)
        .mark_text(align="left", dx=4, fontSize=10, color=SOFT)
        .encode(y=y, x=alt.value("width"), text="name:N"),
        few.transform_filter("isValid(datum.low)")
        .mark_rule(clip=True, opacity=0.6)
        .encode(y=alt.Y("low:Q", title=panel.y.label), y2="high:Q"),
        base.mark_line(clip=clip, strokeWidth=2).encode(detail="published:N", strokeDash=dashed, **pale),
        # A point can be read from nearby, but one that the pointer is on comes first.
        readable.mark_point(clip=clip, filled=True, size=420, opacity=0).encode(tooltip=read),
        few.mark_point(clip=clip, size=28, strokeWidth=1.6).encode(fill=hollow, tooltip=read, **pale),
        data=alt.Data(values=tuple(rows)),
    )


def _height(panel: Heatmap | Ranges) -> int:
    """Of a panel without its axis: cells are square if that is high enough to see, and never very high."""
    if isinstance(panel, Ranges):
        return 22 * len(panel.rows)
    rows, columns = max(1, len(panel.rows)), max(1, len(panel.columns))
    return round(rows * min(max((INNER_WIDTH - 40) / columns, 150 / rows), 40.0))


def _heatmap(panel: Heatmap) -> Any:
    cells = [
        {"r": r, "c": c, "v": v, "row": row, "column": column, "value": written(v, panel.form)}
        for r, (row, values) in enumerate(zip(panel.rows, panel.values, strict=True))
        for c, (column, v) in enumerate(zip(panel.columns, values, strict=True))
        if v is not None and math.isfinite(v)
    ]
    starts = [sum(count for _, count in panel.groups[:k]) for k in range(len(panel.groups))]
    middles = {start + count // 2: name for start, (name, count) in zip(starts, panel.groups, strict=True)}
    x = alt.X("c:O", **_band(panel.x, len(panel.columns), middles or dict(enumerate(panel.columns))))
    y = alt.Y("r:O", **_band(panel.y, len(panel.rows), dict(enumerate(panel.rows))))
    scale = alt.Scale(scheme="viridis", domain=[panel.low, panel.high], clamp=True)
    ends: dict[str, Any] = {"values": [panel.low, panel.high], "labelExpr": LABELS[panel.form]}
    fill = alt.Fill(
        "v:Q",
        scale=scale,
        legend=alt.Legend(title=None, gradientThickness=9, gradientLength=_height(panel), **ends),
    )
    # Cells overlap by about a pixel: without it, fine lines show between them.
    wide, high = (alt.RelativeBandSize(band=1 + len(names) / 300) for names in (panel.columns, panel.rows))
    read = _read(row=panel.y, column=panel.x, value="value")
    edges = _data({"c": start} for start in starts[1:]).mark_rule(color="white", strokeWidth=1.5)
    outline = _data(_runs(panel.outlined)).mark_rect(fill=None, stroke=MARK, strokeWidth=2.5)
    return alt.layer(
        _data(cells).mark_rect(width=wide, height=high).encode(x=x, y=y, fill=fill, tooltip=read),
        edges.encode(x=alt.X("c:O", bandPosition=0)),
        outline.encode(x=alt.X("c:O", bandPosition=0), x2=alt.X2("last", bandPosition=1), y="r:O"),
    )


def _band(title: str, count: int, names: dict[int, str]) -> dict[str, Any]:
    """An axis of `count` cells; those that have a name show it as far as there is room."""
    look: dict[str, Any] = {
        "labelAngle": 0,
        "labelOverlap": "parity",
        "labelSeparation": 7,
        "ticks": False,
        "domain": False,
        "grid": False,
    }
    axis = alt.Axis(values=list(names), labelExpr=f"{json.dumps(names)}[datum.value]", **look)
    return {"title": title, "scale": alt.Scale(domain=list(range(count))), "axis": axis}


def _runs(cells: Iterable[tuple[int, int]]) -> list[dict[str, int]]:
    """Cells that stand side by side in a row, as one stretch from column `c` to column `last`."""
    runs: list[dict[str, int]] = []
    for r, c in sorted(cells):
        if runs and (runs[-1]["r"], runs[-1]["last"]) == (r, c - 1):
            runs[-1]["last"] = c
        else:
            runs.append({"r": r, "c": c, "last": c})
    return runs


def _stretches(panel: Ranges) -> list[dict[str, str]]:
    """Stretches and mark of each row, in words."""

    def words(*ends: float | None) -> str:
        return " to ".join(written(end, panel.x.form) for end in ends)

    return [
        {"name": r.name, "stretches": ", ".join(words(*s) for s in r.stretches) or "none", "mark": words(r.mark)}
        for r in panel.rows
    ]


def _ranges(panel: Ranges) -> Any:
    reach = domain(panel.x, [edge for row in panel.rows for stretch in row.stretches for edge in stretch])
    x = alt.X("from:Q", **encoding(panel.x, reach))
    y = alt.Y("name:N", title=None, sort=None, scale=alt.Scale(domain=[row.name for row in panel.rows]))
    rows = list(zip(panel.rows, _stretches(panel), strict=True))
    bars = _data({**words, "from": a, "to": b} for row, words in rows for a, b in row.stretches)
    marks = _data({**words, "from": row.mark} for row, words in rows if row.mark is not None)
    empty = _data({**words, "from": reach[0]} for row, words in rows if not row.stretches)
    read = _read(name="row", stretches=panel.x.label, mark="mark")
    return alt.layer(
        bars.mark_bar(height=9, opacity=0.75, color=colour(0)).encode(x=x, x2="to:Q", y=y, tooltip=read),
        marks.mark_tick(color=MARK, thickness=3, size=16).encode(x=x, y=y, tooltip=read),
        empty.mark_text(align="left", dx=4, color=SOFT).encode(x=x, y=y, text="stretches:N"),
    )
