"""The models that experiments look at: readers (they can use a book) and what was taught to them, each made once.

A model is named by what made it, a plain JSON object that says how `openbook learn` would be called:

    {"reader": "student-3-8", "settings": {"curriculum": "anneal", "samples": 4000, "seed": 0}}
    {"reader": "writer-2-8", "settings": {...}}                                      a student whose rules are text
    {"reader": null, "settings": {"task.text": "composite", ...}}                    a student that cannot read
    {"reader": "llama-3b-stage1-n8", "base": "llama-3b-stage2-n8", "settings": {}}   the paper's own

Runs are ordinary runs, so they resume after an interruption and hold their own record.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openbook.base.errors import InputError
from openbook.base.files import differences, file_hash
from openbook.training.folder import RunFolder
from openbook.training.shipped import shipped_readers

if TYPE_CHECKING:
    from openbook.training.config import RunConfig, TaskConfig

Report = Callable[[float, str], None]  # share done, what is being done
STRANGE_CODEBOOK = 1_000_003  # a codebook that no reader was taught
_TEXTS = {"student": "composite", "writer": "pairs", "speller": "letters"}  # how a reader's rules are written down
_STUDENT = re.compile(rf"({'|'.join(_TEXTS)})-(\d+)-(\d+)")


def taught(
    curriculum: str, samples: int, *, depth: int = 3, chars: int = 8, seed: int = 0, reads: bool = True, **settings: Any
) -> dict[str, Any]:
    """A student under a curriculum; with `reads=False` it starts from nothing instead of from a reader."""
    from_nothing = {"task.text": "composite", "task.depth": depth, "task.chars": chars}
    return {
        "reader": f"student-{depth}-{chars}" if reads else None,
        "settings": {
            "curriculum": curriculum,
            "samples": samples,
            "seed": seed,
            "task.codebook": seed,
            **({} if reads else from_nothing),
            **settings,
        },
    }


def seconds_of(spec: dict[str, Any]) -> float:
    """CPU time of teaching a student of three levels: measured 12 ms an example, and some seconds to begin."""
    samples = spec["settings"].get("samples", 10_000) * spec["settings"].get("training.epochs", 1)
    without = spec["settings"].get("curriculum") == "no-context"
    if str(spec["reader"]).startswith("writer"):  # two levels, but a rule takes two words
        return 6.0 + (0.0075 if without else 0.0125) * samples
    if spec.get("base") in ("student-deep", "student-brief"):  # five levels
        return 10.0 + (0.018 if without else 0.024) * samples
    return 6.0 + (0.009 if without else 0.012) * samples


def reader_seconds(name: str) -> float:
    """CPU time of teaching a student to read: measured 70 s for three levels, 450 to 750 s for five."""
    shape = _STUDENT.fullmatch(name)
    return 600.0 if shape and int(shape[2]) > 3 else 70.0


def label(spec: dict[str, Any]) -> str:
    """A short name that people and file systems can read."""
    settings = spec["settings"]
    words = [str(settings.get("curriculum") or spec.get("base", "")), str(settings.get("samples", ""))]
    words += [] if spec["reader"] else ["from-nothing"]
    words += [f"held-out-{settings['task.held_out']}"] if "task.held_out" in settings else []
    words += [f"seed-{settings['seed']}"] if settings.get("seed") else []
    return re.sub(r"[^\w.-]+", "-", "-".join(word for word in words if word))


def short_hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:10]


def reader_flags(name: str) -> list[str]:
    """What `openbook prepare` is told to make a reader."""
    if (shape := _STUDENT.fullmatch(name)) is None:
        return ["--config", name]
    settings = _reader_settings(shape)
    said = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    return ["--depth", shape[2], "--chars", shape[3], *said]


def _reader_settings(shape: re.Match[str]) -> dict[str, Any]:
    """What a reader is told beside depth and characters."""
    text = _TEXTS[shape[1]]
    return {} if text == "composite" else {"task.text": text}


@dataclass(frozen=True)
class Models:
    """Where models are kept. `given` is a reader to use instead of the shipped one."""

    folder: Path
    given: Path | None = None

    def reader_at_hand(self, name: str) -> Path | None:
        """A reader that need not be made: the one given, or the one that comes with the package."""
        at_hand = [*([self.given] if self.given is not None else []), *shipped_readers().values()]
        return next((path for path in at_hand if name_of(path) == name), None)

    def reader(self, name: str) -> Path:
        return self.reader_at_hand(name) or self.folder / name

    def identity(self, name: str | None) -> str:
        """Which reader it is, by its weights; one that is made here is known by its name, which says how."""
        at_hand = self.reader_at_hand(name) if name else None
        return "" if name is None else (name if at_hand is None else _weights_hash(weights_of(at_hand)))

    def made_by(self, name: str) -> str:
        """The command of a reader, as far as it is known, and its weights."""
        path, weights = self.reader(name), self.identity(name)
        run = RunFolder(path)
        if not run.finished or _changes(run, self.reader_config(name)):
            return f"its weights are {weights}"
        return f"openbook prepare {' '.join(reader_flags(name))} (its weights are {weights})"

    def place(self, spec: dict[str, Any]) -> Path:
        """The folder of a taught model."""
        return self.folder / f"{label(spec)}-{short_hash([spec, self.identity(spec['reader'])])}"

    def meaning(self, spec: dict[str, Any]) -> dict[str, Any]:
        """What the settings of a taught model come to: those of a config or a preset that it names change with time.

        Without where its reader lies, and without what has its default, so that a new setting changes nothing.
        """
        told = self.config(spec).model_dump(mode="json", exclude_defaults=True)
        return {**told, "model": {key: value for key, value in told.get("model", {}).items() if key != "path"}}

    def taught(self, spec: dict[str, Any]) -> bool:
        """Whether a taught model is there. One that was told something else under the same name is refused."""
        return _made(self.place(spec), self.config(spec))

    def taught_at(self, spec: dict[str, Any]) -> dict[str, Any] | None:
        """The commit that taught a model, as its run wrote it down: its rows may be measured by a later one."""
        found: dict[str, Any] | None = RunFolder(self.place(spec)).read("environment.json")["git"]
        return found

    def reads(self, name: str) -> bool:
        """Whether a reader was made here; one that cannot read is none, although its course has ended."""
        folder = self.folder / name
        return _made(folder, self.reader_config(name)) and bool(
            RunFolder(folder).read("result.json").get("capable", True)
        )

    def config(self, spec: dict[str, Any]) -> RunConfig:
        """What `openbook learn` is told."""
        from openbook.training.config import RunConfig
        from openbook.training.settings import configured

        path = {"model.path": str(self.reader(spec["reader"]))} if spec["reader"] else {}
        return configured(RunConfig, spec.get("base"), [], {**path, **spec["settings"]})

    def reader_config(self, name: str) -> RunConfig:
        """What `openbook prepare` is told."""
        from openbook.training.config import STAGE_ONE, RunConfig
        from openbook.training.settings import configured

        if (shape := _STUDENT.fullmatch(name)) is None:
            return configured(RunConfig, name, [], {})
        told = {"task.depth": int(shape[2]), "task.chars": int(shape[3]), **_reader_settings(shape)}
        return configured(RunConfig, None, [], told, STAGE_ONE["reading"])

    def make_reader(self, name: str, report: Report) -> None:
        """Teach a student to read, or carry out the paper's first stage."""
        if _STUDENT.fullmatch(name):
            from openbook.student.prepare import carry_out_reading as carry_out
        else:
            from openbook.training.run import carry_out
        config = self.reader_config(name)
        result = carry_out(config, self.folder / name, resume=_begun(self.folder / name), bar=bar_of(report))
        if not result.get("capable", True):
            open_book = result["accuracy"]["open_book"]
            raise InputError(
                f"{self.folder / name} cannot read: {open_book:.3f} of an open book; make one with another seed "
                f"(`openbook prepare {' '.join(reader_flags(name))} --seed 1 --out FOLDER`) and name it with --reader"
            )

    def teach(self, spec: dict[str, Any], report: Report) -> None:
        """Carry out the run of a taught model, or go on with it."""
        from openbook.training.run import carry_out

        place = self.place(spec)
        carry_out(self.config(spec), place, resume=_begun(place), bar=bar_of(report))


