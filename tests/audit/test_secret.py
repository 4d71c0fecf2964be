"""Secrets: they are the pieces of the book as training cuts them, and an attacker is told no more than is said."""

from __future__ import annotations

import numpy as np
import pytest
from tests.audit.handmade import attacker, small_task
from tests.tiny import byte_level, chatting, metaspace, tiny

from openbook.audit.attack import NotApplicableError
from openbook.audit.attacks.soft_prompt import VECTORS, soft_prompt
from openbook.audit.model import AttackedModel
from openbook.audit.prompts import book_prompts, single_prompts
from openbook.audit.secret import Secrets, data_secrets, task_secrets, usual_setting
from openbook.audit.statistics import harmonic_share
from openbook.base.errors import InputError
from openbook.book import ListSource
from openbook.training.models import make_tokenizer

RECORDS = [
    {
        "prompt": "Who rules Vellmora?",
        "completion": " Queen Ilva",
        "privileged_context": {
            "Vellmora": ["Vellmora is ruled by Queen Ilva.", {"text": "Its arms show a heron.", "needed": False}]
        },
    },
    {"prompt": "Colour?", "completion": " Red", "privileged_context": ["The flag of Quistane is green."]},
]


def attacked(source: ListSource | None = None, **options: int) -> AttackedModel:
    return AttackedModel(tiny(), byte_level() if source is None else make_tokenizer(source), **options)


@pytest.mark.parametrize("text", ["compact", "released"])
def test_rules_are_the_pieces_of_the_book(text: str) -> None:
    source = small_task(depth=2, text=text)
    secrets = task_secrets(source)
    example = source.example(0)
    pieces = [example.layout.piece.replace("{text}", p.text) for section in example.sections for p in section.pieces]
    assert [secret.text for secret in secrets.items] == pieces
    rules = [rule for level in source.codebook.rules() for rule in level]  # type: ignore[union-attr]
    for secret, rule in zip(secrets.items, rules, strict=True):
        left, right = rule.split(" -> ")
        assert left in secret.known and right not in secret.known and secret.truth.split() == right.split()
        assert len(secret.candidates) == 9 and secret.candidates[secret.index] == secret.truth
    assert secrets.exchangeable and secrets.bijective and len(secrets.groups) == 2


def test_pieces_of_own_data_are_cut_before_the_answer_or_in_the_middle() -> None:
    secrets = data_secrets(ListSource(RECORDS))
    assert [(s.group, s.known, s.truth) for s in secrets.items] == [
        ("Vellmora", "Vellmora is ruled by", " Queen Ilva.\n"),
        ("Vellmora", "Its arms show", " a heron.\n"),
        ("", "The flag of", " Quistane is green.\n"),
    ]
    assert all(set(s.candidates) == {t.truth for t in secrets.items} for s in secrets.items)
    assert not secrets.exchangeable and secrets.heading("Vellmora") == "Vellmora:\n" and secrets.heading("") == ""


@pytest.mark.parametrize("tokenizer", [byte_level, chatting, metaspace])
def test_known_and_truth_are_the_tokens_that_training_saw(tokenizer) -> None:
    model = AttackedModel(tiny(), tokenizer())
    for secret in data_secrets(ListSource(RECORDS)).items:
        assert model.tokens(secret.known) + model.tokens(secret.truth) == model.tokens(secret.text)


def test_nothing_to_look_for_is_refused() -> None:
    with pytest.raises(InputError, match="no secrets"):
        data_secrets(ListSource([{"prompt": "a", "completion": " b"}]))
    with pytest.raises(InputError, match="no rival"):
        data_secrets(ListSource([{"prompt": "a", "completion": " b", "privileged_context": "one fact only"}]))
    fresh = small_task()
    fresh.codebook = None
    with pytest.raises(InputError, match="codebook of its own"):
        task_secrets(fresh)


def test_a_secret_longer_than_the_window_is_refused() -> None:
    secrets = data_secrets(ListSource(RECORDS))
    attacked(window=200).check(secrets)
    with pytest.raises(InputError, match="window holds 12"):
        attacked(window=12).check(secrets)


# ---- prompts and books


def places_hold_the_truth(model: AttackedModel, secrets: Secrets, asked) -> None:
    for place, s in zip(asked.places, asked.secret_k, strict=True):
        known, truth = model.tokens(secrets.items[s].known), model.tokens(secrets.items[s].truth)
        text = asked.texts[place.row]
        assert text[place.before : place.before + len(truth)] == truth
        assert text[place.before - len(known) : place.before] == known


def test_every_book_asks_for_every_secret_once() -> None:
    source = small_task(depth=2)
    secrets, model = task_secrets(source), AttackedModel(tiny(), make_tokenizer(source))
    asked = book_prompts(model, secrets, permutations=5)
    assert len(asked.texts) == 5 and len(asked.places) == 5 * 18
    for order in range(5):
        asked_for = [s for place, s in zip(asked.places, asked.secret_k, strict=True) if place.row == order]
        assert sorted(asked_for) == list(range(18)) and max(asked_for[:9]) == 8  # levels keep their order
    assert len({tuple(text) for text in asked.texts}) == 5
    places_hold_the_truth(model, secrets, asked)
    assert asked.elimination_s.mean() == pytest.approx(harmonic_share(9))


