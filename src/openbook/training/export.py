"""Takes a run's model out of openbook: as a GGUF file, as a Hugging Face folder, or as its low-rank adapters alone.

    checks -> the run's answers -> written aside -> read again -> the same answers? -> card -> renamed -> hub

What is written is read back and asked the questions of the run's own exam, with the book closed. The share of answer
tokens on which it and the run make the same first choice is the agreement. Both compute in float32, so what is compared
is the weights. An export that fails or is interrupted changes nothing at its place.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from openbook.base.errors import InputError, MachineError
from openbook.base.files import written_aside
from openbook.book.source import Source
from openbook.training import gguf_file
from openbook.training.batches import Item, items
from openbook.training.card import MARK, Base, base_of, card, shown
from openbook.training.config import RunConfig
from openbook.training.encode import Encoder
from openbook.training.exam import condition, correct_answers, exam_plan
from openbook.training.folder import RunFolder
from openbook.training.gguf_file import About, WeightType
from openbook.training.hub import Hub
from openbook.training.models import load, load_placed, load_shape, load_tokenizer, window_of
from openbook.training.reopen import examined_on, finished_config
from openbook.training.shipped import located
from openbook.training.sources import encoder_for, exam_size, recorded_date
from openbook.training.store import read_gguf

Form = Literal["gguf", "merged", "adapter"]
PARTS = {"merged": "model", "adapter": "adapter"}  # what of a run's folder is copied
FLOOR, FLOORS = 0.99, {"q8_0": 0.95}  # least agreement before a warning
SPARE = 2**24  # bytes for tokenizer and card
SUFFIXES = {".json", ".safetensors", ".jinja", ".md", ".txt", ".model"}  # of files that an exported folder has


def export(
    run: Path | str,
    to: Form,
    out: Path,
    weights: WeightType | None = None,
    *,
    force: bool = False,
    push_to_hub: str | None = None,
    report: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Export a finished run; returns the keys of `openbook export --json`."""
    if weights is not None and to != "gguf":
        raise InputError(f"--type {weights} is of GGUF files: --to {to} keeps the weights in the type that the run has")
    folder = located(run)
    config = finished_config(folder)
    check_out(out, to, force)
    if to == "adapter":
        check_adapter(folder, config)
    if to == "gguf":
        gguf_file.check_model(load_shape(str(folder)))
        gguf_file.check_tokenizer(load_tokenizer(str(folder)))
    hub = None if push_to_hub is None else Hub(push_to_hub)
    base, kind = base_of(folder), weights or "float16"
    report("examining the run")
    model, tokenizer = load_placed(str(folder))
    exam = Exam.of(folder, config, tokenizer, window_of(model))
    expected, device = exam.choices(model), next(model.parameters()).device
    check_room(out, gguf_file.size_of(model, kind) if to == "gguf" else _bytes_in(folder / PARTS[to]))
    result: dict[str, Any] = {"run": str(folder), "to": to, "path": str(out)}
    warnings = [exam.problem] if exam.problem else []
    with _written(out, to) as (aside, card_aside):
        report(f"writing {out}")
        if to == "gguf":
            splits = gguf_file.splits_of(tokenizer)
            about = About(_name(folder, base), splits, base.name, base.licence)
            if kept := gguf_file.write_gguf(aside, model, tokenizer, kind, about):
                warnings.append(f"{len(kept)} matrices do not divide into the blocks of {kind} and stay in float16")
            result |= {"type": kind, "splits": splits}
        else:
            _copy(folder, config, tokenizer, to, aside)
        del model  # two at a time would take twice the memory
        report("reading it again")
        again, own = _read(aside, to, config)
        result["agreement"] = agreement(expected, exam.choices(again.to(device)))
        result["answer_tokens"] = sum(map(len, expected))
        if to == "gguf" and exam.texts:
            cores = own.backend_tokenizer, tokenizer.backend_tokenizer
            result["tokenizer_agreement"] = gguf_file.encoded_alike(*cores, exam.texts)
        warnings += _doubts(result, FLOORS.get(kind, FLOOR))
        card_aside.write_text(card(folder, to, out.name, base, _facts(result)), encoding="utf-8")
    result |= {"bytes": _bytes_in(out), "card": str(card_of(out, to)), "warnings": warnings}
    if hub is not None:
        report(f"uploading to {hub.name}")
        result["hub"] = hub.upload(out, card_of(out, to))
    return result


