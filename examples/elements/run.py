"""Context-enhanced learning of real facts, against plain fine-tuning. One command:

    pip install 'openbook[examples]'
    python examples/elements/run.py --chart elements.png

1. A small Llama learns to read: it answers questions about invented numbers of protons that stand in its context, other
   numbers in every example. It knows nothing about chemistry then, but can use a book.
2. From this one model, the true facts are taught twice, by the same questions: with the book open at first and closing
   (`anneal`), and without a book (`no-context`, plain fine-tuning). Each way chooses its learning rate at every length
   of training from the same grid, by other questions and another seed than those of the exam.
3. The exam is closed-book, three seeds: pairs that training never asked, and single facts, which it never asked at all.
"""

from __future__ import annotations

import argparse
import json
import os
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

from openbook.charts import check_path, save
from openbook.console import emit_json, err, out, progress
from openbook.records import environment
from openbook.training.config import ModelConfig, RunConfig, validated
from openbook.training.exam import examine
from openbook.training.models import END, PAD, UNKNOWN, make_model
from openbook.training.run import carry_out, reopen
from questions import Exam, Facts, lessons, vocabulary

WAYS = {"anneal": "the book open at first", "no-context": "plain fine-tuning"}
SEARCH_SEED = 100


@dataclass(frozen=True)
class Scale:
    """How much is done."""

    elements: int = 20
    reading: tuple[int, int] = (40_000, 4)  # lessons about invented facts, and how often each is read
    epochs: tuple[int, ...] = (1, 2, 4, 8, 16, 32)  # over the 190 questions about true facts
    rates: tuple[float, ...] = (5e-4, 1e-3, 2e-3, 4e-3)
    seeds: tuple[int, ...] = (0, 1, 2)


