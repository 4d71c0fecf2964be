"""One audit from a run's folder to a report. `audit` names every stage in order; read it first."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from openbook.audit.arms import (
    ARMS,
    CONTROLS,
    Arm,
    check_learned,
    compared,
    config_of,
    default_folder,
    load_subject,
    ready,
    replicas,
)
from openbook.audit.attack import Attack, Scores
from openbook.audit.battery import Battery
from openbook.audit.behaviour import DataInversion, TaskInversion, pairs_of
from openbook.audit.budget import Budget
from openbook.audit.canaries import canary_secrets
from openbook.audit.completion import Completion
from openbook.audit.composite import WHY_NOT, CompositeInversion, CompositeTuning, composite_secrets
from openbook.audit.exposure import Exposure
from openbook.audit.membership import Membership
from openbook.audit.relearning import Relearning
from openbook.audit.secret import Secrets, data_secrets, task_secrets, usual_setting
from openbook.audit.softprompt import SoftPrompt
from openbook.audit.subject import Subject
from openbook.audit.verdict import LEVEL, THRESHOLD, averaged, judge, measures, rows_of
from openbook.base.console import Bar, no_bar
from openbook.base.errors import InputError, nearest
from openbook.base.files import differences
from openbook.book.jsonl import ListSource
from openbook.book.source import Source
from openbook.task.source import Translations
from openbook.training.chat import Frame, History, frame_of
from openbook.training.config import RunConfig
from openbook.training.folder import RunFolder
from openbook.training.models import is_composite, is_student, load_tokenizer
from openbook.training.sources import encoder_for, recorded_date, sources_of

ATTACKS = (
    "completion",
    "exposure",
    "membership",
    "battery",
    "budget",
    "inversion",
    "relearning",
    "soft-prompt",
)
ON_TEXT = ATTACKS[:5]  # those that need a likelihood of the text


@dataclass(frozen=True)
class Settings:
    """The budget of an audit and what it calls a leak."""

    attacks: tuple[str, ...] = ATTACKS
    samples: int = 10  # of the sampling budget, for each secret
    permutations: int = 20  # orders of the book
    controls: int = 1  # trainings of the model without the text, with seeds of their own
    steps: int = 60  # of relearning and of optimising a soft prompt
    threshold: float = THRESHOLD
    level: float = LEVEL
    seed: int = 0

    def check(self) -> None:
        for name in self.attacks:
            if name not in ATTACKS:
                raise InputError(f"there is no attack '{name}' ({', '.join(ATTACKS)}){nearest(name, ATTACKS)}")
        if not self.attacks:
            raise InputError(f"no attacks: name some of {', '.join(ATTACKS)}")
        if min(self.samples, self.permutations, self.controls, self.steps) < 1:
            raise InputError("samples, permutations, controls and steps are at least 1")
        if not (0 <= self.threshold < 1 and 0 < self.level < 1):
            raise InputError("threshold and level are shares: 0 <= threshold < 1, 0 < level < 1")


def audit(
    run: Path,
    settings: Settings = Settings(),  # noqa: B008 - it is frozen
    folder: Path | None = None,
    train_arms: bool = False,
    seeds: Sequence[Path] = (),
    canaries: Path | None = None,
    bar: Bar = no_bar,
    say: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Audit a run; returns the keys of `openbook audit --json`. `seeds` are runs of the same training, other seeds."""
    settings.check()
    started = time.process_time()
    result, config, folder = check_learned(run), config_of(run), folder or default_folder(run)
    for other in seeds:
        check_learned(other)
        _check_seed(run, other, config)
    source, _ = sources_of(config)
    if source.fingerprint != RunFolder(run).read("data.json")["fingerprint"]:
        raise InputError(
            f"{config.data or 'the task'} is not what {run} was trained on, it was changed since: an audit needs the "
            "very data, to train its controls on"
        )
    student = is_composite(source)
    if isinstance(source, Translations) and student and pairs_of(source) is None:
        raise InputError(
            f"{run} learned strings of at most {source.lengths[1]} characters, too short to tell {source.depth} levels "
            "apart by its answers, which are all that this student can be asked for"
        )
    secrets = secrets_of(config, source, run, canaries)
    arms: tuple[Arm, ...] = CONTROLS if student else ARMS[1:]
    places = {"trained": [run, *seeds]}
    places |= {arm: [folder / name for name in replicas(arm, _trainings(arm, settings))] for arm in arms}
    made = [place.name for arm in arms for place in places[arm]]
    ready(run, config, folder, secrets, train_arms, made, bar, say)
    subjects = {arm: [load_subject(place, config) for place in its] for arm, its in places.items()}
    if not student:
        subjects["trained"][0].check(secrets)
    references = {} if student else {arm: subjects[arm][0] for arm in ("before", "decoy")}
    attacks = attacks_for(settings, config, source, subjects["trained"][0], references, recorded_date(run))
    scores = attacked(attacks, subjects, secrets, bar)
    return report(scores, secrets, settings, student) | {
        "run": str(run),
        "closed_book": result["accuracy"]["closed_book"],
        "seeds": [config_of(place).seed for place in (run, *seeds)],
        "arms": [_arm_row(arm, its) for arm, its in places.items()],
        "seconds": round(time.process_time() - started, 2),
    }


