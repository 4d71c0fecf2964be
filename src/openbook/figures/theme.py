"""One look for every chart, and one way to save it: PNG, SVG or a self-contained interactive page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from openbook.base.errors import InputError

# A colour-blind-safe order (Okabe and Ito), used for curricula and arms alike.
PALETTE = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C8C8C", "#000000"]
SUFFIXES = (".png", ".svg", ".html", ".json")


def styled(chart: Any) -> Any:
    """The chart with the project's fonts, grid and colours."""
    return (
        chart.configure_view(stroke=None)
        .configure_axis(labelFontSize=12, titleFontSize=13, gridColor="#e6e6e6", domainColor="#888", tickColor="#888")
        .configure_legend(labelFontSize=12, titleFontSize=12, labelLimit=300, symbolStrokeWidth=3)
        .configure_title(fontSize=15, anchor="start", subtitleFontSize=12, subtitleColor="#555")
        .configure_range(category=PALETTE)
    )


def check_path(path: Path | None) -> None:
    """Refuse a chart file whose kind is unknown or whose folder is not there, before anything is computed."""
    if path is None:
        return
    if path.suffix not in SUFFIXES:
        raise InputError(f"{path}: a chart is saved as one of {', '.join(SUFFIXES)}")
    if not path.absolute().parent.is_dir():
        raise InputError(f"{path}: the folder {path.absolute().parent} does not exist")


def save(chart: Any, path: Path) -> None:
    """Write a chart to a file of the kind its name says."""
    import vl_convert

    from openbook.figures.charts import Chart
    from openbook.figures.svg import file_svg

    check_path(path)
    aside = path.with_name(f".{path.stem}.writing{path.suffix}")
    kinds: dict[str, dict[str, Any]] = {".png": {"ppi": 160}, ".html": {"inline": True}}
    options = kinds.get(path.suffix, {})
    try:
        if isinstance(chart, Chart):  # drawn by hand until Altair draws these too
            drawn = file_svg(chart)
            aside.write_bytes(vl_convert.svg_to_png(drawn) if path.suffix == ".png" else drawn.encode())
        else:
            styled(chart).save(str(aside), **options)
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
