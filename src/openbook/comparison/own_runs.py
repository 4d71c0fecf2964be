"""A user's own runs on one page: learning curves, the exam, what `openbook exam` and `openbook audit` found.

Arguments are folders of runs or of several runs (a sweep's), and JSON files that `openbook exam --json` or `openbook
audit --json` printed. A run that did not finish or was damaged is shown as such, with all that can still be read of it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from openbook.base.errors import InputError
from openbook.comparison.overview import INCOMPLETE, NAME, curriculum_name, learned, overview
from openbook.figures.charts import Axis, Chart, Level, Panel, Series, Table, share
from openbook.report.page import Page, PageSection, commands, paragraphs, write
from openbook.training.folder import CHANGES, ERROR, MANIFEST, PARTS, RunFolder

BADGES = {"leaked": "leaked", "not recovered": "not-recovered", "void": "void", "inapplicable": "inapplicable"}


def write_report(paths: Sequence[Path], out: Path) -> tuple[Path, list[dict[str, Any]]]:
    """The page of these runs and files, and what was made of each of them."""
    if not paths:
        raise InputError("no run was named: give the folders of runs, or JSON files of openbook exam or audit")
    missing = [str(path) for path in paths if not path.exists()]
    if missing:
        raise InputError(f"{', '.join(missing)} does not exist: give folders of runs or JSON files")
    asked, paths = paths, [run for path in paths for run in _runs_in(path)]
    names = _names(paths)
    sections = [
        _run(path, name) if path.is_dir() else _file(path, name) for path, name in zip(paths, names, strict=True)
    ]
    labels = {
        "done": "finished",
        "unfinished": "unfinished",
        "failed": "failed",
        "damaged": "damaged",
        "foreign": "not a run",
    }
    counted = {status: sum(s.status == status for s in sections) for status in labels}
    described = [
        {"name": s.name, "source": str(p), "status": s.status, "notices": s.notices}
        for s, p in zip(sections, paths, strict=True)
    ]
    compared = overview([(name, path) for name, path in zip(names, paths, strict=True) if path.is_dir()])
    page = Page(
        title="Runs of openbook",
        tagline="Study with the book open, sit the exam with the book closed.",
        lead=paragraphs("What these runs recorded of themselves. Nothing was run again to make this page."),
        sections=[*([compared] if compared else []), *sections],
        again=_again(asked),
        foot=Markup(""),
        counts=[(str(count), labels[status]) for status, count in counted.items() if count],
    )
    return write(page, out), described


def _runs_in(path: Path) -> list[Path]:
    """A run or a file as it is; the runs in a folder that is none itself, as a sweep's and that of an audit's arms."""
    if not path.is_dir() or _is_run(path):
        return [path]
    return sorted(folder for folder in path.iterdir() if folder.is_dir() and _is_run(folder)) or [path]


def _is_run(folder: Path) -> bool:
    """Whether something of a run is left in a folder."""
    return any((folder / part).is_file() for part in PARTS)


def _names(paths: Sequence[Path]) -> list[str]:
    """A name for each that can be an anchor, none twice."""
    names = ["main", "again", NAME]  # the page's own
    own = len(names)
    for path in paths:
        called = path.absolute().name if path.is_dir() else path.stem
        base = "".join(c if c.isalnum() or c in "-_" else "-" for c in called) or "run"
        name, again = base, 2
        while name in names:
            name, again = f"{base}-{again}", again + 1
        names.append(name)
    return names[own:]


def _again(paths: Sequence[Path]) -> Markup:
    words = " ".join(str(path) for path in paths)
    first = next((path for path in paths if path.is_dir()), Path("RUN"))
    return paragraphs(
        "The page is made from what the runs hold. The curve of context reliance takes an exam; give its output "
        "along with the runs."
    ) + commands(
        f"openbook report {words}", f"openbook exam {first} --json > exam.json", f"openbook report {first} exam.json"
    )


def _run(folder: Path, name: str) -> PageSection:
    """A run's folder, whatever state it is in."""
    problems: list[str] = []

    def read(part: str) -> Any:
        try:
            return json.loads((folder / part).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            problems.append(f"{part} cannot be read ({type(error).__name__}).")
            return None

    config, result, data, about = (read(f"{part}.json") for part in ("config", "result", "data", "environment"))
    metrics, lost = _metrics(folder / "metrics.jsonl")
    if lost:
        problems.append(f"{lost} line(s) of metrics.jsonl cannot be read and were left out.")
    if isinstance(config, dict) and "curriculum" not in config:
        problems.append("Its config.json is not a run's: name the folder that `openbook learn` has left.")
    foreign = not _is_run(folder)
    if foreign:
        problems.append("Nothing in it is of a run, and no folder in it is one: it is not a run of openbook.")
    elif config is None and not problems and not (folder / ERROR).exists():
        problems.append("There is no config.json: most of this run was lost.")
    try:
        story, figures = _told(config, result), _figures(name, metrics, result, _loss_of(config))
    except INCOMPLETE as error:
        problems.append(f"config.json or result.json lacks something that a run writes ({error!r}).")
        story, figures = _told(None, None), _figures(name, metrics, None)
    begun = not (folder / MANIFEST).exists()
    if not begun:
        try:
            problems += [f"{line}." for line in RunFolder(folder).damage()]
        except (OSError, ValueError, AttributeError) as error:
            problems.append(f"{MANIFEST} cannot be read ({type(error).__name__}).")
    status = "foreign" if foreign else "damaged" if problems else "unfinished" if begun else "done"
    if isinstance(failed := read(ERROR), dict):
        status = "failed"
        problems.append(f"It failed: {failed.get('error', f'{ERROR} does not say how')}.")
    if begun and config is not None:
        last = max((line.get("step", 0) for line in metrics), default=0)
        problems.append(f"The run did not finish; the last logged step is {last:,}. Go on with --resume.")
    if isinstance(result, dict) and result.get("capable") is False:
        problems.append(f"It cannot read: its open-book accuracy is below {result.get('threshold', 'the threshold')}.")
    if changes := read(CHANGES):
        try:
            said = "; ".join(line for change in changes for line in change["changes"])
        except INCOMPLETE:
            said = f"{CHANGES} does not say which"
        problems.append(f"It went on with other settings than it was begun with: {said}.")
    return PageSection(
        name=name,
        title=folder.absolute().name,
        where=str(folder),
        story=story,
        status=status,
        notices=problems,
        figures=figures,
        provenance=_record(about, data, config),
    )


def _metrics(path: Path) -> tuple[list[dict[str, Any]], int]:
    """Lines of the log that can be read, and how many cannot."""
    if not path.exists():
        return [], 0
    lines, lost = [], 0
    for text in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            line = json.loads(text)
        except ValueError:
            lost += 1
            continue
        if isinstance(line, dict) and isinstance(line.get("step"), int):
            lines.append(line)
        else:
            lost += 1
    return lines, lost


def _told(config: Any, result: Any) -> str:
    if not isinstance(config, dict):
        return "What it was told is not known."
    curriculum = config.get("curriculum") or {}
    start = (config.get("model") or {}).get("path") or "a model made from scratch"
    how = f"{curriculum_name(curriculum)} ({curriculum['drop']} closed, rate@progress)" if curriculum else "not known"
    told = (
        f"Learned {learned(config)}, starting from {start}; curriculum {how}, seed {config.get('seed', 'not known')}."
    )
    if isinstance(result, dict) and "accuracy" in result:
        share = result["accuracy"]
        told += (
            f" {result.get('samples', 0):,} examples, {result.get('steps', 0):,} steps: "
            f"{share['closed_book']:.1%} with the book closed, {share['open_book']:.1%} open; "
            f"a guess is {result.get('chance', float('nan')):.1%}."
        )
    return told


def _loss_of(config: Any) -> str:
    """What the loss of a run is about."""
    if isinstance(config, dict) and config.get("reading"):
        return "Loss of the course, all levels"
    on = config.get("training", {}).get("loss") if isinstance(config, dict) else None
    return {"answer": "Loss on the answer", "everything": "Loss on all text"}.get(str(on), "Loss on the completion")


def _figures(
    name: str, metrics: list[dict[str, Any]], result: Any, about: str = "Loss on the completion"
) -> list[Chart | Table]:
    figures: list[Chart | Table] = []
    panels = []
    chance = [Level(result["chance"], "chance")] if isinstance(result, dict) and "chance" in result else []
    exams = [
        Series(label, points, colour)
        for label, key, colour in (("book closed", "closed_book", 0), ("book open", "open_book", 1))
        if (points := _points(metrics, key))
    ]
    if exams:
        panels.append(Panel("Exams during training", Axis("step"), share("accuracy"), exams, chance))
    losses = _points(metrics, "loss")
    if losses:
        panels.append(Panel(about, Axis("step"), Axis("loss", low=0.0), [Series("loss", losses, 2)]))
    if panels:
        last = f"The last loss is {losses[-1][1]:.3g}." if losses else "No loss was logged."
        figures.append(Chart(f"{name}-course", "How the training went", last, panels))
    rows = result.get("exam") if isinstance(result, dict) else None
    if isinstance(rows, list) and rows:
        figures.append(_exam_table(f"{name}-exam", "The exam at the end", rows))
    return figures


def _points(metrics: list[dict[str, Any]], key: str) -> list[tuple[float, float]]:
    return [(line["step"], line[key]) for line in metrics if isinstance(line.get(key), int | float)]


def _exam_table(name: str, title: str, rows: list[dict[str, Any]]) -> Table:
    cells = [
        [row["book"], f"{row['open']:.0%}", f"{row['accuracy']:.1%}", f"{row['low']:.1%} to {row['high']:.1%}",
         f"{row['chance']:.1%}", f"{row['exact_match']:.1%}"]
        for row in rows
    ]  # fmt: skip
    return Table(name, title, ["book", "open", "accuracy", "95 % interval", "chance", "exact match"], cells)


def _record(about: Any, data: Any, config: Any) -> Table | None:
    rows = []
    if isinstance(about, dict):
        versions = about.get("versions") or {}
        git = about.get("git") or {}
        rows += [["versions", ", ".join(f"{k} {v}" for k, v in versions.items() if v)]]
        rows += [["commit", f"{git.get('commit', 'installed package')}{' with changes' if git.get('changed') else ''}"]]
    if isinstance(data, dict):
        rows += [[key, str(value)] for key, value in data.items()]
    if isinstance(config, dict):
        rows += [["config", json.dumps(config, ensure_ascii=False)]]
    return Table("record", "What the run wrote down", ["what", "value"], rows) if rows else None


def _file(path: Path, name: str) -> PageSection:
    """A JSON file: an exam or an audit."""
    where = str(path)
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        story = "Not a JSON file that can be read; perhaps the command that wrote it was interrupted."
        notice = f"{path.name} cannot be read ({type(error).__name__})."
        return PageSection(name, path.name, where, story, status="damaged", notices=[notice])
    try:
        if isinstance(found, dict) and "attacks" in found:
            return _audit(found, name, where)
        if (
            isinstance(found, dict)
            and isinstance(found.get("rows"), list)
            and found["rows"]
            and "open" in found["rows"][0]
        ):
            return _exam(found, name, where)
    except INCOMPLETE as error:
        notice = f"{path.name} lacks something that its command writes ({error})."
        return PageSection(name, path.name, where, "A file that is not complete.", status="damaged", notices=[notice])
    notice = "Give folders of runs, or what `openbook exam --json` or `openbook audit --json` printed."
    return PageSection(name, path.name, where, "Not something this page can show.", status="damaged", notices=[notice])


def _exam(found: dict[str, Any], name: str, where: str) -> PageSection:
    rows = found["rows"]
    right = sorted((row for row in rows if row["book"] == "right"), key=lambda row: row["open"])
    points = [(row["open"], row["accuracy"]) for row in right]
    series = [Series("right book", points, 0, [(row["low"], row["high"]) for row in right])]
    wrong = [row for row in rows if row["book"] == "wrong"]
    if wrong:
        spread = [(row["low"], row["high"]) for row in wrong]
        series.append(Series("wrong book", [(row["open"], row["accuracy"]) for row in wrong], 1, spread))
    axis = Axis("share of the book that is open", form="percent", low=0, high=1)
    level = [Level(rows[0]["chance"], "chance")]
    panel = Panel("Accuracy on the answer", axis, share("accuracy"), series, level)
    alt = ", ".join(f"{accuracy:.0%} with {share:.0%} of the book open" for share, accuracy in points)
    return PageSection(
        name,
        f"Exam of {found.get('run', 'a run')}",
        where,
        "How much the model leans on the book: flat at the top if it has internalised it, rising if it reads it.",
        status="done",
        figures=[
            Chart(f"{name}-reliance", "Context reliance", alt, [panel], f"{rows[0]['samples']} examples."),
            _exam_table(f"{name}-table", "The same in numbers", rows),
        ],
    )


def _audit(found: dict[str, Any], name: str, where: str) -> PageSection:
    cells = []
    for a in found["attacks"]:
        metric = a.get("metric", "rate")
        told = _number if metric == "AUC" else _percent
        cells.append(
            [
                ": ".join(str(a[key]) for key in ("name", "variant") if key in a),
                {"rate": "recovered"}.get(metric, metric),
                str(a["arm"]),
                told(a["rate"]) + (" *" if a.get("caught") else ""),
                f"{told(a['low'])} to {told(a['high'])}",
                told(a.get("chance")),
                told(a.get("elimination")),
            ]
        )
    return PageSection(
        name,
        f"Audit of {found.get('run', 'a run')}",
        where,
        f"Can the book be read back out of the model? Verdict: "
        f"{found.get('statement') or found.get('verdict') or 'not given'}.",
        status="done",
        badge=BADGES.get(str(found.get("verdict")), ""),
        figures=[
            Table(
                f"{name}-attacks",
                "Attacks",
                ["attack", "measure", "arm", "value, * caught", "95 % interval", "chance", "elimination"],
                cells,
            )
        ],
    )


def _percent(value: Any) -> str:
    return f"{value:.2%}" if isinstance(value, int | float) else "–"


def _number(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, int | float) else "–"
