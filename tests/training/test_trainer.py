"""The trainer: the step it takes is the step it should, and it stops before a bad one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.tiny import FAMILIES, byte_level, tiny
from transformers import TrainerCallback
from transformers.trainer_utils import IntervalStrategy

from openbook.base.errors import InputError
from openbook.book import ListSource
from openbook.curriculum import SamplingPlan, curriculum_named
from openbook.training import checkpoint
from openbook.training.arguments import CELConfig
from openbook.training.batches import Collator, PositionDataset
from openbook.training.config import RunConfig
from openbook.training.encode import Encoder
from openbook.training.resolve import resolve
from openbook.training.run import trainer_arguments
from openbook.training.sources import exam_size_during
from openbook.training.targets import all_logits_loss
from openbook.training.trainer import CELTrainer, DivergedError

RECORDS = [
    {
        "prompt": f"What is {k}?" + "?" * (k % 5),
        "completion": " It is" + " very" * (k % 4) + f" {k}.",
        "privileged_context": [f"{k} is " + "very " * p for p in range(k % 3)],
    }
    for k in range(12)
]


def plan_of(epochs: int = 1, records: list[dict[str, Any]] = RECORDS) -> SamplingPlan:
    return SamplingPlan(ListSource(records), curriculum_named("anneal"), epochs=epochs, shuffle=True)


def arguments_of(folder: Path, steps: int = 100, **training: Any) -> CELConfig:
    """Arguments of a run with these settings, without exams."""
    config = RunConfig.model_validate({"task": {}, "training": {"learning_rate": 1e-2, "log_every": 1, **training}})
    arguments = trainer_arguments(config, folder, steps * config.training.step_size)
    arguments.eval_strategy = IntervalStrategy.NO
    return arguments


def trainer_of(
    folder: Path,
    model: Any,
    plan: SamplingPlan,
    batch_size: int = 8,
    micro: int = 8,
    kind: type[CELTrainer] = CELTrainer,
    **training: Any,
) -> CELTrainer:
    arguments = arguments_of(folder, batch_size=batch_size, micro_batch_size=micro, **training)
    encoder = Encoder(byte_level(), plan.source.bank, 512)
    return kind(model, arguments, train_dataset=plan.source, plan=plan, encoder=encoder)


def weights(model: Any) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


# ---- the step


def step_gradient(folder: Path, micro: int) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    model, plan = tiny(), plan_of()
    trainer = trainer_of(folder, model, plan, 12, micro)
    step = next(iter(trainer.get_train_dataloader()))
    assert len(step["micro_batches"]) == -(-12 // micro)
    loss = trainer.training_step(trainer.model, step)
    return loss, {name: p.grad.clone() for name, p in model.named_parameters()}


def test_the_step_is_the_same_however_it_is_cut(tmp_path: Path) -> None:
    loss, gradient = step_gradient(tmp_path, 12)
    for micro in (1, 5):
        other_loss, other = step_gradient(tmp_path, micro)
        torch.testing.assert_close(other_loss, loss)
        for name in gradient:
            torch.testing.assert_close(other[name], gradient[name], msg=name)


def test_the_loss_is_the_mean_over_all_target_tokens_of_the_step(tmp_path: Path) -> None:
    loss, gradient = step_gradient(tmp_path, 5)
    model, plan = tiny(), plan_of()
    items = PositionDataset(plan, Encoder(byte_level(), plan.source.bank)).__getitems__(list(range(12)))
    whole = Collator(0, 12)(items)
    expected = all_logits_loss(model, whole["micro_batches"][0]) / whole["targets"]
    expected.backward()
    torch.testing.assert_close(loss, expected.detach())
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(gradient[name], parameter.grad, msg=name)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_few_steps_on_every_family_bring_the_loss_down(family: str, tmp_path: Path) -> None:
    model = tiny(family)
    trainer = trainer_of(tmp_path, model, plan_of(epochs=8), batch_size=12, micro=6)
    before = weights(model)
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert len(losses) == 8 and losses[-1] < 0.9 * losses[0]
    assert not same(before, weights(model))


def test_the_paper_s_optimiser_and_schedule(tmp_path: Path) -> None:
    plan = plan_of(epochs=25)  # 300 positions in 50 steps
    trainer = trainer_of(tmp_path, tiny(), plan, 6, learning_rate=2e-3)
    trainer.create_optimizer_and_scheduler(50)
    group = trainer.optimizer.param_groups[0]
    assert type(trainer.optimizer).__name__ == "AdamW" and group["betas"] == (0.9, 0.95)
    rates = []
    for _ in range(50):
        rates.append(trainer.optimizer.param_groups[0]["lr"])
        trainer.optimizer.step()
        trainer.lr_scheduler.step()
    assert int(np.argmax(rates)) == 3 and max(rates) == pytest.approx(2e-3)  # 6 % of 50 steps
    half = rates[3 + 24] / 2e-3
    assert half == pytest.approx(0.5, abs=0.03) and rates[-1] < 1e-5


@pytest.mark.parametrize("schedule", ["cosine", "warmup_stable_decay"])
@pytest.mark.parametrize("steps", [1, 4, 16, 17, 100])
def test_training_too_short_for_a_warmup_has_none(steps: int, schedule: Any, tmp_path: Path) -> None:
    """The first step of a warmup has a rate of 0, with which a run of one step would learn nothing."""
    trainer = trainer_of(tmp_path, tiny(), plan_of(), 6, learning_rate=2e-3, schedule=schedule)
    trainer.create_optimizer_and_scheduler(steps)
    first = trainer.optimizer.param_groups[0]["lr"]
    assert first == (pytest.approx(2e-3) if steps < 17 else 0)  # 6 % of 17 steps is the first whole one


# ---- what is trained on


def seen_positions(folder: Path, **settings: Any) -> list[list[int]]:
    seen: list[list[int]] = []

    class Watching(CELTrainer):
        def training_step(self, model: Any, inputs: dict[str, Any], num_items_in_batch: Any = None) -> torch.Tensor:
            seen.append(inputs["positions"])
            return super().training_step(model, inputs, num_items_in_batch)

    trainer_of(folder, tiny(), plan_of(epochs=2), 5, 2, Watching, **settings).train()
    return seen


def test_every_position_is_trained_on_once_and_in_order(tmp_path: Path) -> None:
    expected = [list(range(start, min(start + 5, 24))) for start in range(0, 24, 5)]
    assert seen_positions(tmp_path) == expected
    assert seen_positions(tmp_path, workers=2) == expected


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_do_not_change_the_model_that_comes_out(workers: int, tmp_path: Path) -> None:
    results = []
    for count in (0, workers):
        model = tiny()
        trainer_of(tmp_path, model, plan_of(), workers=count).train()
        results.append(weights(model))
    assert same(*results)


def test_one_record_is_enough(tmp_path: Path) -> None:
    model = tiny()
    trainer = trainer_of(tmp_path, model, plan_of(epochs=3, records=RECORDS[:1]), batch_size=1, micro=1)
    trainer.train()
    assert trainer.state.global_step == 3


# ---- what goes wrong


def test_a_loss_that_is_no_number_stops_before_the_update(tmp_path: Path) -> None:
    model = tiny()
    trainer = trainer_of(tmp_path, model, plan_of(epochs=3), batch_size=4, micro=2)

    class Poison(torch.nn.Module):
        """Lets two steps pass, then spoils what the second micro-batch of the third step computes."""

        calls = 0

        def forward(self, hidden: torch.Tensor) -> torch.Tensor:
            Poison.calls += 1
            return hidden * (float("nan") if Poison.calls == 2 * 2 + 2 else 1.0)

    norm = model.model.norm
    model.model.norm = torch.nn.Sequential(norm, Poison())
    before: list[dict[str, torch.Tensor]] = []
    inner = trainer.training_step

    def watching(*arguments: Any, **options: Any) -> torch.Tensor:
        before.append(weights(model))
        return inner(*arguments, **options)

    trainer.training_step = watching  # type: ignore[method-assign]
    with pytest.raises(DivergedError) as caught:
        trainer.train()
    message = str(caught.value)
    assert "the loss is not finite at step 3 (positions " in message and "before the update" in message
    named = {int(number) for number in message.split("positions ")[1].split(")")[0].split(", ")}
    assert len(named) == 2 and named <= {8, 9, 10, 11}
    assert len(before) == 3 and same(before[-1], weights(model))


def test_a_gradient_that_is_no_number_stops_before_the_update(tmp_path: Path) -> None:
    model = tiny()
    trainer = trainer_of(tmp_path, model, plan_of(), batch_size=12)
    model.model.norm.weight.register_hook(lambda gradient: gradient * float("inf"))
    before = weights(model)
    with pytest.raises(DivergedError, match=r"the gradient is not finite at step 1 \(positions 0, 1, 2, .*\.\.\.\)"):
        trainer.train()
    assert same(before, weights(model))


def test_what_the_trainer_cannot_do_is_refused(tmp_path: Path) -> None:
    plan = plan_of()
    encoder = Encoder(byte_level(), plan.source.bank)
    with pytest.raises(InputError, match="has no output embeddings"):
        CELTrainer(tiny().model, arguments_of(tmp_path), train_dataset=plan.source, plan=plan, encoder=encoder)


# ---- trackers and reports


def test_trackers_are_passed_through(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    assert arguments_of(tmp_path, report_to=["tensorboard"]).report_to == ["tensorboard"]
    trainer_of(tmp_path, tiny(), plan_of(), report_to=["tensorboard"]).train()
    assert list(tmp_path.rglob("events.out.*"))


def test_a_tracker_of_ones_own_is_told_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import TrainerCallback
    from transformers.integrations import integration_utils

    told: list[dict[str, float]] = []

    class Tracker(TrainerCallback):
        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            told.append(logs)

    monkeypatch.setitem(integration_utils.INTEGRATION_TO_CALLBACK, "tracker", Tracker)
    trainer_of(tmp_path, tiny(), plan_of(), report_to=["tracker"]).train()
    assert [set(logs) >= {"loss", "grad_norm", "learning_rate"} for logs in told] == [True, True, False]


def test_no_tracker_unless_asked_for(tmp_path: Path) -> None:
    assert arguments_of(tmp_path).report_to in ([], ["none"])
    with pytest.raises(InputError, match="wandbb"):
        arguments_of(tmp_path, report_to=["wandbb"])


def test_gradient_checkpointing_and_weight_decay_reach_the_trainer(tmp_path: Path) -> None:
    arguments = arguments_of(tmp_path, gradient_checkpointing=True, weight_decay=0.1, max_grad_norm=0.5)
    assert arguments.gradient_checkpointing and (arguments.weight_decay, arguments.max_grad_norm) == (0.1, 0.5)
    plain, saving = tiny(), tiny()
    trainer_of(tmp_path, plain, plan_of()).train()
    trainer_of(tmp_path, saving, plan_of(), gradient_checkpointing=True).train()
    for name, value in weights(plain).items():
        torch.testing.assert_close(saving.state_dict()[name], value, msg=name)


def test_one_process_trains_on_one_device(tmp_path: Path) -> None:
    """With several at hand transformers would cut up batches among them, where a step's targets have their places."""
    arguments = arguments_of(tmp_path)
    assert arguments.n_gpu == 0
    arguments._n_gpu = 2
    plan = plan_of()
    encoder = Encoder(byte_level(), plan.source.bank)
    trainer = CELTrainer(tiny(), arguments, train_dataset=plan.source, plan=plan, encoder=encoder)
    assert trainer.args.n_gpu == 1


