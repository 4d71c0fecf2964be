"""Registries: one file adds a thing, and everything that lists or looks up things of its kind then knows it.

    ATTACKS: Registry[type[Attack]] = Registry("attack")

    @ATTACKS.register("completion")
    class Completion: ...

Entries that are expensive to import are named by module and attribute, and imported when they are first looked up. A
file outside the package registers things the same way; `load_plugin` runs it.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import pkgutil
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from openbook.base.errors import InputError, nearest

T = TypeVar("T")

PLUGINS = "OPENBOOK_PLUGINS"  # the environment variable that tells child processes


class Registry(Mapping[str, T]):
    """Things of one kind by name, in the order in which they were registered."""

    def __init__(self, kind: str, lazy: Mapping[str, str] | None = None) -> None:
        """`lazy` maps names to `module:attribute`."""
        self.kind = kind
        self._found_by: dict[str, Callable[[], T]] = {
            name: functools.partial(pkgutil.resolve_name, place) for name, place in (lazy or {}).items()
        }

    def register(self, name: str) -> Callable[[T], T]:
        """A decorator that registers what it decorates; a name that is taken is refused."""

        def add(entry: T) -> T:
            if name in self:
                raise InputError(f"there is already a {self.kind} called '{name}': choose another name")
            self._found_by[name] = lambda: entry
            return entry

        return add

    def remove(self, name: str) -> None:
        """Forget an entry."""
        del self._found_by[name]

    def __getitem__(self, name: str) -> T:
        if name not in self:
            raise InputError(f"there is no {self.kind} '{name}' ({', '.join(self)}){nearest(name, self)}")
        return self._found_by[name]()

    def __contains__(self, name: object) -> bool:
        return name in self._found_by

    def __iter__(self) -> Iterator[str]:
        return iter(self._found_by)

    def __len__(self) -> int:
        return len(self._found_by)


def load_plugin(path: Path) -> None:
    """Run a Python file of the user's, which registers what it defines; processes started later run it, too."""
    if not path.is_file():
        raise InputError(f"--plugin {path}: there is no such file")
    _run_once(path.resolve())
    known = os.environ.get(PLUGINS, "").split(os.pathsep)
    if str(path.resolve()) not in known:
        os.environ[PLUGINS] = os.pathsep.join([*filter(None, known), str(path.resolve())])


def load_known_plugins() -> None:
    """Run the plugins of the process that started this one."""
    for path in filter(None, os.environ.get(PLUGINS, "").split(os.pathsep)):
        _run_once(Path(path))


@functools.cache
def _run_once(path: Path) -> None:
    name = re.sub(r"\W", "_", f"openbook_plugin_{path}")  # by which pickle finds its functions in other processes
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError(f"--plugin {path}: a plugin is a Python file whose name ends in .py")
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except InputError:
        raise
    except Exception as error:  # whatever the user's code raises is theirs to mend
        raise InputError(f"--plugin {path}: {type(error).__name__}: {error}") from error
