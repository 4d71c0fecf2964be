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

import functools
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from openbook.audit.model import AttackedModel
from openbook.audit.secret import Secrets
from openbook.base.console import Bar, no_bar
from openbook.base.errors import InputError
from openbook.base.files import differences, written_aside
from openbook.base.randomness import generator
from openbook.curriculum import Schedule
from openbook.training import sources
from openbook.training.config import RunConfig
from openbook.training.exam import examine
from openbook.training.folder import RunFolder, StartMode
from openbook.training.models import load_placed, window_of
from openbook.training.run import accuracy_of, recorded_config, run_training, set_up

Arm = Literal["trained", "before", "without", "decoy", "positive"]
CONTROLS: tuple[Arm, ...] = ("before", "without", "decoy")  # models that never met the text
ARMS: tuple[Arm, ...] = ("trained", *CONTROLS, "positive")
DECOY = "decoy.jsonl"

# Settings in which an arm must be as expected; fingerprints tell whether the data and the start are.
_COMPARED: dict[str, Any] = {
    **dict.fromkeys(("task", "samples", "curriculum", "think", "chat", "seed", "training"), True),
    "model": {"hidden_size", "layers", "heads", "lora", "dtype"},
}
# Settings of training that change how fast a run is, or what it reports, but not what is learned.
_ASIDE = {"workers", "micro_batch_size", "log_every", "checkpoint_every", "keep_checkpoints", "report_to"}


def default_folder(run: Path) -> Path:
    """Where the arms of a run are kept: beside it."""
    return run.with_name(f"{run.name}-arms")


def config_of(run: Path) -> RunConfig:
    return recorded_config(run)


def passed_exam(run: Path) -> dict[str, Any]:
    """The result of a finished run that passed its exam; a model that learned nothing has nothing to give away."""
    if not run.is_dir():
        raise InputError(f"{run}: there is no such folder; name the folder of a run that `openbook learn` has left")
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


def check_other_seed(run: Path, other: Path) -> None:
    """Refuse what is not the same training under another seed: its scores are averaged with those of the run."""
    passed_exam(other)
    config, seed = config_of(run), config_of(other).seed
    if mismatches := _mismatches(run, other, config.model_copy(update={"seed": seed})):
        raise InputError(f"{other} is no other seed of {run}: {'; '.join(mismatches[:4])}")
    if seed == config.seed:
        raise InputError(
            f"{other} has the seed of {run}, {seed}: it says nothing about other seeds. Train it with --seed {seed + 1}"
        )


def _mismatches(run: Path, place: Path, config: RunConfig, decoy: str | None = None) -> list[str]:
    """In what a run differs from `run`, if it should have this config and the same data (or this decoy text)."""
    expected, recorded = RunFolder(run).read("data.json"), RunFolder(place).read("data.json")
    fingerprint = expected["fingerprint"] if decoy is None else hashlib.sha256(decoy.encode()).hexdigest()
    lines = []
    if recorded["tokenizer"] != expected["tokenizer"]:
        lines.append(f"it has another tokenizer than {run}, so their likelihoods cannot be compared")
    if recorded["fingerprint"] != fingerprint:
        lines.append(
            f"it was trained on {'other data' if decoy is None else 'a text that is no decoy for these secrets'}"
        )
    before, now = (
        each.model_dump(mode="json", include=_COMPARED, exclude={"training": _ASIDE})
        for each in (config, config_of(place))
    )
    return lines + differences(before, now)


def replicas(arm: str, count: int) -> list[str]:
    """Names of several trainings of one arm, which differ in their seeds: without, without-2, ..."""
    return [arm, *(f"{arm}-{number}" for number in range(2, count + 1))]