# ---- as a trainer of transformers


def arguments_for(folder: Path, **options: Any) -> CELConfig:
    settings = {"per_device_train_batch_size": 3, "gradient_accumulation_steps": 2, "num_train_epochs": 4, **options}
    return CELConfig(str(folder), use_cpu=True, disable_tqdm=True, report_to="none", learning_rate=1e-2, **settings)


def test_it_takes_what_other_trainers_take(tmp_path: Path) -> None:
    """A dataset of Hugging Face, a tokenizer, callbacks; evaluation, the best model, early stopping."""
    from datasets import Dataset
    from transformers import EarlyStoppingCallback

    options = {"eval_strategy": "epoch", "save_strategy": "epoch", "load_best_model_at_end": True}
    arguments = arguments_for(tmp_path, metric_for_best_model="closed_accuracy", greater_is_better=True, **options)
    rows = Dataset.from_list(RECORDS)
    model = tiny(vocabulary=len(byte_level()))
    trainer = CELTrainer(
        model,
        arguments,
        train_dataset=rows,
        eval_dataset=rows.select(range(4)),
        processing_class=byte_level(),
        callbacks=[EarlyStoppingCallback(early_stopping_patience=10)],
    )
    trainer.train()
    assert (trainer.state.global_step, trainer.step_size, trainer.micro_batch_size) == (8, 6, 3)
    exams = [line for line in trainer.state.log_history if "eval_closed_accuracy" in line]
    assert [(line["step"], line["epoch"]) for line in exams] == [(2, 1), (4, 2), (6, 3), (8, 4)]
    best = max(exams, key=lambda line: line["eval_closed_accuracy"])
    assert trainer.state.best_metric == best["eval_closed_accuracy"]
    assert trainer.evaluate()["eval_closed_accuracy"] == best["eval_closed_accuracy"]  # its weights are back
    assert (tmp_path / "checkpoints" / f"step-{best['step']:08d}").is_dir()


