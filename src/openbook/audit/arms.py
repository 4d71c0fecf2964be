"""The arms of an audit: five models that differ in one thing each, every one an ordinary run.

    trained    the run that is audited
    before     the model it started from
    without    the same training, the book closed throughout
    decoy      the same training, with a decoy text in place of the book
    positive   the same training, with loss on the book too: an audit that does not catch it is void

What `trained` says about the text and the controls do not is what the text left behind; `positive` shows that a leak
would be seen.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from openbook.audit.secret import Secrets
from openbook.audit.subject import Subject
from openbook.base.console import Bar, no_bar
from openbook.base.errors import InputError
from openbook.base.files import differences, written_aside
from openbook.base.randomness import generator
from openbook.curriculum.schedule import Schedule
from openbook.training.config import RunConfig
from openbook.training.exam import examine
from openbook.training.folder import RunFolder
from openbook.training.models import load_or_make, load_placed, window_of
from openbook.training.run import accuracy_of, carry_out
from openbook.training.settings import validated
from openbook.training.sources import data_record, encoder_for, exam_size, recorded_date, records_of, sources_of

Arm = Literal["trained", "before", "without", "decoy", "positive"]
CONTROLS: tuple[Arm, ...] = ("before", "without", "decoy")  # models that never met the text
ARMS: tuple[Arm, ...] = ("trained", *CONTROLS, "positive")
DECOY = "decoy.jsonl"

# Settings that change how fast a run is, or what is said about it, but not what is learned.
_ASIDE = {"workers", "micro_batch_size", "log_every", "checkpoint_every", "keep_checkpoints", "report_to"}


def default_folder(run: Path) -> Path:
    """Where the arms of a run are kept: beside it."""
    return run.with_name(f"{run.name}-arms")


def config_of(run: Path) -> RunConfig:
    return validated(RunConfig, RunFolder(run).read("config.json"))


def check_learned(run: Path) -> dict[str, Any]:
    """The result of a finished run that passed its exam; a model that learned nothing has nothing to give away."""
    if not run.is_dir():
        raise InputError(f"{run}: there is no such folder; an audit is of a run that `openbook learn` has left")
    if damage := RunFolder(run).damage():
        raise InputError(f"{run} cannot be audited: {'; '.join(damage[:3])}")
    result = RunFolder(run).read("result.json")
    closed = next(row for row in result["exam"] if row["open"] == 0)
    if closed["low"] <= closed["chance"]:
        raise InputError(
            f"{run} failed its exam: {closed['accuracy']:.3f} with the book closed ({closed['low']:.3f} to "
            f"{closed['high']:.3f}), where chance is {closed['chance']:.3f}. Nothing was learned, so there is "
            "nothing to audit: train it until it passes (openbook exam)"
        )
    return result


def replicas(arm: str, count: int) -> list[str]:
    """Names of several trainings of one arm, which differ in their seeds: without, without-2, ..."""
    return [arm, *(f"{arm}-{number}" for number in range(2, count + 1))]


def arm_config(config: RunConfig, name: str, folder: Path) -> RunConfig:
    """The audited run's config, changed in one thing; replicas have other seeds as well."""
    arm, _, number = name.partition("-")
    if number:
        config = config.model_copy(update={"seed": config.seed + int(number) - 1})
    curriculum, training = config.curriculum, config.training
    if arm == "without":
        closed = {"drop": Schedule.parse(1), "spread": "all", "wrong": False}
        return config.model_copy(update={"curriculum": curriculum.model_copy(update=closed)})
    if arm == "decoy" and config.task is not None:
        return config.model_copy(update={"curriculum": curriculum.model_copy(update={"wrong": True})})
    if arm == "decoy":
        return config.model_copy(update={"data": folder / DECOY})
    if arm == "positive":
        if curriculum.spread == "all" and all(rate == 1 for _, rate in curriculum.drop.points):  # never shown: show it
            curriculum = curriculum.model_copy(update={"drop": Schedule.parse(0)})
        loud = training.model_copy(update={"loss": "everything"})
        return config.model_copy(update={"training": loud, "curriculum": curriculum})
    return config


def decoy_text(config: RunConfig, secrets: Secrets) -> str:
    """The lines of the data with another candidate in place of every secret; questions and answers stay as they are."""
    swapped = {}
    for number, secret in enumerate(secrets.items):
        others = [candidate for candidate in secret.candidates if candidate != secret.truth]
        chosen = others[int(generator(config.seed, "audit decoy", number).integers(len(others)))]
        swapped[secret.text] = secret.known + chosen + secret.tail
    assert config.data is not None
    source, lines = records_of(config, config.data), []
    for index in range(len(source)):
        record, piece = source._record(index), source.example(index).layout.piece
        book = _swapped(record.get("privileged_context"), swapped, piece)
        lines.append(json.dumps({**record, "privileged_context": book}, ensure_ascii=False) + "\n")
    return "".join(lines)


def _swapped(book: Any, swapped: dict[str, str], layout: str) -> Any:
    """A record's book with the pieces that are secrets replaced."""
    if isinstance(book, str):
        before, _, after = layout.partition("{text}")
        found = swapped.get(layout.replace("{text}", book))
        return book if found is None else found.removeprefix(before).removesuffix(after)
    if isinstance(book, list):
        return [_swapped(piece, swapped, layout) for piece in book]
    if isinstance(book, dict) and "text" in book and set(book) <= {"text", "needed"}:
        return {**book, "text": _swapped(book["text"], swapped, layout)}
    if isinstance(book, dict):
        return {section: _swapped(pieces, swapped, layout) for section, pieces in book.items()}
    return book


def missing(folder: Path, arms: Sequence[str] = ARMS[1:]) -> list[str]:
    return [arm for arm in arms if not RunFolder(folder / arm).finished]