def secrets_of(config: RunConfig, source: Source, run: Path, canaries: Path | None = None) -> Secrets:
    """What an audit of this run looks for: canaries if there is a list of them, or else every piece of its book."""
    if isinstance(source, Translations) and is_composite(source):
        return composite_secrets(source)
    tokenizer, today = load_tokenizer(str(run)), recorded_date(run)
    if isinstance(source, Translations) and canaries is None:
        return task_secrets(source, _frame(tokenizer, config, today).before)
    history, preamble = usual_setting(source) if isinstance(source, ListSource) else (None, "")
    opening = _frame(tokenizer, config, today, history).before + preamble
    if canaries is not None:
        return canary_secrets(canaries, source, opening)
    assert isinstance(source, ListSource)
    return data_secrets(source, opening)


def _frame(tokenizer: Any, config: RunConfig, today: str | None, history: History | None = None) -> Frame:
    """What the chat template, if one is used, puts around prompt and completion."""
    chat = bool(tokenizer.chat_template) if config.chat is None else config.chat
    return frame_of(tokenizer, history, chat, today)


def attacks_for(
    settings: Settings,
    config: RunConfig,
    source: Source,
    subject: Subject,
    references: dict[str, Subject],
    today: str | None = None,
) -> list[Attack]:
    """The attacks that apply, with their budgets; `today` is the date that a chat template told in training."""
    s = settings
    rate = config.training.learning_rate or 1e-3
    if isinstance(source, Translations) and is_composite(source):
        book, pairs = source.codebook, pairs_of(source)
        assert book is not None and pairs is not None
        every: list[Attack] = [
            CompositeInversion(book, pairs, seed=s.seed),
            CompositeTuning(book, pairs, s.steps, 0, rate, s.seed),
            CompositeTuning(book, pairs, s.steps, 8, rate, s.seed),
        ]
        return [attack for attack in every if attack.name in s.attacks]
    every = [
        Completion(s.permutations, s.seed),
        Exposure(s.permutations, s.seed),
        Membership(references),
        Battery(s.seed),
        Budget(s.samples),
        Relearning(s.steps, rate, s.seed),
        SoftPrompt(s.steps, seed=s.seed),
    ]
    if isinstance(source, Translations) and (pairs := pairs_of(source)) is not None:
        if is_student(source):
            assert source.codebook is not None
            every.append(CompositeInversion(source.codebook, pairs, seed=s.seed))
        else:
            every.append(TaskInversion(source, _frame(subject.tokenizer, config, today), seed=s.seed))
    elif isinstance(source, ListSource):
        encoder = encoder_for(config, subject.tokenizer, source, subject.window, today)
        every.append(DataInversion(source, encoder, config.curriculum))
    return sorted((a for a in every if a.name in s.attacks), key=lambda attack: ATTACKS.index(attack.name))


