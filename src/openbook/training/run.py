"""One run from config to record. `run_training` names every stage in order; read it first."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGTERM
from typing import Any

from transformers import TrainerCallback
from transformers.integrations.integration_utils import get_reporting_integration_callbacks
from transformers.trainer_callback import PrinterCallback

from openbook.base.console import Bar, no_bar
from openbook.base.errors import InputError, StoppedError
from openbook.base.registry import Registry
from openbook.book.source import Source
from openbook.curriculum import SamplingPlan
from openbook.training import checkpoint
from openbook.training.arguments import CELConfig
from openbook.training.checkpoint import Checkpoint
from openbook.training.checks import check_kept, check_moments, check_targets, warnings_of
from openbook.training.config import RunConfig
from openbook.training.encode import Encoder
from openbook.training.exam import ExamInterrupted, Row
from openbook.training.folder import AFRESH, RunFolder, StartMode
from openbook.training.models import check_window, freeze, load_or_make, window_of
from openbook.training.outcome import advice
from openbook.training.processes import Onlooker, are_several, check_world_size, is_first, wait_for_all
from openbook.training.retention import retention
from openbook.training.settings import validated
from openbook.training.shipped import located
from openbook.training.signals import stop_signal, stopping_at_signals
from openbook.training.sources import (
    EXAMS,
    data_record,
    encoder_for,
    exam_size,
    exam_size_during,
    plan_for,
    recorded_date,
    sources_of,
)
from openbook.training.trainer import CELTrainer

CHECKPOINTS_DURING_TRAINING = 10
CHECKPOINT_SHARE = 0.05  # largest share of the time that they take by default

Report = Callable[[str], None]

# What carries out a run: training, or a course of a model family.
RUNNERS: Registry[Callable[..., dict[str, Any]]] = Registry(
    "kind of run",
    {"training": "openbook.training.run:run_training", "reading": "openbook.student.prepare:run_course"},
)


@dataclass
class Setup:
    """All that a training needs before its folder is touched."""

    source: Source
    exam_source: Source
    plan: SamplingPlan
    arguments: CELConfig
    model: Any
    tokenizer: Any
    encoder: Encoder
    warnings: list[str] = field(default_factory=list)


def execute(config: RunConfig, folder: Path, start: StartMode = AFRESH, **options: Any) -> dict[str, Any]:
    """Carry out a run of whatever kind the config describes."""
    return RUNNERS["training" if config.reading is None else "reading"](config, folder, start, **options)


def run_training(
    config: RunConfig,
    folder: Path,
    start: StartMode = AFRESH,
    *,
    bar: Bar = no_bar,
    report: Report = lambda line: None,
    today: str | None = None,
) -> dict[str, Any]:
    """Train as configured and leave a run in `folder`; returns the result (the keys of `openbook learn --json`).

    `today` is the date that a chat template inserts; the current date by default.
    """
    check_folder(config, folder, start)
    setup = set_up(config, folder, recorded_date(folder) if start.resume else today)
    setup.warnings = check_data(config, setup, bar)
    for line in setup.warnings:
        report(line)
    run = open_folder(config, folder, start, setup)
    if run.finished:
        report(f"{folder} is finished already")
        return {"run": str(folder), **run.read("result.json")}
    with run.lock(), stopping_at_signals() as stopped:
        begin = where_to_start(run, report, setup.arguments.world_size, start.allow_changes) if start.resume else None
        if begin is not None:
            checkpoint.check_fits(begin, setup.model)  # what the run began with may have been made anew since
        clock = time.perf_counter(), time.process_time()
        trainer = train(config, setup, run, begin, bar)
        seconds, cpu_seconds = time.perf_counter() - clock[0], time.process_time() - clock[1]
        rows = final_exam(trainer, stopped())
        result = summary(config, setup, run, trainer, rows, seconds, cpu_seconds)
        kept = retention(config, setup.model, setup.encoder, setup.source) if is_first() else None
        result["retention"] = kept.as_dict() if kept is not None else None
        run.save_model(setup.model, setup.tokenizer)
        run.finish(result)
        if not config.training.keep_checkpoints:
            run.drop_checkpoints()  # not before: until then they are all there is
    return {"run": str(folder), **result}


def check_folder(config: RunConfig, folder: Path, start: StartMode) -> None:
    """Refuse a folder that cannot be written to or must not be replaced, before anything is loaded."""
    if is_first():
        RunFolder(folder).check_writable() if start.resume else RunFolder(folder).check_free(start.force)
    if not start.resume:
        check_kept(config, folder)
    config.check_start()


def set_up(config: RunConfig, folder: Path, today: str | None) -> Setup:
    """Data, plan, arguments, model and encoder."""
    source, exam_source = sources_of(config)
    plan = plan_for(config, source)
    arguments = trainer_arguments(config, folder, plan.total)
    check_world_size(arguments.world_size)
    model, tokenizer = load_or_make(config.model, source, config.seed, config.think)
    freeze(model, config.training.freeze)
    check_window(model, config.training.max_length)
    window = config.training.max_length or window_of(model)
    encoder = encoder_for(config, tokenizer, source, window, today)
    return Setup(source, exam_source, plan, arguments, model, tokenizer, encoder)


def check_data(config: RunConfig, setup: Setup, bar: Bar) -> list[str]:
    """Refuse what cannot be learned, and return what should be known before training."""
    encoder, curriculum = setup.encoder, config.curriculum
    fit = check_targets(setup.source, encoder, curriculum, setup.plan.size, bar)
    exam_fit = None
    if config.exam.data:
        own = encoder.of_bank(setup.exam_source.bank)
        exam_fit = check_targets(setup.exam_source, own, curriculum, exam_size(config), bar, learned=False)
    repeated = setup.source.overlap(setup.exam_source)
    return warnings_of(config, setup.source, fit, exam_fit, encoder.max_length, repeated)


def open_folder(config: RunConfig, folder: Path, start: StartMode, setup: Setup) -> RunFolder:
    """Create the run's folder, or open that of an unfinished run which is the same run still."""
    exam_source = setup.exam_source if config.exam.data else None  # strings of the task are all alike
    data = data_record(setup.source, setup.tokenizer, exam_source, setup.encoder)
    if start.resume and start.allow_changes and (last := checkpoint.newest(RunFolder(folder).checkpoints)):
        checkpoint.check_fits(last, setup.model)
        check_moments(config, recorded_config(folder))
    if not is_first():
        wait_for_all()  # until the folder is there
        return Onlooker(folder)
    run = create_or_resume(config, folder, start, data)
    wait_for_all()
    return run


