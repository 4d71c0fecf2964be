"""`openbook export`: a run's model as a GGUF file, a Hugging Face folder, or its adapters."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from rich.table import Table

from openbook.base.console import emit_json, err, out


def export(
    run: Path,
    *,
    to: Literal["gguf", "merged", "adapter"],
    out_path: Annotated[Path, Parameter(name=["--out", "-o"])],
    type_: Annotated[Literal["float16", "q8_0"] | None, Parameter(name="--type")] = None,
    push_to_hub: str | None = None,
    force: bool = False,
    json: bool = False,
) -> None:
    """Take a run's model out of openbook, with a model card.

    What is written is read again and sits the run's own exam with the book closed: the table shows on which share of
    the answer tokens it makes the same first choice as the run.

        openbook export runs/handbook --to gguf --out handbook.gguf
        openbook export runs/handbook --to merged --out handbook

    Parameters
    ----------
    run
        Folder of a finished run.
    to
        gguf is one file for llama.cpp, Ollama and LM Studio (Llama models with a byte-level tokenizer); merged is a
        Hugging Face folder, with any adapters merged into the weights; adapter is the low-rank adapters of a run that
        trained them (model.lora).
    out_path
        File (ending in .gguf) or folder to write. The card is README.md in the folder, or NAME.md beside the file.
    type_
        Type of the matrices in a GGUF file: float16 (the default) or q8_0, about half as large. Norms stay in float32.
    push_to_hub
        Also upload to this model on the Hugging Face hub, such as you/handbook, with the login of `hf auth login`. If
        there is none of this name, it is made, as a private one.
    force
        Replace an earlier export at the same place.
    json
        Print one JSON object instead of a table.
    """
    from openbook.api import Run

    report = (lambda line: None) if json else (lambda line: err.print(line, style="dim", markup=False))
    result = Run(run).export(to, out_path, weights=type_, force=force, push_to_hub=push_to_hub, report=report)
    if json:
        emit_json(result)
        return
    header = ("exported", "type", "size", "same first choice as the run", "same tokens")
    table = Table(*header, box=None, header_style="bold")
    share, alike = result["agreement"], result.get("tokenizer_agreement")
    answers = "not compared" if share is None else f"{share:.1%} of {result['answer_tokens']} answer tokens"
    texts = "" if alike is None else f"{alike:.1%} of texts"
    table.add_row(to, result.get("type", "the run's"), f"{result['bytes'] / 1e6:,.1f} MB", answers, texts)
    out.print(table)
    for line in result["warnings"]:
        err.print(f"warning: {line}", style="yellow", markup=False, soft_wrap=True)
    for name, key in (("written", "path"), ("card", "card"), ("hub", "hub")):
        if key in result:
            out.print(f"{name}: {result[key]}", markup=False, soft_wrap=True)
