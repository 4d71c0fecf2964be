"""Training: `transformers.Trainer` with a book that closes (Algorithm 1 of the paper).

In ten lines:

    source = JsonlSource("facts.jsonl")
    plan = SamplingPlan(source, curriculum_named("anneal", order="given"), epochs=20, shuffle=True)
    encoder = Encoder(tokenizer, source.bank)
    arguments = training_arguments(TrainingConfig(learning_rate=1e-3), "out")
    trainer = ContextEnhancedTrainer(model, plan, encoder, arguments, batch_size=64, micro_batch_size=16)
    trainer.train()
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.integrations.integration_utils import get_reporting_integration_callbacks
from transformers.trainer_callback import PrinterCallback, ProgressCallback

from openbook.base.errors import InputError
from openbook.curriculum import SamplingPlan
from openbook.training.batches import Collator, PositionDataset, Steps, pad_id_of
from openbook.training.config import TrainingConfig
from openbook.training.encode import Encoder
from openbook.training.optimizers import muon_adamw
from openbook.training.processes import are_several
from openbook.training.targets import finite, output_layer, summed_loss, target_logits


class DivergedError(InputError):
    """The loss or the gradient is not a number any more; the model was not updated with it."""


def training_arguments(config: TrainingConfig, folder: Path | str, seed: int = 0, steps: int = 0) -> TrainingArguments:
    """Our settings as transformers' own; what it refuses is refused before a model is loaded.

    `steps` is the length of training: `warmup_stable_decay` needs to know it beforehand, and one too short to have a
    step of warmup has none (its first step would have a rate of 0).
    """
    try:
        for tracker in get_reporting_integration_callbacks(config.report_to):
            tracker()  # says whether it is installed
        return _training_arguments(config, folder, seed, steps)
    except (ValueError, RuntimeError) as error:
        raise InputError(f"training: {error}") from None


def _training_arguments(config: TrainingConfig, folder: Path | str, seed: int, steps: int) -> TrainingArguments:
    on_cpu = not torch.accelerator.is_available()
    return TrainingArguments(
        output_dir=str(folder),
        use_cpu=on_cpu,
        ddp_backend="gloo" if on_cpu and are_several() else None,  # other devices have their own
        ddp_find_unused_parameters=False,
        per_device_train_batch_size=config.micro_batch_size,
        learning_rate=config.learning_rate or 1e-4,
        adam_beta1=config.betas[0],
        adam_beta2=config.betas[1],
        weight_decay=config.weight_decay,
        warmup_steps=config.warmup if steps == 0 or config.warmup * steps >= 1 else 0,
        lr_scheduler_type=config.schedule,
        lr_scheduler_kwargs=_schedule_kwargs(config, steps),
        max_grad_norm=config.max_grad_norm,
        num_train_epochs=1,  # the plan holds all epochs
        dataloader_num_workers=config.workers,
        bf16=config.bf16,
        gradient_checkpointing=config.gradient_checkpointing,
        report_to=config.report_to or "none",
        logging_strategy="steps",
        logging_steps=config.log_every,
        logging_first_step=True,
        logging_nan_inf_filter=False,
        save_strategy="no",
        disable_tqdm=True,
        seed=seed,
        remove_unused_columns=False,
    )


def _schedule_kwargs(config: TrainingConfig, steps: int) -> dict[str, Any]:
    if config.schedule != "warmup_stable_decay":
        return {}
    return {"num_decay_steps": max(1, round(config.decay * steps)), "decay_type": "linear"}


def optimizer_of(config: TrainingConfig, model: Any) -> torch.optim.Optimizer | None:
    """Muon with AdamW if asked for; None leaves AdamW to the trainer."""
    if config.optimizer == "adamw":
        return None
    rates = (config.matrix_learning_rate, config.learning_rate or 1e-3)
    return muon_adamw(model, *rates, config.weight_decay, config.betas)


class ContextEnhancedTrainer(Trainer):
    """Trains on a plan's positions. A batch of the loader is one optimiser step; see `batches`."""

    def __init__(
        self,
        model: Any,
        plan: SamplingPlan,
        encoder: Encoder,
        arguments: TrainingArguments,
        batch_size: int = 64,
        micro_batch_size: int | None = None,
        callbacks: list[TrainerCallback] | None = None,
        **options: Any,
    ) -> None:
        if arguments.gradient_accumulation_steps != 1:
            raise InputError("gradient_accumulation_steps stays 1 here: set batch_size and micro_batch_size instead")
        output_layer(model)  # refuse what is no causal LM before anything is trained
        self.plan, self.encoder, self.step_size = plan, encoder, batch_size
        self.micro_batch_size = micro_batch_size or arguments.per_device_train_batch_size
        dataset = PositionDataset(plan, encoder)
        # One process trains on one device. transformers would cut batches up among several (`DataParallel`), which a
        # step of micro-batches is not made for; `torchrun` starts a process for each.
        arguments._n_gpu = min(1, arguments.n_gpu)
        super().__init__(model=model, args=arguments, train_dataset=dataset, callbacks=callbacks, **options)
        for noisy in (PrinterCallback, ProgressCallback):
            self.remove_callback(noisy)

    def get_train_dataloader(self) -> DataLoader:
        """Each process takes its share of every step, in an order fixed by the positions alone."""
        return DataLoader(
            PositionDataset(self.plan, self.encoder),
            batch_sampler=self._steps(),
            collate_fn=Collator(pad_id_of(self.encoder.tokenizer), self.micro_batch_size),
            num_workers=self.args.dataloader_num_workers,
            persistent_workers=False,
            pin_memory=self.args.device.type == "cuda",
            generator=torch.Generator(),  # the loader would otherwise draw from the generator that training uses
        )

    def _steps(self) -> Steps:
        return Steps(self.plan.total, self.step_size, self.args.process_index, self.args.world_size)

    def num_examples(self, dataloader: DataLoader) -> int:
        return self.plan.total

    def floating_point_ops(self, inputs: Any) -> int:
        return 0  # not defined for a step of several micro-batches

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
        micro = inputs["micro_batches"]
        for number, batch in enumerate(micro):
            batch = self._prepare_inputs(batch)
            last = number == len(micro) - 1
            with contextlib.nullcontext() if last else self.accelerator.no_sync(model):
                with self.compute_loss_context_manager():
                    logits, tokens = target_logits(self._inner(model), batch, wrapped=model)
                    loss = summed_loss(logits, tokens) * (processes / targets)
                if not finite(loss.detach()):
                    raise DivergedError(self._diverged("the loss", batch["positions"].tolist()))
                self.accelerator.backward(loss)
            total += loss.detach()
        self._positions = inputs["positions"]
        return total

    def _inner(self, model: Any) -> Any:
        return self.accelerator.unwrap_model(model, keep_torch_compile=False)

    def _clip_grad_norm(self, model: Any) -> Any:
        """Clip, and stop before the update when the gradient is not finite."""
        norm = super()._clip_grad_norm(model)
        if norm is not None and not finite(torch.as_tensor(norm)):
            raise DivergedError(self._diverged("the gradient", self._positions))
        return norm

    def _diverged(self, what: str, positions: list[int]) -> str:
        shown = ", ".join(map(str, sorted(positions)[:8])) + (", ..." if len(positions) > 8 else "")
        return (
            f"{what} is not finite at step {self.state.global_step + 1} (positions {shown}). Stopped "
            "before the update: lower training.learning_rate or raise training.warmup"
        )


class Reporter(TrainerCallback):
    """Tells what happens: to the run's metrics, to a progress bar, and to an examiner now and then."""

    def __init__(
        self,
        log: Callable[..., None],
        advance: Callable[..., None] = lambda *_, **__: None,
        examine: Callable[[], dict[str, float]] | None = None,
        every: int = 0,
    ) -> None:
        self.log, self.advance, self.examine, self.every = log, advance, examine, every

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any) -> None:
        if logs and "loss" in logs:
            kept = {k: logs[k] for k in ("loss", "learning_rate", "grad_norm") if k in logs}
            self.log(step=state.global_step, **kept)
            self.advance(0, note=f"loss {logs['loss']:.3f}")

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.advance(1)
        if self.examine is not None and self.every and state.global_step % self.every == 0:
            self.log(step=state.global_step, **self.examine())
