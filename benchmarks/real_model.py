"""SmolLM2-135M on the handbook: training against TRL's SFTTrainer, time to an answer, memory, exam and loading.

`tokens/s`: real tokens per second of full fine-tuning in steps of 16, from the end of the first step to the end of the
last, on the same conversations in bfloat16. TRL computes in bfloat16 over float32 weights, as it does by default, or
has bfloat16 weights without a float32 copy. `share of the machine`: multiplications of a step for each second, against
the best that a bfloat16 matrix product does here. `time to answer`: seconds of training until 95 % of the handbook's
questions are answered with the book closed, by `openbook learn` at its defaults, against SFTTrainer at its own on the
same questions without the book; where that does not get there in `PATIENCE` times as long, its time is a lower bound.

Every number is measured in a process of its own, one after another, on all cores.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

from _rows import Row, main
from openbook.base.console import err

HANDBOOK = Path(__file__).parents[1] / "examples" / "handbook" / "train.jsonl"
MODEL, STEP, MICRO, STEPS = "smollm2-135m", 16, 8, 6
ENOUGH, PATIENCE, SEEDS = 0.95, 6.0, 3
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
TRL_MISSING = "TRL is not installed: .venv/bin/pip install -c constraints.txt -e '.[bench]'"


# ---- sides: each is run by itself and prints one JSON object


def conversations(opened: bool) -> list[dict[str, Any]]:
    """The handbook's questions as TRL takes them, with all of their book before them or with none of it."""
    records = []
    for line in HANDBOOK.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        book = [f"{name}:\n" + "\n".join(p["text"] for p in ps) for name, ps in record["privileged_context"].items()]
        asked = "\n\n".join([*book, record["prompt"]]) if opened else record["prompt"]
        prompt = [{"role": "user", "content": asked}]
        records.append({"prompt": prompt, "completion": [{"role": "assistant", "content": record["completion"]}]})
    return records


def clock() -> Any:
    from transformers import TrainerCallback

    class Clock(TrainerCallback):
        def __init__(self) -> None:
            self.ends: list[float] = []

        def on_step_end(self, *_: Any, **__: Any) -> None:
            self.ends.append(time.perf_counter())

    return Clock()


def speed_ours(others: float = 1.0) -> dict[str, Any]:
    """Steps of 16 with all of the book open; `others` is the share of the pieces that an example does not need."""
    from openbook.api import config_for
    from openbook.training.run import set_up, trainer_arguments
    from openbook.training.trainer import CELTrainer

    with tempfile.TemporaryDirectory() as folder:
        keys = {"training.batch_size": STEP, "training.micro_batch_size": MICRO, "training.checkpoint_every": 0}
        all_open = {"preset": "no-dropout", "others": others}
        config = config_for(data=HANDBOOK, samples=STEP * STEPS, epochs=1, curriculum=all_open, **keys)
        setup = set_up(config, Path(folder), None)
        arguments = trainer_arguments(config, folder, STEP * STEPS)
        arguments.eval_strategy, timer = "no", clock()
        data = {"train_dataset": setup.source, "plan": setup.plan, "encoder": setup.encoder}
        trainer = CELTrainer(setup.model, arguments, processing_class=setup.tokenizer, callbacks=[timer], **data)
        trainer.train()
        items = trainer.train_dataset.__getitems__(range(STEP, STEP * STEPS))
    tokens = sum(len(item.ids) for item in items)
    targets = sum(int((item.labels != -100).sum()) for item in items)
    seconds = timer.ends[-1] - timer.ends[0]
    products = 6 * (_inner(setup.model) * tokens + setup.model.lm_head.weight.numel() * targets)
    return {"tokens": tokens, "seconds": seconds, "flops": products / seconds, "peak": _peak()}


def _inner(model: Any) -> int:
    """Weights that every token is multiplied with."""
    return sum(p.numel() for name, p in model.named_parameters() if p.ndim == 2 and "embed" not in name)


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def sft(folder: str, records: list[dict[str, Any]], callback: Any, **options: Any) -> Any:
    """TRL's trainer on some conversations, with its own defaults but for the options."""
    import torch
    from datasets import Dataset, disable_progress_bars
    from transformers.trainer_callback import PrinterCallback
    from trl import SFTConfig, SFTTrainer

    from openbook.training.models import load

    disable_progress_bars()
    model, tokenizer = load(MODEL, options.pop("dtype", "float32"))
    common = {
        "report_to": "none",
        "save_strategy": "no",
        "disable_tqdm": True,
        "use_cpu": not torch.cuda.is_available(),
    }
    config = SFTConfig(output_dir=folder, **common, **options)
    data = Dataset.from_list(records)
    trainer = SFTTrainer(model, config, train_dataset=data, processing_class=tokenizer, callbacks=[callback])
    trainer.remove_callback(PrinterCallback)
    return trainer


