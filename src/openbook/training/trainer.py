"""Training: `transformers.Trainer` with a book that closes (Algorithm 1 of the paper).

    args = CELConfig("out", curriculum="anneal", num_train_epochs=20)
    trainer = CELTrainer("HuggingFaceTB/SmolLM2-135M", args, train_dataset=dataset, eval_dataset=held_out)
    trainer.train()
    trainer.evaluate()["eval_closed_accuracy"]

What is trained on is a pure function of (seed, position). A batch of the data loader is one optimiser step, cut into
micro-batches (see `batches`), and a checkpoint needs no state of the data: it holds the step, the weights, the
optimiser, the schedule, torch's generators and the counters of the log, so a training goes on bit for bit.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from signal import SIGTERM
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader
from transformers import Trainer, TrainerCallback, TrainingArguments

from openbook.base.errors import InputError, MachineError, StoppedError
from openbook.book.load import load
from openbook.book.source import Source
from openbook.curriculum import Curriculum, SamplingPlan
from openbook.training import checkpoint
from openbook.training.arguments import CELConfig, completed
from openbook.training.batches import Collator, PositionDataset, Steps, pad_id_of
from openbook.training.checkpoint import Checkpoint
from openbook.training.encode import Encoder
from openbook.training.exam import ExamInterrupted, Row, examine
from openbook.training.models import load as load_model
from openbook.training.models import window_of
from openbook.training.optimizers import MasterAdamW, muon_adamw
from openbook.training.processes import lost_process
from openbook.training.signals import request_stop, stop_signal
from openbook.training.targets import finite, output_layer, summed_loss, target_logits

CHECKPOINTS = "checkpoints"  # the folder of checkpoints in the output folder


class DivergedError(InputError):
    """The loss or the gradient is not a number any more; the model was not updated with it."""


class CELTrainer(Trainer):
    """Trains on the positions of a sampling plan. See the module for an example."""

    def __init__(
        self,
        model: Any,
        args: TrainingArguments | None = None,
        *,
        train_dataset: Any,
        eval_dataset: Any = None,
        processing_class: Any = None,
        peft_config: Any = None,
        callbacks: list[TrainerCallback] | None = None,
        plan: SamplingPlan | None = None,
        encoder: Encoder | None = None,
        log_size: Callable[[], int] = lambda: 0,  # bytes of the run's log that belong to what is saved
        **options: Any,
    ) -> None:
        """`model` is a causal LM or the name of one; datasets are all that `openbook.load` takes.

        `plan` and `encoder` are made from the arguments unless they are given.
        """
        if isinstance(model, str | Path):
            model, tokenizer = load_model(str(model))
            processing_class = processing_class or tokenizer
        if processing_class is None and encoder is None:
            raise InputError("processing_class is missing: give the model's tokenizer, or name the model by its folder")
        if peft_config is not None:
            import peft

            model = peft.get_peft_model(model, peft_config)
        output_layer(model)  # refuse what is no causal LM before anything is trained
        args = completed(args)
        source = load(train_dataset, think=args.think)
        self.exam_source: Source = source if eval_dataset is None else load(eval_dataset, think=args.think)
        self.plan = plan or args.sampling_plan(source)
        self.encoder = encoder or self._encoder(processing_class, source, model, args)
        same_bank = self.exam_source.bank is source.bank
        self.exam_encoder = self.encoder if same_bank else self.encoder.of_bank(self.exam_source.bank)
        rule = self.plan.curriculum  # a rule of one's own opens whatever it likes, so exams have the default's book
        self.exam_curriculum = rule if isinstance(rule, Curriculum) else Curriculum.for_source("anneal", source)
        self.log_size = log_size
        self.tokens = 0  # that this process has trained on
        self.tokens_before = 0  # of these, those before the checkpoint it started from
        self.last_exam: tuple[int, list[Row]] | None = None  # the step it was sat after, and its rows
        self.exam_due = False  # an exam that was interrupted must be sat again
        self._master: MasterAdamW | None = None  # the optimiser, if weights are of low precision
        self.start: Checkpoint | None = None
        self._saved = (0.0, 0.0)  # when the last checkpoint was written, and how many seconds that took
        accumulation, args.gradient_accumulation_steps = args.gradient_accumulation_steps, 1
        args.remove_unused_columns = False
        # One process trains on one device. transformers would cut batches up among several (`DataParallel`), which a
        # step of micro-batches is not made for; `torchrun` starts a process for each.
        args._n_gpu = min(1, args.n_gpu)
        self.step_size = args.step_size or args.per_device_train_batch_size * accumulation * args.world_size
        self.micro_batch_size = min(args.per_device_train_batch_size, self.step_size)
        self.total_steps = -(-self.plan.total // self.step_size)
        dataset = PositionDataset(self.plan, self.encoder)
        self.args: CELConfig
        super().__init__(
            model=model,
            args=args,
            train_dataset=dataset,
            eval_dataset=self.exam_source,
            processing_class=processing_class or self.encoder.tokenizer,
            callbacks=callbacks,
            **options,
        )
        self.add_callback(_Flow(self))

    @staticmethod
    def _encoder(tokenizer: Any, source: Source, model: Any, args: CELConfig) -> Encoder:
        window = args.max_length or window_of(model)
        return Encoder(tokenizer, source.bank, window, args.think, args.chat, args.loss_on, args.today)

    # ---- what is trained on

    def get_train_dataloader(self) -> DataLoader:
        """Each process takes its share of every step, in an order fixed by the positions alone."""
        steps = Steps(self.plan.total, self.step_size, self.args.process_index, self.args.world_size, self.first_step)
        return DataLoader(
            PositionDataset(self.plan, self.encoder),
            batch_sampler=steps,
            collate_fn=Collator(pad_id_of(self.encoder.tokenizer), self.micro_batch_size),
            num_workers=self.args.dataloader_num_workers,
            persistent_workers=False,
            pin_memory=self.args.device.type == "cuda",
            generator=torch.Generator(),  # the loader would otherwise draw from the generator that training uses
        )

    def set_initial_training_values(self, args: Any, dataloader: Any) -> tuple[int, int, int, int, int, int, int]:
        """The plan holds all epochs, so they are one pass over the loader; the schedule spans the whole training."""
        left = self.total_steps - self.first_step
        return 1, left, self.plan.total, self.plan.total, self.step_size, left, self.total_steps

    def num_examples(self, dataloader: DataLoader) -> int:
        return self.plan.total

    def floating_point_ops(self, inputs: Any) -> int:
        return 0  # not defined for a step of several micro-batches

    # ---- a step

    def training_step(self, model: Any, inputs: dict[str, Any], num_items_in_batch: Any = None) -> Tensor:
        """Forward and backward over the micro-batches of one step; loss per target token of the whole step.

        Processes average their gradients, so each one's loss is scaled up by their number.
        """
        model.train()
        processes = self.args.world_size
        targets = torch.tensor(float(inputs["targets"]), device=self.args.device)
        if processes > 1:
            targets = self.accelerator.reduce(targets, "sum")
        total = torch.zeros((), device=self.args.device)
        micro_batches = inputs["micro_batches"]
        for number, batch in enumerate(micro_batches):
            batch = self._prepare_inputs(batch)
            last = number == len(micro_batches) - 1
            with contextlib.nullcontext() if last else self.accelerator.no_sync(model):
                with self.compute_loss_context_manager():
                    logits, tokens = target_logits(self._inner(model), batch, wrapped=model)
                    loss = summed_loss(logits, tokens) * (processes / targets)
                if not finite(loss.detach()):
                    raise self._diverged("the loss", batch["positions"].tolist())
                self.accelerator.backward(loss)
            if processes == 1 and self._master is not None and not last:
                self._master.gather()
            total += loss.detach()
        self._positions = inputs["positions"]
        self.tokens += inputs["tokens"]
        return total

    def _inner(self, model: Any) -> Any:
        return self.accelerator.unwrap_model(model, keep_torch_compile=False)

    def _clip_grad_norm(self, model: Any) -> Any:
        """Clip, and stop before the update when the gradient is not finite."""
        if self._master is not None and self.args.max_grad_norm:
            norm = self._master.clip(self.args.max_grad_norm)
        else:
            norm = super()._clip_grad_norm(model)
        if norm is not None and not finite(torch.as_tensor(norm)):
            raise self._diverged("the gradient", self._positions)
        return norm

    def _diverged(self, what: str, positions: list[int]) -> DivergedError:
        shown = ", ".join(map(str, sorted(positions)[:8])) + (", ..." if len(positions) > 8 else "")
        return DivergedError(
            f"{what} is not finite at step {self.state.global_step + 1} (positions {shown}). Training stopped before "
            "the update: lower training.learning_rate or raise training.warmup"
        )

    def create_optimizer(self, model: Any = None) -> Any:
        if self.optimizer is None and self.args.optimizer == "muon":
            rates = (self.args.matrix_learning_rate, self.args.learning_rate)
            betas = (self.args.adam_beta1, self.args.adam_beta2)
            self.optimizer = muon_adamw(self._inner(self.model), *rates, self.args.weight_decay, betas)
        elif self.optimizer is None and _is_rounded(self.model):
            self.optimizer = self._master = self._master_adamw()
        return super().create_optimizer(model)

    def _master_adamw(self) -> MasterAdamW:
        """AdamW for weights in bfloat16, with the settings and groups that transformers would use."""
        if self.args.optim not in ("adamw_torch", "adamw_torch_fused"):
            raise InputError(f"optim={self.args.optim} has no float32 copy of bfloat16 weights: load them as float32")
        model: Any = self.model
        decayed = set(self.get_decay_parameter_names(model))
        named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        groups = [
            {"params": [p for name, p in named if name in decayed], "weight_decay": self.args.weight_decay},
            {"params": [p for name, p in named if name not in decayed], "weight_decay": 0.0},
        ]
        betas = self.args.adam_beta1, self.args.adam_beta2
        return MasterAdamW([g for g in groups if g["params"]], self.args.learning_rate, betas, self.args.adam_epsilon)

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        """A training too short to have a step of warmup has none: its first step would have a rate of 0."""
        steps, warmup = num_training_steps, self.args.warmup_steps
        if warmup < 1 and warmup * steps < 1:
            self.args.warmup_steps = 0
        if self.args.lr_scheduler_type == "warmup_stable_decay" and not self.args.lr_scheduler_kwargs:
            decay = max(1, round(self.args.decay * steps))
            self.args.lr_scheduler_kwargs = {"num_decay_steps": decay, "decay_type": "linear"}
        try:
            return super().create_scheduler(num_training_steps, optimizer)
        finally:
            self.args.warmup_steps = warmup

    # ---- exams

    def exam_rows(self) -> list[Row]:
        """The exam with the book closed and open. One that was sat after the same step is not sat again."""
        step = self.state.global_step
        during = self.args.exam_samples_during if self.is_in_train and step < self.total_steps else None
        samples = min(during or self.args.exam_samples, self.args.exam_samples)
        if self.last_exam is None or self.last_exam[0] != step:
            interruptible = self.args.world_size == 1
            rows = examine(
                self._inner(self.model),
                self.exam_encoder,
                self.exam_source,
                self.exam_curriculum,
                (0.0, 1.0),
                wrong=False,
                samples=samples,
                seed=self.args.seed,
                batch_size=self.args.per_device_eval_batch_size,
                stopped=lambda: interruptible and stop_signal() is not None,
            )
            self.last_exam = step, rows
        return self.last_exam[1]

    def evaluate(self, *_: Any, metric_key_prefix: str = "eval", **__: Any) -> dict[str, float]:
        """Accuracy with the book closed and open, beside what guessing scores."""
        closed, opened = self.exam_rows()
        values = {
            "closed_accuracy": closed.accuracy,
            "open_accuracy": opened.accuracy,
            "closed_exact_match": closed.exact_match,
            "chance": closed.chance,
        }
        metrics = {f"{metric_key_prefix}_{name}": value for name, value in values.items()}
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def _evaluate(self, trial: Any, ignore_keys_for_eval: Any, skip_scheduler: bool = False) -> dict[str, float]:
        """An exam during training gives way to a signal, and is then sat when training goes on."""
        self.exam_due = False
        try:
            return super()._evaluate(trial, ignore_keys_for_eval, skip_scheduler)
        except ExamInterrupted:
            self.exam_due = self.control.should_save = self.control.should_training_stop = True
            return {}

    def _determine_best_metric(self, metrics: dict[str, float], trial: Any) -> bool:
        return bool(metrics) and super()._determine_best_metric(metrics, trial)

    # ---- checkpoints

    @property
    def first_step(self) -> int:
        return self.start.step if self.start is not None else 0

    @property
    def checkpoint_folder(self) -> Path:
        return Path(str(self.args.output_dir)) / CHECKPOINTS

    def train(  # type: ignore[override]  # it takes a checkpoint itself as well
        self, resume_from_checkpoint: bool | str | Path | Checkpoint | None = None, **options: Any
    ) -> Any:
        """Train what is left: everything, or what came after a checkpoint (True: the newest one)."""
        self.start = self._resolve(resume_from_checkpoint)
        if self.start is not None:
            checkpoint.load_weights(self.start, self.model)
        if self.start is not None and self.first_step >= self.total_steps:
            self.state.global_step = self.first_step
            if checkpoint.read_state(self.start)["counters"].get("exam_due"):
                self.evaluate()
            return None
        try:
            return super().train(**options)
        except (RuntimeError, ConnectionError, EOFError) as error:
            if (lost := lost_process(error, self.args.dataloader_num_workers)) is None:
                raise
            raise MachineError(f"{lost}. What is saved is intact: go on with --resume") from error

    def _resolve(self, wanted: bool | str | Path | Checkpoint | None) -> Checkpoint | None:
        if wanted is None or isinstance(wanted, Checkpoint):
            return wanted
        if isinstance(wanted, bool):
            return checkpoint.newest(self.checkpoint_folder) if wanted else None
        return checkpoint.at(Path(wanted))

    def stop_requested(self) -> bool:
        """Whether any process of the run was asked to stop, so that all of them stop after the same step."""
        if self.args.world_size == 1:
            return stop_signal() is not None
        asked = torch.tensor(float(stop_signal() is not None), device=self.args.device)
        if self.accelerator.reduce(asked, "sum") > 0:
            request_stop()
        return stop_signal() is not None

    def _init_training_state(self, *arguments: Any, **options: Any) -> tuple[int, int]:
        result = super()._init_training_state(*arguments, **options)
        self.state.global_step = self.first_step
        return result

    def _prepare_for_training(self, *arguments: Any, **options: Any) -> Any:
        result = super()._prepare_for_training(*arguments, **options)
        if self.start is not None:
            checkpoint.load_optimizer(self.start, self.optimizer, self.lr_scheduler)
        return result

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """Called after a step has been logged and examined, so the log up to here is part of the checkpoint."""
        if self._too_soon():
            return
        begun = time.monotonic()
        self._write_checkpoint()
        self._saved = time.monotonic(), time.monotonic() - begun

    def _too_soon(self) -> bool:
        """Whether checkpoints would take more than their share of the time if there were one now."""
        ended, took = self._saved
        left_out = time.monotonic() - ended < took / self.args.checkpoint_share - took
        left_out &= stop_signal() is None and not self.exam_due
        if self.args.world_size > 1:  # all of them do what the first one does
            first = torch.tensor(float(left_out and self.args.process_index == 0), device=self.args.device)
            left_out = bool(self.accelerator.reduce(first, "sum") > 0)
        return left_out

    def _write_checkpoint(self) -> None:
        # Dropout draws, and losses and tokens add up, in every process by itself.
        states = {name: self._of_all(state) for name, state in checkpoint.generator_states().items()}
        losses, tokens = self._of_all(self._tr_loss.detach().double()), self._of_all(torch.tensor(self.tokens))
        step = self.state.global_step
        if self.is_world_process_zero():
            counters = {
                "loss_since_log": losses.tolist(),
                "loss_total": float(self._total_loss_scalar),
                "last_logged": self._globalstep_last_logged,
                "tokens": tokens.tolist(),
                "exam_due": self.exam_due,
            }
            best = {"metric": self.state.best_metric, "step": self.state.best_global_step}
            extra = {"counters": counters, "best": best, "log": self.log_size()}
            kept = self.args.save_total_limit or checkpoint.KEPT
            protected = self.state.best_global_step if self.args.load_best_model_at_end else None
            inner = self._inner(self.model_wrapped)
            place = checkpoint.save(
                self.checkpoint_folder,
                step,
                inner,
                self.optimizer,
                self.lr_scheduler,
                extra,
                states,
                kept=kept,
                protected=protected,
            )
            if self.args.push_to_hub:
                self._push_from_checkpoint(str(place))
        self.accelerator.wait_for_everyone()

    def _of_all(self, state: Tensor) -> Tensor:
        """Every process's state, one row each."""
        return self.accelerator.gather(state[None].to(self.args.device)).cpu()

    def restore_counters(self) -> None:
        """Put back what the trainer has just made anew; the last thing before the first step."""
        if self.start is None:
            return
        state = checkpoint.read_state(self.start)
        counters, process = state["counters"], self.args.process_index
        losses, tokens = counters["loss_since_log"], counters.get("tokens", [0])
        self._tr_loss = torch.tensor(losses[process % len(losses)], device=self.args.device)
        self.tokens = tokens[process] if len(tokens) == self.args.world_size else sum(tokens) if process == 0 else 0
        self.tokens_before = self.tokens
        self._total_loss_scalar = counters["loss_total"]
        self._globalstep_last_logged = counters["last_logged"]
        self.state.best_metric = state.get("best", {}).get("metric")
        self.state.best_global_step = state.get("best", {}).get("step")
        checkpoint.load_generators(self.start, process)
        if counters.get("exam_due"):
            metrics = self._evaluate(None, None)
            if not metrics:
                raise StoppedError(f"stopped at step {self.first_step}, which is saved", stop_signal() or SIGTERM)
            self._determine_best_metric(metrics, None)

    def tokens_of_all(self, since_start: bool = False) -> int:
        """Tokens that all processes together have trained on, or have since they started from a checkpoint."""
        count = self.tokens - (self.tokens_before if since_start else 0)
        return int(self._of_all(torch.tensor(count)).sum())

    def _finalize_training(self, *arguments: Any, **options: Any) -> Any:
        """Put the best weights back if asked to; the base class would look for them in its own layout."""
        if self.args.load_best_model_at_end and self.state.best_global_step:
            best = self.checkpoint_folder / checkpoint.name_of(self.state.best_global_step)
            checkpoint.load_weights(checkpoint.at(best), self._inner(self.model))
            self.last_exam = None
        return super()._finalize_training(*arguments, **options)


