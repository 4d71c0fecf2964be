"""Readers that come with the package: finished runs of `openbook prepare`, called by their names."""

from __future__ import annotations

from importlib import resources
from pathlib import Path


def shipped_readers() -> dict[str, Path]:
    """Their folders by name, which says what they read: student-5-8 MLT(5, 8), writer-2-8 MLT(2, 8) as text."""
    folder = Path(str(resources.files("openbook") / "checkpoints"))
    return {path.name: path for path in sorted(folder.iterdir()) if path.is_dir()}


def located(path: str | Path) -> Path:
    """What a path means: the folder that is there, else the shipped reader of that name, else the path as it is."""
    return Path(path) if Path(path).exists() else shipped_readers().get(str(path), Path(path))