SCALES = {
    "smoke": Scale(elements=6, reading=(640, 1), epochs=(1, 2), rates=(1e-3,), seeds=(0,)),
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
    data = {
        name: _written(folder / f"{name}.jsonl", records)
        for name, records in (*vars(exam).items(), ("lessons", lessons(facts, scale.reading[0], 0, single=0.4)))
    }
    data["unread"] = _written(folder / "unread.jsonl", lessons(facts, 500, 1, single=0.0))
    _make(folder / "made", facts)
    reader = _learn_to_read(folder, data, scale)
    err.print(f"reads invented facts: {reader:.1%} of new sums right")
    rows, chosen = [], []
    total = len(WAYS) * len(scale.epochs) * (len(scale.rates) + len(scale.seeds))
    with progress("teaching true facts", total) as advance:
        for way in WAYS:
            for epochs in scale.epochs:
                tried = {}
                for rate in scale.rates:
                    tried[rate] = _teach(folder, data, way, epochs, rate, SEARCH_SEED, "search")
                    advance(1)
                best = max(tried, key=lambda rate: tried[rate]["search"])
                chosen.append({"way": way, "epochs": epochs, "rate": best, "tried": tried})
                for seed in scale.seeds:
                    right = _teach(folder, data, way, epochs, best, seed, "pairs", "singles")
                    samples = epochs * len(exam.training)
                    rows.append({"way": way, "epochs": epochs, "samples": samples, "seed": seed, "rate": best, **right})
                    advance(1, note=f"{way}, {samples} samples: {right['pairs']:.0%}")
    return {
        "elements": scale.elements,
        "questions": {name: len(part) for name, part in vars(exam).items()},
        "reads": reader,
        "chance": {"pairs": _commonest(exam.pairs), "singles": _commonest(exam.singles)},
        "rows": rows,
        "learning_rates": chosen,
    }


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
    make_model(ModelConfig(hidden_size=64, layers=3, heads=4), len(words), seed=0).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _learn_to_read(folder: Path, data: dict[str, Path], scale: Scale) -> float:
    settings = {
        "model": {"path": str(folder / "made")},
        "data": str(data["lessons"]),
        "curriculum": {"candidates": "all", "drop": "0", "order": "shuffled"},
        "training": {
            "batch_size": 64,
            "micro_batch_size": 64,
            "epochs": scale.reading[1],
            "optimizer": "muon",
            "matrix_learning_rate": 0.02,
            "learning_rate": 3e-3,
            "log_every": 50,
            "checkpoint_every": 0,
        },
        "exam": {"data": str(data["unread"]), "samples": 500, "batch_size": 500, "every": 500},
    }
    config = validated(RunConfig, settings)
    return carry_out(config, folder / "reader", bar=progress)["accuracy"]["open_book"]


def _teach(
    folder: Path, data: dict[str, Path], way: str, epochs: int, rate: float, seed: int, *exams: str
) -> dict[str, float]:
    """One training on true facts from the model that can read; closed-book accuracy in each exam."""
    settings = {
        "model": {"path": str(folder / "reader")},
        "data": str(data["training"]),
        "curriculum": {"preset": way, "order": "shuffled"},
        "training": {
            "batch_size": 16,
            "micro_batch_size": 16,
            "epochs": epochs,
            "learning_rate": rate,
            "checkpoint_every": 0,
        },
        "exam": {"data": str(data[exams[0]]), "samples": 1000, "batch_size": 500, "every": 10**6},
        "seed": seed,
    }
    config = validated(RunConfig, settings)
    result = carry_out(config, folder / "taught", force=True)
    right = {exams[0]: result["accuracy"]["closed_book"]}
    for name in exams[1:]:
        _, model, encoder, source = reopen(folder / "taught", data[name])
        rows = examine(model, encoder, source, config.curriculum, (0.0,), wrong=False, samples=1000, seed=seed)
        right[name] = rows[0].accuracy
    return right


def figure(found: dict[str, Any]) -> Any:
    """Closed-book accuracy against the questions answered in training."""
    import altair as alt

    titles = {"pairs": "pairs that were never asked", "singles": "single facts, never asked by themselves"}
    panels = []
    for name, title in titles.items():
        rows = [{"way": WAYS[r["way"]], "samples": r["samples"], "accuracy": r[name]} for r in found["rows"]]
        base = alt.Chart(alt.Data(values=rows)).encode(
            x=alt.X(
                "samples:Q",
                scale=alt.Scale(type="log", base=2, nice=False),
                title="questions answered in training",
                axis=alt.Axis(values=sorted({row["samples"] for row in rows})),
            ),
            color=alt.Color("way:N", title=None, sort=list(WAYS.values()), legend=alt.Legend(orient="bottom")),
        )
        percent = alt.Axis(format="%")
        y = alt.Y("mean(accuracy):Q", title="right, book closed", scale=alt.Scale(domain=[0, 1]), axis=percent)
        chance = alt.Chart(alt.Data(values=[{"chance": found["chance"][name]}]))
        panels.append(
            alt.layer(
                chance.mark_rule(color="#888", strokeDash=[2, 3]).encode(y="chance:Q"),
                base.mark_rule(opacity=0.7).encode(y="min(accuracy):Q", y2="max(accuracy):Q"),
                base.mark_line(strokeWidth=2.5, point=alt.OverlayMarkDef(size=45)).encode(y=y),
            ).properties(width=330, height=240, title=title)
        )
    return alt.hconcat(*panels).properties(
        title={
            "text": f"Protons of the first {found['elements']} elements, learned from sums of two",
            "subtitle": [
                "mean of the seeds and their range; dotted: one and the same answer everywhere; "
                f"the model reads {found['reads']:.0%} of sums of invented facts right"
            ],
        }
    )


def show(found: dict[str, Any]) -> None:
    from rich.table import Table

    table = Table("way", "questions answered", "learning rate", "new pairs", "single facts", box=None)
    for way, epochs in dict.fromkeys((row["way"], row["epochs"]) for row in found["rows"]):
        here = [row for row in found["rows"] if (row["way"], row["epochs"]) == (way, epochs)]
        shares = [f"{sum(row[name] for row in here) / len(here):.1%}" for name in ("pairs", "singles")]
        table.add_row(WAYS[way], f"{here[0]['samples']:,}", f"{here[0]['rate']:g}", *shares)
    out.print(table)
    out.print(f"reads invented facts: {found['reads']:.1%}; {found['cpu_seconds']:.0f} CPU seconds in all", style="dim")


if __name__ == "__main__":
    sys.exit(main())
