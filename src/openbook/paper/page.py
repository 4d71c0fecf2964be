"""The story of the paper with this machine's numbers: a page from the rows of `openbook reproduce`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from markupsafe import Markup

from openbook.base.files import write_json, written_aside
from openbook.figures import Chart, Table, svg
from openbook.paper.experiment import Experiment
from openbook.paper.models import name_of
from openbook.paper.reproduce import Plan, claims_of
from openbook.paper.results import Found
from openbook.paper.stepping import steps_of
from openbook.report.page import Page, PageSection, commands, paragraphs, write
from openbook.training.shipped import shipped_readers

TITLE = "Context-enhanced learning, reproduced"
TAGLINE = "Study with the book open, sit the exam with the book closed."
SCALE_WORDS = {
    "smoke": "smoke: a toy size that only shows that everything runs; most claims cannot be judged",
    "laptop": "laptop: small models and tasks, minutes on two cores",
    "overnight": "overnight: more sizes and seeds, hours on a CPU",
    "paper": "paper: Llama-3.2-3B on a GPU",
}
NOTICED = 6


def write_page(plan: Plan, failed: dict[str, str] | None = None) -> Path:
    """Draw what is there, say what is not, and return the page's path."""
    found = {experiment.name: plan.found(experiment) for experiment in plan.experiments}
    sections = [_section(plan, experiment, found[experiment.name], failed or {}) for experiment in plan.experiments]
    claims = [claim for section in sections for claim in section.claims]
    units = [unit for one in found.values() for unit in one.units]
    counted = {verdict: sum(claim.verdict == verdict for claim in claims) for verdict in ("holds", "fails", "unclear")}
    measured = sum(unit["cpu_seconds"] for unit in units)
    page = Page(
        title=TITLE,
        tagline=TAGLINE,
        lead=_lead(plan),
        sections=sections,
        again=_again(plan),
        foot=_foot(units),
        counts=[
            (str(counted["holds"]), "claims hold"),
            (str(counted["fails"]), "do not hold"),
            (str(counted["unclear"]), "not enough evidence"),
            (f"{measured / 60:.0f} min" if measured >= 90 else f"{measured:.0f} s", "of CPU for the measurements"),
        ],
        notices=_overall(plan, found, failed or {}),
        claims=claims,
    )
    return write(page, plan.out / "index.html")


def publish(plan: Plan, folder: Path, failed: dict[str, str]) -> tuple[list[Path], list[str]]:
    """Finished experiments as files to show elsewhere: rows and what made them as NAME.json, the chart as NAME.svg.

    Returns the files, and the names of experiments that are not finished, or of which something failed this time.
    """
    written: list[Path] = []
    left: list[str] = []
    for experiment in plan.experiments:
        found = plan.found(experiment)
        if len(found.units) < plan.units(experiment) or any(key.startswith(f"{experiment.name} ") for key in failed):
            left.append(experiment.name)
            continue
        units = [{key: value for key, value in unit.items() if key not in ("file", "sha256")} for unit in found.units]
        folder.mkdir(parents=True, exist_ok=True)
        written.append(folder / f"{experiment.name}.json")
        write_json(written[-1], {"command": _made_by(plan, experiment), "units": units})
        for chart in experiment.draw(found.rows):
            if isinstance(chart, Chart) and chart.name == experiment.name:
                written.append(folder / f"{experiment.name}.svg")
                with written_aside(written[-1]) as aside:
                    aside.write_text(svg(chart), encoding="utf-8")
    return written, left


def _made_by(plan: Plan, experiment: Experiment) -> str:
    """The command that makes the rows of an experiment; a reader that was given is named by what made it."""
    command = f"openbook reproduce {experiment.name} --scale {plan.scale}"
    given, names = plan.models.given, {name for unit in experiment.configs(plan.scale) for name in unit.readers}
    if given is None or (name := name_of(given)) not in names:
        return command
    if given in shipped_readers().values():
        return f"{command} --reader {given.name}"
    return f"{command} --reader READER; READER: {plan.models.made_by(name)}"


def _lead(plan: Plan) -> Markup:
    return paragraphs(
        "A language model is fine-tuned with helpful text in its context. No loss is computed on that text, and a "
        "schedule takes it away, until the model works without it. The study “On the Power of Context-Enhanced "
        "Learning in LLMs” asks how much this helps, where the knowledge goes, and whether it can be read back. This "
        "page tells its story in its order, with numbers measured on this machine.",
        Markup(
            "Solid curves are ours; dashed, pale ones are published, of Llama-3.2-3B unless said otherwise, and not "
            "ours. Point at a mark to read it, or open the numbers below its chart. Scale: {}."
        ).format(SCALE_WORDS[plan.scale]),
    )