def create_or_resume(config: RunConfig, folder: Path, start: StartMode, data: dict[str, Any]) -> RunFolder:
    settings = config.model_dump(mode="json")
    if not start.resume:
        return RunFolder.create(folder, settings, data, start.force)
    recorded = recorded_config(folder).model_dump(mode="json")
    return RunFolder.resume(folder, settings, data, start.allow_changes, recorded)


def recorded_config(folder: Path) -> RunConfig:
    """The config that a run recorded. It is validated by itself: no file that it names is read."""
    return validated(RunConfig, RunFolder(located(folder)).read("config.json"))


def train(config: RunConfig, setup: Setup, run: RunFolder, begin: Checkpoint | None, bar: Bar) -> CELTrainer:
    """Train from the beginning or from a checkpoint, logging into the run."""
    steps = -(-setup.plan.total // setup.arguments.step_size)  # type: ignore[operator]
    with bar("training", steps) as advance:
        trainer = CELTrainer(
            setup.model,
            setup.arguments,
            train_dataset=setup.source,
            eval_dataset=setup.exam_source,
            processing_class=setup.tokenizer,
            plan=setup.plan,
            encoder=setup.encoder,
            callbacks=[RunLog(run, advance)],
            log_size=run.log_size,
        )
        trainer.remove_callback(PrinterCallback)
        advance(begin.step if begin is not None else 0)
        trainer.train(resume_from_checkpoint=begin)
    return trainer


def final_exam(trainer: CELTrainer, signal: int | None) -> list[Row]:
    """The exam after the last step. A run that was asked to stop before it has been saved, and goes on later."""
    step, steps = trainer.state.global_step, trainer.total_steps
    if signal is None or step == steps:
        try:
            return trainer.exam_rows()
        except ExamInterrupted:
            signal = stop_signal()
    message = f"stopped at step {step} of {steps}, which is saved; go on with --resume"
    raise StoppedError(message, signal or int(SIGTERM))


def summary(
    config: RunConfig,
    setup: Setup,
    run: RunFolder,
    trainer: CELTrainer,
    rows: list[Row],
    seconds: float,
    cpu_seconds: float,
) -> dict[str, Any]:
    """The result.json of a run."""
    accuracy = accuracy_of(rows)
    words = None
    if setup.source.one_book:  # books that are fresh in every example can only be read
        words = advice(**accuracy, chance=rows[0].chance, course=run.metrics(), curriculum=config.curriculum)
    return {
        "steps": trainer.total_steps,
        "samples": setup.plan.size,
        "positions": setup.plan.total,
        "tokens": trainer.tokens_of_all(),
        "accuracy": accuracy,
        "exam": [row.as_dict() for row in rows],
        "chance": rows[0].chance,
        "advice": words,
        "seconds": round(seconds, 2),
        "cpu_seconds": round(cpu_seconds, 2),
        "tokens_per_second": round(trainer.tokens_of_all(since_start=True) / max(seconds, 1e-9), 1),
        "resumed_from": trainer.first_step,  # seconds are of what came after it
        "curriculum": config.model_dump(mode="json")["curriculum"],
        "skipped": len(setup.source.skipped),
        "warnings": setup.warnings,
    }


def accuracy_of(rows: list[Row]) -> dict[str, float]:
    """Accuracy with the right book closed and open."""
    right = {row.open: row.accuracy for row in rows if row.book == "right"}
    return {"closed_book": right[0], "open_book": right[1]}


def where_to_start(
    run: RunFolder, report: Report, processes: int = 1, allow_changes: bool = False
) -> Checkpoint | None:
    """The newest whole checkpoint, with the log cut back to it; what was passed over is reported.

    Another number of processes would train on the same positions, but add gradients up in another order.
    """
    start = checkpoint.newest(run.checkpoints)
    never_finished = [f"{name}: never finished" for name in checkpoint.unfinished(run.checkpoints)]
    for line in [*never_finished, *(start.passed_over if start else [])]:
        report(f"passed over: {line}")
    if start and (before := checkpoint.processes_of(start)) != processes and not allow_changes:
        raise InputError(
            f"{run.folder} cannot go on bit for bit: processes was {before}, is {processes} "
            "(pass --allow-changes to go on all the same)"
        )
    run.cut_log(checkpoint.read_state(start)["log"] if start else 0)
    report(f"going on from step {start.step}" if start else "no checkpoint yet: starting from the beginning")
    return start


class RunLog(TrainerCallback):
    """Writes losses and exams into the run's metrics, and moves a progress bar."""

    def __init__(self, run: RunFolder, advance: Callable[..., None] = lambda *_, **__: None) -> None:
        self.run, self.advance = run, advance

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any) -> None:
        if logs and "loss" in logs:
            kept = {name: logs[name] for name in ("loss", "learning_rate", "grad_norm") if name in logs}
            self.run.log(step=state.global_step, **kept)
            self.advance(0, note=f"loss {logs['loss']:.3f}")

    def on_evaluate(self, args: Any, state: Any, control: Any, **options: Any) -> None:
        metrics = options["metrics"]
        closed, opened = metrics["eval_closed_accuracy"], metrics["eval_open_accuracy"]
        self.run.log(step=state.global_step, closed_book=closed, open_book=opened)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.advance(1)


