"""`openbook demo`: a guided first look."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from rich.panel import Panel
from rich.text import Text

from openbook.base.console import emit_json, err, out, print_table, progress
from openbook.base.errors import MachineError
from openbook.book.text import THINK
from openbook.cli.translate import in_symbols, show
from openbook.task.dataset import DatasetSpec, record
from openbook.task.formats import ReleasedFormat
from openbook.task.inputs import random_inputs
from openbook.task.phrasebook import Codebook
from openbook.task.translate import translate
from openbook.task.writer import write_dataset

PIECES_SHOWN = 4
ASKED = (0, 25, 50)  # held-out questions that the model is asked at the end


def demo(
    tour: Literal["handbook", "task"] = "handbook", *, folder: Path = Path("demo"), seed: int = 0, json: bool = False
) -> None:
    """Take a first look: a language model learns a handbook by heart, in five minutes on two cores.

    SmolLM2-135M, which is downloaded once (93 MB), is examined on the invented facts of a ferry company, learns them
    with the handbook open and then closed, and is examined and asked again. `openbook demo task` shows the task of the
    paper instead: one translation, a small dataset and three of its records, in seconds.

        openbook demo
        openbook demo task

    Parameters
    ----------
    tour
        What to look at.
    folder
        Folder for what the demo makes; that of an earlier demo is replaced.
    seed
        Seed of everything random.
    json
        Print one JSON object on standard output instead of the tour.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MachineError(f"{folder}: {error.strerror}: choose another folder with --folder") from None
    (_handbook if tour == "handbook" else _task)(folder, seed, json)


# ---- a handbook


def handbook() -> Path:
    """The folder of the example; it is in the package, or beside it in a checkout."""
    installed = Path(str(resources.files("openbook"))) / "examples" / "handbook"
    return installed if installed.exists() else Path(__file__).parents[3] / "examples" / "handbook"


def _handbook(folder: Path, seed: int, json: bool) -> None:
    import openbook as ob

    def say(text: str) -> None:
        if not json:
            out.print(text)

    seen, new = (ob.load(handbook() / name) for name in ("train.jsonl", "held-out.jsonl"))
    first = seen.record(0)
    say("[bold]1.[/] The book: forty facts of a ferry company. It does not exist, so no model has read of it.")
    if not json:
        out.print(Panel(_shown(first), title="one of 100 questions, with its part of the book", title_align="left"))
    say("[bold]2.[/] What does the model know before? It is asked with the book closed, and with the book open.")
    before = {name: ob.examine("smollm2-135m", data) for name, data in (("seen", seen), ("new", new))}
    say("[bold]3.[/] It learns: with the book open at first, then with less and less of it. No loss is on the book.")
    run = ob.learn(seen, out=folder / "handbook", seed=seed, force=True, bar=progress, report=err.print)
    say("[bold]4.[/] What does it know now? Share of the questions with the whole answer in the right words:")
    after = {name: run.exam(data, shares=(0.0, 1.0)) for name, data in (("seen", seen), ("new", new))}
    rows = [
        {"questions": questions, "book": book, "before": of(before[name]), "after": of(after[name])}
        for name, questions in (("seen", "the 100 it learned from"), ("new", "60 new ones"))
        for book, of in (("closed", lambda e: e.closed.exact_match), ("open", lambda e: e.open.exact_match))
    ]
    asked = [new.record(k) for k in ASKED]
    answers = [
        {"question": r["prompt"], "answer": run.ask(r["prompt"], max_new_tokens=16), "right": r["completion"]}
        for r in asked
    ]
    if json:
        emit_json({"run": str(run.folder), "rows": rows, "asked": answers, **run.result})
        return
    columns = {"questions": "{questions}", "book": "{book}", "before": "{before:.2f}", "after": "{after:.2f}"}
    print_table(rows, columns, "before, the model answers in sentences of its own, which are not the same words")
    say("[bold]5.[/] Three new questions, with the book closed:")
    for answer in answers:
        out.print(f"   {answer['question']}\n   [cyan]{answer['answer']}[/]  (right: {answer['right']})")
    say(
        f"\n{run.result['seconds']:.0f} s of training. Go on with [bold]openbook ask {run.folder}[/], with "
        f"[bold]openbook audit {run.folder} --arms[/] (can the text be got out?), or with a file of your own: "
        "[bold]openbook learn --data yours.jsonl[/]"
    )


def _shown(record: Mapping[str, Any]) -> Text:
    """A record of one's own data: its pieces, those that are needed in green, the question and the answer."""
    text = Text()
    for name, pieces in record["privileged_context"].items():
        text.append(f"{name}:\n", "dim")
        for piece in pieces:
            text.append(f"{piece['text']}\n", "green" if piece["needed"] else "dim")
    text.append(f"\n{record['prompt']}\n")
    text.append(record["completion"], "bold yellow")
    return text


# ---- the task


def _task(folder: Path, seed: int, json: bool) -> None:
    depth, chars, samples = 2, 4, 1000
    codebook = Codebook.sample(depth, chars, seed)
    worked = in_symbols(codebook, translate(codebook, random_inputs(chars, 1, (8, 8), seed)[0][0].tolist()))
    if not json:
        out.rule("1. The task: translate a string, level by level")
        show(codebook, worked, invert=False)
        out.print()
        out.rule(f"2. A dataset: {samples:,} translations with the rules that help")
    spec = DatasetSpec(ReleasedFormat(depth, chars, thoughts=8), samples, codebook, seed, lengths=(4, 8))
    path = folder / "translations.jsonl"
    written = write_dataset(spec, path, force=True)
    records = [record(spec, number) for number in range(3)]
    if json:
        ends = {"input": worked[0]["string"], "output": worked[-1]["result"]}
        emit_json({**ends, "dataset": str(path), "samples": written.records, "records": records})
        return
    out.print(f"{path}: {written.records:,} records, {written.bytes / 1e6:.1f} MB. The first three:\n", markup=False)
    for number, shown in enumerate(records, 1):
        out.print(Panel(readable(shown), title=f"record {number}", title_align="left"))
    out.print(
        "The [green]green[/green] rules are needed for the answer. Training opens the book, fades it on a schedule, "
        "and computes loss on the completion alone."
    )


def readable(record: dict[str, Any]) -> Text:
    """A record with its book shortened, needed rules in green and the answer in bold."""
    text = Text()
    text.append(record["preamble"], "dim")
    for name, pieces in record["privileged_context"].items():
        text.append(f"\n{name}:\n", "dim")
        for piece in pieces[:PIECES_SHOWN]:
            text.append(f" {piece['text']}", "green" if piece["needed"] else "dim")
        needed = sum(piece["needed"] for piece in pieces)
        if len(pieces) > PIECES_SHOWN:
            text.append(f" ... {len(pieces) - PIECES_SHOWN} more;", "dim")
        text.append(f" {needed} of {len(pieces)} needed", "dim italic")
    text.append(f"\n{record['prompt'].strip()}\n\n")
    before, answer, after = record["completion"].rpartition(record["answer"])
    text.append(re.sub(f"({THINK})+", lambda run: f" {THINK} x {len(run[0]) // len(THINK)}", before), "cyan")
    text.append(answer, "bold yellow")
    text.append(after, "cyan")
    return text
