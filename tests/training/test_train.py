"""The trainer: the step it takes is the step it should, and it stops before a bad one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.tiny import FAMILIES, byte_level, tiny

from openbook.base.errors import InputError
from openbook.book import ListSource
from openbook.curriculum import SamplingPlan, curriculum_named
from openbook.training.batches import Collator, PositionDataset
from openbook.training.config import TrainingConfig
from openbook.training.encode import Encoder
from openbook.training.targets import all_logits_loss
from openbook.training.train import ContextEnhancedTrainer, DivergedError, Reporter, training_arguments

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


def trainer_of(
    folder: Path, model: Any, plan: SamplingPlan, batch_size: int = 8, micro: int = 8, **settings: Any
) -> ContextEnhancedTrainer:
    config = TrainingConfig(**{"learning_rate": 1e-2, "log_every": 1, **settings})
    encoder = Encoder(byte_level(), plan.source.bank, 512)
    return ContextEnhancedTrainer(model, plan, encoder, training_arguments(config, folder), batch_size, micro)


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
    config = TrainingConfig(learning_rate=2e-3)
    trainer = ContextEnhancedTrainer(
        tiny(), plan, Encoder(byte_level(), plan.source.bank), training_arguments(config, tmp_path), 6
    )
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
    config = TrainingConfig(learning_rate=2e-3, schedule=schedule)
    plan = plan_of()
    arguments = training_arguments(config, tmp_path, steps=steps)
    trainer = ContextEnhancedTrainer(tiny(), plan, Encoder(byte_level(), plan.source.bank), arguments, 6)
    trainer.create_optimizer_and_scheduler(steps)
    first = trainer.optimizer.param_groups[0]["lr"]
    assert first == (pytest.approx(2e-3) if steps < 17 else 0)  # 6 % of 17 steps is the first whole one


# ---- what is trained on


def seen_positions(folder: Path, **settings: Any) -> list[list[int]]:
    seen: list[list[int]] = []

    class Watching(ContextEnhancedTrainer):
        def training_step(self, model: Any, inputs: dict[str, Any], num_items_in_batch: Any = None) -> torch.Tensor:
            seen.append(inputs["positions"])
            return super().training_step(model, inputs, num_items_in_batch)

    plan = plan_of(epochs=2)
    arguments = training_arguments(TrainingConfig(learning_rate=1e-3, **settings), folder)
    Watching(tiny(), plan, Encoder(byte_level(), plan.source.bank), arguments, 5, 2).train()
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
    arguments = training_arguments(TrainingConfig(), tmp_path)
    with pytest.raises(InputError, match="has no output embeddings"):
        ContextEnhancedTrainer(tiny().model, plan, encoder, arguments)
    arguments.gradient_accumulation_steps = 2
    with pytest.raises(InputError, match="set batch_size and micro_batch_size"):
        ContextEnhancedTrainer(tiny(), plan, encoder, arguments)


# ---- trackers and reports


def test_trackers_are_passed_through(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    config = TrainingConfig(report_to=["tensorboard"], learning_rate=1e-3)
    assert training_arguments(config, tmp_path).report_to == ["tensorboard"]
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
    assert training_arguments(TrainingConfig(), tmp_path).report_to in ([], ["none"])
    with pytest.raises(InputError, match="wandbb"):
        training_arguments(TrainingConfig(report_to=["wandbb"]), tmp_path)


def test_the_reporter_logs_advances_and_examines(tmp_path: Path) -> None:
    logged: list[dict[str, Any]] = []
    advanced: list[float] = []
    reporter = Reporter(
        lambda **metrics: logged.append(metrics),
        lambda amount, note=None: advanced.append(amount),
        lambda: {"closed_book": 0.5},
        every=2,
    )
    plan = plan_of()
    arguments = training_arguments(TrainingConfig(log_every=1, learning_rate=1e-3), tmp_path)
    encoder = Encoder(byte_level(), plan.source.bank)
    ContextEnhancedTrainer(tiny(), plan, encoder, arguments, 3, 3, callbacks=[reporter]).train()
    assert sum(advanced) == 4
    assert [entry["step"] for entry in logged if "closed_book" in entry] == [2, 4]
    assert [entry["step"] for entry in logged if "loss" in entry] == [1, 2, 3, 4]


def test_gradient_checkpointing_and_weight_decay_reach_the_trainer(tmp_path: Path) -> None:
    config = TrainingConfig(gradient_checkpointing=True, weight_decay=0.1, max_grad_norm=0.5, learning_rate=1e-3)
    arguments = training_arguments(config, tmp_path)
    assert arguments.gradient_checkpointing and (arguments.weight_decay, arguments.max_grad_norm) == (0.1, 0.5)
    plain, saving = tiny(), tiny()
    trainer_of(tmp_path, plain, plan_of()).train()
    trainer_of(tmp_path, saving, plan_of(), gradient_checkpointing=True).train()
    for name, value in weights(plain).items():
        torch.testing.assert_close(saving.state_dict()[name], value, msg=name)


def test_the_ten_lines_of_the_docstring_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from openbook.book import JsonlSource
    from openbook.training import train

    lines = [line.strip() for line in (train.__doc__ or "").splitlines() if line.startswith("    ")]
    assert 5 <= len(lines) <= 10
    monkeypatch.chdir(tmp_path)
    facts = Path(__file__).parents[2] / "examples" / "facts.jsonl"
    (tmp_path / "facts.jsonl").write_bytes(facts.read_bytes())
    names: dict[str, Any] = {**vars(train), "JsonlSource": JsonlSource, "curriculum_named": curriculum_named}
    names |= {"model": tiny(), "tokenizer": byte_level()}
    exec("\n".join(lines).replace("epochs=20", "epochs=3"), names)
    assert names["trainer"].state.global_step == 2  # 90 positions in steps of 64


def test_one_process_trains_on_one_device(tmp_path: Path) -> None:
    """With several at hand transformers would cut up batches among them, where a step's targets have their places."""
    arguments = training_arguments(TrainingConfig(), tmp_path)
    assert arguments.n_gpu == 0
    arguments._n_gpu = 2
    plan = plan_of()
    trainer = ContextEnhancedTrainer(tiny(), plan, Encoder(byte_level(), plan.source.bank), arguments)
    assert trainer.args.n_gpu == 1
