"""`openbook reproduce`: every figure and table of the paper, with this machine's own numbers."""

from __future__ import annotations

import shlex
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from openbook.base.console import emit_json, err, out
from openbook.base.errors import InputError
from openbook.paper.experiment import SCALES, Scale

if TYPE_CHECKING:
    from openbook.paper.reproduce import Going, Job, Plan
    from openbook.report.claims import Claim

EXIT_FAILED = 1  # some unit failed; it is named
VERDICTS = {"holds": "[green]holds[/]", "fails": "[red]does not hold[/]", "unclear": "[yellow]not enough evidence[/]"}


def reproduce(
    *names: str,
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
    """Reproduce the paper's figures and tables, or the named ones, and write the page.

    Carries out what is missing: what is finished is kept, what was interrupted goes on. Ends with the paper's
    sentences, each held against the numbers, and the path of the page.

        openbook reproduce --scale laptop
        openbook reproduce gap surrogate-dynamics --scale smoke

    Parameters
    ----------
    names
        Experiments, as --list names them; all of them if none is given.
    scale
        smoke (seconds), laptop (9 minutes on two cores), overnight (hours), paper (GPU, Llama-3.2-3B).
    out_folder
        Where rows, models, charts and the page are kept; results/SCALE by default.
    processes
        Units at the same time, each on one core; as many as there are cores by default.
    reader
        A student of `openbook prepare` to start from (its folder, or the name of one that comes with openbook).
    again
        Measure the rows of these experiments anew; each takes the place of what is there. Models that were made are
        used again.
    list_
        Name the experiments, with their units, times and state at this scale, and stop.
    dry_run
        Say what would be done, check every config, and stop.
    publish
        Also write each finished experiment into this folder: its rows with the command as NAME.json, its chart as
        NAME.svg.
    open_page
        Open the page in a browser at the end.
    json
        One JSON object on standard output.
    """
    from openbook.paper.reproduce import cores, plan, with_neighbours
    from openbook.training.folder import RunFolder

    if processes is not None and processes < 1:
        raise InputError(f"--processes is {processes}: use at least 1")
    folder = out_folder or Path("results") / scale
    for name, path in (("--out", folder), ("--publish", publish)):
        if path is not None and path.exists() and not path.is_dir():
            raise InputError(f"{path} is a file: name a folder with {name}")
    planned = plan(names, scale, folder, reader)
    if list_:
        return _list(planned, json)
    missing = planned.missing(again)
    if dry_run:
        return _dry_run(planned, missing, json)
    if scale == "paper":
        _check_gpu(missing)
    if publish is not None:
        RunFolder(publish).check_writable()
    started = time.perf_counter()
    failed = _carry_out(missing, processes or cores(), folder)
    claims = planned.claims()
    from openbook.paper import page as reproduction

    page = reproduction.write_page(with_neighbours(planned), failed)
    published, left = reproduction.publish(planned, publish, failed) if publish is not None else ([], [])
    seconds = time.perf_counter() - started
    if json:
        summary = _summary(planned, claims, failed, page, seconds, len(missing))
        emit_json({**summary, "published": [str(path) for path in published], "not_published": left})
    else:
        _show_claims(claims)
        for key, why in failed.items():
            log = escape(f"{key}: {why} (more in {folder / 'workers.log'})")
            out.print(f"[red]failed[/] {log}", soft_wrap=True)
        out.print(f"{len(planned.jobs) - len(missing)} jobs were done before, {len(missing)} now, {seconds:.0f} s")
        for path in published:
            out.print(f"published: {path}", soft_wrap=True, markup=False)
        if left:
            out.print(f"not published, since units are missing: {', '.join(left)}", soft_wrap=True, markup=False)
        out.print(f"the page: {page.absolute()}", soft_wrap=True, markup=False)
    if open_page:
        _open(page)
    return EXIT_FAILED if failed else 0


def _summary(
    planned: Plan, claims: list[Claim], failed: dict[str, str], page: Path, seconds: float, done_now: int
) -> dict[str, Any]:
    units = {experiment.name: len(planned.found(experiment).units) for experiment in planned.experiments}
    return {
        "scale": planned.scale,
        "out": str(planned.out),
        "page": str(page),
        "claims": [claim.to_json() for claim in claims],
        "units": units,
        "jobs": len(planned.jobs),
        "done_now": done_now,
        "failed": failed,
        "seconds": round(seconds, 1),
    }


def _carry_out(jobs: list[Job], processes: int, folder: Path) -> dict[str, str]:
    """Do the jobs with a bar, or with a line for each where nobody watches; returns what failed."""
    from openbook.paper.reproduce import carry_out, describe

    if not jobs:
        return {}
    named = {job.key: describe(job) for job in jobs}
    failed: dict[str, str] = {}
    finished = 0
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with (
        _stopping_at_term(),
        Progress(*columns, TextColumn("{task.fields[note]}"), console=err, transient=True) as bars,
    ):
        bars.disable = not err.is_terminal
        bar = bars.add_task("reproducing", total=sum(job.weight for job in jobs), note="")
        for event, going in carry_out(jobs, processes, folder):
            failed = going.failed
            bars.update(bar, completed=going.done, note=f"{_left(going)}; {'; '.join(named[k] for k in going.running)}")
            if event.kind in ("done", "failed", "skipped"):
                finished += 1
                if not err.is_terminal:
                    trouble = "" if event.kind == "done" else f": {event.kind}, {event.note}"
                    line = f"{finished}/{len(jobs)} {named[event.key]}{trouble}; {_left(going)}"
                    err.print(line, soft_wrap=True, markup=False)
    return failed


def _left(going: Going) -> str:
    seconds = going.seconds_left
    return f"about {seconds / 60:.0f} min left" if seconds >= 90 else f"about {seconds:.0f} s left"


@contextmanager
def _stopping_at_term() -> Iterator[None]:
    """A SIGTERM is taken like Ctrl-C: workers are told to save what they are at."""

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _check_gpu(jobs: list[Job]) -> None:
    from openbook.paper.reproduce import RowsJob

    if any(not isinstance(job, RowsJob) for job in jobs):
        import torch

        if not torch.cuda.is_available():
            raise InputError(
                "the paper's scale trains Llama-3.2-3B, and there is no GPU here: --dry-run shows the plan, "
                "--scale laptop or overnight runs on this machine"
            )


def _list(planned: Plan, json: bool) -> int:
    rows: list[dict[str, Any]] = []
    for experiment in planned.experiments:
        jobs = [job for job in planned.jobs if getattr(job, "experiment", "") == experiment.name]
        needs = {key for job in jobs for key in job.needs}
        models = [job for job in planned.jobs if job.key in needs]
        done = len(planned.found(experiment).units)
        minutes = sum(job.weight for job in (*jobs, *models)) / 60
        rows.append(
            {
                "name": experiment.name,
                "title": experiment.title,
                "paper": experiment.paper,
                "units": len(jobs),
                "models": len(models),
                "done": done,
                "cpu_minutes": round(minutes, 1),
            }
        )
    whole = sum(job.weight for job in planned.jobs) / 60
    if json:
        emit_json({"scale": planned.scale, "scales": SCALES, "experiments": rows, "cpu_minutes": round(whole, 1)})
        return 0
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("experiment", no_wrap=True)
    for name in ("in the paper", "units", "models", "done", "CPU min"):
        table.add_column(name, justify="left" if name == "in the paper" else "right")
    for row in rows:
        cells = (row["units"], row["models"], row["done"])
        table.add_row(row["name"], row["paper"], *map(str, cells), f"{row['cpu_minutes']:.1f}")
    out.print(table)
    out.print(f"{whole:.0f} CPU minutes in all at scale {planned.scale}; models are shared", style="dim")
    return 0


def _dry_run(planned: Plan, missing: list[Job], json: bool) -> int:
    """Every model's config is made and checked; what a GPU would be told is printed as commands."""
    from openbook.paper.models import reader_flags
    from openbook.paper.reproduce import ReaderJob, TeachJob, describe

    jobs = []
    for job in missing:
        entry: dict[str, Any] = {"job": describe(job), "cpu_seconds": job.weight, "needs": list(job.needs)}
        if isinstance(job, TeachJob):
            planned.models.config(job.spec)  # refused now rather than after hours
            entry["command"] = _command(planned, job.spec)
        elif isinstance(job, ReaderJob):
            out_folder = planned.models.folder / job.name
            entry["command"] = shlex.join(["openbook", "prepare", *reader_flags(job.name), "--out", str(out_folder)])
        jobs.append(entry)
    if json:
        emit_json({"scale": planned.scale, "out": str(planned.out), "jobs": jobs})
        return 0
    for entry in jobs:
        out.print(entry.get("command", entry["job"]), soft_wrap=True)
    out.print(f"{len(jobs)} jobs to do, all configs are valid", style="dim")
    return 0


def _command(planned: Plan, spec: dict[str, Any]) -> str:
    words = ["openbook", "learn"]
    words += ["--config", spec["base"]] if spec.get("base") else []
    words += ["--model", str(planned.models.reader(spec["reader"]))] if spec["reader"] else []
    words += [word for key, value in spec["settings"].items() for word in ("--set", f"{key}={value}")]
    return shlex.join([*words, "--out", str(planned.models.place(spec))])


def _show_claims(claims: list[Claim]) -> None:
    table = Table("experiment", "the paper says", "verdict", box=None, header_style="bold", pad_edge=False)
    for claim in claims:
        table.add_row(claim.experiment, f"{claim.claim}\n[dim]{claim.numbers_in_words()}[/]", VERDICTS[claim.verdict])
    out.print(table)
    counts = {verdict: sum(claim.verdict == verdict for claim in claims) for verdict in VERDICTS}
    out.print(
        f"{counts['holds']} hold, {counts['fails']} do not, for {counts['unclear']} there is not enough evidence",
        style="bold",
    )


def _open(page: Path) -> None:
    """Open the page where there is a browser and a screen to show it on."""
    import os
    import webbrowser

    if os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        webbrowser.open(page.absolute().as_uri())