def speed_trl(dtype: str) -> dict[str, Any]:
    timer = clock()
    with tempfile.TemporaryDirectory() as folder:
        same = {"per_device_train_batch_size": STEP, "num_train_epochs": 1, "learning_rate": 1e-4}
        usual = {"gradient_checkpointing": False, "completion_only_loss": True, "bf16": True, "dtype": dtype}
        trainer = sft(folder, conversations(True)[: STEP * STEPS], timer, **same, **usual)
        trainer.train()
        rows = [len(row["input_ids"]) for row in trainer.train_dataset]
    # the order is drawn, so the tokens of the first step are not known: those of an average step are taken off
    return {"tokens": sum(rows) * (STEPS - 1) / STEPS, "seconds": timer.ends[-1] - timer.ends[0], "peak": _peak()}


def closed_book(model: Any, tokenizer: Any) -> float:
    """Share of the handbook's questions that a model answers with the book closed, every token of the answer right."""
    from openbook.api import load
    from openbook.curriculum import curriculum_named
    from openbook.training.encode import Encoder
    from openbook.training.exam import examine

    source = load(HANDBOOK)
    encoder = Encoder(tokenizer, source.bank)
    (row,) = examine(model, encoder, source, curriculum_named("anneal"), (0.0,), wrong=False, batch_size=32)
    return row.exact_match


def until_answered(model_of: Callable[[], Any], tokenizer_of: Callable[[], Any], limit: float, every: float) -> Any:
    """A callback that stops the clock, sits the exam, and ends the training once it is passed or the limit is over."""
    from transformers import TrainerCallback

    class Until(TrainerCallback):
        def on_train_begin(self, *_: Any, **__: Any) -> None:
            self.begun, self.paused, self.curve, self.next = time.perf_counter(), 0.0, [], 0.0

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            now = time.perf_counter()
            seconds = now - self.begun - self.paused
            if seconds < self.next:
                return
            self.curve.append((seconds, closed_book(model_of(), tokenizer_of())))
            self.next = seconds + every
            self.paused += time.perf_counter() - now
            if self.curve[-1][1] >= ENOUGH or seconds > limit:
                control.should_training_stop = True

    return Until()


def answer_ours(seed: int, curriculum: str = "anneal") -> dict[str, Any]:
    from openbook.api import config_for
    from openbook.training.run import set_up, trainer_arguments
    from openbook.training.trainer import CELTrainer

    with tempfile.TemporaryDirectory() as folder:
        config = config_for(data=HANDBOOK, seed=seed, curriculum=curriculum, **{"training.checkpoint_every": 0})
        setup = set_up(config, Path(folder), None)
        arguments = trainer_arguments(config, folder, setup.plan.total)
        arguments.eval_strategy = "no"
        watch = until_answered(lambda: setup.model, lambda: setup.tokenizer, 1e9, every=5)
        data = {"train_dataset": setup.source, "plan": setup.plan, "encoder": setup.encoder}
        CELTrainer(setup.model, arguments, processing_class=setup.tokenizer, callbacks=[watch], **data).train()
    return {"seconds": watch.curve[-1][0], "reached": watch.curve[-1][1], "curve": watch.curve}


