"""Context-enhanced learning of real facts, against plain fine-tuning. One command:

    pip install 'openbook[examples]'
    python examples/elements/run.py --chart elements.png

1. A small Llama learns to read: it answers questions about invented numbers of isotopes that stand in its context,
   other numbers in every example, and learns to doubt where one is missing. It knows nothing about chemistry then.
2. From this one model, the true facts are taught twice, by the same questions: with the book open at first and closing,
   and without a book (`no-context`, plain fine-tuning). Each way chooses its learning rate at every length of training
   from the same grid, by other questions and another seed than those of the exam.
3. The exam is closed-book, three seeds: threes that training never asked, and single facts, which it never asks.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from openbook.base.console import emit_json, err, out, progress
from openbook.base.environment import environment
from openbook.base.intervals import clustered
from openbook.figures import Axis, Chart, Level, Panel, Series, check_path, save, share
from openbook.training.config import ModelConfig
from openbook.training.exam import examine
from openbook.training.families import Family, llama_shape
from openbook.training.folder import StartMode
from openbook.training.models import END, PAD, UNKNOWN
from openbook.training.reopen import reopen
from openbook.training.resolve import resolve
from openbook.training.run import execute
from questions import ASKED, Exam, Facts, lesson, lessons, vocabulary

# One of the three facts is missing in the first half of training, then two, and from 70 % on all of them.
CLOSING = {
    "candidates": "needed",
    "others": 0.0,
    "drop": "0.34@0,0.34@0.5,0.67@0.5,0.67@0.7,1@0.7",
    "rounding": "floor",
    "order": "shuffled",
}
CURRICULA = {"closing": CLOSING, "no-context": {"preset": "no-context", "order": "shuffled"}}
WAYS = {"closing": "the book open at first", "no-context": "plain fine-tuning"}
SEARCH_SEED = 100
ENOUGH = 0.95  # closed-book accuracy at which the facts count as learned


@dataclass(frozen=True)
class Scale:
    """How much is done."""

    elements: int = 20
    reading: int = 120_000  # lessons about invented facts
    samples: tuple[int, ...] = (2000, 4000, 8000, 12000)  # questions about true facts, until a way has learned them
    rates: tuple[float, ...] = (1e-3, 2e-3, 4e-3)
    seeds: tuple[int, ...] = (0, 1, 2)


SCALES = {
    "smoke": Scale(elements=8, reading=1280, samples=(64, 128), rates=(2e-3,), seeds=(0,)),
    "laptop": Scale(),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=SCALES, default="laptop")
    parser.add_argument("--chart", type=Path, help="save the figure as .png, .svg or .html")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    options = parser.parse_args()
    check_path(options.chart)
    torch.set_num_threads(1)
    started = time.process_time()
    with tempfile.TemporaryDirectory(prefix="elements-") as folder:
        found = study(Path(folder), SCALES[options.scale])
    found |= {"scale": options.scale, "cpu_seconds": round(time.process_time() - started, 1)}
    if options.chart:
        save(figure(found), options.chart)
    emit_json({**found, "environment": environment()}) if options.json else show(found)
    return 0


def study(folder: Path, scale: Scale) -> dict[str, Any]:
    """Teach a model to read, teach it the true facts in both ways, and sit the exam."""
    facts = Facts.true(scale.elements)
    exam = Exam.of(facts)
    draw = random.Random(1)
    data = {
        "lessons": _written(folder / "lessons.jsonl", lessons(facts, scale.reading, 0)),
        "unread": _written(folder / "unread.jsonl", (lesson(facts, draw, ASKED) for _ in range(500))),
        **{name: _written(folder / f"{name}.jsonl", vars(exam)[name]) for name in ("search", "threes", "singles")},
    }
    _make(folder / "made", facts)
    reader = _learn_to_read(folder, data)
    err.print(f"reads invented facts: {reader:.1%} of new sums right")
    rows, chosen = [], []
    total = len(WAYS) * len(scale.samples) * (len(scale.rates) + len(scale.seeds))
    with progress("teaching true facts", total) as advance:
        for way in WAYS:
            for samples in scale.samples:
                tried = {}
                for rate in scale.rates:
                    tried[rate] = _teach(folder, data, exam, way, samples, rate, SEARCH_SEED, "search")
                    advance(1)
                best = max(tried, key=lambda rate: tried[rate]["search"])
                chosen.append({"way": way, "samples": samples, "rate": best, "tried": tried})
                for seed in scale.seeds:
                    right = _teach(folder, data, exam, way, samples, best, seed, "threes", "singles")
                    rows.append({"way": way, "samples": samples, "seed": seed, "rate": best, **right})
                    advance(1, note=f"{way}, {samples} samples: {right['threes']:.0%}")
                if samples_needed(rows, way) is not None:  # longer trainings would say nothing new
                    break
    return {
        "elements": scale.elements,
        "questions": {name: len(vars(exam)[name]) for name in ("training", "search", "threes", "singles")},
        "reads": reader,
        "chance": {"threes": _commonest(exam.threes), "singles": _commonest(exam.singles)},
        "rows": rows,
        "learning_rates": chosen,
        "enough": ENOUGH,
        "samples_needed": {way: samples_needed(rows, way) for way in WAYS},
    }


def samples_needed(rows: list[dict[str, Any]], way: str) -> int | None:
    """The shortest training after which the mean of the seeds is enough, on threes that were never asked."""
    for samples in sorted({row["samples"] for row in rows if row["way"] == way}):
        right = [row["threes"] for row in rows if (row["way"], row["samples"]) == (way, samples)]
        if sum(right) / len(right) >= ENOUGH:
            return samples
    return None


def _written(path: Path, records: Iterable[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def _commonest(records: list[dict[str, Any]]) -> float:
    """What one and the same answer everywhere would score."""
    answers = [record["completion"] for record in records]
    return max(map(answers.count, answers)) / len(answers)


def _make(folder: Path, facts: Facts) -> None:
    """A small Llama with random weights and a tokenizer of whole words, in a folder as anybody's own model would be."""
    words = [PAD, END, UNKNOWN, *vocabulary(facts)]
    core = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token=UNKNOWN))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token=PAD, eos_token=END, unk_token=UNKNOWN, clean_up_tokenization_spaces=False
    )
    shape = ModelConfig(hidden_size=64, layers=3, heads=4, intermediate_size=256)
    Family().make(llama_shape(shape, len(words)), seed=0).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _learn_to_read(folder: Path, data: dict[str, Path]) -> float:
    """The course of lessons, in their order; returns open-book accuracy on threes of invented facts."""
    settings = {
        "model": {"path": str(folder / "made")},
        "data": str(data["lessons"]),
        "curriculum": {"candidates": "all", "drop": "0", "order": "given"},
        "training": {
            "batch_size": 128,
            "micro_batch_size": 128,
            "shuffle": False,
            "optimizer": "muon",
            "matrix_learning_rate": 0.02,
            "learning_rate": 3e-3,
            "schedule": "warmup_stable_decay",
            "decay": 0.3,
            "checkpoint_every": 0,
        },
        "exam": {"data": str(data["unread"]), "samples": 500, "batch_size": 500, "every": 10**6},
    }
    return execute(resolve(settings), folder / "reader", bar=progress)["accuracy"]["open_book"]


