"""Learning to read: the loop and its untying, the loss, and a reader at the end."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tests.faults import in_a_child, run

from openbook.base.errors import InputError
from openbook.cli import main
from openbook.student.course import Course, Stage
from openbook.student.reading import Lesson, accuracy, looped, passes, untied
from openbook.student.vocabulary import student_config
from openbook.training.config import ReadingConfig, TaskConfig
from openbook.training.exam import examine
from openbook.training.folder import RunFolder
from openbook.training.reopen import reopen
from openbook.training.resolve import resolve

SETTINGS = ReadingConfig(width=16, heads=1, head=8, mlp=16, batch_size=8, most_steps=12)


def task_of(depth: int, chars: int, lengths: tuple[int, int], text: str = "composite") -> TaskConfig:
    return TaskConfig(depth=depth, chars=chars, lengths=lengths, text=text)


@pytest.mark.parametrize(("text", "last"), [("composite", 1), ("letters", 2)])
def test_the_last_bigram_counts_as_much_as_it_is_told_to(text: str, last: int) -> None:
    def lesson(ends: float) -> Lesson:
        return Lesson(task_of(2, 3, (8, 8), text), 0, SETTINGS.model_copy(update={"ends": ends}))

    words, unit = 8 * last // 2, 2 // last
    known = torch.randn(3, words, unit, 3, requires_grad=True)
    wanted = torch.zeros(3, 1, words, unit, dtype=torch.long)
    gradient = {}
    for ends in (0.0, 1.0):
        (gradient[ends],) = torch.autograd.grad(lesson(ends).loss([known], wanted), known)
    torch.testing.assert_close(gradient[1.0][:, :-last], gradient[0.0][:, :-last] / 2)
    torch.testing.assert_close(gradient[1.0][:, -last:], gradient[0.0][:, -last:] * (1 + 4) / 2)  # one of four bigrams


def test_a_stage_is_not_passed_before_the_wrap_around_is_right() -> None:
    lesson = Lesson(task_of(2, 3, (8, 8)), 0, SETTINGS.model_copy(update={"ends": 0.5, "gate": 0.99, "margin": 0.0}))
    shares = [(lesson.take_step()["accuracy"][-1], lesson.recent[-1]) for _ in range(8)]
    assert all(counted <= share for share, counted in shares) and any(counted < share for share, counted in shares)
    lesson.stage, lesson.recent = len(lesson.stages) - 1, []
    assert lesson.take_step()["accuracy"][-1] == lesson.recent[-1]  # the exam judges all places alike


def test_untying_changes_nothing_and_the_whole_model_agrees_with_the_passes() -> None:
    course = Course(3, 4, seed=0)
    model = looped(student_config(3, 4, width=16, heads=1, head=8, mlp=16, lag=True), seed=0)
    for parameter in model.parameters():
        parameter.data.normal_(std=0.3)
    batch = course.batch(Stage(3, 0.25, (6, 6)), 0, 4, 0.0)
    apart = untied(model)
    assert sum(p.numel() for p in apart.parameters()) > sum(p.numel() for p in model.parameters())
    with torch.inference_mode():
        known = passes(model, batch).known
        known_apart = passes(apart, batch).known
        logits = apart(input_ids=batch.ids, attention_mask=(batch.ids != apart.config.pad_token_id).long()).logits
    for a, b in zip(known, known_apart, strict=True):
        assert torch.equal(a, b)
    rows = torch.arange(4)[:, None]
    first, second = known[-1].unbind(-2)
    together = (first[..., :, None] + second[..., None, :]).flatten(-2)
    torch.testing.assert_close(logits[rows, batch.slots[:, -1]], together, rtol=1e-4, atol=1e-4)


def test_spare_units_write_nothing_until_they_are_taught() -> None:
    model = looped(student_config(2, 4, width=16, heads=1, head=8, mlp=16, lag=True), seed=0)
    for parameter in model.parameters():
        parameter.data.normal_(std=0.3)
    batch = Course(2, 4, seed=0).batch(Stage(2, 0.25, (6, 6)), 0, 4, 0.0)
    wider = untied(model, spare=8)
    assert wider.config.intermediate_size == 24
    known, same = passes(model, batch).known, passes(wider, batch).known
    torch.testing.assert_close(known[-1], same[-1], rtol=1e-5, atol=1e-5)
    same[-1].square().sum().backward()
    taught = wider.model.layers[0].mlp.down_proj.weight.grad[:, 16:]
    assert (taught.abs().sum(0) > 0).all()


def test_a_lesson_that_ended_too_early_goes_on_at_its_full_rate() -> None:
    lesson = Lesson(task_of(1, 3, (4, 8)), 0, SETTINGS.model_copy(update={"final_steps": 2, "most_steps": 100}))
    lesson.stage, lesson.recent, lesson.step = len(lesson.stages) - 1, [1.0] * 20, 30  # after the warm-up
    rates = []
    while not lesson.finished:
        lesson.recent = [1.0] * 20
        lesson.take_step()
        rates.append(lesson.optimizer.param_groups[0]["lr"])
    assert rates[-1] == 0 < rates[0]
    lesson.repeat_last_stage()
    lesson.take_step()
    assert not lesson.finished and lesson.optimizer.param_groups[0]["lr"] == rates[0]


def test_a_lesson_taken_up_again_ends_the_same() -> None:
    def lesson() -> Lesson:
        return Lesson(task_of(2, 3, (4, 8)), 0, SETTINGS)

    whole, broken = lesson(), lesson()
    for _ in range(8):
        whole.take_step()
    for _ in range(4):
        broken.take_step()
    resumed = lesson()
    resumed.model.load_state_dict(broken.model.state_dict())
    resumed.optimizer.load_state_dict(broken.optimizer.state_dict())
    resumed.restore(json.loads(json.dumps(broken.counters())))
    for _ in range(4):
        resumed.take_step()
    for a, b in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("text", ["composite", "letters"])
def test_a_course_that_is_stopped_and_gone_on_with_leaves_the_same_run(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {
        "task": {"depth": 2, "chars": 3, "lengths": [4, 8], "codebook": "fresh", "text": text},
        "reading": {**SETTINGS.model_dump(), "most_steps": 23, "final_steps": 1},
        "exam": {"samples": 8},
    }
    config = resolve(settings)
    run(config, tmp_path / "whole")

    def work() -> None:
        step = Lesson.take_step

        def stopped(self: Lesson) -> dict[str, Any]:
            if self.step == 11:
                os.kill(os.getpid(), signal.SIGTERM)
            return step(self)

        monkeypatch.setattr(Lesson, "take_step", stopped)
        run(config, tmp_path / "broken")

    assert in_a_child(work) == 128 + signal.SIGTERM
    wider = resolve({**settings, "reading": {**SETTINGS.model_dump(), "width": 2 * SETTINGS.width}})
    with pytest.raises(InputError, match="is of another model"):
        run(wider, tmp_path / "broken", resume=True, allow_changes=True)
    reported: list[str] = []
    result = run(config, tmp_path / "broken", resume=True, report=reported.append)
    assert reported == ["going on from step 12"] and result["resumed_from"] == 12
    for name in ("metrics.jsonl", "model/model.safetensors"):
        assert (tmp_path / "broken" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_an_exam_that_was_failed_is_not_sat_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing can be read after a few steps, so every end of the course is followed by an exam of other strings."""
    asked: list[bytes] = []

    def watched(model: Any, encoder: Any, source: Any, *rest: Any, **options: Any) -> Any:
        drawn, _ = source.translations(np.arange(8))
        asked.append(drawn.strings[:, 0].tobytes())
        return examine(model, encoder, source, *rest, **options)

    monkeypatch.setattr("openbook.student.prepare.examine", watched)
    monkeypatch.setattr(Lesson, "running_accuracy", lambda *_: 1.0)  # as if every stage were mastered at once
    task = {"depth": 1, "chars": 3, "lengths": [4, 8], "codebook": "fresh", "text": "composite"}
    reading = {**SETTINGS.model_dump(), "most_steps": 24, "final_steps": 4}
    config = resolve({"task": task, "reading": reading, "exam": {"samples": 8}})
    result = run(config, tmp_path / "run")
    assert result["exams"] == len(asked) > 1 and not result["capable"]
    assert len(set(asked)) == len(asked)


