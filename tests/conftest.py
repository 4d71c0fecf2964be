"""One profile for property tests: no deadline, because the machine is shared, and the same examples in every run.

One thread, because tests fork: a child would wait for ever for the threads that only its parent has.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
from hypothesis import settings

from openbook.base.registry import PLUGINS
from openbook.training import store

settings.register_profile("openbook", deadline=None, max_examples=60, derandomize=True)
settings.load_profile("openbook")


@pytest.fixture(autouse=True)
def _no_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plugins that a test loads are not handed down to the processes that later tests start."""
    monkeypatch.setenv(PLUGINS, "")


@pytest.fixture(autouse=True)
def _no_real_model(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test without the mark `real_model` fails if it falls back on the pre-trained model, instead of loading it."""
    if request.node.get_closest_marker("real_model") is None:
        monkeypatch.setenv(store.CACHE, "/dev/null/none")
    elif store.place_of(store.DEFAULT) is None:
        pytest.skip(f"{store.DEFAULT} is not here: `make model` fetches it")