def test_it_goes_on_from_its_own_checkpoint(tmp_path: Path) -> None:
    results = []
    for stops_at in (None, 3):
        folder, model = tmp_path / str(stops_at), tiny(vocabulary=len(byte_level()))
        start = weights(model)

        class Stop(TrainerCallback):
            def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                control.should_training_stop = state.global_step == stops_at  # noqa: B023

        def make(model: Any, folder: Path = folder) -> CELTrainer:
            arguments = arguments_for(folder, save_strategy="steps", save_steps=1)
            options = {"processing_class": byte_level(), "callbacks": [Stop()]}
            return CELTrainer(model, arguments, train_dataset=RECORDS, **options)

        make(model).train()
        if stops_at is not None:
            model.load_state_dict(start)
            make(model).train(resume_from_checkpoint=str(folder / "checkpoints" / "step-00000002"))
            stopped = weights(model)
            assert not same(stopped, results[0])
            stops_at = None
            model.load_state_dict(start)
            make(model).train(resume_from_checkpoint=True)
        results.append(weights(model))
    assert same(*results)


@pytest.mark.parametrize(
    "option, instead",
    [
        ({"max_steps": 5}, "set num_train_epochs"),
        ({"num_train_epochs": 0.5}, "a whole number"),
        ({"label_smoothing_factor": 0.1}, "plain cross-entropy"),
        ({"dataloader_drop_last": True}, "every position"),
        ({"save_strategy": "best", "eval_strategy": "epoch"}, "'steps' or 'epoch'"),
    ],
)
def test_what_it_cannot_honour_is_refused_by_name(option: dict[str, Any], instead: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=instead) as caught:
        CELTrainer(tiny(), arguments_for(tmp_path, **option), train_dataset=RECORDS, processing_class=byte_level())
    assert next(iter(option)) in str(caught.value)