def test_a_reader_kept_in_half_precision_is_the_one_that_was_examined(tmp_path: Path) -> None:
    task = {"depth": 2, "chars": 3, "lengths": [4, 8], "codebook": "fresh", "text": "composite"}
    size, states = {}, {}
    for kept in ("float32", "float16"):
        reading = {**SETTINGS.model_dump(), "most_steps": 5, "kept": kept}
        run(resolve({"task": task, "reading": reading, "exam": {"samples": 8}}), tmp_path / kept)
        weights = tmp_path / kept / "model" / "model.safetensors"
        size[kept] = weights.stat().st_size
        assert {value.dtype for value in load_file(weights).values()} == {getattr(torch, kept)}
        config, model, encoder, source = reopen(tmp_path / kept)
        assert model.dtype == torch.float32  # as it is trained on
        rows = examine(model, encoder, source, config.curriculum, (0.0, 1.0), False, 8, config.seed)
        assert [row.as_dict() for row in rows] == RunFolder(tmp_path / kept).read("result.json")["exam"]
        states[kept] = model.state_dict()
    assert size["float16"] < 0.6 * size["float32"]
    lesson = Lesson(task_of(2, 3, (4, 8)), 0, SETTINGS.model_copy(update={"kept": "float16"}))
    for (name, buffer), (_, made) in zip(lesson.reader().named_buffers(), model.named_buffers(), strict=True):
        assert torch.equal(buffer, made), name  # as a loaded model has them: not rounded
    for name, value in states["float32"].items():
        assert torch.equal(states["float16"][name], value.half().float())


