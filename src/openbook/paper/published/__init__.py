"""Published numbers, read from small files of the package. They are others', and drawn behind ours as such."""

from __future__ import annotations

import contextlib
import csv
import functools
import json
from importlib import resources
from typing import Any

from openbook.paper.experiment import Json

LAYERS = 28  # of Llama 3.2 3B


@functools.cache
def published(name: str) -> list[Json]:
    """The rows of a published figure or table; what looks like a number is one, an empty cell is None."""
    text = resources.files(__name__).joinpath(f"{name}.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
    return [{key: _value(cell) for key, cell in row.items()} for row in rows]


def _value(cell: str) -> Any:
    with contextlib.suppress(ValueError):
        return json.loads(cell)
    return cell or None


def published_windows() -> list[Json]:
    """The smallest windows that reach 90 %: curriculum, samples, section, windows (none, if none does), all_layers."""
    return [
        {
            "curriculum": row["curriculum"],
            "samples": row["num_samples"],
            "section": f"level {row['phrasebook']}",
            "layers": LAYERS,
            "windows": [tuple(int(layer) for layer in pair.split("-")) for pair in (row["windows"] or "").split()],
            "all_layers": row["all_layers"],
        }
        for row in published("stitching_windows")
    ]


def published_window_rows() -> list[Json]:
    """The same as rows of `probes.draw.windows_chart`, with the layer that begins to read each section."""
    reads = {row["section"]: row["marked"] for row in published_reading() if row["chars"] == 8}
    return [
        {**row, "model": f"3B: {row['curriculum']}, {row['samples']:,}", "reads": reads[row["section"]]}
        for row in published_windows()
    ]


def published_reading() -> list[Json]:
    """The layer that begins to read each section: as marked in the figure, and by a tenth of the largest change."""
    return [
        {
            "chars": row["chars"],
            "section": f"level {row['phrasebook']}",
            "layers": LAYERS,
            "marked": row["marked"],
            "first_large_layer": row["any"],
            "by_string": {f"s_{i}": row[f"s_{i}"] for i in range(1, 7)},
        }
        for row in published("perturbation_layers")
    ]
