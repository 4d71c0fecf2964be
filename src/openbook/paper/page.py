"""The story of the paper with this machine's numbers: a page from the rows of `openbook reproduce`."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from markupsafe import Markup

from openbook.base.files import write_json
from openbook.figures import Chart, save
from openbook.paper import select
from openbook.paper.drawing import Columns, tabled
from openbook.paper.experiment import SCALES, Experiment, Json
from openbook.paper.reproduce import Reproduction, load_studies
from openbook.paper.results import Results
from openbook.paper.translation import steps_of
from openbook.report.page import Page, PageSection, commands, paragraphs, write

TITLE = "Context-enhanced learning, reproduced"
VERDICTS = {"holds": "claims hold", "fails": "do not hold", "unclear": "not enough evidence"}
TAGLINE = "Study with the book open, sit the exam with the book closed."
NOTICED = 6  # failures that are listed above the contents; all are listed with their experiment


def write_page(plan: Reproduction, failed: dict[str, str] | None = None) -> Path:
    """Draw what is there, name what is missing, and return the page's path."""
    failures = failed or {}
    results = [
        (experiment, plan.results(experiment), len(plan.row_jobs(experiment))) for experiment in plan.experiments
    ]
    sections = [_section(plan, *result, failures) for result in results]
    units = [unit for _, result, _ in results for unit in result.units]
    claims = [claim for section in sections for claim in section.claims]
    seconds = sum(unit["cpu_seconds"] for unit in units)
    verdicts = [(str(sum(claim.verdict == it for claim in claims)), words) for it, words in VERDICTS.items()]
    took = f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
    notices = [
        f"{experiment.title}: {len(result.units)} of {wanted} units are there."
        for experiment, result, wanted in results
        if len(result.units) < wanted
    ]
    page = Page(
        title=TITLE,
        tagline=TAGLINE,
        lead=_lead(plan),
        sections=sections,
        again=_again(plan),
        foot=_foot(units),
        counts=[*verdicts, (took, "of CPU for the measurements")],
        notices=notices + [f"{key} failed: {why}" for key, why in list(failures.items())[:NOTICED]],
        claims=claims,
    )
    return write(page, plan.out / "index.html")


def publish(plan: Reproduction, folder: Path, failed: dict[str, str]) -> tuple[list[Path], list[str]]:
    """Finished experiments as files to show elsewhere: rows and what made them as NAME.json, the chart as NAME.svg.

    Returns the files, and the names of experiments that are not finished, or of which something failed this time.
    """
    written: list[Path] = []
    left: list[str] = []
    for experiment in plan.experiments:
        result = plan.results(experiment)
        if len(result.units) < len(plan.row_jobs(experiment)) or _failures(experiment, failed):
            left.append(experiment.name)
            continue
        units = [{key: value for key, value in unit.items() if key not in ("file", "sha256")} for unit in result.units]
        folder.mkdir(parents=True, exist_ok=True)
        written.append(folder / f"{experiment.name}.json")
        write_json(written[-1], {"command": plan.command(experiment), "units": units})
        written += draw_published(experiment, folder)
    return written, left


def draw_published(experiment: Experiment, folder: Path) -> list[Path]:
    """The chart of published rows, drawn from NAME.json as NAME.svg; nothing where the experiment has no such chart."""
    units = json.loads((folder / f"{experiment.name}.json").read_text(encoding="utf-8")).get("units", [])
    rows = [row for unit in units for row in unit["rows"]]
    charts = [item for item in experiment.figures(rows) if isinstance(item, Chart)]
    for chart in (chart for chart in charts if chart.name == experiment.name):
        save(chart, folder / f"{experiment.name}.svg")
        return [folder / f"{experiment.name}.svg"]
    return []


def redraw(folder: Path) -> list[Path]:
    """The charts of all published rows in a folder, drawn again."""
    known = [*select(), *load_studies(sorted(Path("studies").glob("*.yaml")))]
    there = [experiment for experiment in known if (folder / f"{experiment.name}.json").exists()]
    return [path for experiment in there for path in draw_published(experiment, folder)]


def _failures(experiment: Experiment, failed: dict[str, str]) -> list[str]:
    return [why for key, why in failed.items() if key.startswith(f"{experiment.name} ")]