def trainer_arguments(config: RunConfig, folder: Path | str, positions: int) -> CELConfig:
    """The config of a run as arguments of the trainer; what transformers refuses is refused here."""
    try:
        for tracker in get_reporting_integration_callbacks(config.training.report_to):
            tracker()  # fails where it is not installed
        return _trainer_arguments(config, folder, positions)
    except (ValueError, RuntimeError) as error:
        raise InputError(f"training: {error}") from None


def _trainer_arguments(config: RunConfig, folder: Path | str, positions: int) -> CELConfig:
    import torch

    training = config.training
    steps = -(-positions // training.step_size)
    on_cpu = not torch.accelerator.is_available()
    every = training.checkpoint_every
    save_steps = max(1, steps // CHECKPOINTS_DURING_TRAINING) if every is None else every
    return CELConfig(
        output_dir=str(folder),
        use_cpu=on_cpu,
        ddp_backend="gloo" if on_cpu and are_several() else None,  # other devices have their own
        ddp_find_unused_parameters=False,
        num_train_epochs=training.epochs,
        step_size=training.step_size,
        per_device_train_batch_size=min(training.micro_batch_size, training.step_size),
        per_device_eval_batch_size=config.exam.batch_size,
        learning_rate=training.learning_rate or 1e-4,
        optimizer=training.optimizer,
        matrix_learning_rate=training.matrix_learning_rate,
        adam_beta1=training.betas[0],
        adam_beta2=training.betas[1],
        weight_decay=training.weight_decay,
        warmup_steps=training.warmup,
        lr_scheduler_type=training.schedule,
        decay=training.decay,
        max_grad_norm=training.max_grad_norm,
        dataloader_num_workers=training.workers,
        bf16=training.bf16,
        gradient_checkpointing=training.gradient_checkpointing,
        report_to=training.report_to or "none",
        logging_strategy="steps",
        logging_steps=training.log_every,
        logging_nan_inf_filter=False,
        eval_strategy="steps",
        eval_steps=config.exam.every or max(1, steps // EXAMS),
        exam_samples=exam_size(config),
        exam_samples_during=exam_size_during(config, positions),
        checkpoint_share=1.0 if training.checkpoint_every else CHECKPOINT_SHARE,
        save_strategy="steps" if save_steps else "no",
        save_steps=max(save_steps, 1),
        disable_tqdm=True,
        seed=config.seed,
        curriculum=config.curriculum.model_dump(mode="json"),
    )
