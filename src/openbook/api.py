"""The public functions of openbook, which the command line calls too.

    import openbook as ob

    data = ob.load("handbook.jsonl")
    run = ob.learn(data, model="smollm2-135m", curriculum="anneal", epochs=20)
    run.exam().closed.accuracy

Everything heavy is imported when it is first needed.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from openbook.base.console import Bar, no_bar
from openbook.base.errors import InputError, nearest

if TYPE_CHECKING:
    from openbook.book.source import Source
    from openbook.curriculum import Curriculum
    from openbook.paper.experiment import Scale
    from openbook.paper.reproduce import Outcome
    from openbook.task.source import Translations
    from openbook.training.config import RunConfig
    from openbook.training.encode import Encoder
    from openbook.training.endpoint import EndpointRow
    from openbook.training.exam import Row, SectionRow
    from openbook.training.export import Form
    from openbook.training.reopen import Reopened

Method = Literal["reading", "chain-of-thought"]
R = TypeVar("R", "Row", "EndpointRow")
API_KEY = "OPENBOOK_API_KEY"  # the environment variable with the key of a server that is examined


def load(data: Any, *, split: str = "train", skip_bad: bool = False) -> Source:
    """The examples of a JSONL file, a Hugging Face dataset (an object, its folder or its hub name), or records."""
    from openbook.book.load import load

    return load(data, split=split, skip_bad=skip_bad)


def records(data: Any) -> Iterator[Mapping[str, Any]]:
    """The records of some data, one after another, with TRL's names."""
    source = load(data)
    return (source.record(index) for index in range(len(source)))


def mlt(depth: int = 3, chars: int = 8, samples: int = 1000, *, seed: int = 0, **options: Any) -> Translations:
    """Translations of MLT(depth, chars) by the codebook of a seed; `fresh=True` gives each example its own codebook.

    Other options are those of `openbook.task.source.Translations`, such as lengths=(20, 40) or text="compact".
    """
    from openbook.task.phrasebook import Codebook
    from openbook.task.source import Translations

    codebook = None if options.pop("fresh", False) else Codebook.sample(depth, chars, seed)
    return Translations(depth, chars, samples, codebook, seed=seed, **options)


# ---- configs


def config_for(
    *,
    file: Path | str | None = None,
    settings: Iterable[str] = (),
    base: Mapping[str, Any] | None = None,
    **keys: Any,
) -> RunConfig:
    """The config of a run: `base`, a YAML file or shipped config over it, `key=value` settings, and keys over those.

    A key is the name of a setting, with or without its group: epochs, training.epochs, or training={"epochs": 3}.
    """
    from openbook.training.resolve import configured

    return configured(file, settings, {setting_named(name): value for name, value in keys.items()}, base)


def setting_named(name: str) -> str:
    """The full name of a setting; one of `training` goes before one of the same name in another group."""
    from openbook.training.config import RunConfig
    from openbook.training.settings import places

    known = [place for place in places(RunConfig) if not place.startswith("reading.")]
    if name in known or name.startswith("reading."):
        return name
    if same := sorted((p for p in known if p.rpartition(".")[2] == name), key=lambda p: not p.startswith("training.")):
        return same[0]
    short = {place.rpartition(".")[2] for place in known}
    raise InputError(f"'{name}' is not a setting{nearest(name, short)} (`openbook learn --settings` lists them all)")


# ---- runs


def learn(
    data: Any = None,
    *,
    out: Path | str = "runs/learn",
    config: RunConfig | Path | str | None = None,
    force: bool = False,
    resume: bool = False,
    allow_changes: bool = False,
    bar: Bar = no_bar,
    report: Any = lambda line: None,
    **keys: Any,
) -> Run:
    """Train with the book open, closing it as training goes on, and leave a run in the folder `out`.

    `data` is whatever `load` takes; without it, the run is about the task. `config` is a YAML file, the name of a
    shipped config, or a config; keys are settings of it, such as epochs=20, curriculum="anneal" or task={"depth": 3}.
    """
    from openbook.training.folder import StartMode
    from openbook.training.run import execute

    start = StartMode(force, resume, allow_changes)
    if config is None or isinstance(config, str | Path):
        keys["data"] = _data_file(data, Path(out))
        base = Run(out).config_record if resume else None
        config = config_for(file=config, base=base, **keys)
    elif keys or data is not None:
        raise InputError("a whole config was given: put data and settings into it")
    execute(config, Path(out), start, bar=bar, report=report)
    return Run(out)