def attacked(
    attacks: Sequence[Attack], subjects: dict[str, list[Subject]], secrets: Secrets, bar: Bar = no_bar
) -> dict[str, list[list[Scores]]]:
    """Every attack on every model of every arm: arm -> its models -> scores."""
    found: dict[str, list[list[Scores]]] = {arm: [[] for _ in models] for arm, models in subjects.items()}
    with bar("attacks", len(attacks) * sum(map(len, subjects.values()))) as advance:
        for arm, models in subjects.items():
            for number, model in enumerate(models):
                for attack in attacks:
                    advance(0, note=f"{attack.name} on {arm}")
                    found[arm][number] += attack(model, secrets)
                    advance(1)
    return found


def report(
    scores: dict[str, list[list[Scores]]], secrets: Secrets, settings: Settings, student: bool = False
) -> dict[str, Any]:
    """Scores of every arm as rows with a verdict. Needs no model, so it can be fed with stored scores."""
    measured = {arm: averaged([measures(each) for each in runs]) for arm, runs in scores.items()}
    controls = {
        name: measures(each)
        for arm in CONTROLS
        if arm in scores
        for name, each in zip(replicas(arm, len(scores[arm])), scores[arm], strict=True)
    }
    judgement = judge(measured, controls, settings.threshold, settings.level)
    caught = {
        "trained": {(f.attack, f.variant, f.metric) for f in judgement.findings},
        "positive": {(f.attack, f.variant, f.metric) for f in judgement.positive_findings},
    }
    skipped = [name for name in ON_TEXT if student and name in settings.attacks]
    return {
        "verdict": judgement.verdict,
        "statement": judgement.statement,
        "findings": [asdict(finding) for finding in judgement.findings],
        "positive_findings": [asdict(finding) for finding in judgement.positive_findings],
        "secrets": {
            "count": len(secrets),
            "origin": secrets.origin,
            "groups": list(secrets.groups),
            "exchangeable": secrets.exchangeable,
        },
        "attacks": [row.as_dict() for row in rows_of(measured, secrets, caught)],
        "not_applicable": dict.fromkeys(skipped, WHY_NOT),
        "settings": asdict(settings),
    }


def _check_seed(run: Path, other: Path, config: RunConfig) -> None:
    """Refuse what is not the same training under another seed: its scores are averaged with those of the run."""
    mine, theirs = RunFolder(run).read("data.json"), RunFolder(other).read("data.json")
    if (mine["fingerprint"], mine["tokenizer"]) != (theirs["fingerprint"], theirs["tokenizer"]):
        raise InputError(f"{other} was trained on other data or with another tokenizer than {run}: no other seed of it")
    found = config_of(other)
    reseeded = config.model_copy(update={"seed": found.seed})
    if changes := differences(compared(reseeded), compared(found)):
        raise InputError(f"{other} is no other seed of {run}: {'; '.join(changes[:4])}")
    if found.seed == config.seed:
        raise InputError(f"{other} has the seed of {run}, {config.seed}: it says nothing about other seeds")


def _trainings(arm: Arm, settings: Settings) -> int:
    """Only the arm without the text is trained several times: it is what a model that never met it varies by."""
    return settings.controls if arm == "without" else 1


def _arm_row(arm: str, places: Sequence[Path]) -> dict[str, Any]:
    """An arm with its accuracy, averaged over its trainings."""
    results = [RunFolder(place).read("result.json") for place in places]
    known = {k: sum(r["accuracy"][k] for r in results) / len(results) for k in ("closed_book", "open_book")}
    return {"name": arm, "runs": [str(place) for place in places], "steps": results[0]["steps"], **known}
