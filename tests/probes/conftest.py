"""Small models on small translations, for all probes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.tiny import tiny

from openbook.curriculum import Curriculum
from openbook.probes.subject import Subject
from openbook.task import Codebook
from openbook.task.source import Translations
from openbook.training.encode import Encoder
from openbook.training.models import make_tokenizer


@pytest.fixture
def subject() -> Callable[..., Subject]:
    """A model of a family with random weights, on MLT(2, 4) in compact text."""

    def make(family: str = "llama", layers: int = 3, seed: int = 0, length: int = 12, model: Any = None) -> Subject:
        source = Translations(2, 4, 1000, Codebook.sample(2, 4), lengths=(length, length), text="compact")
        tokenizer = make_tokenizer(source)
        made = model or tiny(family, vocabulary=len(tokenizer), seed=seed, layers=layers)
        return Subject(f"{family} {seed}", made, Encoder(tokenizer, source.bank), source, Curriculum(others=0.5))

    return make