def test_plain_arguments_and_adapters_will_do(tmp_path: Path) -> None:
    from peft import LoraConfig
    from transformers import TrainingArguments

    arguments = TrainingArguments(str(tmp_path), num_train_epochs=1, use_cpu=True, report_to="none", disable_tqdm=True)
    model = tiny(vocabulary=len(byte_level()))
    adapters = LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM")
    options: dict[str, Any] = {"processing_class": byte_level(), "peft_config": adapters}
    trainer = CELTrainer(model, arguments, train_dataset=RECORDS, **options)
    trainer.train()
    trained = {name for name, parameter in trainer.model.named_parameters() if parameter.requires_grad}
    assert trained and all("lora" in name for name in trained) and trainer.state.global_step == 2


# ---- what exams and checkpoints may cost


def saved_steps(folder: Path, monkeypatch: pytest.MonkeyPatch, share: float) -> list[int]:
    """The steps after which a training of ten steps was saved, if each step takes a second and saving three."""
    clock, kept, save = [0.0], [], checkpoint.save

    def slow(folder: Path, step: int, *arguments: Any, **options: Any) -> Path:
        clock[0] += 3
        kept.append(step)
        return save(folder, step, *arguments, **options)

    class Ticks(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            clock[0] += 1

    monkeypatch.setattr(checkpoint, "save", slow)
    monkeypatch.setattr("openbook.training.trainer.time.monotonic", lambda: clock[0])
    records = [{"prompt": f"{k}?", "completion": " yes"} for k in range(10)]
    args = CELConfig(str(folder), per_device_train_batch_size=1, save_steps=1, checkpoint_share=share, use_cpu=True)
    options: dict[str, Any] = {"train_dataset": records, "processing_class": byte_level(), "callbacks": [Ticks()]}
    CELTrainer(tiny(), args, **options).train()
    return kept


def test_checkpoints_take_no_more_than_their_share_of_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert saved_steps(tmp_path / "all", monkeypatch, 1.0) == [*range(1, 11)]
    monkeypatch.undo()
    assert saved_steps(tmp_path / "half", monkeypatch, 0.5) == [1, 4, 7, 10]


def test_exams_during_training_cost_about_a_tenth_of_it_and_the_last_one_is_whole(tmp_path: Path) -> None:
    records = [{"prompt": f"{k}?", "completion": " yes"} for k in range(40)]
    own = resolve({"data": "none.jsonl", "model": "scratch"})
    assert exam_size_during(own, 12_000) == 180  # ten exams of 180 examples, each two thirds of a step forth and back
    assert exam_size_during(own, 40) == 8
    assert exam_size_during(resolve({"task": {}}), 12_000) is None
    assert exam_size_during(resolve({"data": "none.jsonl", "model": "scratch", "exam": {"during": 5}}), 12_000) == 5
    sizes = []
    args = CELConfig(str(tmp_path), eval_strategy="steps", eval_steps=2, exam_samples_during=3, use_cpu=True)
    trainer = CELTrainer(tiny(), args, train_dataset=records, processing_class=byte_level())

    class Sizes(TrainerCallback):
        def on_evaluate(self, *_: Any, **__: Any) -> None:
            sizes.append(trainer.exam_rows()[0].samples)

    trainer.add_callback(Sizes())
    trainer.train()
    assert sizes == [3, 3, 40]  # after steps 2 and 4, and after the last, 5
    assert trainer.exam_rows()[0].samples == 40
