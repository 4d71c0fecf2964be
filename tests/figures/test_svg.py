"""Charts as SVG: marks where the numbers are, words for those who cannot see, files that stand alone."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openbook.figures.charts import Axis, Chart, Heatmap, Level, Panel, Series, share
from openbook.figures.scales import Ruler, written
from openbook.figures.svg import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, colour, file_svg, heat, legend_of, panel_svg

LINE = Series("ours", [(1, 0.0), (10, 0.5), (100, 1.0)], 0, [(0, 0.1), (0.4, 0.6), (0.9, 1.0)])
OLD = Series("theirs", [(1, 0.2), (100, 0.3)], 1, published=True)
PANEL = Panel("a panel", Axis("samples", "log", "si"), share("accuracy"), [LINE, OLD], [Level(0.1, "chance")])
MAP = Heatmap("a map", [[0.0, 1.0], [None, 0.5]], "last", "first", ["1", "2"], ["1", "2"])


def parsed(panel: Panel | Heatmap) -> ElementTree.Element:
    return ElementTree.fromstring(panel_svg(panel, "what is to be seen, in words & signs"))


def test_points_are_where_their_numbers_say() -> None:
    marks = [mark for mark in parsed(PANEL).iter("circle") if "theirs" not in mark.attrib["data-t"]]
    assert [float(mark.attrib["cy"]) for mark in marks] == [HEIGHT - BOTTOM, (HEIGHT - BOTTOM + TOP) / 2, TOP]
    places = [float(mark.attrib["cx"]) for mark in marks]
    assert places[1] - places[0] == pytest.approx(places[2] - places[1], abs=0.2)  # decades are even on a log axis
    assert all(LEFT < place < WIDTH - RIGHT for place in places)
    assert marks[1].attrib["data-t"] == "ours: 50 % (40 % to 60 %), samples 10"


def test_published_curves_are_marked_behind_ours_and_named_so() -> None:
    groups = [group for group in parsed(PANEL).iter("g") if group.attrib.get("data-k")]
    assert [group.attrib["data-k"] for group in groups] == ["theirs", "ours"]
    assert "pub" in groups[0].attrib["class"] and "stroke-dasharray" in groups[0].attrib
    assert all("(published)" in mark.attrib["data-t"] for mark in groups[0].iter("circle"))
    assert "stroke-dasharray" not in groups[1].attrib


def test_a_heatmap_has_a_cell_for_every_number_and_none_for_nothing() -> None:
    cells = [cell for cell in parsed(MAP).iter("rect") if cell.attrib.get("class") == "pt"]
    assert len(cells) == 3
    assert cells[1].attrib["data-t"] == "first 1, last 2: 100 %"
    assert cells[0].attrib["fill"] == heat(0) and cells[1].attrib["fill"] == heat(1)


def _labels(panel: Panel) -> dict[str, ElementTree.Element]:
    return {found.text or "": found for found in ElementTree.fromstring(panel_svg(panel, "")).iter() if found.text}


@pytest.mark.parametrize(("last", "below"), [(0.15, True), (0.1, False), (0.9, False)])
def test_the_name_of_a_level_stands_where_no_curve_ends(last: float, below: bool) -> None:
    panel = Panel("", Axis("x"), share("y"), [Series("a", [(0, 0.9), (1, last)], 0)], [Level(0.125, "chance")])
    line = HEIGHT - BOTTOM - 0.125 * (HEIGHT - TOP - BOTTOM)
    assert (float(_labels(panel)["chance"].attrib["y"]) > line) == below


def test_no_label_of_an_axis_reaches_over_the_edge() -> None:
    panel = Panel("", Axis("x", form="percent", low=0, high=1), share("y"), [Series("a", [(0, 0.9), (1, 0.2)], 0)])
    place = float(_labels(panel)["100 %"].attrib["x"])
    assert WIDTH - RIGHT - 8 < place <= WIDTH - 15  # a letter is about six wide


def test_a_panel_speaks_and_takes_the_focus() -> None:
    root = parsed(PANEL)
    assert root.attrib["role"] == "img" and root.attrib["tabindex"] == "0"
    assert root.attrib["aria-label"] == "what is to be seen, in words & signs"


def test_a_file_stands_alone() -> None:
    chart = Chart(
        "name", "Title <1>", "in words", [PANEL, MAP, PANEL, MAP], "A caption that is long enough to wrap. " * 8
    )
    text = file_svg(chart)
    root = ElementTree.fromstring(text)
    assert "var(" not in text and "data-" not in text
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    words = [node for node in root.iter() if node.tag.endswith("text") and "transform" not in node.attrib]
    assert all(0 <= float(node.attrib["y"]) <= height and 0 <= float(node.attrib["x"]) <= width for node in words)
    assert legend_of(chart) == [("ours", colour(0), True, False), ("theirs", colour(1), False, True)]


def test_a_curve_of_many_points_tells_only_some() -> None:
    long = Series("long", [(k, k / 999) for k in range(1000)])
    marks = list(parsed(Panel("p", Axis("step"), share("y"), [long])).iter("circle"))
    assert 10 < len(marks) <= 25


def test_numbers_that_are_none_leave_no_mark() -> None:
    holes = Series("holes", [(1, float("nan")), (2, 0.5), (3, float("inf"))])
    root = parsed(Panel("p", Axis("x"), Axis("y"), [holes]))
    assert len(list(root.iter("circle"))) == 1 and "nan" not in ElementTree.tostring(root, "unicode")


finite = st.floats(-1e6, 1e6, allow_nan=False)


@given(st.lists(finite, min_size=1, max_size=20), st.booleans())
def test_rulers_hold_their_values_and_their_ticks(values: list[float], log: bool) -> None:
    if log:
        values = [abs(value) + 1e-3 for value in values]
    ruler = Ruler.of(Axis("x", "log" if log else "linear"), values)
    assert all(-1e-9 <= ruler.at(value) <= 1 + 1e-9 for value in values)
    ticks = ruler.ticks()
    assert len(ticks) <= 8 and ticks == sorted(ticks)
    assert all(-1e-6 <= ruler.at(tick) <= 1 + 1e-6 for tick in ticks)


@pytest.mark.parametrize(
    ("value", "form", "words"),
    [
        (0.5, "percent", "50 %"),
        (0.9985, "percent", "99.9 %"),
        (12_500, "si", "12.5k"),
        (1e6, "si", "1M"),
        (0.25, "number", "0.25"),
        (12_500, "number", "12,500"),
        (1.2e-5, "number", "1.2e-5"),
        (None, "number", "-"),
        (0, "si", "0"),
    ],
)
def test_numbers_are_written_for_people(value: float | None, form: str, words: str) -> None:
    assert written(value, form) == words  # type: ignore[arg-type]


def test_colours_are_many_enough_to_see() -> None:
    assert len({colour(k) for k in range(8)}) == 8 and len({colour(100 + 11 * k) for k in range(10)}) >= 9
    assert colour(199) == colour(195) != colour(100)


def test_a_chart_is_the_same_file_whatever_was_drawn_before() -> None:
    chart = Chart("name", "title", "in words", [PANEL, MAP], "caption")
    first = file_svg(chart)
    panel_svg(PANEL, "another")
    assert file_svg(chart) == first
    other = Panel("a panel", PANEL.x, PANEL.y, [OLD])
    names = [clip.attrib["id"] for clip in [*parsed(PANEL).iter("clipPath"), *parsed(other).iter("clipPath")]]
    assert len(set(names)) == 2  # on one page each panel has a clip of its own