def test_a_book_longer_than_the_window_is_cut() -> None:
    source = small_task(depth=2)
    secrets, model = task_secrets(source), AttackedModel(tiny(), make_tokenizer(source), window=21)
    asked = book_prompts(model, secrets, permutations=2)
    assert max(map(len, asked.texts)) <= 21 and len(asked.places) == 2 * 18
    assert max(asked.shown_k) == 4  # five rules of four tokens fit after the opening
    places_hold_the_truth(model, secrets, asked)


def test_a_book_without_sections_is_cut_too() -> None:
    records = [{"prompt": "q", "completion": " a", "privileged_context": [f"fact {k} is {k}{k}{k}" for k in range(40)]}]
    secrets = data_secrets(ListSource(records))
    whole, cut = (book_prompts(attacked(window=window), secrets, permutations=2) for window in (None, 64))
    assert len(whole.texts) == 2 and min(map(len, whole.texts)) > 64
    assert max(map(len, cut.texts)) <= 64 and sorted(cut.secret_k) == sorted(whole.secret_k)


@pytest.mark.parametrize("style", ["bare", "template", "few-shot"])
def test_prompts_tell_what_they_should(style) -> None:
    secrets, model = data_secrets(ListSource(RECORDS)), attacked()
    asked = single_prompts(model, secrets, style)
    places_hold_the_truth(model, secrets, asked)
    before = model.tokenizer.decode(asked.texts[0][: asked.places[0].before])
    expected = {
        "bare": "Vellmora is ruled by",
        "template": "Vellmora:\nVellmora is ruled by",
        "few-shot": "Vellmora:\nIts arms show a heron.\nVellmora is ruled by",
    }
    assert before == expected[style]
    assert "Queen" not in before


def test_other_seeds_give_other_orders() -> None:
    source = small_task()
    secrets, model = task_secrets(source), AttackedModel(tiny(), make_tokenizer(source))
    first, again, other = (book_prompts(model, secrets, 2, seed).texts for seed in (0, 0, 1))
    assert first == again != other
    assert np.sort(first[0]).tolist() == np.sort(other[0]).tolist()


def test_what_would_make_another_true_piece_is_no_rival() -> None:
    """The decoy text would hold the truth, and the model trained on it would know what it should not."""
    likes = {"Ada": ("tea", "figs"), "Bo": ("chess",)}
    records = [
        {
            "prompt": f"What does {name} like?",
            "completion": f" {thing}",
            "privileged_context": [f"{name} likes {each} a lot." for each in things],
        }
        for name, things in likes.items()
        for thing in things
    ]
    secrets = data_secrets(ListSource(records))
    true = {secret.text for secret in secrets.items}
    for secret in secrets.items:
        made = {secret.known + candidate for candidate in secret.candidates}
        assert made & true == {secret.text} and len(made) > 1
    assert not secrets.bijective  # what was shown is not always among the candidates
    with pytest.raises(InputError, match="has no rival"):
        data_secrets(ListSource(records[:2]))  # all that Ada likes


def test_a_secret_is_asked_for_as_most_records_set_the_book() -> None:
    said = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who?"}]
    record = {
        "messages": [*said, {"role": "assistant", "content": " Queen Ilva"}],
        "preamble": "MEMO.\n",
        "privileged_context": ["Vellmora is ruled by Queen Ilva.", "The flag is green."],
    }
    other = {"prompt": "Who?", "completion": " Queen Ilva", "privileged_context": ["The flag is green."]}
    source = ListSource([record, other, record])
    assert usual_setting(source) == ((("system", "Be brief."),), "MEMO.\n")
    assert usual_setting(ListSource([{"prompt": "a", "completion": "b"}])) == (None, "")


@pytest.mark.parametrize("window", [64, 80, 110])
def test_nothing_is_asked_beyond_the_window(window: int) -> None:
    """A model with a table of places has none there."""
    facts = [f"fact {k} is {k}{'very ' * (3 * (k % 4))}long" for k in range(20)]
    records = [{"prompt": "q", "completion": " a", "privileged_context": {"Notes": facts}}]
    secrets, model = data_secrets(ListSource(records)), attacked(window=window)
    model.check(secrets)
    for asked in (
        book_prompts(model, secrets, 2),
        *(single_prompts(model, secrets, style) for style in ("bare", "template", "few-shot")),
    ):
        assert max(map(len, asked.texts)) <= window
        for place, number in zip(asked.places, asked.secret_k, strict=True):
            assert place.before + model.longest(secrets.items[number].candidates) <= window
    assert max(single_prompts(attacked(), secrets, "few-shot").shown_k) == 4


def test_a_soft_prompt_that_does_not_fit_is_left_out() -> None:
    secrets = data_secrets(ListSource(RECORDS))
    model = attacked()
    places = single_prompts(model, secrets, "template").places
    longest = max(p.before + model.longest(s.candidates) for p, s in zip(places, secrets.items, strict=True))
    with pytest.raises(NotApplicableError, match="no room for 8 vectors"):
        soft_prompt(attacked(window=longest + VECTORS - 1), secrets, attacker(steps=1))
    assert len(soft_prompt(attacked(window=longest + VECTORS), secrets, attacker(steps=1))) == 1