# ---- before


def check_out(out: Path, to: Form, force: bool) -> None:
    """Refuse a place that cannot be written to, or that holds something; `force` replaces an earlier export alone."""
    if (out.suffix == ".gguf") != (to == "gguf"):
        wanted = "a file, so it ends in .gguf" if to == "gguf" else "a folder, so it does not end in .gguf"
        raise InputError(f"{out}: --to {to} writes {wanted}: name another --out")
    if out.is_dir() and (to == "gguf" or not any(out.iterdir())):
        if to == "gguf":
            raise InputError(f"{out} is a folder: name another --out")
    else:
        for path in {out, card_of(out, to)} if to == "gguf" else {out}:
            if (path.exists() or path.is_symlink()) and not (force and _is_export(path)):
                advice = (
                    "more or other than an export, so it is not replaced" if force else "replace it with --force, or"
                )
                raise InputError(f"{path} exists: {advice} name another --out")
    RunFolder(out.absolute().parent).check_writable()


def _is_export(path: Path) -> bool:
    """Whether an earlier export is there and nothing else."""
    if path.is_dir():
        readme = path / "README.md"
        plain = all(inner.is_file() and inner.suffix in SUFFIXES for inner in path.iterdir())
        return plain and readme.exists() and MARK in readme.read_text(encoding="utf-8", errors="replace")
    with path.open("rb") as file:
        return file.read(4) == b"GGUF" if path.suffix == ".gguf" else MARK.encode() in file.read()


def check_adapter(folder: Path, config: RunConfig) -> None:
    """Refuse to export adapters that a run does not have, or that nobody could put on a model."""
    if config.model.lora is None or not (folder / "adapter").is_dir():
        raise InputError(f"{folder} trained all weights and no adapters (model.lora): take --to merged or --to gguf")
    if config.model.path is None:
        raise InputError(f"{folder} trained adapters of a model made from scratch, which is not kept: take --to merged")
    before, after = (load_shape(path).get_text_config().vocab_size for path in (config.model.path, str(folder)))
    if before != after:
        raise InputError(
            f"{folder} gave its model {after - before} more tokens than {config.model.path} has, which adapters do not "
            "carry: take --to merged"
        )


def check_room(out: Path, size: int) -> None:
    """Refuse a disk that is too full for the weights."""
    there = next(path for path in out.absolute().parents if path.exists())
    if (free := shutil.disk_usage(there).free) < size + SPARE:
        raise MachineError(
            f"no room in {there}: the export takes {size / 2**20:,.0f} MiB and {free / 2**20:,.0f} MiB are free. Make "
            "room, or name another --out"
        )


# ---- writing and reading


def card_of(out: Path, to: Form) -> Path:
    """Where the model card is: in a folder, or beside a file."""
    return out.with_suffix(".md") if to == "gguf" else out / "README.md"


