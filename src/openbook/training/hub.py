"""Uploads an export to the Hugging Face hub, with the login of huggingface_hub."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from openbook.base.errors import InputError, MachineError


class Hub:
    """A model on the hub to upload to. That there is a login is checked at once, before any work."""

    def __init__(self, name: str) -> None:
        from huggingface_hub import HfApi
        from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

        try:
            validate_repo_id(name)
        except ValueError as error:
            raise InputError(f"--push-to-hub {name}: {error}") from None
        self.name, self.api = name, HfApi()
        self._try(self.api.whoami, "nothing was written")

    def upload(self, out: Path, readme: Path) -> str:
        """Upload a folder, or a file and its card; a repository that is not there yet is made private."""
        kept = f"the export itself is in {out}"
        made = self._try(lambda: self.api.create_repo(self.name, private=True, exist_ok=True), kept)
        self.name = getattr(made, "repo_id", self.name)  # with the user's own name before it
        if out.is_dir():
            self._try(lambda: self.api.upload_folder(repo_id=self.name, folder_path=out), kept)
        else:
            for file, name in ((out, out.name), (readme, "README.md")):
                self._upload(file, name, kept)
        return str(made)

    def _upload(self, file: Path, name: str, kept: str) -> None:
        self._try(lambda: self.api.upload_file(repo_id=self.name, path_or_fileobj=file, path_in_repo=name), kept)

    def _try(self, call: Callable[[], Any], kept: str) -> Any:
        try:
            return call()
        except Exception as error:  # it raises errors of several libraries
            why = next(iter(str(error).strip().splitlines()), type(error).__name__).rstrip(".")
            raise MachineError(
                f"the Hugging Face hub refused {self.name} ({why}): check the network and `hf auth login`; {kept}"
            ) from None
