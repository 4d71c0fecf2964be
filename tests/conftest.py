"""One profile for property tests: no deadline, because the machine is shared, and the same examples in every run.

One thread, because tests fork: a child would wait for ever for the threads that only its parent has.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
from hypothesis import settings

from openbook.base.registry import PLUGINS

settings.register_profile("openbook", deadline=None, max_examples=60, derandomize=True)
settings.load_profile("openbook")


@pytest.fixture(autouse=True)
def _no_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plugins that a test loads are not handed down to the processes that later tests start."""
    monkeypatch.setenv(PLUGINS, "")
