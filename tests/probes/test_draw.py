"""Charts and tables are made of the JSON alone, and published numbers are read as they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from openbook.figures import save
from openbook.figures.charts import Heatmap, Ranges
from openbook.paper.published import published_reading, published_window_rows, published_windows
from openbook.probes.draw import (
    intermediate_chart,
    intermediate_table,
    json_of,
    perturb_chart,
    perturb_table,
    stitch_chart,
    stitch_table,
    windows_chart,
)
from openbook.probes.intermediate import IntermediateMap, string_map
from openbook.probes.known import known_perturb_map, known_stitch_map


def as_read(result: Any) -> dict[str, Any]:
    """A result as it is read from a file."""
    return json.loads(json.dumps(json_of(result), allow_nan=False))


@pytest.fixture(scope="module")
def stitched() -> dict[str, Any]:
    return as_read(known_stitch_map("surrogate", 3, 3, samples=4))


def test_a_heatmap_for_each_section_with_its_smallest_window(stitched: dict[str, Any], tmp_path: Path) -> None:
    chart = stitch_chart([stitched])
    assert [panel.title for panel in chart.panels] == ["level 1 missing", "level 2 missing", "level 3 missing"]
    for level, panel in enumerate(chart.panels):
        assert isinstance(panel, Heatmap) and panel.outlined == [(level, level)]
        assert panel.values[2][0] is None and panel.values[level][level] == 1.0 and panel.rows == ["1", "2", "3"]
    assert "level 2: 2" in chart.alt
    save(chart, tmp_path / "map.png")
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")
    both = stitch_chart([stitched, stitched], ["one", "two"])
    assert [panel.title for panel in both.panels][2:4] == ["one: level 3 missing", "two: level 1 missing"]
    table = stitch_table(stitched)
    assert [row[0] for row in table.rows] == ["level 1", "level 2", "level 3"] and table.rows[1][4] == "2"


def test_used_rules_and_then_the_control() -> None:
    result = as_read(known_perturb_map("surrogate", 3, 4, 2, samples=8, length=12))
    chart = perturb_chart(result)
    used, control = chart.panels[:3], chart.panels[3:]
    for level, (panel, unused) in enumerate(zip(used, control, strict=True)):
        assert isinstance(panel, Heatmap) and isinstance(unused, Heatmap)
        assert {panel.rows[row] for row, _ in panel.outlined} == {f"{level + 1}"} and not unused.outlined
        assert max(value for row in panel.values for value in row if value is not None) == 1.0
    assert [row[:2] for row in perturb_table(result).rows] == [["level 1", "1"], ["level 2", "2"], ["level 3", "3"]]
    result["sections"][0]["first_layer"] = None
    assert not perturb_chart(result).panels[0].outlined and perturb_table(result).rows[0][1] == "–"


def test_probe_control_and_lens() -> None:
    random = np.random.default_rng(0)
    own = np.array([True, False])
    strings = [string_map(i, random.random((4, 2)), random.random((4, 2)), random.random((3, 2)), own) for i in (1, 2)]
    places = [{"string": 2, "place": 1}, {"string": 3, "place": 1}]
    result = as_read(IntermediateMap("m", 1.0, 3, 8, 8, 0.25, places, strings))
    probe, _, _, _, lens, _ = intermediate_chart(result).panels
    assert isinstance(probe, Heatmap) and isinstance(lens, Heatmap)
    assert probe.groups == [("s_2", 1), ("s_3", 1)] and probe.rows == ["3", "2", "1", "0"] and lens.rows[-1] == "1"
    table = intermediate_table(result)
    assert [row[0] for row in table.rows] == ["0", "1", "2", "3", "known from"]
    assert table.rows[0][1] == f"{strings[0].map[0, 0]:.2f} |     "


def test_windows_beside_published_ones(stitched: dict[str, Any]) -> None:
    rows = published_windows()
    paper = [row for row in rows if (row["curriculum"], row["samples"]) == ("anneal", 100_000)]
    assert [row["windows"] for row in paper] == [
        [(2, 10), (3, 11)],
        [(14, 19)],
        [(17, 19)],
        [(20, 25)],
        [(24, 25), (25, 26)],
    ]
    assert len(rows) == 50 and all(1 <= a <= b <= 28 for row in rows for a, b in row["windows"])
    assert [row["marked"] for row in published_reading() if row["chars"] == 8] == [10, 17, 19, 22, 26]
    ours, *others = windows_chart([stitched], {"level 1": 1, "level 3": None}, published_window_rows()).panels
    assert isinstance(ours, Ranges) and ours.title == "ours: surrogate, stored" and not ours.published
    assert [row.stretches for row in ours.rows] == [[(k / 3, (k + 1) / 3)] for k in range(3)]
    assert [row.mark for row in ours.rows] == [pytest.approx(1 / 6), None, None]
    assert len(others) == 10 and "3B: anneal, 100,000" in [panel.title for panel in others]
    assert all(isinstance(panel, Ranges) and panel.published and len(panel.rows) == 5 for panel in others)
