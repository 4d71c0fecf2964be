"""What a result depends on besides its config: versions, machine and the state of the checkout."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

PACKAGES = ("openbook", "torch", "transformers", "tokenizers", "accelerate", "safetensors", "numpy", "peft")


def environment() -> dict[str, Any]:
    """Versions and machine, as far as they can change a result."""
    versions: dict[str, str | None] = dict.fromkeys(PACKAGES)
    for package in PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "system": platform.system(),
        "cores": os.cpu_count(),
        "versions": versions,
        "git": _git_state(),
    }


def _git_state() -> dict[str, Any] | None:
    """The commit of the package's own checkout and whether it was changed; None for an installed package."""
    folder = Path(__file__).resolve().parent

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(folder), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()

    try:
        return {"commit": git("rev-parse", "HEAD"), "changed": bool(git("status", "--porcelain", "--", str(folder)))}
    except (OSError, subprocess.SubprocessError):
        return None
