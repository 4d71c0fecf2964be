"""`openbook mask`: show which tokens carry loss."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.text import Text

from openbook.base.console import emit_json, out

STYLES = {
    "preamble": "dim",
    "heading": "dim",
    "piece": "cyan",
    "prompt": "",
    "words": "black on bright_green",
    "thought": "black on green",
    "answer": "bold black on yellow",
}
CHECKED = 1000  # number of positions that are checked, spread evenly over training
WRONG_SHOWN = 5  # number of wrong ones that are listed


def mask(
    *,
    data: Path | None = None,
    model: str | None = None,
    config: Path | None = None,
    curriculum: str | None = None,
    examples: int = 2,
    progress: float = 0.0,
    set_: Annotated[list[str], Parameter(name=["--set", "-s"], negative="")] = [],  # noqa: B006
    json: bool = False,
) -> int:
    """Show which tokens carry loss, for any data and tokenizer, and fail if the mask is wrong.

    Pieces of the book are cyan and the prompt is plain. A coloured background means loss: words are green, thoughts
    dark green, and the answer of the exam is yellow. A few examples are shown, and up to 1,000, spread over training,
    are checked. The exit code is 2 if a target is empty or cut off, if there is loss on padding, if the vocabulary
    lacks a target token, if a token crosses a boundary, or if a template yields no mask.

        openbook mask --data facts.jsonl --model runs/facts

    Parameters
    ----------
    data
        JSONL file; without it, the task.
    model
        Model whose tokenizer is used, as in `openbook learn`; smollm2-135m by default for your own data, and with
        `scratch` a new one is made.
    config
        YAML file or shipped config.
    curriculum
        Name of the curriculum, which decides which pieces are open; see `openbook learn --help`.
    examples
        Number of examples to show.
    progress
        Progress of the training from which examples are shown, from 0 to 1.
    set_
        Any other setting, as key=value.
    json
        Print one JSON object on standard output.
    """
    from openbook.api import config_for
    from openbook.base.errors import InputError
    from openbook.training.estimate import without_weights
    from openbook.training.mask import mask as masked

    if not 0 <= progress <= 1:
        raise InputError(f"--progress is {progress}: training goes from 0 to 1")
    if examples < 1:
        raise InputError(f"--examples is {examples}: show at least one")
    flags: dict[str, Any] = {"data": data, "model.path": model, "curriculum": curriculum}
    plan, encoder, *_ = without_weights(config_for(file=config, settings=set_, **flags))
    first = min(int(progress * plan.total), max(0, plan.total - examples))
    shown = masked(plan, encoder, list(range(first, min(first + examples, plan.total))))
    checked = masked(plan, encoder, sorted({k * plan.total // CHECKED for k in range(CHECKED)}))
    bad = [example for example in checked if example.problems]
    bad += [example for example in shown if example.problems and example not in bad]
    if json:
        listed = [{"position": example.position, "problems": example.problems} for example in bad]
        emit_json(
            {
                "examples": [asdict(e) | {"targets": e.targets} for e in shown],
                "checked": len(checked),
                "problems": listed,
                "ok": not bad,
            }
        )
        return 2 if bad else 0
    for example in shown:
        _show(example)
    out.print(f"{len(checked)} positions checked, {len(bad)} with a wrong mask", style="bold red" if bad else "dim")
    for example in bad[:WRONG_SHOWN]:
        out.print(f"position {example.position}: {'; '.join(example.problems)}", markup=False)
    return 2 if bad else 0


def _show(example: Any) -> None:
    """Print the tokens of an example with their colours."""
    out.print(f"[bold]position {example.position}[/]: {len(example.tokens)} tokens, {example.targets} carry loss")
    text = Text()
    for token in example.tokens:
        text.append(token.text.replace("\n", "⏎\n"), style=STYLES[token.kind])
    out.print(text)
    out.print()
