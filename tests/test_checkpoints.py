"""The readers that come with the package can read, and are what their manifests say."""

from __future__ import annotations

from pathlib import Path

import pytest

import openbook
from openbook.training.exam import examine
from openbook.training.folder import RunFolder
from openbook.training.reopen import reopen
from openbook.training.run import accuracy_of

READERS = sorted(path for path in (Path(openbook.__file__).parent / "checkpoints").iterdir() if path.is_dir())


def test_there_is_one() -> None:
    assert READERS


@pytest.mark.parametrize("folder", READERS, ids=lambda folder: folder.name)
def test_a_shipped_reader_is_whole_small_and_capable(folder: Path) -> None:
    assert not RunFolder(folder).damage()
    assert (folder / "model" / "model.safetensors").stat().st_size < 2_000_000
    config, model, encoder, source = reopen(folder, samples=48)
    rows = examine(model, encoder, source, config.curriculum, (0.0, 1.0), False, 48, 1, 48)
    accuracy = accuracy_of(rows)
    assert accuracy["open_book"] >= 0.98
    assert accuracy["closed_book"] < 0.2  # codebooks are fresh: without the book there is nothing to know