def _overall(plan: Plan, found: dict[str, Found], failed: dict[str, str]) -> list[str]:
    lines = []
    for experiment in plan.experiments:
        there, wanted = len(found[experiment.name].units), plan.units(experiment)
        if there < wanted:
            lines.append(f"{experiment.title}: {there} of {wanted} units are there.")
    return lines + [f"{key} failed: {why}" for key, why in list(failed.items())[:NOTICED]]


def _section(plan: Plan, experiment: Experiment, found: Found, failed: dict[str, str]) -> PageSection:
    notices = [f"A result file is damaged and was left out: {line}." for line in found.damaged]
    missing = plan.units(experiment) - len(found.units)
    command = f"openbook reproduce {experiment.name} --scale {plan.scale}"
    where = f" --out {shlex.quote(str(plan.out))}"
    if missing:
        notices.append(f"{missing} of {plan.units(experiment)} units are missing; to have them: {command}{where}")
    mine = {key: why for key, why in failed.items() if key.startswith(f"{experiment.name} ")}
    notices += [f"Failed: {why}." for why in mine.values()]
    drawn: list[Any] = []
    if found.rows:
        drawn = experiment.draw(found.rows)
    return PageSection(
        name=experiment.name,
        title=experiment.title,
        where=f"In the paper: {experiment.paper}",
        story=experiment.story,
        differs=experiment.differs if plan.scale != "paper" else "",
        notices=notices,
        steps=steps_of(found.rows) if experiment.name == "translation" else [],
        figures=drawn,
        claims=claims_of(experiment, found, plan.units(experiment)),
        provenance=_provenance(found),
        command=f"{command} --again{where}",
    )


def _provenance(found: Found) -> Table | None:
    if not found.units:
        return None
    rows = []
    for unit in found.units:
        config = ", ".join(
            f"{key} {value}" for key, value in unit["config"].items() if not isinstance(value, list | dict)
        )
        models = ", ".join([*unit.get("models", []), *(f"reader {name}" for name in unit.get("readers", {}).values())])
        rows.append(
            [config or "all", f"{unit['cpu_seconds']:.1f}", models, _commits(unit),
             f"rows/{unit['experiment']}/{unit['file']}", unit["sha256"][:12]]
        )  # fmt: skip
    return Table(
        "provenance",
        "Units of this experiment",
        ["config", "CPU s", "models", "commit", "file", "SHA-256"],
        rows,
    )


def _commits(unit: dict[str, Any]) -> str:
    """Which commit measured a unit's rows, and which taught its models if that was another."""
    measured = _commit(unit["environment"].get("git"))
    taught = sorted({_commit(git) for git in unit.get("taught_at", [])} - {measured})
    return f"{measured}, taught at {' and '.join(taught)}" if taught else measured


def _commit(git: dict[str, Any] | None) -> str:
    return f"{git['commit'][:10]}{' with changes' if git['changed'] else ''}" if git else "installed package"


def _again(plan: Plan) -> Markup:
    return paragraphs(
        "The command carries out what is missing and leaves alone what is done; an interrupted run goes on. Rows "
        "are kept with their config, versions and commit; models are kept as ordinary runs."
    ) + commands(
        f"openbook reproduce --scale {plan.scale}      # this page",
        "openbook reproduce --list               # the experiments, and what they take",
        "openbook reproduce gap --scale overnight",
        "openbook reproduce --scale paper --dry-run",
    )


def _foot(units: list[dict[str, Any]]) -> Markup:
    """Machine and versions, as the units wrote them down."""
    if not units:
        return paragraphs("No unit is finished.")
    about = [unit["environment"] for unit in units]
    versions = sorted({", ".join(f"{k} {v}" for k, v in one["versions"].items() if v) for one in about})
    commits = sorted({(one.get("git") or {}).get("commit", "installed package")[:10] for one in about})
    machines = sorted(
        {f"{one['system']} {one['machine']}, {one['cores']} cores, Python {one['python']}" for one in about}
    )
    return paragraphs(
        f"Measured on {'; '.join(machines)}.", f"Versions: {'; '.join(versions)}.", f"Commits: {', '.join(commits)}."
    )