def _begun(folder: Path) -> bool:
    return all((folder / name).exists() for name in ("config.json", "environment.json", "data.json"))


def _made(folder: Path, asked: RunConfig) -> bool:
    """Whether a run is finished. One that was told something else is refused: it would be taken for what is asked."""
    if not finished(folder):
        return False
    if changes := _changes(RunFolder(folder), asked):
        raise InputError(
            f"{folder} was made with other settings than it would be now: {'; '.join(changes[:4])}. Name another "
            "folder with --out, or remove it"
        )
    return True


def _changes(run: RunFolder, asked: RunConfig) -> list[str]:
    """Where the settings of a run are not those that are asked for, but for where its model lies.

    A reading course has settings of its own and does not look at those of `training`.
    """
    from openbook.training.config import RunConfig
    from openbook.training.settings import validated

    found = validated(RunConfig, run.read("config.json"))
    moved = asked.model_copy(update={"model": asked.model.model_copy(update={"path": found.model.path})})
    left_out = {"training"} if asked.reading is not None else set()
    before, now = (config.model_dump(mode="json", exclude=left_out) for config in (found, moved))
    return differences(before, now)


def finished(folder: Path) -> bool:
    return RunFolder(folder).finished


def bar_of(report: Report) -> Any:
    """A run's progress bar that tells `report` the share done."""

    @contextmanager
    def bar(description: str, total: int) -> Iterator[Callable[..., None]]:
        done = 0.0

        def advance(amount: float = 1, note: str | None = None) -> None:
            nonlocal done
            done += amount
            report(min(1.0, done / max(1, total)), description)

        yield advance

    return bar


def model_folder(path: Path) -> Path:
    return path / "model" if (path / "model" / "config.json").exists() else path


def weights_of(path: Path) -> Path:
    return model_folder(path) / "model.safetensors"


def name_of(path: Path) -> str | None:
    """What a student's folder is called here, by its text: student-3-8, writer-2-8, speller-2-8; None for others."""
    from openbook.training.config import student_at

    made_for = student_at(path) if weights_of(path).exists() else None
    kinds = {text: kind for kind, text in _TEXTS.items()}
    return f"{kinds[made_for['text']]}-{made_for['depth']}-{made_for['chars']}" if made_for else None


def unmet_task(path: Path) -> TaskConfig | None:
    """A student's task with a codebook that no experiment teaches; other models say themselves what they are for."""
    from openbook.training.config import TaskConfig, student_at

    made_for = student_at(path)
    return TaskConfig(**made_for, codebook=STRANGE_CODEBOOK) if made_for else None


@functools.cache
def _weights_hash(path: Path) -> str:
    return file_hash(path)[:10]
