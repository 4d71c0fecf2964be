"""Charts of the probes, from their JSON: heatmaps with a panel for each section, and windows beside published ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from openbook.figures.theme import PALETTE

SIDE = 190  # pixels of a square panel
MARK = "#FF3B1F"  # what a map is read for: the smallest window, the first layer
SCALE = alt.Scale(scheme="viridis", domain=[0, 1], clamp=True)


def _there(value: Any) -> bool:
    return value is not None and value == value


def _ticks(layers: int) -> list[int]:
    step = 1 if layers <= 8 else 2 if layers <= 14 else 4
    return list(range(1, layers + 1, step))


def stitch_chart(maps: Sequence[dict[str, Any]], titles: Sequence[str] | None = None) -> Any:
    """A row of panels for each pair of models, a panel for each section dropped.

    `maps` are what `openbook probe stitch --json` prints, or `StitchMap.to_json()`; `titles` name the rows.
    """
    names = list(titles) if titles else [_told(one) for one in maps]
    rows = [
        alt.hconcat(
            *(_stitch_panel(one, section, last == 0) for last, section in enumerate(one["sections"])),
            title=alt.TitleParams(name, fontSize=13, anchor="start", offset=6),
            spacing=14,
        )
        for one, name in zip(maps, names, strict=True)
    ]
    title = alt.TitleParams(
        "Which layers of the trained model hold each section",
        subtitle=[
            "accuracy of the ICL-capable model with layers first..last taken from the trained one, the section dropped",
            f"outlined: the smallest windows that reach {maps[0]['reached']:.0%}",
        ],
        offset=12,
    )
    return alt.vconcat(*rows, title=title, spacing=24).resolve_scale(color="shared", stroke="shared")


def _told(one: dict[str, Any]) -> str:
    size = f", {one['trained_on']:,} examples" if one.get("trained_on") else ""
    return f"{one['trained']}{size}"


def _stitch_panel(one: dict[str, Any], section: dict[str, Any], labelled: bool) -> Any:
    layers = one["layers"]
    cells = [
        {"first": start + 1, "last": end + 1, "accuracy": section["map"][start][end]}
        for start in range(layers)
        for end in range(start, layers)
        if _there(section["map"][start][end])
    ]
    smallest = {tuple(window) for window in section["smallest_windows"]}
    ticks = _ticks(layers)
    axis = alt.Axis(values=ticks, labelAngle=0, grid=False)
    base = alt.Chart(alt.Data(values=cells)).encode(
        x=alt.X("last:O", title="last layer", axis=axis),
        y=alt.Y("first:O", title="first layer" if labelled else None, axis=axis),
        tooltip=["first:O", "last:O", alt.Tooltip("accuracy:Q", format=".3f")],
    )
    heat = base.mark_rect(strokeWidth=0.7).encode(**_colours("accuracy:Q", "accuracy"))
    marked = alt.Chart(alt.Data(values=[c for c in cells if (c["first"], c["last"]) in smallest]))
    outline = marked.mark_rect(fill=None, stroke=MARK, strokeWidth=2.5).encode(x="last:O", y="first:O")
    says = ", ".join(f"{a}–{b}" if a != b else f"{a}" for a, b in sorted(smallest)) or "none"
    title = alt.TitleParams(section["name"], subtitle=f"smallest: {says}", fontSize=12, subtitleFontSize=11, offset=4)
    return alt.layer(heat, outline, title=title).properties(width=SIDE, height=SIDE)


def _colours(value: str, title: str) -> dict[str, Any]:
    """Fill and edge in the colour of the value: without an edge, fine white lines show between the cells."""
    return {
        "color": alt.Color(value, title=title, scale=SCALE, legend=alt.Legend(format="%", gradientLength=150)),
        "stroke": alt.Stroke(value, scale=SCALE, legend=None),
    }


def perturb_chart(one: dict[str, Any], title: str = "Where each section of the book is read") -> Any:
    """A column for each section: rules that are used changed above, rules that are not used below."""
    rows = []
    for key, name in (("map", "used rules changed"), ("control", "unused rules changed")):
        panels = [
            _places_panel(
                one["places"],
                [[value / max(section["largest"], 1e-12) for value in row] for row in section[key]],
                {
                    "text": section["name"],
                    "subtitle": f"first layer {section['first_layer'] or 'none'}" if key == "map" else "control",
                },
                "share of the largest change",
                section["first_layer"] if key == "map" else None,
                first=1,
                labelled=number == 0,
            )
            for number, section in enumerate(one["sections"])
        ]
        heading = alt.TitleParams(name, fontSize=13, anchor="start", offset=6)
        rows.append(alt.hconcat(*panels, title=heading, spacing=14))
    many = "all shown rules" if one["rules"] == "all" else f"{one['rules']} rules"
    says = [
        f"l2 change of a layer's output at every thinking and answer place when {many} of a section get other images",
        f"mean of {one['samples']} examples; outlined: the first layer that differs from the control (max-T, "
        f"{one['level']:.0%} over all maps)",
    ]
    heading = alt.TitleParams(title, subtitle=says, offset=12)
    return alt.vconcat(*rows, title=heading, spacing=20).resolve_scale(color="shared", stroke="shared")


def intermediate_chart(one: dict[str, Any], title: str = "Which strings a layer's output tells") -> Any:
    """A column for each string: linear probe, its control, and the logit lens."""
    rows = []
    kinds = (
        ("map", "linear probe", 0),
        ("control", "the probe fitted to other examples' labels", 0),
        ("lens", "logit lens", 1),
    )
    for key, name, first in kinds:
        panels = [
            _places_panel(
                one["places"],
                section[key],
                {"text": section["name"]},
                "accuracy",
                {"map": section["first_layer"], "lens": section["first_layer_by_lens"]}.get(key),
                first=first,
                labelled=number == 0,
            )
            for number, section in enumerate(one["sections"])
        ]
        heading = alt.TitleParams(name, fontSize=13, anchor="start", offset=6)
        rows.append(alt.hconcat(*panels, title=heading, spacing=14))
    says = [
        f"accuracy of characters at every layer and place, book {one['open']:.0%} open, chance {one['chance']:.3f}; "
        f"fitted on {one['fitted_on']:,} examples, judged on {one['judged_on']:,} others",
        f"outlined: the first layer that knows the string at its own places ({one['known']:.0%}); layer 0 is the input",
    ]
    heading = alt.TitleParams(title, subtitle=says, offset=12)
    return alt.vconcat(*rows, title=heading, spacing=20).resolve_scale(color="shared", stroke="shared")


def _places_panel(
    places: Sequence[dict[str, int]],
    values: Sequence[Sequence[float]],
    title: dict[str, Any],
    what: str,
    marked: int | None,
    first: int,
    labelled: bool,
) -> Any:
    """Layers over places; the strings that places belong to are told apart by white lines and named below."""
    layers = len(values)
    cells = [
        {"at": q, "to": q + 1, "layer": first + k, "value": value, "string": place["string"], "place": place["place"]}
        for k, row in enumerate(values)
        for q, (value, place) in enumerate(zip(row, places, strict=True))
    ]
    starts = [q for q, place in enumerate(places) if q == 0 or places[q - 1]["string"] != place["string"]]
    ends = [*starts[1:], len(places)]
    middles = [(a + b) / 2 for a, b in zip(starts, ends, strict=True)]
    known = len(starts) > 1
    label = " : ".join(f"datum.value == {m} ? 's_{places[a]['string']}'" for m, a in zip(middles, starts, strict=True))
    x = alt.X(
        "at:Q",
        title="place" if not known else None,
        scale=alt.Scale(domain=[0, len(places)], nice=False),
        axis=alt.Axis(values=middles, labelExpr=f"{label} : ''", grid=False, ticks=False)
        if known
        else alt.Axis(grid=False),
    )
    order = list(range(first + layers - 1, first - 1, -1))  # the first layer at the bottom, as in the paper
    ticks = [layer for layer in _ticks(first + layers - 1) if layer in order] + ([0] if first == 0 else [])
    y = alt.Y("layer:O", sort=order, title="layer" if labelled else None, axis=alt.Axis(values=ticks, grid=False))
    heat = (
        alt.Chart(alt.Data(values=cells))
        .mark_rect(strokeWidth=0.7)
        .encode(
            x=x,
            x2="to:Q",
            y=y,
            **_colours("value:Q", what),
            tooltip=["layer:O", "string:O", "place:O", alt.Tooltip("value:Q", format=".3f", title=what)],
        )
    )
    edges = alt.Chart(alt.Data(values=[{"at": start} for start in starts[1:]]))
    parts = [heat, edges.mark_rule(color="white", strokeWidth=1.5).encode(x="at:Q")]
    if marked is not None:
        line = alt.Chart(alt.Data(values=[{"layer": marked, "at": 0, "to": len(places)}]))
        parts.append(
            line.mark_rect(fill=None, stroke=MARK, strokeWidth=2).encode(
                x="at:Q", x2="to:Q", y=alt.Y("layer:O", sort=order)
            )
        )
    heading = alt.TitleParams(
        title["text"], subtitle=title.get("subtitle", ""), fontSize=12, subtitleFontSize=11, offset=4
    )
    return alt.layer(*parts, title=heading).properties(width=SIDE, height=max(70, min(SIDE, 16 * layers)))


def windows_chart(rows: Sequence[dict[str, Any]], title: str = "Smallest windows that hold each section") -> Any:
    """Windows over the depth of the model, a panel for each model; layers as a share of all, so that models compare.

    A row has `who` (the panel), `section`, `layers`, `windows` (none, if none reaches) and, where it is known, `reads`:
    the layer that begins to read the section.
    """
    whos = list(dict.fromkeys(row["who"] for row in rows))
    panels = []
    for who in whos:
        here = [row for row in rows if row["who"] == who]
        bars = [
            {
                "section": row["section"],
                "from": (window[0] - 1) / row["layers"],
                "to": window[1] / row["layers"],
                "window": f"{window[0]}–{window[1]} of {row['layers']}",
            }
            for row in here
            for window in row["windows"]
        ]
        sections = [row["section"] for row in here]
        y = alt.Y("section:N", title=None, sort=sections, scale=alt.Scale(domain=sections))
        x = alt.X(
            "from:Q", title="depth", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format="%", values=[0, 0.5, 1])
        )
        drawn = alt.Chart(alt.Data(values=bars)).mark_bar(height=9, opacity=0.75, color=PALETTE[0])
        reads = [{"section": r["section"], "at": (r["reads"] - 0.5) / r["layers"]} for r in here if r.get("reads")]
        missing = [{"section": row["section"], "at": 0.02, "text": "none"} for row in here if not row["windows"]]
        said = (
            alt.Chart(alt.Data(values=missing))
            .mark_text(fontSize=11, color="#888", align="left")
            .encode(x="at:Q", y=y, text="text:N")
        )
        ticks = alt.Chart(alt.Data(values=reads)).mark_tick(color=MARK, thickness=3, size=16).encode(x="at:Q", y=y)
        layers = [drawn.encode(x=x, x2="to:Q", y=y, tooltip=["section:N", "window:N"]), ticks, said]
        panel = alt.layer(*layers, title=alt.TitleParams(who, fontSize=12, offset=4))
        panels.append(panel.properties(width=150, height=22 * len(sections)))
    subtitle = [
        "bars: windows of the smallest length that reaches 90 % with the section dropped",
        "red: the layer that begins to read it",
    ]
    return alt.concat(*panels, columns=5, title=alt.TitleParams(title, subtitle=subtitle, offset=12), spacing=16)