def _lead(plan: Reproduction) -> Markup:
    return paragraphs(
        "A language model is fine-tuned with helpful text in its context. No loss is computed on that text, and a "
        "schedule takes it away, until the model works without it. The study “On the Power of Context-Enhanced "
        "Learning in LLMs” asks how much this helps, where the knowledge goes, and whether it can be read back. This "
        "page tells its story in its order, with numbers measured on this machine.",
        Markup(
            "Solid curves are ours; dashed, pale ones are published, of Llama-3.2-3B unless said otherwise, and not "
            "ours. Point at a mark to read it, or open the numbers below its chart. Scale: {}."
        ).format(f"{plan.scale}: {SCALES[plan.scale]}"),
    )


def _section(
    plan: Reproduction, experiment: Experiment, result: Results, wanted: int, failed: dict[str, str]
) -> PageSection:
    command, where = experiment.command(plan.scale), f" --out {shlex.quote(str(plan.out))}"
    notices = [f"A result file is damaged and was left out: {line}." for line in result.damaged]
    if missing := wanted - len(result.units):
        notices.append(f"{missing} of {wanted} units are missing; to have them: {command}{where}")
    notices += [f"Failed: {why}." for why in _failures(experiment, failed)]
    return PageSection(
        name=experiment.name,
        title=experiment.title,
        where=f"In the paper: {experiment.paper}",
        story=experiment.story,
        differs=experiment.differs if plan.scale != "paper" else "",
        notices=notices,
        steps=steps_of(result.rows) if experiment.name == "translation" else [],
        figures=experiment.figures(result.rows),
        claims=plan.claims_of(experiment),
        provenance=tabled("provenance", "Units of this experiment", result.units, PROVENANCE) if result.units else None,
        command=f"{command} --again{where}",
    )


def _config(unit: Json) -> str:
    values = {key: value for key, value in unit["config"].items() if not isinstance(value, list | dict)}
    return ", ".join(f"{key} {value}" for key, value in values.items()) or "all"


def _models(unit: Json) -> str:
    return ", ".join([*unit.get("models", []), *(f"reader {name}" for name in unit.get("readers", {}).values())])


def _commits(unit: Json) -> str:
    """Which commit measured a unit's rows, and which taught its models if that was another."""
    measured = _commit(unit["environment"].get("git"))
    taught = sorted({_commit(git) for git in unit.get("taught_at", [])} - {measured})
    return f"{measured}, taught at {' and '.join(taught)}" if taught else measured


def _commit(git: Json | None) -> str:
    return f"{git['commit'][:10]}{' with changes' if git['changed'] else ''}" if git else "installed package"


PROVENANCE: Columns = {
    "config": _config,
    "CPU s": "{cpu_seconds:.1f}",
    "models": _models,
    "commit": _commits,
    "file": "rows/{experiment}/{file}",
    "SHA-256": "{sha256:.12}",
}


def _again(plan: Reproduction) -> Markup:
    return paragraphs(
        "The command measures what is missing and keeps what is done; an interrupted run goes on. Rows "
        "are kept with their config, versions and commit; models are kept as ordinary runs."
    ) + commands(
        f"openbook reproduce --scale {plan.scale}      # this page",
        "openbook reproduce --list               # the experiments, and what they take",
        "openbook reproduce gap --scale overnight",
        "openbook reproduce --scale paper --dry-run",
    )


def _foot(units: list[Json]) -> Markup:
    """Machine and versions, as the units wrote them down."""
    if not units:
        return paragraphs("No unit is finished.")
    envs = [unit["environment"] for unit in units]
    machines = {f"{env['system']} {env['machine']}, {env['cores']} cores, Python {env['python']}" for env in envs}
    versions = {", ".join(f"{name} {version}" for name, version in env["versions"].items() if version) for env in envs}
    commits = {(env.get("git") or {}).get("commit", "installed package")[:10] for env in envs}
    return paragraphs(
        f"Measured on {'; '.join(sorted(machines))}.",
        f"Versions: {'; '.join(sorted(versions))}.",
        f"Commits: {', '.join(sorted(commits))}.",
    )
