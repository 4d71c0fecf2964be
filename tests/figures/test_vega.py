"""Charts drawn by Altair: valid Vega-Lite, marks where the numbers are, words for those who cannot see."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import altair as alt
import pytest

from openbook.base.errors import InputError
from openbook.figures import (
    Axis,
    Chart,
    Heatmap,
    Level,
    Panel,
    Range,
    Ranges,
    Series,
    check_path,
    drawn_svg,
    save,
    share,
    spec,
    svg,
)
from openbook.figures.theme import DARK, LIGHT, PALETTE, colour, css
from openbook.figures.vega import legend_of, numbers, panel_spec

OURS = Series("ours", [(1, 0.0), (10, 0.5), (100, 1.0)], 0, [(0, 0.1), (0.4, 0.6), (0.9, 1.0)])
OLD = Series("theirs", [(1, 0.2), (100, 0.3)], 1, published=True)
PANEL = Panel("a panel", Axis("samples", "log", "si"), share("accuracy"), [OURS, OLD], [Level(0.1, "chance")])
MAP = Heatmap(
    "a map", [[0.0, 1.0, 0.2], [None, 0.5, 0.3]], "last", "first", ["1", "2", "3"], ["1", "2"],
    outlined=[(0, 1), (1, 1), (0, 2)], groups=[("s2", 1), ("s3", 2)],
)  # fmt: skip
LAYERS = Ranges("kept", share("depth"), [Range("level 1", [(0.1, 0.3), (0.5, 0.6)], 0.2), Range("level 2", [])])
CHART = Chart("name", "Title <1>", "in words", [PANEL, MAP, LAYERS, PANEL], "A long caption. " * 20)


def rows_of(view: dict[str, Any]) -> list[dict[str, Any]]:
    """The points of curves in a view."""
    return next(iter(view["datasets"].values())) if "values" not in view["data"] else view["data"]["values"]


def text_of(drawn: str) -> list[str]:
    return [node.text or "" for node in ElementTree.fromstring(drawn).iter() if node.tag.endswith("text")]


def test_every_kind_of_panel_is_valid_vega_lite() -> None:
    for panel in (PANEL, MAP, LAYERS):
        alt.Chart.from_dict(panel_spec(panel), validate=True)
    alt.Chart.from_dict(spec(CHART), validate=True)


def test_points_are_where_their_numbers_say() -> None:
    root = ElementTree.fromstring(drawn_svg(panel_spec(Panel("", PANEL.x, PANEL.y, [OURS])), "x"))
    dots = [path for path in root.iter() if path.attrib.get("fill") == colour(0) and path.attrib.get("opacity") == "1"]
    places = [tuple(map(float, re.findall(r"[\d.]+", dot.attrib["transform"]))) for dot in dots]
    assert len(places) == 3
    assert places[1][0] - places[0][0] == pytest.approx(places[2][0] - places[1][0], abs=0.2)  # decades are even
    assert places[0][1] - places[1][1] == pytest.approx(places[1][1] - places[2][1], abs=0.2) and places[2][1] == 0


def test_a_point_can_be_read_with_its_interval() -> None:
    rows = rows_of(panel_spec(PANEL))
    assert [row["value"] for row in rows if row["curve"] == "ours"][1] == "50 % (40 % to 60 %)"
    assert {row["name"] for row in rows} == {"ours", "theirs (published)"}
    assert numbers(PANEL).rows[-1] == ["theirs (published)", "100", "30 %"]


def test_published_curves_are_dashed_pale_and_behind_ours() -> None:
    assert [row["curve"] for row in rows_of(panel_spec(PANEL))] == ["theirs"] * 2 + ["ours"] * 3
    lines = [
        line for line in re.findall(r"<path[^>]*>", drawn_svg(panel_spec(PANEL), "x")) if 'fill="none"' not in line
    ]
    dashed = [line for line in lines if 'stroke-dasharray="5,4"' in line]
    assert len(dashed) == 1 and 'opacity="0.5"' in dashed[0] and colour(1) in dashed[0]


def test_a_legend_says_what_is_only_published() -> None:
    both = Series("ours", [(1, 0.3)], 0, published=True)
    chart = Chart("n", "t", "a", [PANEL, Panel("", PANEL.x, PANEL.y, [both])])
    assert [(entry["words"], entry["ink"], entry["dashed"]) for entry in legend_of(chart)] == [
        ("ours", colour(0), False),
        ("theirs (published)", colour(1), True),
    ]
    assert {"ours", "theirs (published)"} <= set(text_of(svg(chart)))
    silent = Chart("n", "t", "a", [PANEL], legend=False)
    assert legend_of(silent) == [] and "ours" not in text_of(svg(silent))


def test_the_same_name_may_have_another_colour_in_another_panel() -> None:
    panels = [Panel("", Axis("x"), Axis("y"), [Series("last layer", [(0, 1), (1, 2)], c)]) for c in (120, 190)]
    drawn = svg(Chart("n", "t", "a", panels, legend=False))
    assert LIGHT["q2"] in drawn and LIGHT["q9"] in drawn


def test_a_heatmap_has_a_cell_for_every_number_and_none_for_nothing() -> None:
    view = panel_spec(MAP)
    cells, edges, outlines = (layer["data"]["values"] for layer in view["layer"])
    assert [(cell["row"], cell["column"], cell["value"]) for cell in cells] == [
        *(("1", "1", "0 %"), ("1", "2", "100 %"), ("1", "3", "20 %")),
        *(("2", "2", "50 %"), ("2", "3", "30 %")),
    ]
    assert edges == [{"c": 1}]
    assert outlines == [{"r": 0, "c": 1, "last": 2}, {"r": 1, "c": 1, "last": 1}]  # neighbours have one outline
    words = text_of(drawn_svg(view, "x"))
    assert {"s2", "s3", "0 %", "100 %", "last", "first"} <= set(words) and "3" not in words
    drawn = drawn_svg(view, "x")
    assert "rgb(68, 1, 84)" in drawn and "rgb(253, 231, 37)" in drawn  # both ends of viridis
    assert numbers(MAP).rows == [["1", "0 %", "100 %", "20 %"], ["2", "-", "50 %", "30 %"]]


def test_ranges_have_bars_a_mark_and_a_word_where_there_is_none() -> None:
    bars, marks, empty = (layer["data"]["values"] for layer in panel_spec(LAYERS)["layer"])
    assert [(bar["name"], bar["from"], bar["to"]) for bar in bars] == [("level 1", 0.1, 0.3), ("level 1", 0.5, 0.6)]
    assert [mark["from"] for mark in marks] == [0.2] and [row["name"] for row in empty] == ["level 2"]
    assert numbers(LAYERS).rows == [["level 1", "10 % to 30 %, 50 % to 60 %", "20 %"], ["level 2", "none", "-"]]


def test_a_curve_of_many_points_can_be_read_at_some() -> None:
    panel = Panel("p", Axis("step"), share("y"), [Series("long", [(k, k / 999) for k in range(1000)])])
    rows = rows_of(panel_spec(panel))
    assert len(rows) == 1000 and 10 < len(numbers(panel).rows) <= 25 and not any("few" in row for row in rows)


def test_numbers_that_are_none_leave_no_mark_and_zero_is_below_a_logarithmic_axis() -> None:
    holes = Series("holes", [(1, float("nan")), (2, 0.5), (3, float("inf"))], 0, [(0, 1), (0.4, 0.6), (0, 1)])
    (row,) = rows_of(panel_spec(Panel("p", Axis("x"), Axis("y"), [holes])))
    assert (row["x"], row["low"]) == (2, 0.4)
    view = panel_spec(Panel("p", Axis("x"), Axis("y", "log"), [Series("error", [(1, 0.0), (2, 0.5), (3, 5.0)])]))
    assert rows_of(view)[0]["y"] > 0 and "NaN" not in drawn_svg(view, "x")


def test_panels_without_anything_in_them_are_drawn() -> None:
    empty = [Panel("", Axis("x"), Axis("y"), []), Heatmap("", [], "x", "y", [], []), Ranges("", Axis("x"), [])]
    assert svg(Chart("n", "t", "a", empty)).startswith("<svg")


def test_a_file_stands_alone_and_is_the_same_every_time() -> None:
    drawn = svg(CHART)
    root = ElementTree.fromstring(drawn)
    assert "var(" not in drawn and svg(CHART) == drawn
    assert [root[0].text, root[1].text] == ["Title <1>", "in words"]
    links = set(re.findall(r"url\(#([\w-]+)\)", drawn))
    assert links <= set(re.findall(r'id="([\w-]+)"', drawn)) and links
    views = [drawn_svg(panel_spec(MAP), name) for name in ("a-0", "a-1")]  # on one page, ids do not collide
    first, second = (set(re.findall(r'id="([\w-]+)"', view)) for view in views)
    assert first and not first & second


def test_a_page_can_colour_it_in_light_and_dark() -> None:
    assert set(LIGHT) == set(DARK) and len({colour(k) for k in range(len(PALETTE))}) == len(PALETTE)
    assert colour(199) == colour(195) != colour(100) and len({colour(100 + 10 * k) for k in range(10)}) == 10
    named = set(re.findall(r"var\(--(\w+)\)", json.dumps([panel_spec(panel) for panel in (PANEL, MAP, LAYERS)])))
    assert named <= set(LIGHT) and all(f"--{name}: {DARK[name]}" in css() for name in named)


@pytest.mark.parametrize("suffix", ["png", "svg", "html", "json"])
def test_a_chart_is_saved_as_the_kind_its_name_says(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"chart.{suffix}"
    save(CHART, path)
    head = {"png": b"\x89PNG", "svg": b"<svg", "html": b"<!DOCTYPE html>", "json": b"{"}[suffix]
    assert path.read_bytes().lstrip().startswith(head) and list(tmp_path.iterdir()) == [path]
    if suffix == "json":
        assert json.loads(path.read_text()) == spec(CHART)
    if suffix == "html":
        assert not re.findall(r"<(?:script|link)[^>]*(?:src|href)=", path.read_text())


def test_a_path_that_cannot_be_written_is_refused_before_anything_is_computed(tmp_path: Path) -> None:
    check_path(None)
    check_path(tmp_path / "chart.svg")
    with pytest.raises(InputError, match=r"is saved as one of \.png, \.svg, \.html, \.json"):
        check_path(tmp_path / "chart.pdf")
    with pytest.raises(InputError, match="does not exist"):
        check_path(tmp_path / "nowhere" / "chart.svg")
