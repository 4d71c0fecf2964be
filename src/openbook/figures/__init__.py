"""Charts: what they contain (`charts.py`), how they look (`theme.py`), and how they are drawn and saved."""

from openbook.figures.charts import Axis, Chart, Heatmap, Level, Panel, Range, Ranges, Series, Table, share
from openbook.figures.files import check_path, drawn_svg, png, save, spec, svg

__all__ = [
    "Axis", "Chart", "Heatmap", "Level", "Panel", "Range", "Ranges", "Series", "Table",
    "check_path", "drawn_svg", "png", "save", "share", "spec", "svg",
]  # fmt: skip
