"""Registries and plugins: names in order, lazy entries, and a file outside the package that adds one."""

from __future__ import annotations

from pathlib import Path

import pytest

from openbook.base.errors import InputError
from openbook.base.registry import Registry, load_plugin


def test_lazy_entries_are_imported_when_they_are_looked_up_and_stay_in_order() -> None:
    things: Registry[object] = Registry("thing", lazy={"path": "pathlib:Path"})
    things.register("second")(2)
    assert list(things) == ["path", "second"] and things["path"] is Path and things["second"] == 2


def test_a_name_that_is_unknown_or_taken_is_refused() -> None:
    things: Registry[int] = Registry("thing")
    things.register("alpha")(1)
    with pytest.raises(InputError, match=r"there is no thing 'alpa'.*did you mean 'alpha'"):
        things["alpa"]
    with pytest.raises(InputError, match="already a thing called 'alpha'"):
        things.register("alpha")(2)
    things.remove("alpha")
    assert list(things) == [] and things.register("alpha")(3) == 3


@pytest.mark.parametrize(("text", "words"), [(None, "no such file"), ("1 / 0", "ZeroDivisionError")])
def test_a_plugin_that_cannot_be_loaded_is_named(text: str | None, words: str, tmp_path: Path) -> None:
    file = tmp_path / "plugin.py"
    if text is not None:
        file.write_text(text)
    with pytest.raises(InputError, match=f"--plugin .*plugin.py: .*{words}"):
        load_plugin(file)
