"""The model card of an exported run: what it is, what it learned, how well, and how to make it again.

Everything in it is read from the run's folder. It has names of files and never their folders, because it is published.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from openbook import __version__
from openbook.base.errors import InputError
from openbook.task.formats import FORMATS
from openbook.training.folder import RunFolder
from openbook.training.shipped import located
from openbook.training.store import NAMED, known_of

MARK = "Exported by `openbook export`"  # what shows that a folder is an export, which --force may replace


@dataclass(frozen=True)
class Base:
    """The model that a run started from, by way of any other runs in between."""

    name: str | None  # None for a model made from scratch
    on_hub: bool = False
    licence: str | None = None


def base_of(run: Path) -> Base:
    """The model that the first run of a chain of runs started from."""
    seen: set[Path] = set()
    path: str | None = str(run)
    while path is not None and (folder := located(path)).is_dir() and folder.resolve() not in seen:
        seen.add(folder.resolve())
        try:
            start = RunFolder(folder).read("config.json")["model"]["path"]
        except (InputError, KeyError, TypeError):  # a model's folder and not a run
            break
        path = start
    if path is None:
        return Base(None)
    known = known_of(path)
    on_hub = shown(path) == path and path not in NAMED and not path.endswith(".gguf") and not located(path).exists()
    return Base(shown(path), on_hub, known.get("licence"))


def shown(path: str) -> str:
    """A model's name as it is, on the hub or of openbook's own, and a folder or file without where it is."""
    is_place = Path(path).exists() or path.startswith(("/", ".", "~")) or path.count("/") > 1 or path.endswith(".gguf")
    return Path(path).expanduser().resolve().name if is_place else path


def audit_of(run: Path) -> dict[str, Any] | None:
    """The newest report of `openbook audit --json` about this run, in its folder or beside it."""
    files = [path for place in (run, run.absolute().parent) for path in place.glob("*.json")]
    for path in sorted(files, key=lambda path: path.stat().st_mtime, reverse=True):
        try:
            text = path.read_bytes()
            report = json.loads(text) if b'"attacks"' in text and b'"verdict"' in text else None
        except (OSError, ValueError):
            continue
        if isinstance(report, dict) and Path(str(report.get("run"))).name == run.absolute().name:
            return report
    return None


def card(run: Path, form: str, file: str, base: Base, facts: Mapping[str, Any]) -> str:
    """The card as Markdown. `form` is gguf, merged or adapter, and `facts` are rows about the export itself."""
    folder = RunFolder(run)
    config, data, result = (folder.read(f"{name}.json") for name in ("config", "data", "result"))
    name = run.absolute().name
    about = {"exported": form, **facts, "base model": base.name or "none: made from scratch"}
    about |= (
        {"licence of the base": base.licence or "not known here: look it up before you publish"} if base.name else {}
    )
    about |= {"data": f"{_learned(config)}, {data.get('examples', 'unknown')} examples"}
    about |= {"fingerprint of the data": data.get("fingerprint"), "seed": config.get("seed")}
    about |= {"curriculum": _schedule(config.get("curriculum", {})), "openbook": __version__}
    made = folder.read("environment.json").get("versions", {})
    about |= {"trained with": ", ".join(f"{package} {version}" for package, version in made.items() if version)}
    sections = [
        _front(form, base),
        f"# {base.name.rpartition('/')[2] + ', ' if base.name else ''}{name}",
        f"{MARK}. This model learned a text by context-enhanced learning: it was trained with the text in its context, "
        "on which no loss was computed, and a schedule took the text away.",
        _table(("what", "value"), about.items()),
        "## Exam",
        *_exam(result),
        *_retention(result.get("retention")),
        "## Audit",
        _audit(audit_of(run)),
        "## Use",
        _use(form, file, config),
        _prompt(data.get("chat")),
        "## Make it again",
        f"With the settings below in `config.yaml`, beside the data:\n\n```bash\n{_command(config)}\n```",
        f"```yaml\n{yaml.safe_dump(_without_folders(config), sort_keys=False, allow_unicode=True).rstrip()}\n```",
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _front(form: str, base: Base) -> str:
    """What the Hugging Face hub reads of a card."""
    front: dict[str, Any] = {"license": base.licence.lower()} if base.licence else {}
    front |= {"base_model": base.name} if base.on_hub else {}
    library = {"merged": "transformers", "adapter": "peft", "gguf": "gguf"}[form]
    front |= {"library_name": library, "tags": ["openbook", "context-enhanced-learning"]}
    return f"---\n{yaml.safe_dump(front, sort_keys=False)}---"


def _table(header: tuple[str, ...], rows: Any) -> str:
    lines = [header, ("---",) * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


def _learned(config: Mapping[str, Any]) -> str:
    if (task := config.get("task")) is not None:
        return f"translations of MLT({task['depth']}, {task['chars']})"
    return f"`{Path(str(config.get('data'))).name}`"


def _schedule(curriculum: Mapping[str, Any]) -> str:
    return f"{curriculum.get('drop')} of the text closed (rate@progress), drawn in {curriculum.get('spread')} sections"


def _exam(result: Mapping[str, Any]) -> Iterator[str]:
    """The exam at the end of the run."""
    rows = result.get("exam") or []
    header = ("text in the context", "open", "accuracy", "95 % interval", "a guess", "exact match", "examples")
    cells = [
        (row["book"], f"{row['open']:.0%}", f"{row['accuracy']:.3f}", f"{row['low']:.3f} to {row['high']:.3f}",
         f"{row['chance']:.3f}", f"{row['exact_match']:.3f}", row["samples"])
        for row in rows
    ]  # fmt: skip
    yield _table(header, cells) if rows else "The run recorded no exam."
    if rows:
        yield "Accuracy is that of the next token on the answer; intervals are clustered by example."


def _retention(retention: Any) -> list[str]:
    """What the model kept of what it could do before, as far as the run has measured it."""
    rows = list(_numbers(retention))
    return ["## What it kept", _table(("measure", "value"), rows)] if rows else []


def _numbers(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """The numbers in a JSON value with the names that lead to them."""
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _numbers(inner, f"{name} {key}".strip())
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield name, f"{value:.4g}"


def _audit(report: Mapping[str, Any] | None) -> str:
    if report is None:
        return "It was not audited, or the audit is not kept beside the run: whether the text can be read back is open."
    statement = report.get("statement")
    return (
        f"Can the text be read back out of the model? **{report['verdict']}**{f': {statement}' if statement else ''}."
    )


def _use(form: str, file: str, config: Mapping[str, Any]) -> str:
    """How to load what was exported."""
    if form == "gguf":
        return f"```bash\nllama-cli -m {file}\nopenbook learn --model {file} --data more.jsonl\n```"
    own = "from openbook.training.models import load"
    tokenizer = f'tokenizer = AutoTokenizer.from_pretrained("{file}")'
    if form == "adapter":
        lines = [own, "from peft import PeftModel", "from transformers import AutoTokenizer", "", tokenizer]
        lines += [f'model = PeftModel.from_pretrained(load("{shown(config["model"]["path"])}")[0], "{file}")']
    elif config.get("task") and FORMATS[config["task"]["text"]].complete:  # a family that transformers does not know
        lines = [own, "", f'model, tokenizer = load("{file}")']
    else:
        lines = ["from transformers import AutoModelForCausalLM, AutoTokenizer", "", tokenizer]
        lines += [f'model = AutoModelForCausalLM.from_pretrained("{file}")']
    return "```python\n" + "\n".join(lines) + "\n```"


def _prompt(chat: Mapping[str, str] | None) -> str:
    if chat is None or not chat.get("between"):
        return "It was trained on the plain prompt with the completion right after it, without a chat template."
    return "It was trained on the tokenizer's chat template, with the prompt as the user's message."


def _command(config: Mapping[str, Any]) -> str:
    verb = "learn" if config.get("reading") is None else "prepare"
    return f"openbook {verb} --config config.yaml --out run"


def _without_folders(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a run, with the names of files and runs in place of their paths."""
    settings = json.loads(json.dumps(config))
    for group, key in ((settings, "data"), (settings["exam"], "data"), (settings.get("task") or {}, "codebook")):
        if isinstance(group.get(key), str):
            group[key] = Path(group[key]).name
    if settings["model"]["path"] is not None:
        settings["model"]["path"] = shown(settings["model"]["path"])
    return settings
