"""What was published of a 3B language model, to stand beside our own maps. These numbers are not ours."""

from __future__ import annotations

from typing import Any

from openbook.paper.published import published

LAYERS = 28  # of Llama 3.2 3B


def published_windows() -> list[dict[str, Any]]:
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


def published_window_rows() -> list[dict[str, Any]]:
    """The same as rows of `probes.draw.windows_chart`, with the layer that begins to read each section."""
    reads = {row["section"]: row["marked"] for row in published_reading() if row["chars"] == 8}
    return [
        {**row, "model": f"3B: {row['curriculum']}, {row['samples']:,}", "reads": reads[row["section"]]}
        for row in published_windows()
    ]


def published_reading() -> list[dict[str, Any]]:
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
