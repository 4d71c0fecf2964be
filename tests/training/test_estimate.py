"""The plan of a run, estimated before it starts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.tiny import byte_level, tiny

from openbook.base.errors import InputError
from openbook.training.estimate import COUNTED, estimate, tokens_of
from openbook.training.families import Family, llama_shape
from openbook.training.resolve import resolve

TASK = {"depth": 2, "chars": 3, "lengths": [4, 8]}
SMALL = {"hidden_size": 16, "layers": 2, "heads": 2}


def plan(**settings: Any) -> dict[str, Any]:
    return estimate(resolve({"task": TASK, "model": SMALL, "samples": 100, **settings}))


def test_steps_tokens_and_parameters_are_counted() -> None:
    estimated = plan(training={"epochs": 3, "batch_size": 16})
    assert (estimated["examples"], estimated["positions"], estimated["steps"]) == (100, 300, 19)
    assert estimated["tokens"] == pytest.approx(estimated["tokens_per_example"] * 300, rel=0.01)
    config = resolve({"task": TASK, "model": SMALL}).model
    vocabulary = 4 + len(["<BOOK", "<READ", "<WRITE", ""]) - 1 + 2 + 3 * 3 + 1
    assert estimated["parameters"] == sum(
        p.numel() for p in Family().make(llama_shape(config, vocabulary), 0).parameters()
    )
    assert [(p["progress"], p["closed"]) for p in estimated["schedule"]] == [
        (0.0, 0.0),
        (0.3, 0.5),
        (0.6, 1.0),
        (1.0, 1.0),
    ]


@pytest.mark.parametrize("text", ["compact", "composite"])
def test_tokens_of_a_run_are_those_that_its_trainer_sees(text: str) -> None:
    """Over all positions, of which an estimate looks at a few."""
    from openbook.training.batches import Collator, PositionDataset
    from openbook.training.encode import Encoder
    from openbook.training.models import make_tokenizer
    from openbook.training.sources import plan_for, sources_of

    config = resolve({"task": {**TASK, "text": text}, "model": SMALL, "samples": COUNTED + 100})
    source, _ = sources_of(config)
    tokenizer = make_tokenizer(source)
    dataset = PositionDataset(plan_for(config, source), Encoder(tokenizer, source.bank, loss=config.training.loss))
    batches = Collator(tokenizer.pad_token_id, 64)(dataset.__getitems__(list(range(COUNTED + 100))))["micro_batches"]
    assert tokens_of(config) == sum(int(batch["attention_mask"].sum()) for batch in batches)


def test_memory_is_less_with_targets_alone_and_grows_with_the_micro_batch() -> None:
    small, large = (plan(training={"micro_batch_size": size})["memory"] for size in (1, 16))
    assert large["activations"] > 10 * small["activations"] and large["weights"] == small["weights"]
    assert large["logits"] < large["logits_if_everywhere"]
    parts = [size for name, size in large.items() if name not in ("total", "logits_if_everywhere")]
    assert large["total"] == pytest.approx(sum(parts))


def test_what_does_not_fit_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "facts.jsonl"
    record = {"prompt": "Who? " * 20, "completion": " Orm", "privileged_context": ["a fact " * 30, "another " * 30]}
    path.write_text("".join(json.dumps(record) + "\n" for _ in range(4)))
    estimated = estimate(resolve({"data": str(path), "model": SMALL, "training": {"max_length": 12}}))
    assert (
        estimated["longest_example"] == 12
        and estimated["prompts_cut"] == 1.0
        and estimated["pieces_that_do_not_fit"] > 0
    )
    with pytest.raises(InputError, match=r"facts\.jsonl:\d .*does not fit into a window of 2"):
        estimate(resolve({"data": str(path), "model": SMALL, "training": {"max_length": 2}}))


def test_no_weights_are_read(tmp_path: Path) -> None:
    model = tiny("llama", 700)
    model.save_pretrained(tmp_path)
    byte_level().save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    estimated = plan(model={"path": str(tmp_path)})
    assert estimated["parameters"] == sum(p.numel() for p in model.parameters())
    assert estimated["window"] == 512 and estimated["tokens_are"].startswith("counted")


def test_a_model_that_is_not_at_hand_is_stood_in_for_by_its_shape(tmp_path: Path) -> None:
    absent = {"path": str(tmp_path / "absent"), **SMALL}
    with pytest.raises(InputError, match="no such folder"):
        plan(model=absent)
    estimated = plan(model={**absent, "vocabulary": 1000})
    assert estimated["tokens_are"].startswith("estimated") and estimated["parameters"] > 1000 * 16 * 2


def test_the_plan_says_how_many_examples_have_no_book(tmp_path: Path) -> None:
    record = {"prompt": "Who?", "completion": " Orm", "privileged_context": "Orm rules."}
    for records in (1, 50):
        (tmp_path / "facts.jsonl").write_text((json.dumps(record) + "\n") * records)
        own = {"data": str(tmp_path / "facts.jsonl"), "model": "scratch", "training": {"epochs": 200 // records}}
        points = {point["progress"]: point for point in estimate(resolve(own))["schedule"]}
        assert points[0.0]["without_book"] == 0 and points[1.0]["without_book"] == 1
        assert points[0.3]["closed"] == 0.5 and 0.35 < points[0.3]["without_book"] < 0.65  # one piece is there or not
    task = {"task": {"depth": 2, "chars": 4, "lengths": [4, 8]}, "curriculum": "anneal"}
    points = {point["progress"]: point for point in estimate(resolve(task))["schedule"]}
    assert points[1.0]["closed"] == 1 and 0.35 < points[1.0]["without_book"] < 0.65  # the coin leaves half of them some