def prepare(*, method: Method = "reading", out: Path | str = "runs/prepare", **keys: Any) -> Run:
    """Teach a model to read a book: translation with a fresh codebook in every example.

    `reading` makes a student from nothing; `chain-of-thought` takes any model through the paper's first stage.
    """
    from openbook.training.resolve import STAGE_ONE

    options = {name: keys.pop(name) for name in ("force", "resume", "allow_changes", "bar", "report") if name in keys}
    base = Run(out).config_record if options.get("resume") else STAGE_ONE[method]
    return learn(out=out, config=config_for(base=base, file=keys.pop("config", None), **keys), **options)


def _data_file(data: Any, out: Path) -> Path | None:
    """Data as a file. Records that are in memory are written beside the run, so that it can be examined later."""
    if data is None or isinstance(data, str | Path):
        return None if data is None else Path(data)
    source = load(data)
    if (path := getattr(data, "path", None)) is not None:  # it was loaded from a file
        return Path(path)
    if source.task is not None:
        raise InputError("a run on the task is described by settings: leave data out and give task={...}")
    from openbook.base.files import write_file

    path = out.with_name(f"{out.name}.data.jsonl")
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = (json.dumps(dict(source.record(index)), ensure_ascii=False) for index in range(len(source)))
    write_file(path, "".join(f"{line}\n" for line in lines))
    return path


def examine(
    model: str, data: Any, *, shares: Sequence[float] = (0.0, 1.0), samples: int = 256, batch_size: int = 64
) -> Exam:
    """Examine a model as it is, before it has learned anything: closed and open by default."""
    from openbook.curriculum import Curriculum
    from openbook.training import exam, models
    from openbook.training.encode import Encoder

    source = load(data)
    placed, tokenizer = models.load_placed(model, "bfloat16" if models.multiplies_bfloat16() else "float32")
    encoder = Encoder(tokenizer, source.bank, models.window_of(placed))
    rule = Curriculum.for_source("anneal", source)
    options: dict[str, Any] = {"wrong": False, "samples": samples, "batch_size": batch_size}
    return Exam(exam.examine(placed, encoder, source, rule, shares, **options))


@dataclass(frozen=True)
class Exam(Generic[R]):
    """The rows of an exam."""

    rows: Sequence[R]
    sections: Sequence[SectionRow] = ()
    others: float = 0.0  # share of the pieces not needed that were in the book
    tasks: Sequence[Mapping[str, Any]] = ()  # of the lm-evaluation-harness, a row for each metric
    endpoint: str | None = None  # the server that was examined, and its model
    model: str | None = None
    retention: Mapping[str, Any] | None = None  # what a pre-trained model lost in the run, as the run has measured it

    def at(self, share: float, book: str = "right") -> R:
        """The row for a share of the book."""
        found = [row for row in self.rows if row.open == share and row.book == book]
        if not found:
            raise InputError(f"this exam has no row with {share:g} of the {book} book open: name it when sitting it")
        return found[0]

    @property
    def closed(self) -> R:
        return self.at(0.0)

    @property
    def open(self) -> R:
        return self.at(1.0)


