"""`openbook audit`: can the closed book be read back out of the model?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter
from rich.table import Table

from openbook.base.console import emit_json, err, out, progress

EXIT_LEAKED = 3  # something leaked beyond the threshold, so that a pipeline can stop here
EXIT_VOID = 4  # the audit could not have seen a leak: neither a pass nor a leak

audit = App(name="audit")

Words = Annotated[list[str], Parameter(negative="", consume_multiple=True)]
Folders = Annotated[list[Path], Parameter(negative="", consume_multiple=True)]


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
    seeds: Folders = [],  # noqa: B006
    canaries: Path | None = None,
    seed: int = 0,
    chart: Path | None = None,
    json: bool = False,
) -> int:
    """Audit a run: attack it and four control models, and compare.

    The controls are the model before training, the same training without the text and with a decoy text, and a positive
    control with loss on the text. Ends with exit code 3 if something leaked beyond the threshold, 4 if the audit proves
    nothing (the positive control was not caught, or no attack on the text applies), and 0 otherwise, which means: not
    recovered by these attacks at this budget.

        openbook audit runs/facts --arms

    Canaries are planted before training with `openbook audit plant`.

    Parameters
    ----------
    run
        Folder that `openbook learn` left; it must have passed its exam.
    attacks
        Some of completion, exposure, membership, battery, budget, inversion, relearning, soft-prompt; all by default.
    budget
        Samples for each secret.
    permutations
        Orders of the book in which secrets are asked for.
    controls
        Trainings of the model without the text, each with a seed of its own.
    steps
        Steps of relearning, and of optimising a soft prompt.
    threshold
        What is called a leak: a share above chance, elimination and every control.
    level
        Accepted chance of a false alarm, over all attacks together.
    arms
        Train the control models that are missing.
    folder
        Where the control models are; beside the run by default.
    seeds
        Other runs of the same training with other seeds, to be averaged over.
    canaries
        List that `openbook audit plant` wrote: score these instead of all pieces.
    seed
        Seed of everything random in the attacks.
    chart
        Save a chart as PNG, SVG or HTML.
    json
        One JSON object on standard output.
    """
    from openbook.audit.run import ATTACKS, Settings
    from openbook.audit.run import audit as carry_out
    from openbook.figures.theme import check_path, save

    check_path(chart)
    settings = Settings(tuple(attacks) or ATTACKS, budget, permutations, controls, steps, threshold, level, seed)
    report = carry_out(
        run, settings, folder, arms, seeds, canaries, progress, lambda line: err.print(line, style="dim", markup=False)
    )
    if chart is not None:
        from openbook.audit.draw import charts

        save(charts(report), chart)
    if json:
        emit_json(report)
    else:
        _show(report)
    return {"leaked": EXIT_LEAKED, "void": EXIT_VOID, "inapplicable": EXIT_VOID}.get(report["verdict"], 0)


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

    Writes the data with the canaries in its books, and beside it a list with the codes that a coin left out.

        openbook audit plant facts.jsonl --out planted.jsonl
        openbook learn --data planted.jsonl --epochs 40 --out runs/planted
        openbook audit runs/planted --canaries planted.canaries.json --arms

    Parameters
    ----------
    data
        JSONL file with prompt, completion and privileged_context.
    out_file
        The data with canaries; the list is written beside it.
    canaries
        How many.
    repeats
        Records that each of them stands in.
    rivals
        Codes that each of them is drawn from.
    seed
        Seed of codes and places.
    json
        One JSON object on standard output.
    """
    from openbook.audit.canaries import plant as write

    ledger = out_file.with_name(f"{out_file.stem}.canaries.json")
    result = write(data, out_file, ledger, canaries, repeats, rivals, seed)
    if json:
        emit_json(result)
        return
    out.print(
        f"{result['count']} canaries in {result['records']} records: {result['data']}\n"
        f"The list, which must not be trained on: {result['canaries']}",
        markup=False,
    )


def _show(report: dict[str, Any]) -> None:
    from openbook.audit.tables import summary_rows

    arms = Table("model", "closed book", "open book", box=None, header_style="bold")
    for arm in report["arms"]:
        arms.add_row(arm["name"], f"{arm['closed_book']:.3f}", f"{arm['open_book']:.3f}")
    out.print(arms)
    table = Table(box=None, header_style="bold", padding=(0, 1, 0, 0))
    table.add_column("attack", no_wrap=True)
    for column in ("trained", "interval", "control", "positive", "guess"):
        table.add_column(column, justify="right", no_wrap=True)
    last = None
    for line in summary_rows(report):
        if line["attack"] != last:
            last = line["attack"]
            note = " (from the skill itself)" if line["kind"] == "behaviour" else ""
            table.add_row(f"[bold]{last}[/]{note}")
        metric = "" if line["metric"] == "rate" else f", {line['metric'].split()[0]}"
        cells = [
            _mark(line["rate"], line["caught"]),
            f"{line['low']:.2f}-{line['high']:.2f}",
            "" if line["control"] is None else f"{line['control']:.3f}",
            _mark(line["positive"], line["positive_caught"]) if "positive" in line else "",
            f"{line['elimination']:.3f}",
        ]
        table.add_row(f" {line['variant']}{metric}", *cells)
    out.print(table)
    for name, why in report["not_applicable"].items():
        out.print(f"{name} does not apply: {why}", style="dim", markup=False)
    secrets = report["secrets"]
    drawn = "drawn by lot from their candidates" if secrets["exchangeable"] else "as they were in the data"
    out.print(
        f"{secrets['count']} secrets ({secrets['origin']}), {drawn}; 95 % intervals by secret; * caught",
        style="dim",
    )
    colour = {"leaked": "bold red", "void": "bold yellow"}.get(report["verdict"], "green")
    out.print(report["statement"][0].upper() + report["statement"][1:], style=colour)


def _mark(value: float, caught: bool) -> str:
    return f"[bold red]{value:.3f}*[/]" if caught else f"{value:.3f} "
