"""`openbook task`: write a dataset."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from rich.markup import escape
from rich.table import Table

from openbook.base.console import emit_json, out, progress
from openbook.base.errors import InputError
from openbook.task.dataset import DatasetSpec
from openbook.task.formats import CompactFormat, ReleasedFormat
from openbook.task.phrasebook import Codebook
from openbook.task.text import Chain, Format
from openbook.task.writer import check_target, write_dataset


def choose_codebook(path: Path | None, depth: int | None, chars: int | None, seed: int) -> Codebook:
    """The codebook of a file, or the random one of a seed (depth 5 and 8 characters if nothing is said)."""
    if path is None:
        return Codebook.sample(5 if depth is None else depth, 8 if chars is None else chars, seed)
    codebook = Codebook.load(path)
    for name, asked, found in (("depth", depth, codebook.depth), ("chars", chars, codebook.chars)):
        if asked not in (None, found):
            raise InputError(f"--{name} is {asked}, but {path} has {found}: leave --{name} out")
    return codebook


def choose_format(
    name: str, depth: int, chars: int, thoughts: int | None = None, tokens_per_rule: Literal[4, 6] | None = None
) -> Format:
    """The text format, refusing an option that the other one has."""
    if name == "released":
        if tokens_per_rule is not None:
            raise InputError("--tokens-per-rule belongs to --format compact: leave it out")
        return ReleasedFormat(depth, chars) if thoughts is None else ReleasedFormat(depth, chars, thoughts)
    if thoughts is not None:
        raise InputError("--thoughts belongs to --format released: a compact thought is as long as its string")
    return CompactFormat(depth, chars, tokens_per_rule or 4)


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
    fresh_codebooks: Annotated[bool, Parameter(negative="")] = False,
    thoughts: int | None = None,
    tokens_per_rule: Literal[4, 6] | None = None,
    force: Annotated[bool, Parameter(negative="")] = False,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Write a dataset of translations as JSONL.

    A run that was stopped continues when the same command is given again, and ends with the same bytes. Sample i
    depends on the seed and on i alone, so `--start` gives samples that an earlier file does not have.

    Example: `openbook task --depth 5 --chars 8 --samples 100000 --out train.jsonl`

    Parameters
    ----------
    out_file:
        The file to write.
    samples:
        How many samples.
    depth:
        Levels of translation (5, or the codebook file's).
    chars:
        Characters of each alphabet (8, or the codebook file's).
    seed:
        Determines the codebook, the inputs and the choice of rules.
    start:
        Number of the first sample.
    lengths:
        Shortest and longest input, both even.
    format:
        Full sentences as in the paper's released code, or few words for tiny models.
    chain:
        Thinking tokens between question and answer, or the strings themselves.
    unused:
        Share of the rules a sample does not use that is put into its book: 0 to 1.
    codebook:
        Take the codebook from this file (as `openbook translate --json` prints it).
    fresh_codebooks:
        A new random codebook for every sample.
    thoughts:
        Thinking tokens for each level of the released format (40).
    tokens_per_rule:
        4 (`A B K L`) or 6 (`A B -> K L ;`) in the compact format.
    force:
        Replace an existing file.
    json:
        One JSON object instead of a table.
    """
    if fresh_codebooks and codebook:
        raise InputError("--codebook and --fresh-codebooks exclude each other: leave one out")
    shared = choose_codebook(codebook, depth, chars, seed)
    spec = DatasetSpec(
        text=choose_format(format, shared.depth, shared.chars, thoughts, tokens_per_rule),
        samples=samples,
        codebook=None if fresh_codebooks else shared,
        seed=seed,
        start=start,
        lengths=lengths,
        unused=unused,
        chain=chain,
    )
    check_target(out_file, force)
    began = time.monotonic()
    with progress(f"writing {out_file.name}", samples) as advance:
        written = write_dataset(spec, out_file, force, advance)
    seconds = time.monotonic() - began
    result = {
        "out": str(out_file),
        "samples": written.records,
        "bytes": written.bytes,
        "resumed_at": written.resumed_at,
        "seconds": seconds,
        "dataset": spec.describe(),
    }
    if json:
        emit_json(result)
        return
    table = Table(title=escape(str(out_file)), title_justify="left", show_header=False)
    table.add_row("samples", f"{written.records:,}" + (f" ({start:,} and on)" if start else ""))
    if written.resumed_at:
        table.add_row("continued after", f"{written.resumed_at:,} samples of an earlier run")
    table.add_row("size", f"{written.bytes / 1e6:,.1f} MB, {written.bytes / written.records:,.0f} bytes a record")
    table.add_row("task", f"MLT({spec.depth}, {spec.chars}), seed {seed}, inputs of {lengths[0]} to {lengths[1]}")
    table.add_row("codebook", "a fresh one for each sample" if fresh_codebooks else str(codebook or "one for all"))
    table.add_row("text", f"{format}, {chain} chain of thought, {unused:.0%} of the unused rules")
    table.add_row("took", f"{seconds:.1f} s")
    out.print(table)
