"""What is changed in the context, what is measured, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tests.tiny import FAMILIES, tiny

from openbook.base.errors import InputError
from openbook.book.shelf import CODE
from openbook.book.text import Kind
from openbook.probes.layers import states_at
from openbook.probes.perturb import check_equal_length, choose_rules, other_images, perturb_map, section_changes
from openbook.probes.slots import slots_of
from openbook.probes.subject import Subject
from openbook.task.alphabet import alphabets

Make = Callable[..., Subject]


@pytest.mark.parametrize("family", sorted(FAMILIES))
@torch.inference_mode()
def test_layer_outputs_are_those_of_the_layers(family: str) -> None:
    model = tiny(family, vocabulary=40, layers=3).eval()
    ids = torch.arange(4, 20).reshape(2, 8)
    places = torch.tensor([[1, 5], [0, 7]])
    states = states_at(model, ids, places)
    hidden = model(input_ids=ids, output_hidden_states=True).hidden_states
    for number in range(3):  # the last one of these is after the final norm
        torch.testing.assert_close(states[number], hidden[number][torch.arange(2)[:, None], places])
    norm = next(module for name, module in model.named_modules() if name.endswith((".norm", "final_layer_norm")))
    torch.testing.assert_close(norm(states[3]), hidden[3][torch.arange(2)[:, None], places])
    assert not torch.allclose(states[3], norm(states[3]))


@pytest.mark.parametrize("text", ["compact", "composite", "letters", "released"])
def test_slots_are_thoughts_and_what_predicts_the_answer(text: str) -> None:
    from openbook.curriculum import Curriculum
    from openbook.task.source import Translations
    from openbook.training.encode import Encoder
    from openbook.training.models import make_tokenizer

    source = Translations(3, 4, 10, lengths=(8, 8), text=text)
    one = Subject("none", None, Encoder(make_tokenizer(source), source.bank), source, Curriculum())
    rows = one.encoded(*one.shelf(3))
    slots = slots_of(source, rows)
    for row, item in enumerate(rows):
        answer = slots.places_bq[row, slots.string_q == 4] + 1
        assert (item.kinds[answer] == CODE[Kind.ANSWER]).all()
        assert len(answer) == (item.kinds == CODE[Kind.ANSWER]).sum()
        thoughts = slots.places_bq[row, slots.string_q < 4]
        assert (item.kinds[thoughts] == CODE[Kind.THOUGHT]).all() and len(set(thoughts)) == len(thoughts)
    widths = {"compact": [8, 8, 8], "composite": [4, 4, 4], "letters": [8, 8, 8], "released": [40, 40, 8]}[text]
    assert np.bincount(slots.string_q)[2:].tolist() == widths
    assert slots.to_json()[0] == {"string": 2, "place": 1}


def test_rules_that_are_changed() -> None:
    candidates = np.random.default_rng(0).random((50, 16)) < 0.6
    candidates[:, :4] = True
    chosen = choose_rules(candidates, 4, 7, "x")
    assert (chosen.sum(-1) == 4).all() and not (chosen & ~candidates).any()
    assert len({tuple(row) for row in chosen}) > 40  # at random
    counts = np.arange(50) % 4 + 1
    assert (choose_rules(candidates, counts, 7, "x").sum(-1) == counts).all()
    images = np.tile(np.arange(16), (50, 1))
    other = other_images(images, chosen, 0, 1)
    assert (other[chosen] != images[chosen]).all() and np.array_equal(other[~chosen], images[~chosen])
    assert other.min() >= 0 and other.max() < 16


def test_only_the_rules_of_one_section_differ_in_the_text(subject: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    one = subject(length=24)
    seen: list[Any] = []
    monkeypatch.setattr(
        "openbook.probes.perturb.state_changes",
        lambda subject, before, texts, slots, advance: seen.append((before, texts)) or [np.zeros((6, 3, 48))] * 4,
    )
    perturb_map(one, rules=2, samples=6)
    before, texts = seen[0]
    vocabulary = {number: word for word, number in one.encoder.tokenizer.get_vocab().items()}
    letters = alphabets(2, 4)
    for number, after in enumerate(texts):
        for old, new in zip(before, after, strict=True):
            places = np.flatnonzero(old.ids != new.ids)
            assert 0 < len(places) <= 4  # two rules, of whose images one or two characters change
            assert (old.kinds[places] == CODE[Kind.PIECE]).all()
            assert {vocabulary[int(new.ids[p])] for p in places} <= set(letters[number // 2 + 1])


@pytest.mark.parametrize("family", ["llama", "gpt_neox"])
def test_maps_of_a_model(family: str, subject: Make) -> None:
    one = subject(family, length=24)
    result = perturb_map(one, rules=2, samples=8)
    assert [section.name for section in result.sections] == ["level 1", "level 2"]
    assert (result.layers, result.samples) == (3, 8)
    for section in result.sections:
        assert section.map.shape == section.control.shape == (3, 48) == (3, len(result.places))
        assert (section.map > 0).any() and (section.control > 0).any()
    again = perturb_map(one, rules=2, samples=8)
    np.testing.assert_array_equal(result.sections[1].map, again.sections[1].map)


def test_first_layers_of_a_planted_change() -> None:
    """Section 2 moves from layer 3 on at s_3 alone; section 1 no more than its control."""
    random = np.random.default_rng(0)
    changes = np.abs(random.normal(size=(4, 24, 5, 6))) * 0.01  # used and unused rules of one section, then the other
    string_q = np.array([2, 2, 2, 3, 3, 3])
    changes[2, :, 2:, 3:] += 1 + random.random((24, 3, 3))
    changes[2, :, 1, 3:] += 0.02  # surely there, but nobody would see it
    one, two = section_changes(["level 1", "level 2"], list(changes), 4 * [np.full(24, 10)], string_q, seed=0)
    assert one.first_layer is None and one.first_large_layer is None
    assert two.first_layer == 2 and two.first_large_layer == 3
    assert two.first_large_layer_by_string == {"s_2": None, "s_3": 3}
    np.testing.assert_allclose(two.map, changes[2].mean(0))


def test_more_used_than_unused_rules_are_not_held_against_the_control() -> None:
    """Every changed rule moves everything a little; 18 of them move it more than 12 do, which is no finding."""
    random = np.random.default_rng(0)
    each = 0.1 + 0.01 * random.random((2, 24, 3, 4))
    counts = [np.full(24, 18), np.full(24, 12)]
    changes = [18 * each[0], 12 * each[1]]
    (same,) = section_changes(["level 1"], changes, counts, np.full(4, 2), seed=0)
    assert same.first_layer is None
    (naive,) = section_changes(["level 1"], changes, 2 * [np.ones(24, np.int64)], np.full(4, 2), seed=0)
    assert naive.first_layer == 1


def test_bad_input_is_refused_before_any_forward_pass(subject: Make) -> None:
    one = subject(length=8)

    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("a forward pass was made")

    one.model.forward = never
    with pytest.raises(InputError, match=r"example \d+ shows \d+ used rules of section 'level 1', fewer than the 9"):
        perturb_map(one, rules=9)
    with pytest.raises(InputError, match="use at least 1"):
        perturb_map(one, rules=0)
    with pytest.raises(InputError, match="there is no section 'level 3'"):
        perturb_map(one, rules=2, sections=["level 3"])
    everything = subject(length=40)
    with pytest.raises(InputError, match="unused rules of section"):  # long strings use nearly all of 16 rules
        perturb_map(everything, rules=8)
    before = one.encoded(*one.shelf(2))
    longer = replace(before[0], ids=np.append(before[0].ids, 1), kinds=np.append(before[0].kinds, before[0].kinds[-1]))
    with pytest.raises(InputError, match="does not give every rule the same length"):
        check_equal_length(before, [longer, before[1]], "level 1")


def test_strings_of_different_lengths_cannot_be_averaged(subject: Make) -> None:
    one = subject()
    one.source.lengths = (8, 16)
    with pytest.raises(InputError, match="strings of one length"):
        slots_of(one.translations, one.encoded(*one.shelf(12)))
