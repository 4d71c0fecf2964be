"""`openbook task`: write a dataset."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from rich.markup import escape
from rich.table import Table

from openbook.base.console import emit_json, out, progress
from openbook.base.errors import InputError
from openbook.task.dataset import DatasetSpec
from openbook.task.formats import FORMATS, Chain, Format
from openbook.task.phrasebook import Codebook
from openbook.task.writer import write_dataset

OPTIONS_OF = {"thoughts": "released", "tokens_per_rule": "compact"}  # the format that each option belongs to


def choose_codebook(path: Path | None, depth: int | None, chars: int | None, seed: int) -> Codebook:
    """The codebook of a file, or the random one of a seed, by default with 5 levels and 8 characters."""
    if path is None:
        return Codebook.sample(5 if depth is None else depth, 8 if chars is None else chars, seed)
    codebook = Codebook.load(path)
    for name, asked, actual in (("depth", depth, codebook.depth), ("chars", chars, codebook.chars)):
        if asked not in (None, actual):
            raise InputError(f"--{name} is {asked}, but {path} has {actual}: leave --{name} out")
    return codebook


def choose_format(name: str, depth: int, chars: int, **options: int | None) -> Format:
    """The text format, refusing an option that belongs to another one."""
    given: dict[str, Any] = {key: value for key, value in options.items() if value is not None}
    for key in given:
        if OPTIONS_OF[key] != name:
            raise InputError(f"--{key.replace('_', '-')} belongs to --format {OPTIONS_OF[key]}: leave it out")
    return FORMATS[name](depth, chars, **given)


def task(
    *,
    out_file: Annotated[Path, Parameter(name=("--out", "-o"))],
    samples: int = 1000,
    depth: int | None = None,
    chars: int | None = None,
    seed: int = 0,
    start: int = 0,
    lengths: tuple[int, int] = (20, 40),
    format: Literal["released", "compact"] = "released",
    chain: Chain = "silent",
    unused: float = 0.25,
    codebook: Path | None = None,
    fresh_codebooks: bool = False,
    thoughts: int | None = None,
    tokens_per_rule: Literal[4, 6] | None = None,
    force: bool = False,
    json: bool = False,
) -> None:
    """Write a dataset of translations to a JSONL file.

    Each record has a question, its answer, and as its book the rules of translation that help to answer it. If the
    command is stopped, give it again: it continues, and the file ends with the same bytes. Sample i depends on the
    seed and on i alone, so `--start` gives samples that an earlier file does not have.

    Example: `openbook task --depth 5 --chars 8 --samples 100000 --out train.jsonl`

    Parameters
    ----------
    out_file:
        File to write.
    samples:
        Number of samples.
    depth:
        Number of levels of a translation. By default 5, or that of the codebook file.
    chars:
        Number of characters in each alphabet. By default 8, or that of the codebook file.
    seed:
        Seed of the codebook (the rules of all levels), of the inputs and of the choice of rules.
    start:
        Number of the first sample.
    lengths:
        Length of the shortest and of the longest input, both even.
    format:
        `released` writes the full sentences of the paper's code, `compact` few words, for tiny models.
    chain:
        What stands between question and answer: thinking tokens (`silent`), or the string of every level
        (`explicit`).
    unused:
        Share of the rules that a sample does not need and that its book shows all the same, from 0 to 1.
    codebook:
        File to read the codebook from: what `openbook translate --json` printed.
    fresh_codebooks:
        Give every sample a random codebook of its own.
    thoughts:
        Number of thinking tokens for each level in the released format, 40 by default.
    tokens_per_rule:
        Length of a rule in the compact format: 4 (`A B K L`, the default) or 6 (`A B -> K L ;`).
    force:
        Replace the file if it exists.
    json:
        Print one JSON object instead of a table.
    """
    if fresh_codebooks and codebook:
        raise InputError("--codebook and --fresh-codebooks exclude each other: leave one out")
    shared = choose_codebook(codebook, depth, chars, seed)
    spec = DatasetSpec(
        text=choose_format(format, shared.depth, shared.chars, thoughts=thoughts, tokens_per_rule=tokens_per_rule),
        samples=samples,
        codebook=None if fresh_codebooks else shared,
        seed=seed,
        start=start,
        lengths=lengths,
        unused=unused,
        chain=chain,
    )
    began = time.monotonic()
    with progress(f"writing {out_file.name}", samples) as advance:
        written = write_dataset(spec, out_file, force, advance)
    seconds = time.monotonic() - began
    if json:
        result = {"out": str(out_file), "samples": written.records, "bytes": written.bytes}
        emit_json({**result, "resumed_at": written.resumed_at, "seconds": seconds, "dataset": spec.describe()})
        return
    rows = {
        "samples": f"{written.records:,}" + (f" ({start:,} and on)" if start else ""),
        "size": f"{written.bytes / 1e6:,.1f} MB, {written.bytes / written.records:,.0f} bytes a record",
        "task": f"MLT({spec.depth}, {spec.chars}), seed {seed}, inputs of {lengths[0]} to {lengths[1]}",
        "codebook": "a fresh one for each sample" if fresh_codebooks else str(codebook or "one for all"),
        "text": f"{format}, {chain} chain of thought, {unused:.0%} of the unused rules",
        "took": f"{seconds:.1f} s",
    }
    if written.resumed_at:
        rows["continued after"] = f"{written.resumed_at:,} samples of an earlier run"
    table = Table(title=escape(str(out_file)), title_justify="left", show_header=False)
    for row in rows.items():
        table.add_row(*row)
    out.print(table)
