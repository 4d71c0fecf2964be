"""What a run's folder holds and what `exam` and `audit` print, checked once, before anything is drawn of it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import AliasPath, BaseModel, Field, TypeAdapter, ValidationError

from openbook.base.files import LOCK
from openbook.curriculum import PRESETS
from openbook.curriculum.settings import ScheduleField, curriculum_named
from openbook.training.folder import CHANGES, ERROR, MANIFEST, PARTS, RunFolder

T = TypeVar("T")
Json = dict[str, Any]


def _inside(*path: str, default: Any = ...) -> Any:
    """A field that stands deeper in the file."""
    return Field(default, validation_alias=AliasPath(*path))


class Config(BaseModel):
    """`config.json`: what a run was started with."""

    drop: ScheduleField = _inside("curriculum", "drop")
    wrong: bool = _inside("curriculum", "wrong", default=False)
    depth: int | None = _inside("task", "depth", default=None)
    chars: int | None = _inside("task", "chars", default=None)
    data: Any = None
    start: str | None = _inside("model", "path", default=None)
    loss: str = _inside("training", "loss", default="completion")
    seed: int | str = ""
    reading: dict[str, Any] | None = None

    def learned(self) -> str:
        """What the run learned, in a word."""
        return str(self.data) if self.depth is None else f"MLT({self.depth}, {self.chars})"

    def curriculum(self) -> str:
        """The preset that closes the book in this way, or the schedule where it is none."""
        for name in PRESETS:
            known = curriculum_named(name)
            if name != "fixed" and (known.drop, known.wrong) == (self.drop, self.wrong):
                return name
        rates = {rate for _, rate in self.drop.points}
        return f"fixed:{rates.pop():g}" if len(rates) == 1 and not self.wrong else f"closed at {self.drop}"


class ExamRow(BaseModel):
    """One condition of an exam."""

    book: str
    open: float
    samples: int
    accuracy: float
    low: float
    high: float
    chance: float | None  # None of a server, whose tokens are not known
    exact_match: float


class Result(BaseModel):
    """`result.json`: how a run ended."""

    closed_book: float = _inside("accuracy", "closed_book")
    open_book: float = _inside("accuracy", "open_book")
    samples: int
    steps: int
    chance: float
    exam: list[ExamRow] = []
    positions: int | None = None
    capable: bool = True
    threshold: float | None = None


class LogLine(BaseModel):
    """A line of `metrics.jsonl`."""

    step: int
    loss: float | None = None
    closed_book: float | None = None
    open_book: float | None = None


class Environment(BaseModel):
    """`environment.json`: what a run was made with."""

    versions: dict[str, str | None] = {}
    commit: str = _inside("git", "commit", default="installed package")
    changed: bool = _inside("git", "changed", default=False)


class Change(BaseModel):
    """An entry of `changes.json`: what was changed before the run went on."""

    changes: list[str]


class Exam(BaseModel):
    """What `openbook exam --json` prints."""

    rows: list[ExamRow] = Field(min_length=1)
    run: str = "a run"


class Attack(BaseModel):
    """One attack of an audit on one model."""

    name: str
    arm: str
    rate: float | None
    low: float | None
    high: float | None
    variant: str | None = None
    metric: str = "rate"
    chance: float | None = None
    elimination: float | None = None
    caught: bool = False


class Audit(BaseModel):
    """What `openbook audit --json` prints."""

    attacks: list[Attack]
    run: str = "a run"
    verdict: str = "not given"
    statement: str | None = None


@dataclass
class RunRecord:
    """What can be read of a run's folder, its state, and what is wrong with it."""

    name: str
    folder: Path
    status: str = "done"  # or unfinished, failed, damaged, foreign
    problems: list[str] = field(default_factory=list)
    config: Config | None = None
    raw_config: dict[str, Any] | None = None
    result: Result | None = None
    data: dict[str, Any] | None = None
    environment: Environment | None = None
    log: list[LogLine] = field(default_factory=list)

    def read(self, part: str, kind: type[T]) -> T | None:
        """One of its JSON files; None if it is not there, or is nothing of the kind, which is a problem."""
        try:
            return TypeAdapter(kind).validate_json((self.folder / part).read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValidationError) as error:
            self.problems.append(complaint(part, error))
            return None


def is_run(folder: Path) -> bool:
    """Whether something of a run is left in a folder. A lock alone is a sweep's, or of a run that never began."""
    return any((folder / part).is_file() for part in PARTS - {LOCK})


def read_run(name: str, folder: Path) -> RunRecord:
    """A run in whatever state it is."""
    run = RunRecord(name, folder)
    if not is_run(folder):
        run.status = "foreign"
        run.problems = ["Nothing in it is of a run, and no folder in it is one: it is not a run of openbook."]
        return run
    run.raw_config, run.data = run.read("config.json", Json), run.read("data.json", Json)
    run.result, run.environment = run.read("result.json", Result), run.read("environment.json", Environment)
    if run.raw_config is not None and "curriculum" not in run.raw_config:
        run.problems.append("Its config.json is not a run's: name the folder that `openbook learn` has left.")
    elif run.raw_config is not None:
        run.config = run.read("config.json", Config)
    _read_log(run)
    if run.raw_config is None and not run.problems and not (folder / ERROR).exists():
        run.problems.append("There is no config.json: most of this run was lost.")
    if run.read(MANIFEST, dict[str, str]) is not None:
        run.problems += [f"{line}." for line in RunFolder(folder).damage()]
    begun = not RunFolder(folder).finished
    run.status = "damaged" if run.problems else "unfinished" if begun else "done"
    if (failure := run.read(ERROR, Json)) is not None:
        run.status = "failed"
        run.problems.append(f"It failed: {failure.get('error', f'{ERROR} does not say how')}.")
    if begun and run.raw_config is not None:
        last = max((line.step for line in run.log), default=0)
        run.problems.append(f"The run did not finish; the last logged step is {last:,}. Go on with --resume.")
    if run.result is not None and not run.result.capable:
        run.problems.append(f"It cannot read: its open-book accuracy is below {run.result.threshold}.")
    if changes := run.read(CHANGES, list[Change]):
        lines = "; ".join(line for change in changes for line in change.changes)
        run.problems.append(f"It went on with other settings than it was begun with: {lines}.")
    return run


def _read_log(run: RunRecord) -> None:
    """The lines of the log that can be read, and how many cannot."""
    log = RunFolder(run.folder).log_file
    lines = log.read_bytes().splitlines() if log.exists() else []
    for line in lines:
        with suppress(ValidationError):
            run.log.append(LogLine.model_validate_json(line))
    if lost := len(lines) - len(run.log):
        run.problems.append(f"{lost} line(s) of metrics.jsonl cannot be read and were left out.")


def complaint(name: str, error: OSError | ValidationError) -> str:
    """What is wrong with a file, in a sentence."""
    if isinstance(error, OSError):
        return f"{name} cannot be read ({error.strerror})."
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return f"{name} cannot be read: it is not JSON."
    place = ".".join(map(str, first["loc"])) or "its content"
    return f"{name} is not what openbook writes: {place}: {first['msg']}."
