"""A user's own runs on one page: learning curves, the exam, what `openbook exam` and `openbook audit` measured.

Arguments are folders of runs or of several runs (a sweep's), and JSON files that `openbook exam --json` or `openbook
audit --json` printed. A run that did not finish or was damaged is shown as such, with all that can still be read of it.
"""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup
from pydantic import ValidationError

from openbook.base.errors import InputError
from openbook.comparison.overview import NAME, overview
from openbook.comparison.records import Audit, Config, Exam, ExamRow, Result, RunRecord, complaint, is_run, read_run
from openbook.figures import Axis, Chart, Level, Panel, Series, Table, share
from openbook.report.page import Page, PageSection, commands, paragraphs, write

BADGES = {"leaked": "leaked", "not recovered": "not-recovered", "void": "void", "inapplicable": "inapplicable"}
STATUSES = {
    "done": "finished", "unfinished": "unfinished", "failed": "failed", "damaged": "damaged", "foreign": "not a run",
}  # fmt: skip
CURVES = {"closed_book": "book closed", "open_book": "book open", "loss": "loss"}
LOSSES = {
    "answer": "Loss on the answer", "everything": "Loss on all text", "course": "Loss of the course, all levels",
}  # fmt: skip


def write_report(paths: Sequence[Path], out: Path) -> tuple[Path, list[dict[str, Any]]]:
    """The page of these runs and files, and what was made of each of them."""
    if not paths:
        raise InputError("no run was named: give the folders of runs, or JSON files of openbook exam or audit")
    missing = [str(path) for path in paths if not path.exists()]
    if missing:
        raise InputError(f"{', '.join(missing)} does not exist: give folders of runs or JSON files")
    sources = [run for path in paths for run in _runs_in(path)]
    runs: list[RunRecord] = []
    sections = []
    for name, path in zip(_names(sources), sources, strict=True):
        if path.is_dir():
            runs.append(read_run(name, path))
        sections.append(_run_section(runs[-1]) if path.is_dir() else _file_section(path, name))
    counted = Counter(section.status for section in sections)
    described = [
        {"name": section.name, "source": section.where, "status": section.status, "notices": section.notices}
        for section in sections
    ]
    compared = overview(runs)
    page = Page(
        title="Runs of openbook",
        tagline="Study with the book open, sit the exam with the book closed.",
        lead=paragraphs("What these runs recorded of themselves. Nothing was run again to make this page."),
        sections=[*([compared] if compared else []), *sections],
        again=_again(paths),
        counts=[(str(counted[status]), words) for status, words in STATUSES.items() if counted[status]],
    )
    return write(page, out), described


def _runs_in(path: Path) -> list[Path]:
    """A run or a file as it is; the runs in a folder that is none itself, as a sweep's and that of an audit's arms."""
    if not path.is_dir() or is_run(path):
        return [path]
    return sorted(folder for folder in path.iterdir() if folder.is_dir() and is_run(folder)) or [path]


def _names(paths: Sequence[Path]) -> list[str]:
    """A name for each that can be an anchor, none twice."""
    names = ["main", "again", NAME]  # the page's own
    own = len(names)
    for path in paths:
        stem = path.absolute().name if path.is_dir() else path.stem
        base = re.sub(r"[^\w-]", "-", stem) or "run"
        numbered = (f"{base}-{number}" for number in itertools.count(2))
        names.append(next(name for name in itertools.chain([base], numbered) if name not in names))
    return names[own:]


def _again(paths: Sequence[Path]) -> Markup:
    """The commands that make this page, and that add the curve of context reliance to it."""
    words = " ".join(str(path) for path in paths)
    first = next((path for path in paths if path.is_dir()), Path("RUN"))
    return paragraphs(
        "The page is made from what the runs hold. The curve of context reliance takes an exam; give its output "
        "along with the runs."
    ) + commands(
        f"openbook report {words}", f"openbook exam {first} --json > exam.json", f"openbook report {first} exam.json"
    )


def _run_section(run: RunRecord) -> PageSection:
    return PageSection(
        name=run.name,
        title=run.folder.absolute().name,
        where=str(run.folder),
        story=_story(run.config, run.result),
        status=run.status,
        notices=run.problems,
        figures=_figures(run),
        provenance=_provenance(run),
    )


def _story(config: Config | None, result: Result | None) -> str:
    """What the run was started with and how it ended, in sentences."""
    if config is None:
        return "What it was started with is not known."
    seed = "not known" if config.seed == "" else config.seed
    story = (
        f"Learned {config.learned()}, starting from {config.start or 'a model made from scratch'}; curriculum "
        f"{config.curriculum()} ({config.drop} closed, rate@progress), seed {seed}."
    )
    if result is not None:
        story += (
            f" {result.samples:,} examples, {result.steps:,} steps: {result.closed_book:.1%} with the book closed, "
            f"{result.open_book:.1%} open; a guess is {result.chance:.1%}."
        )
    return story


