"""The map of a pair of models: accuracies, smallest windows, memory, and what is refused before any forward pass."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.tiny import byte_level, tiny, word_level

from openbook.base.errors import InputError
from openbook.book import ListSource
from openbook.book.shelf import NONE
from openbook.probes.layers import decoder_layers
from openbook.probes.stitch import (
    SectionMap,
    check_against_one,
    check_compatible,
    check_tokenizers,
    judge,
    stitch_subjects,
)
from openbook.probes.stitching import Stitcher
from openbook.probes.subject import Subject, open_subject
from openbook.training.exam import _correct

Make = Callable[..., Subject]


def test_the_map_is_what_the_exam_says_of_every_stitched_model(subject: Make) -> None:
    trained = subject(seed=1)
    base = subject(seed=0).model
    found = stitch_subjects("base", base, trained, samples=12)
    assert found.layers == 3 and [section.name for section in found.sections] == ["level 1", "level 2"]
    assert found.changed == [1, 2, 3] and found.chance == 1 / 4
    for number, section in enumerate(found.sections):
        rows = trained.dropped(number, 12)
        assert section.samples == len(rows)
        for first in range(3):
            for last in range(first, 3):
                model = copy.deepcopy(base)
                for layer in range(first, last + 1):
                    model.model.layers[layer] = decoder_layers(trained.model)[layer]
                exam = np.mean([right.mean() for right in _correct(model, trained.encoder, rows, 4)])
                assert section.accuracy[first, last] == pytest.approx(exam)
                assert section.low[first, last] <= exam <= section.high[first, last]
        assert np.isnan(section.accuracy[np.tril_indices(3, -1)]).all()
        assert section.reader == pytest.approx(
            np.mean([right.mean() for right in _correct(base, trained.encoder, rows, 4)])
        )
        own = np.mean([right.mean() for right in _correct(trained.model, trained.encoder, rows, 4)])
        assert section.trained == pytest.approx(own)


def test_less_memory_gives_the_same_map_in_more_pieces(subject: Make) -> None:
    trained, base = subject(seed=1, layers=4), subject(seed=0, layers=4).model
    wide = stitch_subjects("base", base, trained, samples=6)
    narrow = stitch_subjects("base", base, trained, samples=6, memory=0)
    for one, other in zip(wide.sections, narrow.sections, strict=True):
        np.testing.assert_allclose(one.accuracy, other.accuracy)
        np.testing.assert_allclose(one.loss, other.loss, rtol=1e-4)
    assert narrow.cost.calls > wide.cost.calls == 8


def test_a_section_is_dropped_and_the_others_are_not(subject: Make) -> None:
    one = subject()
    opened = one.shelf(4)[2]
    sizes = (opened.slots != NONE).sum(-1)  # [examples, sections]
    whole = [len(item.ids) for item in one.encoded(*one.shelf(4))]
    for section in range(2):
        short = [len(item.ids) for item in one.dropped(section, 4)]
        assert [a - b for a, b in zip(whole, short, strict=True)] == (4 * sizes[:, section]).tolist()  # 4 tokens a rule


def test_smallest_windows() -> None:
    accuracy = np.full((3, 3), np.nan)
    accuracy[np.triu_indices(3)] = [0.2, 0.91, 0.99, 0.3, 0.95, 0.5]
    section = SectionMap("level 1", accuracy, accuracy, accuracy, accuracy, 0.2, 1.0, 8)
    assert section.smallest() == [(2, 3), (1, 2)]  # from 1, the best first
    assert section.smallest(0.98) == [(1, 3)] and section.smallest(0.999) == []
    told = section.to_json()
    assert told["smallest_window"] == (2, 3) and told["smallest_accuracy"][0] == 0.95
    none = SectionMap("level 1", accuracy / 2, accuracy, accuracy, accuracy, 0.2, 1.0, 8).to_json()
    assert none["smallest_window"] is None and none["smallest_windows"] == []


def test_characters_of_a_bigram_are_judged_apart() -> None:
    batch = {"input_ids": torch.tensor([[0, 5, 6]]), "answers": torch.tensor([[False, True, True]])}
    logits = torch.zeros(1, 2, 9)
    logits[0, 0, 4], logits[0, 1, 6] = 1.0, 1.0  # 4 = (1, 1) for 5 = (1, 2): one character is right
    assert judge(logits, batch, 3)[0][0].tolist() == [0.75]
    assert judge(logits, batch, None)[0][0].tolist() == [0.5]
    wider = torch.zeros(1, 2, 18)  # words of two alphabets: 9 + 5 has both characters of 5, of another level
    wider[0, 0, 14], wider[0, 1, 6] = 1.0, 1.0
    assert judge(wider, batch, 3)[0][0].tolist() == [0.5]


def test_checkpoints_that_do_not_fit_are_refused() -> None:
    llama = tiny("llama", layers=2)
    for other, complaint in (
        (tiny("qwen2", layers=2), "LlamaForCausalLM and Qwen2ForCausalLM cannot be stitched"),
        (tiny("llama", layers=2, hidden=32), "differ in shape"),
        (tiny("llama", layers=3), "absent in one"),
        (tiny("llama", layers=2).bfloat16(), "torch.bfloat16"),
    ):
        with pytest.raises(InputError, match=complaint):
            check_compatible(llama, other)
    another = tiny("llama", layers=2)
    another.config.rms_norm_eps = 0.1
    with pytest.raises(InputError, match=r"rms_norm_eps is .* in one and 0\.1 in the other"):
        check_compatible(llama, another)
    with pytest.raises(InputError, match="different tokenizers"):
        check_tokenizers(byte_level(), word_level())


def test_nothing_is_run_before_everything_is_checked(subject: Make) -> None:
    trained = subject(seed=1)
    base = subject(seed=0).model

    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("a forward pass was made")

    base.forward = trained.model.forward = never
    with pytest.raises(InputError, match="there is no section 'level 7': there are level 1, level 2; did you mean"):
        stitch_subjects("base", base, trained, sections=["1", "level 7"])
    with pytest.raises(InputError, match="at least one"):
        stitch_subjects("base", base, trained, samples=0)
    closed = replace(trained, curriculum=trained.curriculum.model_copy(update={"candidates": "needed", "others": 0.0}))
    records = [{"prompt": "who ?", "completion": " Ilva", "privileged_context": {"facts": ["a"], "more": []}}] * 3
    source = ListSource(records)
    with pytest.raises(InputError, match="nothing is dropped: no example shows a piece of section 'more'"):
        stitch_subjects("base", base, replace(closed, source=source), sections=["more"])
    bare = ListSource([{"prompt": "who ?", "completion": " Ilva"}] * 3)
    with pytest.raises(InputError, match="have no book"):
        stitch_subjects("base", base, replace(closed, source=bare))
    with pytest.raises(InputError, match="nothing to stitch"):
        stitch_subjects("base", copy.deepcopy(trained.model), trained)


def test_a_checkpoint_that_is_no_run_needs_examples(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not the folder of a run"):
        open_subject(tmp_path)


@torch.inference_mode()
def test_a_window_that_is_not_the_stitched_model_is_noticed(subject: Make) -> None:
    one, base = subject(seed=1), subject(seed=0).model
    stitcher = Stitcher(decoder_layers(base), decoder_layers(one.model))
    batch = {"input_ids": torch.arange(4, 16)[None], "answers": torch.arange(12)[None] > 8}
    with pytest.raises(InputError, match="cannot be run together"):
        check_against_one(base, stitcher, batch, torch.zeros(3, base.config.vocab_size))
