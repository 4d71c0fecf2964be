"""The models that experiments look at: readers (they can use a book) and what was taught to them, each made once.

A reader has a name that says what it reads: student-3-8 reads three levels of eight characters, writer-2-8 rules that
are words of a text, llama-3b-stage1-n8 is the paper's own and the name of its config. What is taught to it is a
`TaughtModel`. Both are ordinary runs, so they are resumed after an interruption and hold their own record.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openbook.base.files import file_hash
from openbook.comparison.sweep import changed_settings
from openbook.paper.experiment import Json, TaughtModel
from openbook.training.config import RunConfig, TaskConfig
from openbook.training.families import task_of
from openbook.training.folder import RunFolder
from openbook.training.resolve import STAGE_ONE, configured
from openbook.training.settings import validated
from openbook.training.shipped import shipped_readers

STRANGE_CODEBOOK = 1_000_003  # a codebook that no reader was taught
TEXT_OF = {"student": "composite", "writer": "pairs", "speller": "letters"}  # how the rules of a reader are written
DEEP = ("student-deep", "student-brief")  # configs of five levels
SECONDS_PER_SAMPLE = {"two levels": (0.0125, 0.0075), "three levels": (0.012, 0.009), "five levels": (0.024, 0.018)}


def taught_student(
    curriculum: str, samples: int, *, depth: int = 3, chars: int = 8, seed: int = 0, reads: bool = True, **settings: Any
) -> TaughtModel:
    """A student taught under a curriculum; with `reads=False` it starts untrained instead of from a reader."""
    untrained = {"task.text": "composite", "task.depth": depth, "task.chars": chars}
    given = {"curriculum": curriculum, "samples": samples, "seed": seed, "task.codebook": seed}
    reader = f"student-{depth}-{chars}" if reads else None
    return TaughtModel(reader, {**given, **({} if reads else untrained), **settings})


def teaching_seconds(model: TaughtModel) -> float:
    """Expected CPU time of teaching a student, by what was measured on one core of a laptop."""
    samples = model.settings.get("samples", 10_000) * model.settings.get("training.epochs", 1)
    without_book = model.settings.get("curriculum") == "no-context"
    levels = "two" if str(model.reader).startswith("writer") else "five" if model.base in DEEP else "three"
    return (10.0 if levels == "five" else 6.0) + SECONDS_PER_SAMPLE[f"{levels} levels"][without_book] * samples


def reading_seconds(name: str) -> float:
    """Expected CPU time of teaching a student to read: measured 70 s for three levels, 450 to 750 s for five."""
    return 600.0 if (reading_task(name) or {}).get("task.depth", 0) > 3 else 70.0


def reading_task(name: str) -> Json | None:
    """The settings of `openbook prepare` that make the reader of this name; None if the name is that of a config."""
    if (shape := re.fullmatch(rf"({'|'.join(TEXT_OF)})-(\d+)-(\d+)", name)) is None:
        return None
    text = {} if shape[1] == "student" else {"task.text": TEXT_OF[shape[1]]}
    return {"task.depth": int(shape[2]), "task.chars": int(shape[3]), **text}


def reader_flags(name: str) -> list[str]:
    """The arguments of `openbook prepare` that make a reader."""
    if (task := reading_task(name)) is None:
        return ["--config", name]
    text = ["--set", f"task.text={task['task.text']}"] if "task.text" in task else []
    return ["--depth", str(task["task.depth"]), "--chars", str(task["task.chars"]), *text]


def label(model: TaughtModel) -> str:
    """A short name for people and file systems."""
    settings = model.settings
    words = [str(settings.get("curriculum") or model.base or ""), str(settings.get("samples", ""))]
    words += [] if model.reader else ["from-nothing"]
    words += [f"held-out-{settings['task.held_out']}"] if "task.held_out" in settings else []
    words += [f"seed-{settings['seed']}"] if settings.get("seed") else []
    return re.sub(r"[^\w.-]+", "-", "-".join(word for word in words if word))


def short_hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:10]


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
        """The hash of a reader's weights; a reader that is made here is known by its name, which says how."""
        at_hand = self.reader_at_hand(name) if name else None
        return (name or "") if at_hand is None else _weights_hash(weights_of(at_hand))

    def made_by(self, name: str) -> str:
        """The command that makes a reader, as far as it is known, and its weights."""
        run, weights = RunFolder(self.reader(name)), self.identity(name)
        if not run.finished or changed_settings(run, as_made(run, self.reader_config(name))):
            return f"its weights are {weights}"
        return f"openbook prepare {' '.join(reader_flags(name))} (its weights are {weights})"

    def place(self, model: TaughtModel) -> Path:
        """The folder of a taught model."""
        return self.folder / f"{label(model)}-{short_hash([model.to_json(), self.identity(model.reader)])}"

    def meaning(self, model: TaughtModel) -> Json:
        """The full settings of a taught model: those of the config or preset that it names may change with time.

        The path of its reader and settings at their default are left out, so that a new setting changes nothing.
        """
        settings = self.config(model).model_dump(mode="json", exclude_defaults=True)
        return {**settings, "model": {key: value for key, value in settings.get("model", {}).items() if key != "path"}}

    def config(self, model: TaughtModel) -> RunConfig:
        """The config of the run that teaches a model."""
        path = {"model.path": str(self.reader(model.reader))} if model.reader else {}
        return configured(model.base, [], {**path, **model.settings})

    def reader_config(self, name: str) -> RunConfig:
        """The config of the run that makes a reader."""
        if (task := reading_task(name)) is None:
            return configured(name, [], {})
        return configured(None, [], task, STAGE_ONE["reading"])


def as_made(run: RunFolder, config: RunConfig) -> RunConfig:
    """A config with what may differ as a run has it: where its model lies, and for a reading course `training`."""
    if not run.finished:
        return config
    made_with = validated(RunConfig, run.read("config.json"))
    same: Json = {"model": config.model.model_copy(update={"path": made_with.model.path})}
    same |= {"training": made_with.training} if config.reading is not None else {}
    return config.model_copy(update=same)


def weights_of(path: Path) -> Path:
    model = path / "model" if (path / "model" / "config.json").exists() else path
    return model / "model.safetensors"


def name_of(path: Path) -> str | None:
    """The name of a student's folder, as student-3-8; None if it holds no student."""
    task = task_of(path) if weights_of(path).exists() else None
    kinds = {text: kind for kind, text in TEXT_OF.items()}
    return f"{kinds[task['text']]}-{task['depth']}-{task['chars']}" if task else None


def unmet_task(path: Path) -> TaskConfig | None:
    """A student's task with a codebook that no experiment teaches; other models name their task themselves."""
    task = task_of(path)
    return TaskConfig(**task, codebook=STRANGE_CODEBOOK) if task else None


@functools.cache
def _weights_hash(path: Path) -> str:
    return file_hash(path)[:10]
