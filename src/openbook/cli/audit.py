"""`openbook audit`: can the closed book be read back out of the model?"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter
from rich.table import Table

from openbook.base.console import emit_json, err, out, progress

# 3: something leaked beyond the threshold, so that a pipeline can stop here; 4: neither a leak nor a pass
EXIT_CODES = {"leaked": 3, "void": 4, "inapplicable": 4}

audit = App(name="audit")

Words = Annotated[list[str], Parameter(negative="", consume_multiple=True)]
Paths = Annotated[list[Path], Parameter(negative="", consume_multiple=True)]


@audit.default
def audit_run(
    run: Path,
    *,
    attacks: Words = [],  # noqa: B006 - cyclopts shows the default
    budget: int = 10,
    permutations: int = 20,
    controls: int = 1,
    steps: int = 60,
    threshold: float = 0.01,
    level: float = 0.05,
    arms: bool = False,
    folder: Path | None = None,
    seeds: Paths = [],  # noqa: B006
    canaries: Path | None = None,
    seed: int = 0,
    chart: Path | None = None,
    json: bool = False,
) -> int:
    """Attack a run and four control models, and compare what they give away of the book.

    The controls are the model before training, the same training without the text and with a decoy text, and a positive
    control, which was trained with loss on the text and must be caught. Ends with exit code 3 if something leaked
    beyond the threshold, 4 if the audit proves nothing (the positive control was not caught, or no attack on the text
    applies), and 0 otherwise, which means: not recovered by these attacks at this budget.

        openbook audit runs/facts --arms

    Canaries are planted before training with `openbook audit plant`.

    Parameters
    ----------
    run
        Folder that `openbook learn` left; the run must have passed its exam.
    attacks
        Attacks to make: completion, exposure, membership, battery, budget, inversion, relearning, soft-prompt, or one
        of a plugin; all by default.
    budget
        Number of samples for each secret.
    permutations
        Number of orders of the book in which secrets are asked for.
    controls
        Number of trainings of the model without the text, each with a seed of its own.
    steps
        Number of steps of relearning, and of optimising a soft prompt.
    threshold
        Smallest leak: a share of the secrets above chance, above elimination and above every control.
    level
        Accepted chance of a false alarm, over all attacks together.
    arms
        Train the control models that are missing.
    folder
        Folder of the control models; beside the run by default.
    seeds
        Other runs of the same training with other seeds; scores are averaged over them.
    canaries
        List that `openbook audit plant` wrote: look for these instead of all pieces.
    seed
        Seed of everything random in the attacks.
    chart
        File to save a chart to, as .png, .svg or .html.
    json
        Print one JSON object on standard output instead of tables.
    """
    from openbook.audit import run as audits
    from openbook.audit.attack import ATTACKS, AuditConfig
    from openbook.audit.summary import chart_of
    from openbook.figures import check_path, save

    check_path(chart)
    config = AuditConfig(tuple(attacks or ATTACKS), budget, permutations, controls, steps, threshold, level, seed)
    notify = partial(err.print, style="dim", markup=False)
    report = audits.audit(run, config, folder, arms, seeds, canaries, progress, notify)
    if chart is not None:
        save(chart_of(report), chart)
    emit_json(report) if json else _show(report)
    return EXIT_CODES.get(report["verdict"], 0)


@audit.command
def plant(
    data: Path,
    *,
    out_file: Annotated[Path, Parameter(name=["--out", "-o"])] = Path("planted.jsonl"),
    canaries: int = 64,
    repeats: int = 1,
    rivals: int = 100,
    seed: int = 0,
    json: bool = False,
) -> None:
    """Plant canaries in your data: sentences with random codes, to be looked for after training.

    Writes the data with the canaries in its books, and beside it a list with the codes that could have been drawn
    instead.

        openbook audit plant facts.jsonl --out planted.jsonl
        openbook learn --data planted.jsonl --epochs 40 --out runs/planted
        openbook audit runs/planted --canaries planted.canaries.json --arms

    Parameters
    ----------
    data
        JSONL file with prompt, completion and privileged_context.
    out_file
        File for the data with canaries; the list is written beside it.
    canaries
        Number of canaries.
    repeats
        Number of records that each canary is planted in.
    rivals
        Number of codes that each canary's code is drawn from.
    seed
        Seed of codes and places.
    json
        Print one JSON object on standard output.
    """
    from openbook.audit.canaries import plant as write_planted

    ledger = out_file.with_name(f"{out_file.stem}.canaries.json")
    result = write_planted(data, out_file, ledger, canaries, repeats, rivals, seed)
    if json:
        return emit_json(result)
    out.print(f"{result['count']} canaries in {result['records']} records: {result['data']}", markup=False)
    out.print(f"The list, which must not be trained on: {result['canaries']}", markup=False)


def _show(report: dict[str, Any]) -> None:
    from openbook.audit.summary import shown_cells

    arms = Table("model", "closed book", "open book", box=None, header_style="bold")
    for arm in report["arms"]:
        arms.add_row(arm["name"], f"{arm['closed_book']:.3f}", f"{arm['open_book']:.3f}")
    table = Table(box=None, header_style="bold", padding=(0, 1, 0, 0))
    table.add_column("attack", no_wrap=True)
    for column in ("trained", "interval", "control", "positive", "guess"):
        table.add_column(column, justify="right", no_wrap=True)
    for cells in shown_cells(report):
        marked = (f"[bold red]{cell}[/]" if cell.endswith("*") else cell for cell in cells)
        table.add_row(*marked, style="bold" if len(cells) == 1 else "")  # the name of an attack
    out.print(arms, table)
    for name, reason in report["not_applicable"].items():
        out.print(f"{name} does not apply: {reason}", style="dim", markup=False)
    secrets = report["secrets"]
    drawn = "drawn by lot from their candidates" if secrets["exchangeable"] else "as they were in the data"
    count = f"{secrets['count']} secrets ({secrets['origin']}), {drawn}"
    out.print(f"{count}; 95 % intervals by secret; * caught", style="dim")
    colour = {"leaked": "bold red", "void": "bold yellow"}.get(report["verdict"], "green")
    out.print(report["statement"][0].upper() + report["statement"][1:], style=colour)