@dataclass(frozen=True)
class Arms:
    """The arms of a run, in a folder of their own. Which secrets the decoy text must not hold depends on the audit."""

    run: Path
    config: RunConfig
    folder: Path
    secrets: Secrets

    def config_of(self, name: str) -> RunConfig:
        """The audited run's config, changed in one thing; replicas have other seeds as well."""
        arm, _, number = name.partition("-")
        curriculum, changes = self.config.curriculum, dict[str, Any]()
        if number:
            changes["seed"] = self.config.seed + int(number) - 1
        if arm == "without":
            closed = {"drop": Schedule.parse(1), "spread": "all", "wrong": False}
            changes["curriculum"] = curriculum.model_copy(update=closed)
        elif arm == "decoy" and self.config.task is not None:
            changes["curriculum"] = curriculum.model_copy(update={"wrong": True})
        elif arm == "decoy":
            changes["data"] = self.folder / DECOY
        elif arm == "positive":
            changes["training"] = self.config.training.model_copy(update={"loss": "everything"})
            if curriculum.spread == "all" and all(rate == 1 for _, rate in curriculum.drop.points):  # never shown
                changes["curriculum"] = curriculum.model_copy(update={"drop": Schedule.parse(0)})
        return self.config.model_copy(update=changes)

    @functools.cached_property
    def decoy_text(self) -> str:
        """The lines of the data with another candidate in place of every secret, and the same questions and answers."""
        swapped = {}
        for number, secret in enumerate(self.secrets.items):
            others = [candidate for candidate in secret.candidates if candidate != secret.truth]
            chosen = others[int(generator(self.config.seed, "audit decoy", number).integers(len(others)))]
            swapped[secret.text] = secret.known + chosen + secret.tail
        assert self.config.data is not None
        source, lines = sources.records_of(self.config, self.config.data), []
        for index in range(len(source)):
            record, piece = dict(source.record(index)), source.example(index).layout.piece
            book = _swapped(record.get("privileged_context"), swapped, piece)
            lines.append(json.dumps({**record, "privileged_context": book}, ensure_ascii=False) + "\n")
        return "".join(lines)

    def prepare(
        self, names: Sequence[str], train: bool, bar: Bar = no_bar, notify: Callable[[str], None] = lambda line: None
    ) -> None:
        """Have every arm in its place: train the missing ones if asked to, and check all."""
        missing = [name for name in names if not RunFolder(self.folder / name).finished]
        if missing and not train:
            seconds = RunFolder(self.run).read("result.json").get("seconds", 0)
            trainings = len([name for name in missing if name != "before"])
            raise InputError(
                f"{', '.join(missing)}: no such arms in {self.folder}. An audit without controls says nothing: pass "
                f"--arms to train them (about {trainings} times {seconds:.0f} s)"
            )
        for name in names:
            if name not in missing:  # before anything is trained that would then be refused beside it
                self.check(name)
        for name in missing:
            notify(f"making the arm '{name}'")
            self.train(name, bar)
            self.check(name)

    def train(self, name: str, bar: Bar = no_bar) -> None:
        """Make one arm and leave it as a run in the folder."""
        config, place, today = self.config_of(name), self.folder / name, sources.recorded_date(self.run)
        if name == "before":
            _leave_untrained(config, place, today)
            return
        if name == "decoy" and config.data is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            with written_aside(self.folder / DECOY) as aside:
                aside.write_text(self.decoy_text, encoding="utf-8")
            if config.model.path is None:
                # A tokenizer learned from the decoy text would be another one: start from the model before training.
                before = config.model.model_copy(update={"path": str(self.folder / "before")})
                config = config.model_copy(update={"model": before})
        start = StartMode(force=place.exists())
        config = config.model_copy(
            update={"exam": config.exam.model_copy(update={"retention": False})}
        )  # not asked for
        run_training(config, place, start, bar=lambda _, n: bar(f"arm {name}", n), today=today)

    def check(self, name: str) -> None:
        """Refuse an arm that differs from the audited run in more than it should: settings, data or tokenizer.

        The decoy must be without these very secrets: one that was made for canaries still has every other piece.
        """
        place = self.folder / name
        if damage := RunFolder(place).damage():
            raise InputError(f"the arm '{name}' in {place} cannot be used: {'; '.join(damage[:3])}")
        decoy = self.decoy_text if name == "decoy" and self.config.data is not None else None
        mismatches = _mismatches(self.run, place, self.config_of(name), decoy)
        chats = [RunFolder(folder).read("data.json").get("chat", {}) for folder in (self.run, place)]
        if chats[1] and (changes := differences(*chats)):
            mismatches.append(f"it saw another chat template, or another date in it: {'; '.join(changes[:3])}")
        if mismatches:
            raise InputError(
                f"the arm '{name}' in {place} is no control for {self.run}: {'; '.join(mismatches[:4])}. Remove that "
                "folder and train the arm anew with --arms, or name another folder with --folder"
            )


def load_arm(place: Path, config: RunConfig) -> AttackedModel:
    """The model of an arm, ready to be attacked."""
    model, tokenizer = load_placed(str(place), config.model.dtype)
    return AttackedModel(model, tokenizer, config.training.max_length or window_of(model), config.think)


def _swapped(book: Any, swapped: dict[str, str], layout: str) -> Any:
    """A record's book with the pieces that are secrets replaced."""
    if isinstance(book, str):
        before, _, after = layout.partition("{text}")
        decoy = swapped.get(layout.replace("{text}", book))
        return book if decoy is None else decoy.removeprefix(before).removesuffix(after)
    if isinstance(book, list):
        return [_swapped(piece, swapped, layout) for piece in book]
    if isinstance(book, dict):
        return {key: _swapped(value, swapped, layout) for key, value in book.items()}
    return book


def _leave_untrained(config: RunConfig, folder: Path, today: str | None) -> None:
    """The model before training, as a run of no steps."""
    setup = set_up(config, folder, today)
    data = sources.data_record(setup.source, setup.tokenizer, encoder=setup.encoder)
    run = RunFolder.create(folder, config.model_dump(mode="json"), data, force=folder.exists())
    encoder, asked = setup.encoder.of_bank(setup.exam_source.bank), sources.exam_size(config)
    known = (config.curriculum, (0.0, 1.0), False, asked, config.seed, config.exam.batch_size)
    rows = examine(setup.model, encoder, setup.exam_source, *known)
    run.save_model(setup.model, setup.tokenizer)
    exam = {"exam": [row.as_dict() for row in rows], "chance": rows[0].chance}
    run.finish({"steps": 0, "samples": 0, "accuracy": accuracy_of(rows), **exam, "seconds": 0.0})


def arm_summary(arm: str, places: Sequence[Path]) -> dict[str, Any]:
    """An arm as the report has it, with its accuracy averaged over its trainings."""
    results = [RunFolder(place).read("result.json") for place in places]
    known = {k: sum(r["accuracy"][k] for r in results) / len(results) for k in ("closed_book", "open_book")}
    return {"name": arm, "runs": [str(place) for place in places], "steps": results[0]["steps"], **known}
