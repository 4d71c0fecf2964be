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
from torch import nn

from openbook.base.errors import InputError
from openbook.base.intervals import clustered
from openbook.book import ListSource
from openbook.book.shelf import NONE
from openbook.probes.layers import decoder_layers
from openbook.probes.stitch import (
    check_against_one,
    check_compatible,
    judge,
    section_map,
    smallest_windows,
    stitch_map,
)
from openbook.probes.stitching import Stitcher
from openbook.probes.subject import Subject, check_tokenizers, open_subject
from openbook.task.source import Translations
from openbook.training.batches import Item
from openbook.training.exam import correct_answers

Make = Callable[..., Subject]


def exam_of(model: Any, subject: Subject, rows: list[Item]) -> float:
    return float(np.mean([right.mean() for right in correct_answers(model, subject.encoder, rows, subject.source, 4)]))


def test_the_map_is_what_the_exam_says_of_every_stitched_model(subject: Make) -> None:
    base, trained = subject(seed=0), subject(seed=1)
    result = stitch_map(base, trained, samples=12)
    assert result.layers == 3 and [section.name for section in result.sections] == ["level 1", "level 2"]
    assert result.changed_layers == [1, 2, 3] and result.chance == 1 / 4
    for number, section in enumerate(result.sections):
        rows = trained.dropped(number, 12)
        assert section.samples == len(rows)
        for first in range(3):
            for last in range(first, 3):
                model = copy.deepcopy(base.model)
                for layer in range(first, last + 1):
                    model.model.layers[layer] = decoder_layers(trained.model)[layer]
                assert section.map[first, last] == pytest.approx(exam_of(model, trained, rows))
        assert np.isnan(section.map[np.tril_indices(3, -1)]).all()
        assert section.reader == pytest.approx(exam_of(base.model, trained, rows))
        assert section.trained == pytest.approx(exam_of(trained.model, trained, rows))


def test_less_memory_gives_the_same_map_in_more_pieces(subject: Make) -> None:
    base, trained = subject(seed=0, layers=4), subject(seed=1, layers=4)
    wide = stitch_map(base, trained, samples=6)
    narrow = stitch_map(base, trained, samples=6, memory=0)
    for one, other in zip(wide.sections, narrow.sections, strict=True):
        np.testing.assert_allclose(one.map, other.map)
        np.testing.assert_allclose(one.loss, other.loss, rtol=1e-4)
    assert narrow.layer_calls > wide.layer_calls == 8


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
    assert smallest_windows(accuracy) == [(2, 3), (1, 2)]  # from 1, the best first
    assert smallest_windows(accuracy, 0.98) == [(1, 3)] and smallest_windows(accuracy, 0.999) == []


def test_a_section_has_its_smallest_window_with_its_interval() -> None:
    """Two layers of which the first is equal in both models, so that windows with the second are all the same."""
    layers = [nn.Linear(1, 1, bias=False) for _ in range(3)]
    stitcher = Stitcher(layers[:2], [layers[0], layers[2]])
    right = np.array([1.0, 1.0, 1.0, 0.9])
    scores = {None: np.stack([0.2 * right, right]), (1, 1): np.stack([right, 0.1 * right])}
    section = section_map("level 1", stitcher, scores, np.stack([right, right]))
    np.testing.assert_allclose(section.map, [[section.reader, 0.975], [np.nan, 0.975]])
    np.testing.assert_allclose(section.loss, [[0.975, 0.0975], [np.nan, 0.0975]])
    assert section.smallest_window == (2, 2) and section.smallest_windows == [(2, 2)]
    assert section.smallest_accuracy == list(clustered(right))
    assert (section.all_layers, section.trained, section.samples) == (0.975, 0.975, 4)
    weak = section_map("level 1", stitcher, {window: score / 2 for window, score in scores.items()}, scores[None])
    assert weak.smallest_window is None and weak.smallest_accuracy is None and weak.smallest_windows == []


def test_characters_of_a_bigram_are_judged_apart() -> None:
    batch = {"input_ids": torch.tensor([[0, 5, 6]]), "answers": torch.tensor([[False, True, True]])}
    logits = torch.zeros(1, 2, 9)
    logits[0, 0, 4], logits[0, 1, 6] = 1.0, 1.0  # 4 = (1, 1) for 5 = (1, 2): one character is right
    bigrams, words = Translations(2, 3, 1, text="composite"), Translations(2, 3, 1, text="compact")
    assert judge(logits, batch, bigrams)[0, 0].tolist() == [0.75]
    assert judge(logits, batch, words)[0, 0].tolist() == [0.5]
    wider = torch.zeros(1, 2, 18)  # words of two alphabets: 9 + 5 has both characters of 5, of another level
    wider[0, 0, 14], wider[0, 1, 6] = 1.0, 1.0
    assert judge(wider, batch, bigrams)[0, 0].tolist() == [0.5]


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
    base, trained = subject(seed=0), subject(seed=1)

    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("a forward pass was made")

    base.model.forward = trained.model.forward = never
    with pytest.raises(InputError, match="there is no section 'level 7': there are level 1, level 2; did you mean"):
        stitch_map(base, trained, sections=["1", "level 7"])
    with pytest.raises(InputError, match="at least one"):
        stitch_map(base, trained, samples=0)
    closed = replace(trained, curriculum=trained.curriculum.model_copy(update={"candidates": "needed", "others": 0.0}))
    records = [{"prompt": "who ?", "completion": " Ilva", "privileged_context": {"facts": ["a"], "more": []}}] * 3
    source = ListSource(records)
    with pytest.raises(InputError, match="nothing is dropped: no example shows a piece of section 'more'"):
        stitch_map(base, replace(closed, source=source), sections=["more"])
    bare = ListSource([{"prompt": "who ?", "completion": " Ilva"}] * 3)
    with pytest.raises(InputError, match="have no book"):
        stitch_map(base, replace(closed, source=bare))
    with pytest.raises(InputError, match="nothing to stitch"):
        stitch_map(replace(trained, model=copy.deepcopy(trained.model)), trained)


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
