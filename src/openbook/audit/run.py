"""One audit from a run's folder to a report. `audit` names every stage in order; read it first."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any

import openbook.audit.attacks  # noqa: F401 - registers them
from openbook.audit import arms
from openbook.audit.arms import ARMS, CONTROLS, Arms, config_of, replicas
from openbook.audit.attack import ATTACKS, AttackedModel, Attacker, AuditConfig, NotApplicableError, Scores
from openbook.audit.canaries import canary_secrets
from openbook.audit.secret import Secrets, data_secrets, task_secrets, usual_setting
from openbook.audit.skill import pairs_of, skill_of
from openbook.audit.verdict import Measure, averaged, measures, verdict_of
from openbook.base.console import Bar, no_bar
from openbook.base.errors import InputError
from openbook.book.source import Source
from openbook.task.source import as_translations
from openbook.training.config import RunConfig
from openbook.training.folder import RunFolder
from openbook.training.models import load_tokenizer
from openbook.training.sources import encoder_for, recorded_date, sources_of

ArmScores = dict[str, list[list[Scores]]]  # arm -> its trainings -> scores


def audit(
    run: Path,
    config: AuditConfig | None = None,
    folder: Path | None = None,
    train_arms: bool = False,
    seeds: Sequence[Path] = (),
    canaries: Path | None = None,
    bar: Bar = no_bar,
    notify: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Audit a run; returns the keys of `openbook audit --json`. `seeds` are runs of the same training, other seeds."""
    started = time.process_time()
    config = config or AuditConfig()
    config.check()
    result, run_config, folder = arms.passed_exam(run), config_of(run), folder or arms.default_folder(run)
    for other in seeds:
        arms.check_other_seed(run, other)
    source = unchanged_source(run, run_config)
    secrets = secrets_of(run_config, source, run, canaries)

    counts = {"without": config.controls}  # trainings: they vary as models without the text do
    names = {arm: replicas(arm, counts.get(arm, 1)) for arm in (ARMS[1:] if secrets.written else CONTROLS)}
    Arms(run, run_config, folder, secrets).prepare([*chain(*names.values())], train_arms, bar, notify)
    places = {"trained": [run, *seeds]} | {arm: [folder / name for name in each] for arm, each in names.items()}
    return attack_arms(places, config, source, secrets, bar) | {
        "run": str(run),
        "closed_book": result["accuracy"]["closed_book"],
        "seeds": [config_of(place).seed for place in places["trained"]],
        "arms": [arms.arm_summary(arm, each) for arm, each in places.items()],
        "seconds": round(time.process_time() - started, 2),
    }


def attack_arms(
    places: Mapping[str, Sequence[Path]], config: AuditConfig, source: Source, secrets: Secrets, bar: Bar = no_bar
) -> dict[str, Any]:
    """Every attack on the models in these folders, and the verdict."""
    run = places["trained"][0]
    run_config = config_of(run)
    models = {arm: [arms.load_arm(place, run_config) for place in each] for arm, each in places.items()}
    if secrets.written:
        models["trained"][0].check(secrets)
    references = {arm: models[arm][0] for arm in ("before", "decoy")}
    skill = skill_of(source, run_config, models["trained"][0], recorded_date(run))
    attacker = Attacker(config, references, skill, run_config.training.learning_rate or 1e-3)
    return report_of(*scores_of(models, secrets, attacker, bar), secrets, config)


def unchanged_source(run: Path, config: RunConfig) -> Source:
    """The data that the run was trained on, if it is still the same and its secrets can be asked for."""
    source, _ = sources_of(config)
    if source.fingerprint != RunFolder(run).read("data.json")["fingerprint"]:
        raise InputError(
            f"{config.data or 'the task'} is not what {run} was trained on, it was changed since: an audit needs the "
            "very data, to train its controls on. Put the file back as it was, or train the run anew"
        )
    task = as_translations(source)
    if task is not None and not source.writable and pairs_of(task) is None:
        raise InputError(
            f"{run} learned strings of at most {task.lengths[1]} characters, too short to tell {task.depth} levels "
            f"apart by its answers, which are all that this student can be asked for: train it on strings of "
            f"{2 * task.depth} characters or more (task.lengths)"
        )
    return source


def secrets_of(config: RunConfig, source: Source, run: Path, canaries: Path | None = None) -> Secrets:
    """What an audit of this run looks for: canaries if there is a list of them, or else every piece of its book."""
    tokenizer, task = load_tokenizer(str(run)), as_translations(source)
    history, preamble = usual_setting(source) if task is None else (None, "")
    encoder = encoder_for(config, tokenizer, source, None, recorded_date(run))
    opening = encoder.frame_of(history).before + preamble
    if canaries is not None:
        return canary_secrets(canaries, source, opening)
    return data_secrets(source, opening) if task is None else task_secrets(task, opening, source.writable)


def scores_of(
    models: Mapping[str, Sequence[AttackedModel]], secrets: Secrets, attacker: Attacker, bar: Bar = no_bar
) -> tuple[ArmScores, dict[str, str]]:
    """Every attack on every model of every arm, and why an attack is not applicable."""
    names = [name for name in ATTACKS if name in attacker.config.attacks]
    scores: ArmScores = {arm: [[] for _ in its_models] for arm, its_models in models.items()}
    not_applicable: dict[str, str] = {}
    with bar("attacks", len(names) * sum(map(len, models.values()))) as advance:
        for arm, its_models in models.items():
            for number, model in enumerate(its_models):
                for name in names:
                    advance(0, note=f"{name} on {arm}")
                    try:
                        scores[arm][number] += ATTACKS[name](model, secrets, attacker)
                    except NotApplicableError as reason:
                        not_applicable[name] = str(reason)
                    advance(1)
    return scores, not_applicable


def report_of(
    scores: ArmScores, not_applicable: Mapping[str, str], secrets: Secrets, config: AuditConfig
) -> dict[str, Any]:
    """Scores of every arm as rows with a verdict. Needs no model, so it can be given stored scores."""
    trainings = {arm: [measures(each) for each in of_arm] for arm, of_arm in scores.items()}
    measured = {arm: averaged(each) for arm, each in trainings.items()}
    controls = dict[str, list[Measure]]()
    for arm in (arm for arm in CONTROLS if arm in trainings):
        controls |= zip(replicas(arm, len(trainings[arm])), trainings[arm], strict=True)
    judgement = verdict_of(measured, controls, config.threshold, config.level)
    caught = {("trained", f.attack, f.variant, f.metric) for f in judgement.findings}
    caught |= {("positive", f.attack, f.variant, f.metric) for f in judgement.positive_findings}
    rows = [m.row(arm, secrets, (arm, *m.key) in caught) for arm, each in measured.items() for m in each]
    looked_for = {"count": len(secrets), "origin": secrets.origin, "groups": list(secrets.groups)}
    return {
        **asdict(judgement),
        "secrets": {**looked_for, "exchangeable": secrets.exchangeable},
        "attacks": rows,
        "not_applicable": dict(not_applicable),
        "settings": asdict(config),
    }
