"""`openbook demo`: a guided first look."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from rich.panel import Panel
from rich.text import Text

from openbook.base.console import emit_json, out
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


def demo(*, folder: Path = Path("demo"), seed: int = 0, json: bool = False) -> None:
    """Take a first look at the task, in a minute.

    It translates one string, writes a small dataset, and shows three of its records.

        openbook demo --folder demo

    Parameters
    ----------
    folder
        Folder for the dataset; the dataset of an earlier demo is replaced.
    seed
        Seed of the phrasebooks and the strings.
    json
        Print one JSON object on standard output instead of the tour.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MachineError(f"{folder}: {error.strerror}: choose another folder with --folder") from None
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