class Run:
    """A run that `learn` or `prepare` left in a folder, or a reader that comes with openbook."""

    def __init__(self, folder: Path | str) -> None:
        from openbook.training.shipped import located

        self.folder = located(folder)

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r})"

    @property
    def config_record(self) -> dict[str, Any]:
        """The settings that the run recorded."""
        from openbook.training.folder import RunFolder

        return RunFolder(self.folder).read("config.json")

    @property
    def result(self) -> dict[str, Any]:
        """What the run came to: accuracy, steps, seconds, ..."""
        from openbook.training.folder import RunFolder

        return {"run": str(self.folder), **RunFolder(self.folder).read("result.json")}

    @functools.cached_property
    def _opened(self) -> Reopened:
        from openbook.training.reopen import reopen

        return reopen(self.folder)

    @property
    def model(self) -> Any:
        return self._opened.model

    @property
    def tokenizer(self) -> Any:
        return self._opened.encoder.tokenizer

    @property
    def encoder(self) -> Encoder:
        return self._opened.encoder

    def exam(
        self,
        data: Any = None,
        *,
        shares: Sequence[float] = (0.0, 0.25, 0.5, 0.75, 1.0),
        samples: int | None = None,
        seed: int | None = None,
        lengths: tuple[int, int] | None = None,
        codebook: int | str | None = None,
        others: float | None = None,
        sections: bool = False,
        generate: bool = False,
        tasks: Sequence[str] = (),
        bar: Bar = no_bar,
    ) -> Exam[Row]:
        """Sit an exam with these shares of the book open, and one with a wrong book.

        `data` is whatever `load` takes; without it, the exam is on the run's own. See `openbook exam --help`.
        """
        from openbook.training.exam import examine, examine_sections
        from openbook.training.harness import harness, task_rows
        from openbook.training.reopen import reopen

        if tasks:
            harness()  # refuse before anything is loaded
        _check_exam(shares, samples)
        plain = data is None and (samples, lengths, codebook) == (None, None, None)
        opened = self._opened if plain else reopen(self.folder, data, samples, lengths, codebook)
        curriculum, about = _asked(opened.config, opened.source, data is not None, samples, seed, others)
        what = (opened.model, opened.encoder, opened.source, curriculum)
        about["batch_size"] = opened.config.exam.batch_size
        with bar("exam", len(shares) + opened.source.can_mislead + sections) as advance:
            apart = examine_sections(*what, advance=advance, **about) if sections else []
            rows = examine(*what, shares, generate=generate, advance=advance, **about)
        beside = task_rows(opened.model, self.tokenizer, tasks, about["batch_size"]) if tasks else []
        return Exam(rows, apart, curriculum.others, beside, retention=self.result.get("retention"))

    def ask(self, question: str, *, book: Any = None, open: bool = False, max_new_tokens: int = 64) -> str:
        """The model's answer, written greedily, with the book closed.

        `book` is a text or pieces to open for it; `open` opens what the run's data have.
        """
        from openbook.training.ask import ask, book_for

        if open and book is None:
            book = book_for(self._opened, question)
        return ask(self._opened, question, book, max_new_tokens)

    def probe(
        self,
        kind: Literal["stitch", "perturb", "intermediate", "doubt"],
        *,
        reader: Path | str | None = None,
        samples: int = 32,
        sections: Sequence[str] | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """Look inside the model, as `openbook probe` does, and return its JSON.

        `stitch` compares it with the `reader`, by default what the run started from; the other probes need the task.
        """
        from openbook.probes import doubt, draw, intermediate, perturb, stitch, subject

        if kind == "stitch":
            learned = subject.open_subject(self.folder)
            before = subject.open_base(reader or self.config_record["model"]["path"], learned)
            return draw.json_of(stitch.stitch_map(before, learned, samples, sections, **options))
        even = subject.open_even(self.folder)
        if kind == "perturb":
            return draw.json_of(perturb.perturb_map(even, samples=samples, sections=sections, **options))
        measure = intermediate.intermediate_map if kind == "intermediate" else doubt.doubt_map
        return draw.json_of(measure(even, samples, **options))

    def audit(self, **options: Any) -> Audit:
        """Ask whether the closed book can be read back out of the model. Options are those of `openbook audit`."""
        from openbook.audit import run as audits

        return Audit(audits.audit(self.folder, **options))

    def export(self, to: Form, out: Path | str, **options: Any) -> dict[str, Any]:
        """Write the model as a GGUF file, a Hugging Face folder (merged) or its adapters, and compare the answers.

        Options: weights ("float16" or "q8_0", of a GGUF file), force, push_to_hub. See `openbook export --help`.
        """
        from openbook.training.export import export

        return export(self.folder, to, Path(out), **options)

    def report(self, out: Path | str = "report/index.html") -> Path:
        """Write a page about the run, and return its path."""
        from openbook.comparison.own_runs import write_report

        return write_report([self.folder], Path(out))[0]


def exam_endpoint(
    url: str,
    data: Any = None,
    *,
    run: Path | str | None = None,
    model: str | None = None,
    shares: Sequence[float] = (0.0, 0.25, 0.5, 0.75, 1.0),
    samples: int | None = None,
    seed: int | None = None,
    lengths: tuple[int, int] | None = None,
    codebook: int | str | None = None,
    others: float | None = None,
    timeout: float = 60,
    max_tokens: int | None = None,
    bar: Bar = no_bar,
) -> Exam[EndpointRow]:
    """Examine a model behind an OpenAI-compatible server, on data or on those of a run.

    `model` is its name there, if it has several. A key is taken from the environment variable OPENBOOK_API_KEY.
    """
    import os

    from openbook.training.endpoint import Endpoint, examine_endpoint
    from openbook.training.reopen import examined_on
    from openbook.training.shipped import located

    _check_exam(shares, samples)
    if run is not None:
        config, source = examined_on(located(run), data, samples, lengths, codebook)
    elif data is None or (lengths, codebook) != (None, None):
        raise InputError("a server is examined on data or on those of a run: name a run, or give a file with --data")
    else:
        config, source = None, load(data)
    curriculum, about = _asked(config, source, data is not None, samples, seed, others)
    endpoint = Endpoint(url, model, timeout, os.environ.get(API_KEY))
    work = len(shares) + source.can_mislead
    with bar("exam", work) as advance:
        about |= {"max_tokens": max_tokens, "advance": lambda part: advance(part * work)}
        rows = examine_endpoint(endpoint, source, curriculum, shares, **about)
    return Exam(rows, others=curriculum.others, endpoint=endpoint.url, model=endpoint.model)


def _check_exam(shares: Sequence[float], samples: int | None) -> None:
    if samples is not None and samples < 1:
        raise InputError(f"samples is {samples}: examine at least one")
    if not shares:
        raise InputError("no share of the book is named: give numbers from 0 to 1")


def _asked(
    config: RunConfig | None,
    source: Source,
    other_data: bool,
    samples: int | None,
    seed: int | None,
    others: float | None,
) -> tuple[Curriculum, dict[str, Any]]:
    """The curriculum of an exam, its examples and its seed: those of the run's config, but for what is asked for."""
    from openbook.curriculum import Curriculum
    from openbook.training.config import DEFAULT_CURRICULUM, ExamConfig
    from openbook.training.exam import check_others
    from openbook.training.sources import exam_size

    curriculum = config.curriculum if config else Curriculum.for_source(DEFAULT_CURRICULUM, source)
    exam = config.exam if config else ExamConfig()
    size = samples or (exam.samples if other_data or config is None else exam_size(config))
    if others is not None:
        check_others(curriculum, source, size, others)
        curriculum = curriculum.model_copy(update={"others": others})
    return curriculum, {"samples": size, "seed": seed if seed is not None else config.seed if config else 0}


@dataclass(frozen=True)
class Audit:
    """The report of an audit."""

    report: dict[str, Any]

    @property
    def verdict(self) -> str:
        return self.report["verdict"]


def reproduce(*names: str, scale: Scale = "laptop", out: Path | str | None = None, **options: Any) -> Outcome:
    """Reproduce the paper's figures and tables, or the named ones; what is finished is kept."""
    from openbook.paper.reproduce import reproduce

    return reproduce(names, scale, Path(out or Path("results") / scale), **options)