def _is_rounded(model: Any) -> bool:
    """Whether weights that are trained have less precision than updates need."""
    return any(p.requires_grad and p.dtype in (torch.bfloat16, torch.float16) for p in model.parameters())


class _Flow(TrainerCallback):
    """Decides after each step whether to examine, to save and to stop."""

    def __init__(self, trainer: CELTrainer) -> None:
        self.trainer = trainer

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.trainer.restore_counters()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        trainer, step = self.trainer, state.global_step
        epochs = self._epochs(step)
        state.epoch = epochs
        if int(epochs) > int(self._epochs(step - 1)) or step == trainer.total_steps:  # the end of an epoch
            control.should_log |= args.logging_strategy == "epoch"
            control.should_evaluate |= args.eval_strategy == "epoch" and args.eval_delay <= epochs
            control.should_save |= args.save_strategy == "epoch"
        if trainer.stop_requested():
            control.should_save = control.should_training_stop = True
            trainer.exam_due, control.should_evaluate = control.should_evaluate, False

    def _epochs(self, step: int) -> float:
        return min(step * self.trainer.step_size / self.trainer.plan.size, self.trainer.plan.epochs)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The base class has one epoch, which ends with the training: what it asks for here was done after the step."""
        control.should_log = control.should_evaluate = control.should_save = False
