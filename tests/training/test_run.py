"""What a run trains on and is examined on."""

from __future__ import annotations

import numpy as np

from openbook.task import Codebook
from openbook.training.resolve import resolve
from openbook.training.sources import sources_of


def test_fresh_codebooks_never_meet_the_one_that_is_learned() -> None:
    """A model that is audited for a codebook must not have practised with it."""
    fresh = resolve({"task": {"depth": 2, "chars": 3, "codebook": "fresh"}, "samples": 50, "seed": 4})
    learned = resolve({"task": {"depth": 2, "chars": 3}, "seed": 4})
    (source, exam), (target, _) = sources_of(fresh), sources_of(learned)
    assert target.codebook == Codebook.sample(2, 3, 4)  # type: ignore[attr-defined]
    tables = np.concatenate([one.translations(np.arange(50))[1] for one in (source, exam)])  # type: ignore[attr-defined]
    assert len(tables) == 100 and not (tables == target.codebook.tables).all((1, 2)).any()  # type: ignore[attr-defined]