@contextmanager
def _written(out: Path, to: Form) -> Iterator[tuple[Path, Path]]:
    """Paths to write an export and its card to; both take their places at the end, or nothing does."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            card_aside = stack.enter_context(written_aside(card_of(out, to))) if to == "gguf" else None
            aside = stack.enter_context(written_aside(out))
            yield aside, card_aside or aside / "README.md"
    except OSError as error:
        if isinstance(error, MachineError):
            raise
        raise MachineError(f"cannot write {out} ({error.strerror or error}): nothing of it was kept") from None


def _copy(folder: Path, config: RunConfig, tokenizer: Any, to: Form, aside: Path) -> None:
    """The folder of the model as the run saved it, or that of the adapters, with the tokenizer."""
    shutil.copytree(folder / PARTS[to], aside)
    if to == "adapter":
        tokenizer.save_pretrained(aside)
        settings = json.loads((aside / "adapter_config.json").read_text(encoding="utf-8"))
        settings["base_model_name_or_path"] = shown(str(config.model.path))  # it was a folder of this machine
        (aside / "adapter_config.json").write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


def _read(aside: Path, to: Form, config: RunConfig) -> tuple[Any, Any]:
    """What was written, as a model and a tokenizer."""
    if to == "gguf":
        model, tokenizer = read_gguf(aside)
        return gguf_file.slowed(model, aside), tokenizer
    if to == "merged":
        return load(str(aside))
    from peft import PeftModel

    return PeftModel.from_pretrained(load(str(config.model.path))[0], aside), None


def _bytes_in(path: Path) -> int:
    return sum(file.stat().st_size for file in (path.rglob("*") if path.is_dir() else [path]) if file.is_file())


def _name(folder: Path, base: Base) -> str:
    start = "" if base.name is None else f"{base.name.rpartition('/')[2]} "
    return start + folder.absolute().name


# ---- does it answer as the run does?


@dataclass(frozen=True)
class Exam:
    """The questions of a run's own exam, with the book closed; none, and why, where they cannot be had."""

    encoder: Encoder | None
    examples: Sequence[Item] = ()
    texts: Sequence[str] = ()  # the same examples as they stand in a text, with and without their books
    batch_size: int = 1
    problem: str | None = None

    @classmethod
    def of(cls, folder: Path, config: RunConfig, tokenizer: Any, window: int | None) -> Exam:
        try:
            _, source = examined_on(folder)
        except InputError as error:
            return cls(None, problem=f"The answers were not compared: {error}")
        length = config.training.max_length or window
        encoder = encoder_for(config, tokenizer, source, length, recorded_date(folder))
        closed = condition(config.curriculum, 0.0)
        plan, positions = exam_plan(source, closed, exam_size(config), config.seed)
        shelf, opened = plan.at(positions)
        examples = items(encoder.encode(shelf, opened, plan.namer(positions)), positions.tolist())
        texts = [tokenizer.decode(item.ids) for item in examples]
        texts += [source.example(index).render().text for index in range(len(examples))]
        return cls(encoder, examples, texts, config.exam.batch_size)

    def choices(self, model: Any) -> list[np.ndarray]:
        """The model's first choice for every answer token, example by example."""
        if self.encoder is None:
            return []
        return correct_answers(model, self.encoder, list(self.examples), cast(Source, _Choices()), self.batch_size)


class _Choices:
    """In place of a source in an exam: what is scored is the choice itself, right or wrong."""

    def score(self, guess: np.ndarray, truth: np.ndarray) -> np.ndarray:
        return guess.reshape(len(guess), -1)


def agreement(expected: Sequence[np.ndarray], found: Sequence[np.ndarray]) -> float | None:
    """The share of answer tokens with the same first choice; None where there are none to compare."""
    return float((np.concatenate(expected) == np.concatenate(found)).mean()) if expected else None


def _doubts(result: dict[str, Any], floor: float) -> list[str]:
    """What a reader should know before the export is used."""
    doubts = []
    if (share := result["agreement"]) is not None and share < floor:
        count, way = result["answer_tokens"], "; float16 is closer" if result.get("type") == "q8_0" else ""
        doubts.append(
            f"It answers as the run does on {share:.1%} of {count} answer tokens (expected: {floor:.0%}{way})."
        )
    if (alike := result.get("tokenizer_agreement", 1.0)) < 1:
        doubts.append(f"Its tokenizer cuts {alike:.1%} of the texts of the exam as the run's does, and not all.")
    return doubts


def _facts(result: dict[str, Any]) -> dict[str, Any]:
    """Rows of the card about the export itself."""
    share, tokens = result["agreement"], result["answer_tokens"]
    said = "not compared" if share is None else f"{share:.1%} of {tokens} answer tokens of the exam, closed book"
    weights = {"type of the weights": result["type"]} if "type" in result else {}
    return weights | {"same first choice as the run": said}
