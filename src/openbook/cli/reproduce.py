"""`openbook reproduce`: every figure and table of the paper, with this machine's own numbers."""

from __future__ import annotations

import os
import signal
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from openbook.base.console import emit_json, err, out, print_table
from openbook.base.errors import InputError
from openbook.paper.experiment import SCALES, Scale

if TYPE_CHECKING:
    from openbook.base.jobs import Event
    from openbook.paper.reproduce import JobProgress, Outcome, Reproduction

EXIT_FAILED = 1  # a unit failed; the output names it
VERDICTS = {"holds": "[green]holds[/]", "fails": "[red]does not hold[/]", "unclear": "[yellow]not enough evidence[/]"}


def reproduce(
    *names: str,
    study: Annotated[list[Path], Parameter(negative="")] = [],  # noqa: B006
    scale: Scale = "laptop",
    out_folder: Annotated[Path | None, Parameter(name=["--out", "-o"])] = None,
    processes: int | None = None,
    reader: Path | None = None,
    again: bool = False,
    list_: Annotated[bool, Parameter(name="--list")] = False,
    dry_run: bool = False,
    publish: Path | None = None,
    open_page: Annotated[bool, Parameter(name="--open")] = False,
    json: bool = False,
) -> int:
    """Reproduce the paper's figures and tables, or those that you name, and write a page with the results.

    Finished parts are kept, and interrupted ones continue, so the same command can be repeated at any time. It ends
    with the paper's sentences, each checked against the numbers, and the path of the page.

        openbook reproduce --scale laptop
        openbook reproduce gap surrogate-dynamics --scale smoke

    Parameters
    ----------
    names
        Experiments to run; --list shows their names. Without a name, all of them run.
    study
        YAML file with a table of runs that is not in the paper, as those in studies/. Can be repeated.
    scale
        smoke (seconds), laptop (10 minutes on two cores), overnight (hours), or paper (Llama-3.2-3B on a GPU).
    out_folder
        Folder for rows, models, charts and the page; results/SCALE by default.
    processes
        Number of units that run at the same time, each on one core; the number of cores by default.
    reader
        Student to start from: the folder of an `openbook prepare` run, or the name of a student that comes with
        openbook.
    again
        Measure all rows of these experiments again and replace the old ones. Models are not trained again.
    list_
        Show the experiments with the number of their units and the time they take, and stop.
    dry_run
        Check every config, show what would run, and stop.
    publish
        Also write each finished experiment into this folder: NAME.json with its rows and NAME.svg with its chart.
    open_page
        Open the page in a browser at the end.
    json
        Print one JSON object on standard output.
    """
    from openbook.paper.reproduce import complete, load_studies, plan_reproduction

    if processes is not None and processes < 1:
        raise InputError(f"--processes is {processes}: use at least 1")
    folder = out_folder or Path("results") / scale
    for name, path in (("--out", folder), ("--publish", publish)):
        if path is not None and path.exists() and not path.is_dir():
            raise InputError(f"{path} is a file: name a folder with {name}")
    planned = plan_reproduction(names, scale, folder, reader, load_studies(study))
    if list_ or dry_run:
        _list(planned, json) if list_ else _dry_run(planned, again, json)
        return 0
    with _term_as_interrupt(), _progress() as on_event:
        outcome = complete(planned, processes, again, publish, on_event)
    emit_json(outcome.to_json()) if json else _show(outcome)
    if open_page and (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        webbrowser.open(outcome.page.absolute().as_uri())
    return EXIT_FAILED if outcome.failed else 0


@contextmanager
def _progress() -> Iterator[Callable[[Event, JobProgress], None]]:
    """A progress bar, or a line for each finished job where standard error is not a terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    note = TextColumn("{task.fields[note]}")
    with Progress(*columns, note, console=err, transient=True, disable=not err.is_terminal) as bars:
        bar = bars.add_task("reproducing", total=None, note="")
        ended = 0

        def on_event(event: Event, progress: JobProgress) -> None:
            nonlocal ended
            seconds = progress.seconds_left
            left = f"about {seconds / 60:.0f} min left" if seconds >= 90 else f"about {seconds:.0f} s left"
            names = {job.key: str(job) for job in progress.jobs}
            running = "; ".join(names[key] for key in progress.running)
            bars.update(bar, total=progress.total, completed=progress.done, note=f"{left}; {running}")
            if event.kind in ("done", "failed", "skipped"):
                ended += 1
                if not err.is_terminal:
                    trouble = "" if event.kind == "done" else f": {event.kind}, {event.note}"
                    line = f"{ended}/{len(names)} {names[event.key]}{trouble}; {left}"
                    err.print(line, soft_wrap=True, markup=False)

        yield on_event


@contextmanager
def _term_as_interrupt() -> Iterator[None]:
    """Treat a SIGTERM like Ctrl-C: the workers are asked to save their state."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _list(planned: Reproduction, json: bool) -> None:
    weights = {job.key: job.weight for job in planned.jobs}
    rows: list[dict[str, Any]] = []
    for experiment in planned.experiments:
        jobs = planned.row_jobs(experiment)
        models = {key for job in jobs for key in job.needs}
        rows.append(
            {
                "name": experiment.name,
                "title": experiment.title,
                "paper": experiment.paper,
                "units": len(jobs),
                "models": len(models),
                "done": len(planned.results(experiment).units),
                "cpu_minutes": round(sum(weights[key] for key in {job.key for job in jobs} | models) / 60, 1),
            }
        )
    whole = sum(weights.values()) / 60
    if json:
        listed = {"scale": planned.scale, "scales": list(SCALES), "experiments": rows}
        return emit_json({**listed, "cpu_minutes": round(whole, 1)})
    columns = {"experiment": "{name}", "in the paper": "{paper}", "units": "{units}", "models": "{models}"}
    caption = f"{whole:.0f} CPU minutes in all at scale {planned.scale}; experiments share their models"
    print_table(rows, {**columns, "done": "{done}", "CPU min": "{cpu_minutes}"}, caption)


def _dry_run(planned: Reproduction, again: bool, json: bool) -> None:
    """Show what would run. The config of every model was checked by planning it."""
    from openbook.paper.jobs import TrainJob

    jobs = []
    for job in planned.missing(again):
        command = {"command": job.command} if isinstance(job, TrainJob) else {}
        jobs.append({"job": str(job), "cpu_seconds": job.weight, "needs": list(job.needs), **command})
    if json:
        return emit_json({"scale": planned.scale, "out": str(planned.out), "jobs": jobs})
    for entry in jobs:
        out.print(entry.get("command", entry["job"]), soft_wrap=True)
    out.print(f"{len(jobs)} jobs to do; all configs are valid", style="dim")


def _show(outcome: Outcome) -> None:
    print_table(
        outcome.claims,
        {
            "experiment": lambda claim: claim.experiment,
            "the paper says": lambda claim: f"{escape(claim.claim)}\n[dim]{escape(claim.numbers_in_words())}[/]",
            "verdict": lambda claim: VERDICTS[claim.verdict],
        },
    )
    holds, fails, unclear = (sum(claim.verdict == verdict for claim in outcome.claims) for verdict in VERDICTS)
    out.print(f"{holds} hold, {fails} do not, for {unclear} there is not enough evidence", style="bold")
    for key, why in outcome.failed.items():
        log = outcome.out / "workers.log"
        out.print(f"failed: {key}: {why} (see {log})", style="red", soft_wrap=True, markup=False)
    before = outcome.jobs - outcome.done_now
    lines = [f"{before} jobs were done before, {outcome.done_now} now, {outcome.seconds:.0f} s"]
    lines += [f"published: {path}" for path in outcome.published]
    if outcome.not_published:
        lines.append(f"not published, since units are missing: {', '.join(outcome.not_published)}")
    for line in [*lines, f"the page: {outcome.page.absolute()}"]:
        out.print(line, soft_wrap=True, markup=False)
