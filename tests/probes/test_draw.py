"""Charts are drawn from the JSON alone, and published numbers are read as they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from openbook.base.console import plain
from openbook.figures.theme import save, styled
from openbook.paper.published_maps import published_reading, published_windows
from openbook.probes.draw import intermediate_chart, perturb_chart, stitch_chart, windows_chart
from openbook.probes.intermediate import IntermediateMap, StringMap
from openbook.probes.known import known_perturb_map, known_stitch_map


@pytest.fixture(scope="module")
def stitched() -> dict[str, Any]:
    return json.loads(json.dumps(plain(known_stitch_map("surrogate", 3, 3, samples=4).to_json())))


def panels(chart: Any) -> int:
    return json.dumps(styled(chart).to_dict()).count('"layer": [')


def test_a_panel_for_each_section_and_a_row_for_each_run(stitched: dict[str, Any], tmp_path: Path) -> None:
    assert panels(stitch_chart([stitched, stitched], ["one", "two"])) == 6
    for name in ("map.png", "map.html"):
        save(stitch_chart([stitched]), tmp_path / name)
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "map.html").read_text()
    assert "vega" in page and "smallest: 2" in page and "cdn.jsdelivr" not in page.split("</script>")[-1]


def test_used_rules_above_and_the_control_below() -> None:
    found = json.loads(json.dumps(plain(known_perturb_map("surrogate", 3, 4, 2, samples=8, length=12).to_json())))
    assert panels(perturb_chart(found)) == 6


def test_probe_control_and_lens() -> None:
    random = np.random.default_rng(0)
    own = np.array([True, False])
    strings = [StringMap(i, random.random((4, 2)), random.random((4, 2)), random.random((3, 2)), own) for i in (1, 2)]
    places = [{"string": 2, "place": 1}, {"string": 3, "place": 1}]
    found = plain(IntermediateMap("m", 1.0, 8, 8, 0.25, places, strings).to_json())
    chart = intermediate_chart(found)
    assert panels(chart) == 6 and "'s_3'" in json.dumps(chart.to_dict())


def test_windows_beside_published_ones() -> None:
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
    ours = {"who": "ours", "section": "level 1", "layers": 4, "windows": [], "reads": None}
    assert panels(windows_chart([ours, *({**row, "who": "3B"} for row in paper)])) == 2