@pytest.mark.slow
@pytest.mark.parametrize("text", ["composite", "pairs", "letters"])
def test_a_student_learns_to_look_up_one_level(text: str) -> None:
    """The real thing, as small as it gets: from nothing to reading MLT(1, 4) in seconds."""
    lesson = Lesson(task_of(1, 4, (8, 12), text), 0, ReadingConfig(most_steps=600, missing=0.25))
    while not lesson.finished:
        lesson.take_step()
    batch = lesson.course.batch(Stage(1, 0.25, (8, 12)), 2**30, 64, 0.0)
    with torch.inference_mode():
        score = accuracy(passes(lesson.reader(), batch).known, batch)[0]
    assert lesson.step < 600 and score > 0.97


def test_what_cannot_read_is_not_called_capable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--depth", "2", "--chars", "3", "--set", "reading.most_steps=3", "--set", "task.lengths=[4,8]"]
    small = ["--set", "reading.width=16", "--set", "exam.samples=8", "--json", "--out", str(tmp_path / "run")]
    assert main(["prepare", *options, *small]) == 1
    result = json.loads(capsys.readouterr().out)
    assert result["capable"] is False and result["steps"] == 3
    assert (
        main(
            [
                "learn",
                "--model",
                str(tmp_path / "run"),
                "--samples",
                "32",
                "--json",
                "--out",
                str(tmp_path / "l"),
                "--set",
                "task.lengths=[4,8]",
                "--set",
                "exam.samples=8",
            ]
        )
        == 0
    )
    learned = json.loads(capsys.readouterr().out)
    assert learned["steps"] == 2 and set(learned["accuracy"]) == {"closed_book", "open_book"}


def test_a_dry_run_shows_the_stages_and_leaves_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["prepare", "--depth", "3", "--chars", "4", "--dry-run", "--out", str(tmp_path / "run")]
    assert main([*command, "--json"]) == 0
    assert [stage["levels"] for stage in json.loads(capsys.readouterr().out)["stages"]] == [1, 1, 2, 3, 3]
    assert main(command) == 0
    assert "pages missing" in capsys.readouterr().out
    for setting, complaint in (
        ("task.lengths=[7,9]", "even"),
        ("task.chars=200", "only 434 are known"),
        ("task.chars=60", "too many for a word each"),
    ):
        assert main([word for word in command if word not in ("--chars", "4")] + ["--set", setting]) == 2
        assert complaint in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
