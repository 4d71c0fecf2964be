"""A reading course as a run, with the same folder, guarantees and exam as any other training."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from signal import SIGTERM
from typing import Any

import torch

from openbook.base.console import Bar, no_bar
from openbook.base.errors import StoppedError
from openbook.book.shelf import Bank
from openbook.student.reading import Lesson
from openbook.training import checkpoint
from openbook.training.checkpoint import Checkpoint
from openbook.training.config import RunConfig
from openbook.training.encode import Encoder
from openbook.training.exam import ExamInterrupted, Row, examine
from openbook.training.folder import AFRESH, RunFolder, StartMode
from openbook.training.processes import check_alone
from openbook.training.run import Report, accuracy_of, check_folder, create_or_resume, where_to_start
from openbook.training.signals import stop_signal, stopping_at_signals
from openbook.training.sources import EXAM_START, data_record, sources_of, task_source

LOG_EVERY = 10  # steps
CHECKPOINT_EVERY = 100


def run_course(
    config: RunConfig,
    folder: Path,
    start: StartMode = AFRESH,
    *,
    bar: Bar = no_bar,
    report: Report = lambda line: None,
) -> dict[str, Any]:
    """Teach a student to read and leave a run in `folder`; returns the keys of `openbook prepare --json`."""
    assert config.reading is not None and config.task is not None  # a validated config of a course has both
    check_alone("a reading course")
    check_folder(config, folder, start)
    lesson = Lesson(config.task, config.seed, config.reading)
    source, exam_source = sources_of(config)
    if start.resume and start.allow_changes and (last := checkpoint.newest(RunFolder(folder).checkpoints)):
        checkpoint.check_fits(last, lesson.model)
    run = create_or_resume(config, folder, start, data_record(source, lesson.course.tokenizer))
    if run.finished:
        report(f"{folder} is finished already")
        return {"run": str(folder), **run.read("result.json")}
    with run.lock(), stopping_at_signals():
        begin = where_to_start(run, report) if start.resume else None
        if begin is not None:
            _restore(lesson, begin)
        clock = time.perf_counter(), time.process_time()
        rows = _learn_to_read(config, lesson, run, exam_source.bank, bar)
        seconds, cpu_seconds = time.perf_counter() - clock[0], time.process_time() - clock[1]
        reader = lesson.reader().to(getattr(torch, config.reading.kept))
        run.save_model(reader, lesson.course.tokenizer)
        accuracy = accuracy_of(rows)
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
            "resumed_from": begin.step if begin is not None else 0,  # seconds are of what came after it
        }
        run.finish(result)
        run.drop_checkpoints()  # not before: until then they are all there is
    return {"run": str(folder), **result}


def _learn_to_read(config: RunConfig, lesson: Lesson, run: RunFolder, bank: Bank, bar: Bar) -> list[Row]:
    """Take steps until an exam is passed or the course has lasted too long; returns the rows of the last exam."""
    settings = lesson.settings
    with bar("learning to read", len(lesson.stages)) as advance, suppress(ExamInterrupted):
        advance(lesson.stage)
        while stop_signal() is None:
            if lesson.finished:
                rows = _exam(config, lesson, bank)
                if accuracy_of(rows)["open_book"] >= settings.capable or lesson.step >= settings.most_steps:
                    return rows
                lesson.repeat_last_stage()
            stage = lesson.stage
            metrics = lesson.take_step()
            if lesson.step % LOG_EVERY == 0:
                levels = lesson.stages[lesson.stage].levels
                run.log(step=lesson.step, stage=lesson.stage + 1, levels=levels, **metrics)
                known = " ".join(f"{share:.2f}" for share in metrics["accuracy"])
                advance(0, note=f"step {lesson.step}, {levels} levels, accuracy {known}")
            advance(lesson.stage - stage)
            if lesson.step % CHECKPOINT_EVERY == 0:
                _save(run, lesson)
    _save(run, lesson)
    message = f"stopped at step {lesson.step}, which is saved; go on with --resume"
    raise StoppedError(message, stop_signal() or int(SIGTERM))


def _exam(config: RunConfig, lesson: Lesson, bank: Bank) -> list[Row]:
    """Examine the reader on new strings each time: an exam that is repeated until it is passed proves nothing."""
    exam = config.exam
    questions = task_source(lesson.task, exam.samples, EXAM_START + lesson.exams * exam.samples, bank)
    encoder = Encoder(lesson.course.tokenizer, bank, think=config.think, loss=config.training.loss)
    sizes: dict[str, Any] = {"samples": exam.samples, "seed": config.seed, "batch_size": exam.batch_size}
    what = (lesson.reader(), encoder, questions, config.curriculum, (0.0, 1.0))
    return examine(*what, wrong=False, stopped=lambda: stop_signal() is not None, **sizes)


def _restore(lesson: Lesson, begin: Checkpoint) -> None:
    """Go back to where a checkpoint was written."""
    checkpoint.load_weights(begin, lesson.model)
    checkpoint.load_optimizer(begin, lesson.optimizer)
    lesson.restore(checkpoint.read_state(begin)["lesson"])


def _save(run: RunFolder, lesson: Lesson) -> None:
    """Write a checkpoint."""
    extra = {"lesson": lesson.counters(), "log": run.log_size()}
    checkpoint.save(run.checkpoints, lesson.step, lesson.model, lesson.optimizer, None, extra)  # it sets its own rates
