"""Retention: nothing is lost where nothing changed, and what is lost is seen, the same way every time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.tiny import chatting, tiny

from openbook.book.load import ListSource
from openbook.training.config import RunConfig
from openbook.training.encode import Encoder
from openbook.training.models import load_or_make
from openbook.training.retention import Retention, retention

RECORDS: list[dict[str, Any]] = [
    {"prompt": "Who rules Vellmora?", "completion": " Ilva", "privileged_context": "Ilva rules Vellmora."},
    {"prompt": "And Quistane?", "completion": " So: Orm", "answer": "Orm", "privileged_context": "Orm rules it."},
]


@pytest.fixture
def start(tmp_path: Path) -> Path:
    tiny(vocabulary=len(chatting())).save_pretrained(tmp_path)
    chatting().save_pretrained(tmp_path)
    return tmp_path


def measured(start: Path, change: float, records: list[dict[str, Any]] = RECORDS, **model: Any) -> Retention:
    """Retention of a model whose weights (its adapters', if it has any) were moved by noise of this size."""
    config = RunConfig.model_validate(
        {"data": "none.jsonl", "model": {"path": str(start), **model}, "think": "<MULL>"}  # it has no such token
    )
    source = ListSource(records, think=config.think)
    learned, tokenizer = load_or_make(config.model, source, config.seed, config.think)
    noise = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in (p for p in learned.parameters() if p.requires_grad):
            weight += change * torch.randn(weight.shape, generator=noise)
    encoder = Encoder(tokenizer, source.bank, think=config.think)
    kept = retention(config, learned, encoder, source)
    assert kept is not None
    return kept


@pytest.mark.parametrize("model", [{}, {"lora": {"rank": 2}}])
def test_a_model_that_has_not_changed_has_lost_nothing(start: Path, model: dict[str, Any]) -> None:
    kept = measured(start, 0.0, **model)
    assert kept.text_kl == pytest.approx(0, abs=1e-6) and kept.prompts_kl == pytest.approx(0, abs=1e-6)
    assert kept.perplexity_ratio == pytest.approx(1) and kept.new_books[0] == kept.new_books[1]


@pytest.mark.parametrize("model", [{}, {"lora": {"rank": 2}}])
def test_the_more_it_changes_the_more_it_loses(start: Path, model: dict[str, Any]) -> None:
    little, much = (measured(start, change, **model) for change in (0.1, 0.4))
    assert 0 < little.text_kl < much.text_kl and little.prompts_kl is not None and much.prompts_kl is not None
    assert 0 < little.prompts_kl < much.prompts_kl
    assert little.text_perplexity[0] == much.text_perplexity[0] == measured(start, 0.0, **model).text_perplexity[0]


def test_a_thinking_token_that_was_added_is_the_same_one_before_and_after(start: Path) -> None:
    thinking = [RECORDS[0] | {"completion": " Well, Ilva", "answer": "Ilva", "thoughts": [" Well,"]}]
    kept = measured(start, 0.0, thinking)
    assert kept.text_kl == kept.prompts_kl == 0 and kept == measured(start, 0.0, thinking)


def test_prompts_without_a_token_of_their_own_are_not_compared(start: Path) -> None:
    bare = [{"prompt": "", "completion": " Ilva"}]
    assert measured(start, 0.1, bare).prompts_kl is None


def test_a_model_from_nothing_has_nothing_to_lose() -> None:
    config, source = RunConfig.model_validate({"data": "none.jsonl"}), ListSource(RECORDS)
    assert retention(config, tiny(), Encoder(chatting(), source.bank), source) is None
