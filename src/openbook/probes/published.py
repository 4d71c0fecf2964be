"""What was published of a 3B language model, to stand beside our own maps. These numbers are not ours."""

from __future__ import annotations

import csv
from importlib import resources
from typing import Any

LAYERS = 28  # of Llama 3.2 3B


def _rows(name: str) -> list[dict[str, str]]:
    text = resources.files("openbook.probes").joinpath(name).read_text(encoding="utf-8")
    return list(csv.DictReader(line for line in text.splitlines() if not line.startswith("#")))


def published_windows() -> list[dict[str, Any]]:
    """The smallest windows that reach 90 %: curriculum, samples, section, windows (none, if none does), all_layers."""
    return [
        {
            "curriculum": row["curriculum"],
            "samples": int(row["num_samples"]),
            "section": f"level {row['phrasebook']}",
            "layers": LAYERS,
            "windows": [tuple(int(layer) for layer in pair.split("-")) for pair in row["windows"].split()],
            "all_layers": float(row["all_layers"]),
        }
        for row in _rows("published_stitching_3b.csv")
    ]


def published_reading() -> list[dict[str, Any]]:
    """The layer that begins to read each section: as marked in the figure, and by a tenth of the largest change."""
    return [
        {
            "chars": int(row["chars"]),
            "section": f"level {row['phrasebook']}",
            "layers": LAYERS,
            "marked": int(row["marked"]),
            "first_large_layer": int(row["any"]),
            "by_string": {f"s_{i}": int(row[f"s_{i}"]) if row[f"s_{i}"] else None for i in range(1, 7)},
        }
        for row in _rows("published_perturbation_3b.csv")
    ]