def _teach(
    folder: Path, data: dict[str, Path], exam: Exam, way: str, samples: int, rate: float, seed: int, *exams: str
) -> dict[str, float]:
    """One training on true facts from the model that can read; closed-book accuracy in each exam."""
    settings = {
        "model": {"path": str(folder / "reader")},
        "data": str(_written(folder / "training.jsonl", exam.questions(samples, seed))),
        "curriculum": CURRICULA[way],
        "training": {
            "batch_size": 16,
            "micro_batch_size": 16,
            "learning_rate": rate,
            "schedule": "warmup_stable_decay",
            "freeze": ["norm"],
            "checkpoint_every": 0,
        },
        "exam": {"data": str(data[exams[0]]), "samples": 1000, "batch_size": 500, "every": 10**6},
        "seed": seed,
    }
    config = resolve(settings)
    result = execute(config, folder / "taught", StartMode(force=True))
    right = {exams[0]: result["accuracy"]["closed_book"], "open_book": result["accuracy"]["open_book"]}
    for name in exams[1:]:
        _, model, encoder, source = reopen(folder / "taught", data[name])
        rows = examine(model, encoder, source, config.curriculum, (0.0,), wrong=False, samples=1000, seed=seed)
        right[name] = rows[0].accuracy
    return right


def figure(found: dict[str, Any]) -> Chart:
    """Closed-book accuracy against the questions answered in training."""
    titles = {"threes": "threes that were never asked", "singles": "single facts, never asked by themselves"}
    questions = Axis("questions answered in training", "log", "si")
    panels = []
    for name, title in titles.items():
        series = []
        for colour, (way, label) in enumerate(WAYS.items()):
            points = [(samples, point) for each, samples, point in _points(found, name) if each == way]
            if points:
                means = [(samples, point["mean"]) for samples, point in points]
                spread = [(point["low"], point["high"]) for _, point in points]
                series.append(Series(label, means, colour, spread))
        level = Level(found["chance"][name], "one answer everywhere")
        panels.append(Panel(title, questions, share("right, book closed"), series, [level]))
    return Chart(
        "elements",
        f"Natural isotopes of {found['elements']} elements, learned from sums of three",
        "Accuracy with the book closed, of each way of training, by the number of questions answered.",
        panels,
        "The mean of the seeds and its 95 % interval. "
        f"The model reads {found['reads']:.0%} of sums of invented facts right.",
    )


def _points(found: dict[str, Any], name: str) -> list[tuple[str, int, dict[str, float]]]:
    """Way, length of training, and the mean of the seeds with its interval."""
    points = []
    for way, samples in dict.fromkeys((row["way"], row["samples"]) for row in found["rows"]):
        here = [row[name] for row in found["rows"] if (row["way"], row["samples"]) == (way, samples)]
        points.append((way, samples, dict(zip(("mean", "low", "high"), clustered(here), strict=True))))
    return points


def show(found: dict[str, Any]) -> None:
    from rich.table import Table

    table = Table("way", "questions answered", "new threes", "single facts", box=None)
    for (way, samples, threes), (_, _, singles) in zip(
        _points(found, "threes"), _points(found, "singles"), strict=True
    ):
        shares = [f"{p['mean']:.1%} ({p['low']:.0%} to {p['high']:.0%})" for p in (threes, singles)]
        table.add_row(WAYS[way], f"{samples:,}", *shares)
    out.print(table)
    for way, samples in found["samples_needed"].items():
        needed = f"{samples:,} questions" if samples else f"more than {max(r['samples'] for r in found['rows']):,}"
        out.print(f"{WAYS[way]}: {needed} for {found['enough']:.0%} of new threes")
    out.print(f"reads invented facts: {found['reads']:.1%}; {found['cpu_seconds']:.0f} CPU seconds in all", style="dim")


if __name__ == "__main__":
    sys.exit(main())
