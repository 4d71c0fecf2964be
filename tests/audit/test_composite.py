"""The composite student: asked in its own tokens, and read as far as its answers go."""

from __future__ import annotations

import math

import numpy as np
import torch
from transformers import PreTrainedModel

from openbook.audit.composite import (
    CompositeInversion,
    CompositeTuning,
    composite_secrets,
    level_strings,
    rows_of,
    votes,
)
from openbook.audit.inversion import shifted
from openbook.audit.run import Settings, attacks_for
from openbook.audit.subject import Subject
from openbook.curriculum import SamplingPlan, curriculum_named
from openbook.student.model import StudentForCausalLM
from openbook.student.vocabulary import student_config
from openbook.task import Codebook
from openbook.task.source import Translations
from openbook.training.encode import Encoder
from openbook.training.models import make_tokenizer
from openbook.training.resolve import resolve

DEPTH, CHARS = 2, 3
CODEBOOK = Codebook.sample(DEPTH, CHARS, seed=4)
SOURCE = Translations(DEPTH, CHARS, 20, CODEBOOK, lengths=(6, 6), text="composite")


def student(seed: int = 0) -> StudentForCausalLM:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return StudentForCausalLM(student_config(DEPTH, CHARS, width=16, heads=1, head=16, mlp=16))


def test_students_are_asked_about_strings_in_which_levels_can_be_told_apart() -> None:
    for text in ("composite", "pairs"):
        source = Translations(3, CHARS, 20, Codebook.sample(3, CHARS), lengths=(4, 40), text=text)  # type: ignore[arg-type]
        config = resolve({"task": {"depth": 3, "chars": CHARS, "lengths": [4, 40], "text": text}})
        attacks = attacks_for(Settings(attacks=("inversion",)), config, source, None, {})  # type: ignore[arg-type]
        (inversion,) = (attack for attack in attacks if isinstance(attack, CompositeInversion))
        assert inversion.pairs == 3


class Oracle(torch.nn.Module):
    """Answers right whatever level a string is given at: what a perfect student would do."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.config, self.parameter = model.config, torch.nn.Parameter(torch.zeros(1))

    def forward(self, input_ids: torch.Tensor, use_cache: bool = False):
        from types import SimpleNamespace

        size = CHARS**2
        given = (input_ids >= size) & (input_ids < size * (DEPTH + 1))
        pairs = int(given[0].sum())
        start = int(given[0].int().argmax())
        tokens = input_ids[:, start : start + pairs].numpy() - size
        level, bigram = int(tokens[0, 0] // size), tokens % size
        for table in CODEBOOK.tables[level:].astype(np.int64):
            string = np.stack([bigram // CHARS, bigram % CHARS], -1).reshape(len(bigram), -1)
            bigram = table[shifted(string, CHARS)]
        logits = torch.zeros(*input_ids.shape, size)
        logits[:, -pairs:] = 20 * torch.nn.functional.one_hot(torch.from_numpy(bigram), size)
        return SimpleNamespace(logits=logits)


def test_questions_are_written_as_training_writes_them() -> None:
    positions = np.arange(5)
    plan = SamplingPlan(SOURCE, curriculum_named("no-context"))
    encoder = Encoder(make_tokenizer(SOURCE), SOURCE.bank)
    encoded = encoder.encode(*plan.at(positions))
    strings = SOURCE.translations(positions)[0].strings[:, 0, :6].astype(np.int64)
    rows = rows_of(student(), strings, level=0).numpy()
    pairs = 3
    for row, ids in zip(rows, encoded.ids, strict=True):
        assert row[: len(ids) - pairs].tolist() == ids[: len(ids) - pairs].tolist()
        assert len(row) == len(ids) - 1  # the last word of the answer is only predicted


def test_a_perfect_student_gives_its_rules_away() -> None:
    oracle = Oracle(student())
    secrets = composite_secrets(SOURCE)
    assert len(secrets) == DEPTH * CHARS**2 and secrets.items[0].truth in secrets.items[0].candidates
    subject = Subject.__new__(Subject)
    subject.model = oracle
    whole, last = CompositeInversion(CODEBOOK, pairs=3)(subject, secrets)
    assert whole.values_s.mean() == 1 and whole.kind == "behaviour"
    assert np.isnan(last.values_s[:9]).all() and last.values_s[9:].mean() == 1


def test_a_student_that_knows_nothing_gives_nothing_away() -> None:
    secrets = composite_secrets(SOURCE)
    subject = Subject(student(), make_tokenizer(SOURCE))
    whole, last = CompositeInversion(CODEBOOK, pairs=3)(subject, secrets)
    assert whole.values_s.mean() < 0.6 and np.nanmean(last.values_s) < 0.6


def test_relearning_and_soft_prompts_score_the_other_half_of_the_last_level() -> None:
    secrets = composite_secrets(SOURCE)
    subject = Subject(student(), make_tokenizer(SOURCE))
    before = {name: value.clone() for name, value in subject.model.state_dict().items()}
    for vectors, name in ((0, "relearning"), (2, "soft-prompt")):
        attack = CompositeTuning(CODEBOOK, 3, steps=2, vectors=vectors)
        (scores,) = attack(subject, secrets)
        assert attack.name == scores.attack == name
        assert np.isnan(scores.values_s[:9]).all() and not np.isnan(scores.values_s[9:]).any()
        assert set(np.round(1 / scores.elimination_s[9:]).tolist()) == {4.0, 5.0}
    assert all(torch.equal(value, subject.model.state_dict()[name]) for name, value in before.items())


def test_strings_look_up_what_they_should() -> None:
    strings = level_strings([1, 4, 7], pairs=4, strings=6, seed=0)
    assert strings.shape == (6, 4) and set(strings.reshape(-1)) == {1, 4, 7}
    assert np.bincount(strings.reshape(-1)).max() == 8
    found = votes(Oracle(student()), strings, CHARS, DEPTH - 1)
    assert (found[[1, 4, 7]].argmax(1) == CODEBOOK.tables[-1][[1, 4, 7]]).all()
    assert math.isnan(found[0, 0])
