"""`openbook ask`: ask a run what it has learned."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from openbook.base.console import emit_json, err, out
from openbook.base.errors import InputError


def ask(
    run: Path,
    question: str | None = None,
    *,
    open_: Annotated[bool, Parameter(name="--open")] = False,
    max_new_tokens: int = 64,
    json: bool = False,
) -> None:
    """Ask a run a question: the answer comes from memory, with the book closed.

    Without a question, one is read from each line that you type until an empty one or the end of the input.

        openbook ask runs/handbook "How many days of leave does a cook get?"
        openbook ask runs/handbook --open

    Parameters
    ----------
    run
        Folder that `openbook learn` left.
    question
        The question; without it you are asked for one after another.
    open_
        Open the book before the question: that of the same question in the run's data, or else all pieces of all books
        that fit into the model's window.
    max_new_tokens
        Longest answer, in tokens.
    json
        Print one JSON object on standard output.
    """
    from openbook.api import Run

    if max_new_tokens < 1:
        raise InputError(f"--max-new-tokens is {max_new_tokens}: an answer has at least one")
    opened = Run(run)
    if question is not None:
        answer = opened.ask(question, open=open_, max_new_tokens=max_new_tokens)
        if json:
            emit_json({"run": str(run), "question": question, "open": open_, "answer": answer})
        else:
            out.print(answer, markup=False)
        return
    if json:
        raise InputError("--json needs a question: a prompt that waits for questions has no one object to print")
    interactive = sys.stdin.isatty()
    if interactive:
        err.print(f"the book is {'open' if open_ else 'closed'}; an empty line ends", style="dim")
    while True:
        if interactive:
            err.print("? ", end="")
        line = sys.stdin.readline().strip()
        if not line:
            return
        out.print(opened.ask(line, open=open_, max_new_tokens=max_new_tokens), markup=False)
