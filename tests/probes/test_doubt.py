"""What the answer says about missing rules, by readers that do and do not know what to do without them."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from openbook.base.errors import InputError
from openbook.cli import main
from openbook.probes.doubt import DoubtMap, doubt_map
from openbook.probes.subject import Subject, open_even
from openbook.training.config import TaskConfig
from openbook.training.shipped import shipped_readers

TASK = TaskConfig(depth=3, chars=8, text="composite", codebook="fresh")


@pytest.fixture(scope="module")
def reader() -> Path:
    return shipped_readers()["student-3-8"]


@pytest.fixture(scope="module")
def student(reader: Path) -> Subject:
    return open_even(reader, 20, TASK, 0)


@pytest.fixture(scope="module")
def result(student: Subject) -> DoubtMap:
    return doubt_map(student, samples=48)


def test_the_answer_points_to_what_a_reader_lacks_and_best_at_the_last_level(result: DoubtMap) -> None:
    """The loss asks for the characters of the last level themselves, so there the gradient of any model is right."""
    assert [level.level for level in result.levels] == [1, 2, 3]
    first, second, last = result.levels
    assert last.right > 0.95 and last.low <= last.right <= last.high
    assert min(first.low, second.low) > 2 * result.chance
    for level in result.levels:
        assert 0.5 < level.entropy < math.log(8) and level.size > 0
        assert level.rules == 2 and level.slots >= 2 * 48  # a quarter of seven to ten


def test_the_fewer_rules_are_missing_the_more_the_answer_says(student: Subject, result: DoubtMap) -> None:
    one, all_of_it = (doubt_map(student, samples=48, share=share).levels[0] for share in (0.01, 1.0))
    assert one.rules == 1 and all_of_it.rules > 8
    assert one.right > all_of_it.high and result.levels[0].right > all_of_it.right


def test_a_student_that_cannot_read_learns_nothing_about_its_first_level(student: Subject) -> None:
    torch.manual_seed(0)
    blank = type(student.model)(student.model.config)
    with torch.no_grad():
        for layer in blank.model.layers:  # untrained blocks pass their input on; these do not
            for matrix in (layer.self_attn.o_proj, layer.mlp.down_proj):
                matrix.weight.normal_(std=0.1)
    subject = Subject("blank", blank, student.encoder, student.source, student.curriculum)
    assert doubt_map(subject, samples=48).levels[0].high < 0.25


def test_the_model_is_left_as_it_was(student: Subject) -> None:
    before = {name: tensor.clone() for name, tensor in student.model.state_dict().items()}
    student.model.train()
    doubt_map(student, samples=2)
    assert student.model.training
    assert all(torch.equal(before[name], tensor) for name, tensor in student.model.state_dict().items())
    assert all(parameter.grad is None for parameter in student.model.parameters())
    student.model.eval()


@pytest.mark.parametrize("share", [0.0, 1.1, -1.0])
def test_a_share_that_is_none_is_refused(student: Subject, share: float) -> None:
    with pytest.raises(InputError, match="above 0 and at most 1"):
        doubt_map(student, share=share)


def test_only_students_end_a_level_with_a_known_layer(subject: Callable[..., Subject]) -> None:
    with pytest.raises(InputError, match="is no student of composite words"):
        doubt_map(subject())


@pytest.mark.parametrize(("depth", "chars"), [(2, 8), (5, 8), (3, 6)])
def test_a_task_that_is_not_the_students_is_refused(reader: Path, depth: int, chars: int) -> None:
    other = TASK.model_copy(update={"depth": depth, "chars": chars})
    with pytest.raises(InputError, match=r"is a student of MLT\(3, 8\)"):
        doubt_map(open_even(reader, task=other), 4)


def test_a_checkpoint_alone_will_do(reader: Path, tmp_path: Path) -> None:
    """A model's folder, with no run around it that says what its loss was."""
    bare = tmp_path / "bare"
    shutil.copytree(reader / "model" if (reader / "model").is_dir() else reader, bare)
    bare_levels, levels = (doubt_map(open_even(path, 20, TASK), 8).levels for path in (bare, reader))
    assert bare_levels == levels


def test_on_the_command_line(reader: Path, capsys: pytest.CaptureFixture[str]) -> None:
    task = ["depth=3", "chars=8", "text=composite", "codebook=fresh"]
    line = ["probe", "doubt", str(reader), "--task", *task, "--samples", "8", "--length", "20"]
    assert main(line) == 0
    shown = capsys.readouterr().out
    for word in ("points right", "entropy", "full doubt 2.08", "8 examples of 20 characters"):
        assert word in shown
    by_hand = doubt_map(open_even(reader, 20, TASK), 8)
    assert f"{by_hand.levels[0].right:.3f}" in shown