def answer_trl(seed: int, limit: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        trainer: Any = None
        watch = until_answered(lambda: trainer.model, lambda: trainer.processing_class, limit, every=limit / 20)
        trainer = sft(folder, conversations(False), watch, num_train_epochs=100, seed=seed)
        trainer.train()
    return {"seconds": watch.curve[-1][0], "reached": watch.curve[-1][1], "curve": watch.curve}


def matmul() -> dict[str, Any]:
    """The best rate of a product of two large matrices in bfloat16, in operations a second."""
    import torch

    size, best = 2048, 0.0
    a, b = (torch.randn(size, size).bfloat16() for _ in range(2))
    for _ in range(20):
        begun = time.perf_counter()
        a @ b
        best = max(best, 2 * size**3 / (time.perf_counter() - begun))
    return {"flops": best}


def exam(shares: tuple[float, ...]) -> dict[str, Any]:
    from openbook.api import load
    from openbook.curriculum import curriculum_for
    from openbook.training.encode import Encoder
    from openbook.training.exam import examine
    from openbook.training.models import load as load_model

    model, tokenizer = load_model(MODEL, "bfloat16")
    source = load(HANDBOOK)
    what = model, Encoder(tokenizer, source.bank), source, curriculum_for("anneal", source)
    examine(*what, (0.0,), wrong=False, samples=8)  # warms up
    begun = time.perf_counter()
    examine(*what, shares, wrong=False, samples=100, batch_size=32)
    return {"seconds": time.perf_counter() - begun}


def loading() -> dict[str, Any]:
    import transformers  # noqa: F401 - what every command imports is not part of it

    from openbook.training.models import load

    load(MODEL)
    begun = time.perf_counter()
    load(MODEL)
    return {"seconds": time.perf_counter() - begun}


def conversion() -> dict[str, Any]:
    """Converting alone: the file is copied out of the cache of downloads, or downloaded, before the clock starts."""
    import transformers  # noqa: F401

    from openbook.training import store

    with tempfile.TemporaryDirectory() as folder:
        os.environ[store.CACHE] = folder
        (Path(folder) / "models").mkdir()
        file, _, scratch = store._fetched(store.NAMED[MODEL], lambda line: None)
        begun = time.perf_counter()
        store._convert(file, Path(folder) / "converted")
        seconds = time.perf_counter() - begun
        store.remove(scratch) if scratch else None
    return {"seconds": seconds}


SIDES: dict[str, Callable[..., dict[str, Any]]] = {
    "speed-ours": lambda others=1.0: speed_ours(float(others)),
    "speed-trl": speed_trl,
    "answer-ours": lambda seed, curriculum="anneal": answer_ours(int(seed), curriculum),
    "answer-trl": lambda seed, limit: answer_trl(int(seed), float(limit)),
    "matmul": matmul,
    "exam": lambda *shares: exam(tuple(map(float, shares))),
    "loading": loading,
    "conversion": conversion,
}


def side(name: str, *arguments: object) -> dict[str, Any]:
    """What one side measures, in a process of its own."""
    command = [sys.executable, __file__, "--side", name, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{name}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


# ---- rows


def measure() -> Iterator[Row]:
    try:
        import trl  # noqa: F401

        has_trl = True
    except ImportError:
        err.print(TRL_MISSING)
        has_trl = False
    yield from speed(has_trl)
    one, five = (side("exam", *shares)["seconds"] for shares in ((1.0,), SHARES))
    yield Row("exam at five shares of the book", five, "s", one, 1 / 2.5, "ratio", "less", at="against one")
    yield Row("loading the converted model", side("loading")["seconds"], "s", goal=1.5, better="less")
    yield Row("conversion", side("conversion")["seconds"], "s", goal=20, better="less")
    yield from time_to_answer(has_trl)


def speed(has_trl: bool) -> Iterator[Row]:
    ours = side("speed-ours")
    rate = ours["tokens"] / ours["seconds"]
    for dtype, at in (("float32", "TRL as it is"), ("bfloat16", "TRL with bfloat16 weights")):
        theirs = side("speed-trl", dtype) if has_trl else None
        baseline = theirs["tokens"] / theirs["seconds"] if theirs else None
        goal = 1.5 if dtype == "float32" else None
        yield Row("training", rate, "tokens/s", baseline, goal, "ratio", at=at, extra=ours)
    peak = side("matmul")["flops"]
    yield Row("share of the machine", ours["flops"] / peak, "of the matmul rate", goal=0.6, extra={"peak": peak})
    peaks = ours["peak"] / 1e9, theirs["peak"] / 1e9 if theirs else None
    yield Row("peak memory, batch 16", peaks[0], "GB", peaks[1], better="less", at="as above", extra=_tokens(ours))
    usual = side("speed-ours", 0.25)
    yield Row("peak memory, batch 16", usual["peak"] / 1e9, "GB", goal=5, better="less", extra=_tokens(usual))


def _tokens(side: dict[str, Any]) -> dict[str, Any]:
    return {"tokens_per_step": side["tokens"] / (STEPS - 1)}


def time_to_answer(has_trl: bool) -> Iterator[Row]:
    ours = [side("answer-ours", seed) for seed in range(SEEDS)]
    seconds = statistics.median(run["seconds"] for run in ours)
    theirs = [side("answer-trl", seed, PATIENCE * seconds) for seed in range(SEEDS)] if has_trl else []
    baseline = statistics.median(run["seconds"] for run in theirs) if theirs else None
    extra = {"ours": ours, "sft": theirs, "lower_bound": any(run["reached"] < ENOUGH for run in theirs)}
    yield Row("time to answer 95 %", seconds, "s", baseline, 5, "ratio", "less", extra=extra, at=f"{SEEDS} seeds")
    plain = [side("answer-ours", seed, "no-context") for seed in range(SEEDS)]
    seconds = statistics.median(run["seconds"] for run in plain)
    yield Row("the same without the book", seconds, "s", baseline, better="less", extra={"ours": plain})


if __name__ == "__main__":
    if sys.argv[1:2] == ["--side"]:
        print(json.dumps(SIDES[sys.argv[2]](*sys.argv[3:])))
    else:
        main("SmolLM2-135M on the handbook, all cores", measure)
