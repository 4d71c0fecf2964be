"""A student's course as a run: the same folder, the same guarantees, the same exam as any other training."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from openbook.base.console import Bar, no_bar
from openbook.base.errors import InputError, StoppedError
from openbook.student.reading import Lesson
from openbook.training import checkpoint
from openbook.training.config import RunConfig
from openbook.training.encode import Encoder
from openbook.training.exam import Row, examine
from openbook.training.folder import RunFolder
from openbook.training.processes import check_alone
from openbook.training.resume import stopping_at_signals
from openbook.training.run import (
    EXAM_START,
    accuracy_of,
    data_record,
    sources_of,
    taken_up,
    task_source,
    where_to_start,
)

LOG_EVERY = 10  # steps
CHECKPOINT_EVERY = 100


class _NoSchedule:
    """The course sets its rates from its own counters."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Nothing to load."""


def carry_out_reading(
    config: RunConfig,
    folder: Path,
    force: bool = False,
    resume: bool = False,
    allow_changes: bool = False,
    bar: Bar = no_bar,
    say: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Teach a student to read and leave a run in `folder`; returns the keys of `openbook prepare --json`."""
    if config.reading is None or config.task is None:
        raise InputError("this config has no reading course: give it a `reading`")
    check_alone("a reading course")
    RunFolder(folder).check_writable() if resume else RunFolder(folder).check_free(force)
    source, exam_source = sources_of(config)
    task = config.task
    lesson = Lesson(task.depth, task.chars, task.lengths, config.seed, config.reading, task.text)
    settings, data = config.model_dump(mode="json"), data_record(source, lesson.course.tokenizer)
    if resume and allow_changes and (found := checkpoint.newest(RunFolder(folder).checkpoints)):
        checkpoint.check_fits(found, lesson.model)
    run = taken_up(folder, settings, data, allow_changes) if resume else RunFolder.create(folder, settings, data, force)
    if run.finished:
        say(f"{folder} is finished already")
        return {"run": str(folder), **run.read("result.json")}
    encoder = Encoder(lesson.course.tokenizer, exam_source.bank, think=config.think, loss=config.training.loss)

    def sit() -> list[Row]:
        """An exam of its own each time: one that is sat until it is passed says too much."""
        exam, book = config.exam, config.curriculum
        questions = task_source(task, exam.samples, EXAM_START + lesson.exams * exam.samples, exam_source.bank)
        shares = (0.0, 1.0)
        return examine(
            lesson.reader(), encoder, questions, book, shares, False, exam.samples, config.seed, exam.batch_size
        )

    with run.lock(), stopping_at_signals() as stopped:
        found = where_to_start(run, say) if resume else None
        if found is not None:
            checkpoint.load_weights(found, lesson.model)
            checkpoint.load_optimizer(found, lesson.optimizer, _NoSchedule())
            lesson.restore(checkpoint.read_state(found)["lesson"])
        started, busy = time.perf_counter(), time.process_time()
        with bar("learning to read", len(lesson.stages)) as advance:
            advance(lesson.stage)
            while stopped() is None:
                if lesson.finished:
                    rows = sit()
                    if (
                        accuracy_of(rows).open_book >= config.reading.capable
                        or lesson.step >= config.reading.most_steps
                    ):
                        break
                    lesson.go_on()
                before = lesson.stage
                metrics = lesson.take_step()
                if lesson.step % LOG_EVERY == 0:
                    run.log(step=lesson.step, stage=lesson.stage + 1, levels=lesson.levels, **metrics)
                    known = " ".join(f"{share:.2f}" for share in metrics["accuracy"])
                    advance(0, note=f"step {lesson.step}, {lesson.levels} levels, accuracy {known}")
                advance(lesson.stage - before)
                if lesson.step % CHECKPOINT_EVERY == 0:
                    _save(run, lesson)
        number = stopped()
        if number is not None:
            _save(run, lesson)
            raise StoppedError(f"stopped at step {lesson.step}, which is saved; go on with --resume", number)
        seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - busy
        model, tokenizer = lesson.reader(), lesson.course.tokenizer
        accuracy = vars(accuracy_of(rows))
        run.save_model(model.to(getattr(torch, config.reading.kept)), tokenizer)
        result = {
            "steps": lesson.step,
            "samples": lesson.samples,
            "exams": lesson.exams + 1,
            "accuracy": accuracy,
            "capable": accuracy["open_book"] >= config.reading.capable,
            "threshold": config.reading.capable,
            "exam": [row.as_dict() for row in rows],
            "chance": rows[0].chance,
            "seconds": round(seconds, 2),
            "cpu_seconds": round(cpu_seconds, 2),
            "resumed_from": found.step if found is not None else 0,  # seconds are of what came after it
        }
        run.finish(result)
        run.drop_checkpoints()  # not before: until then they are all there is
    return {"run": str(folder), **result}


def _save(run: RunFolder, lesson: Lesson) -> None:
    extra = {"lesson": lesson.counters(), "log": run.log_size()}
    checkpoint.save(run.checkpoints, lesson.step, lesson.model, lesson.optimizer, _NoSchedule(), extra)