def _figures(run: RunRecord) -> list[Chart | Table]:
    """How the training went, as far as it was logged, and the exam at the end."""
    figures: list[Chart | Table] = []
    closed, opened, loss = (
        Series(name, [(line.step, y) for line in run.log if (y := getattr(line, key)) is not None], colour)
        for colour, (key, name) in enumerate(CURVES.items())
    )
    panels = []
    if exams := [series for series in (closed, opened) if series.points]:
        chance = [Level(run.result.chance, "chance")] if run.result else []
        panels.append(Panel("Exams during training", Axis("step"), share("accuracy"), exams, chance))
    if loss.points:
        kind = "course" if run.config and run.config.reading else run.config.loss if run.config else ""
        panels.append(Panel(LOSSES.get(kind, "Loss on the completion"), Axis("step"), Axis("loss", low=0.0), [loss]))
    if panels:
        last = f"The last loss is {loss.points[-1][1]:.3g}." if loss.points else "No loss was logged."
        figures.append(Chart(f"{run.name}-course", "How the training went", last, panels))
    if run.result and run.result.exam:
        figures.append(_exam_table(f"{run.name}-exam", "The exam at the end", run.result.exam))
    return figures


def _exam_table(name: str, title: str, rows: Sequence[ExamRow]) -> Table:
    cells = [
        [row.book, f"{row.open:.0%}", f"{row.accuracy:.1%}", f"{row.low:.1%} to {row.high:.1%}", f"{row.chance:.1%}",
         f"{row.exact_match:.1%}"]
        for row in rows
    ]  # fmt: skip
    return Table(name, title, ["book", "open", "accuracy", "95 % interval", "chance", "exact match"], cells)


def _provenance(run: RunRecord) -> Table | None:
    """What the run recorded of its machine, its data and its settings."""
    rows = []
    if made := run.environment:
        rows.append(["versions", ", ".join(f"{name} {version}" for name, version in made.versions.items() if version)])
        rows.append(["commit", f"{made.commit}{' with changes' if made.changed else ''}"])
    rows += [[key, str(value)] for key, value in (run.data or {}).items()]
    if run.raw_config is not None:
        rows.append(["config", json.dumps(run.raw_config, ensure_ascii=False)])
    return Table("record", "What the run wrote down", ["what", "value"], rows) if rows else None


def _file_section(path: Path, name: str) -> PageSection:
    """A JSON file: an exam or an audit."""
    try:
        text = path.read_bytes()
        if b'"attacks"' in text:
            return _audit(Audit.model_validate_json(text), name, str(path))
        return _exam(Exam.model_validate_json(text), name, str(path))
    except (OSError, ValidationError) as error:
        story = "Not an exam or an audit that can be read; perhaps the command that wrote it was interrupted."
        advice = "Give folders of runs, or what `openbook exam --json` or `openbook audit --json` printed."
        notices = [complaint(path.name, error), advice]
        return PageSection(name, path.name, str(path), story, status="damaged", notices=notices)


def _exam(exam: Exam, name: str, where: str) -> PageSection:
    panel = reliance(exam.rows)
    first = [point for series in panel.series[:1] for point in series.points]
    alt = ", ".join(f"{y:.0%} with {x:.0%} of the book open" for x, y in first)
    caption = f"{exam.rows[0].samples} examples."
    return PageSection(
        name,
        f"Exam of {exam.run}",
        where,
        "How much the model leans on the book: flat at the top if it has internalised it, rising if it reads it.",
        status="done",
        figures=[
            Chart(f"{name}-reliance", "Context reliance", alt, [panel], caption),
            _exam_table(f"{name}-table", "The same in numbers", exam.rows),
        ],
    )


def reliance(exam: Sequence[ExamRow], measure: str = "Accuracy") -> Panel:
    """A measure against the share of the book that is open, with the right book and with a wrong one."""
    series = []
    for colour, book in enumerate(("right", "wrong")):
        if rows := sorted((row for row in exam if row.book == book), key=lambda row: row.open):
            points, spread = [(row.open, row.accuracy) for row in rows], [(row.low, row.high) for row in rows]
            series.append(Series(f"{book} book", points, colour, spread))
    opened, chance = share("share of the book that is open"), exam[0].chance
    levels = [] if chance is None else [Level(chance, "chance")]
    return Panel(f"{measure} on the answer", opened, share(measure.lower() if levels else measure), series, levels)


def _audit(audit: Audit, name: str, where: str) -> PageSection:
    cells = []
    for attack in audit.attacks:
        form = ".3f" if attack.metric == "AUC" else ".2%"  # an area is no share of the secrets
        value, low, high, chance, elimination = (
            "–" if number is None else format(number, form)
            for number in (attack.rate, attack.low, attack.high, attack.chance, attack.elimination)
        )
        title = attack.name if attack.variant is None else f"{attack.name}: {attack.variant}"
        measure = "recovered" if attack.metric == "rate" else attack.metric
        star = " *" if attack.caught else ""
        cells.append([title, measure, attack.arm, value + star, f"{low} to {high}", chance, elimination])
    header = ["attack", "measure", "arm", "value, * caught", "95 % interval", "chance", "elimination"]
    return PageSection(
        name,
        f"Audit of {audit.run}",
        where,
        f"Can the book be read back out of the model? Verdict: {audit.statement or audit.verdict}.",
        status="done",
        badge=BADGES.get(audit.verdict, ""),
        figures=[Table(f"{name}-attacks", "Attacks", header, cells)],
    )