def train_arm(run: Path, config: RunConfig, arm: str, folder: Path, secrets: Secrets, bar: Bar = no_bar) -> None:
    """Make one arm and leave it as a run in `folder/arm`."""
    if arm == "decoy" and config.data is not None:
        folder.mkdir(parents=True, exist_ok=True)
        with written_aside(folder / DECOY) as aside:
            aside.write_text(decoy_text(config, secrets), encoding="utf-8")
    changed = arm_config(config, arm, folder)
    into = folder / arm
    force = into.exists()
    if arm == "before":
        _untrained(changed, into, force, recorded_date(run))
        return
    if arm == "decoy" and config.data is not None and config.model.path is None:
        # A tokenizer learned from the decoy text would be another one: start from the very model before training.
        changed = changed.model_copy(update={"model": config.model.model_copy(update={"path": str(folder / "before")})})
    carry_out(changed, into, force=force, bar=lambda _, total: bar(f"arm {arm}", total), today=recorded_date(run))


def _untrained(config: RunConfig, folder: Path, force: bool, today: str | None) -> None:
    """The model before training, as a run of no steps."""
    source, exam_source = sources_of(config)
    model, tokenizer = load_or_make(config.model, source, config.seed, config.think)
    encoder = encoder_for(config, tokenizer, exam_source, config.training.max_length or window_of(model), today)
    data = data_record(source, tokenizer, encoder=encoder)
    run = RunFolder.create(folder, config.model_dump(mode="json"), data, force)
    size, batch_size = exam_size(config), config.exam.batch_size
    rows = examine(model, encoder, exam_source, config.curriculum, (0.0, 1.0), False, size, config.seed, batch_size)
    run.save_model(model, tokenizer)
    run.finish(
        {
            "steps": 0,
            "samples": 0,
            "accuracy": vars(accuracy_of(rows)),
            "exam": [row.as_dict() for row in rows],
            "chance": rows[0].chance,
            "seconds": 0.0,
        }
    )


def check_arm(run: Path, config: RunConfig, arm: str, folder: Path, secrets: Secrets) -> None:
    """Refuse an arm that differs from the audited run in more than it should: settings, data or tokenizer.

    The decoy must be without these very secrets: one that was made for canaries still has every other piece.
    """
    place = folder / arm
    if damage := RunFolder(place).damage():
        raise InputError(f"the arm '{arm}' in {place} cannot be used: {'; '.join(damage[:3])}")
    mine, theirs = RunFolder(run).read("data.json"), RunFolder(place).read("data.json")
    if mine["tokenizer"] != theirs["tokenizer"]:
        raise InputError(
            f"the arm '{arm}' in {place} has another tokenizer than {run}: their likelihoods cannot be compared. Train "
            "it anew with --arms after removing the folder"
        )
    if "chat" in theirs and mine.get("chat") != theirs["chat"]:
        raise InputError(
            f"the arm '{arm}' in {place} saw another chat template than {run}, or another date in it: "
            f"{'; '.join(differences(mine.get('chat', {}), theirs['chat'])[:3])}. Train it anew with --arms after "
            "removing the folder"
        )
    expected = mine["fingerprint"]
    decoy = arm == "decoy" and config.data is not None
    if decoy:
        expected = hashlib.sha256(decoy_text(config, secrets).encode()).hexdigest()
    if theirs["fingerprint"] != expected:
        what = "on a text that is no decoy for these secrets" if decoy else f"on other data than {run}"
        raise InputError(
            f"the arm '{arm}' in {place} was trained {what}, so it is no control for it: name another folder with "
            "--folder, or remove it and pass --arms"
        )
    found = validated(RunConfig, RunFolder(place).read("config.json"))
    changes = differences(compared(arm_config(config, arm, folder)), compared(found))
    if changes:
        raise InputError(f"the arm '{arm}' in {place} is no control for {run}: {'; '.join(changes[:4])}")


def compared(config: RunConfig) -> dict[str, Any]:
    """The settings in which an arm must be as expected. What the data and the start were, fingerprints tell."""
    settings = config.model_dump(mode="json")
    kept = {key: settings[key] for key in ("task", "samples", "curriculum", "think", "chat", "seed")}
    kept["training"] = {key: value for key, value in settings["training"].items() if key not in _ASIDE}
    kept["model"] = {k: settings["model"][k] for k in ("hidden_size", "layers", "heads", "lora", "dtype")}
    return kept


def load_subject(folder: Path, config: RunConfig) -> Subject:
    """The model of an arm, ready to be attacked."""
    model, tokenizer = load_placed(str(folder), config.model.dtype)
    return Subject(model, tokenizer, config.training.max_length or window_of(model), config.think)


Say = Callable[[str], None]


def ready(
    run: Path,
    config: RunConfig,
    folder: Path,
    secrets: Secrets,
    train: bool,
    arms: Sequence[str] = ARMS[1:],
    bar: Bar = no_bar,
    say: Say = lambda line: None,
) -> None:
    """Have every arm in its place: train the missing ones if asked to, and check all."""
    lacking = missing(folder, arms)
    if lacking and not train:
        took = RunFolder(run).read("result.json").get("seconds", 0)
        trained = len([arm for arm in lacking if arm != "before"])
        raise InputError(
            f"{', '.join(lacking)}: no such arms in {folder}. An audit without controls says nothing: pass --arms to "
            f"train them (about {trained} times {took:.0f} s)"
        )
    for arm in arms:
        if arm not in lacking:  # before anything is trained that would then be refused beside it
            check_arm(run, config, arm, folder, secrets)
    for arm in lacking:
        say(f"making the arm '{arm}'")
        train_arm(run, config, arm, folder, secrets, bar)
        check_arm(run, config, arm, folder, secrets)
