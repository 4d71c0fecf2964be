"""How a config is put together: a YAML file, `key=value` settings over it, and command-line flags over those.

An error names the key that is wrong and the nearest one that exists.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from openbook.base.errors import InputError, nearest
from openbook.curriculum import PRESETS, preset

Config = TypeVar("Config", bound=BaseModel)

_FOLDER = resources.files("openbook") / "configs"
_DECIDED = {"preset"}.union(*map(preset, PRESETS))  # settings of a curriculum that its preset decides


def shipped() -> list[str]:
    """Names of the configs that come with the package."""
    return sorted(p.name.removesuffix(".yaml") for p in _FOLDER.iterdir() if p.name.endswith(".yaml"))


def read_yaml(name: Path | str) -> dict[str, Any]:
    """A config file by path, or a shipped one by name."""
    path = Path(name)
    if path.is_file():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise InputError(f"{name}: not UTF-8 text, so not a config") from None
    elif str(name) in shipped():
        text = (_FOLDER / f"{name}.yaml").read_text(encoding="utf-8")
    else:
        raise InputError(
            f"there is no config '{name}': give a file, or one of {', '.join(shipped())}{nearest(str(name), shipped())}"
        )
    data = _yaml(text, str(name))
    if not isinstance(data, dict):
        raise InputError(f"{name}: a config is a list of `key: value` lines")
    return data


def _yaml(text: str, where: str) -> Any:
    """The value of a YAML text; `where` says in error messages where the text stands."""
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:  # a date that does not exist is a ValueError
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        raise InputError(f"{where}{line}: not YAML: {getattr(error, 'problem', None) or error}") from None


def set_key(values: dict[str, Any], key: str, value: Any) -> None:
    """Set a dotted key: `training.learning_rate` is put into the group `training`."""
    *path, last = key.split(".")
    for part in path:
        inner = values.get(part)
        if isinstance(inner, str):  # a name, of which one setting is changed now
            inner = named(part, inner)
        if not isinstance(inner, dict | None):
            raise InputError(f"'{key}' cannot be set: '{part}' is {inner!r}, not a group of settings")
        values[part] = values = dict(inner or {})
    values[last] = value


def named(group: str, name: str) -> dict[str, str]:
    """The group of settings that a name stands for: a model's path, or a curriculum's preset."""
    return {"path" if group == "model" else "preset": name}


def over(base: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """Settings over others, group by group. A curriculum with a preset replaces the whole group below it.

    Other settings of a curriculum change single values of the one below, even if that is only named.
    """
    result = dict(base)
    for key, value in values.items():
        below = base.get(key)
        if isinstance(value, dict) and isinstance(below, str):
            below = named(key, below)
        if isinstance(value, dict) and isinstance(below, dict) and "preset" not in value:
            value = over(below, value)
        result[key] = value
    return result


def make_room(values: dict[str, Any], keys: Iterable[str]) -> None:
    """If one of the keys that will be set is a preset, remove from the curriculum what a preset decides."""
    if "curriculum.preset" in keys:
        below = values.get("curriculum")
        kept = below.items() if isinstance(below, dict) else ()
        values["curriculum"] = {key: value for key, value in kept if key not in _DECIDED}


def combined(
    file: Path | str | None,
    settings: Iterable[str] = (),
    flags: Mapping[str, Any] | None = None,
    base: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The values of a config: `base`, a YAML file over it, `key=value` settings over that, and flags over those.

    A flag for a whole group, such as `--curriculum`, is set before the settings of that group.
    """
    pairs = [_setting(setting) for setting in settings]
    values = over(dict(base or {}), read_yaml(file) if file is not None else {})
    make_room(values, [key for key, _ in pairs])
    given = [(key, value) for key, value in (flags or {}).items() if value is not None]
    groups = [pair for pair in given if any(key.startswith(f"{pair[0]}.") for key, _ in pairs)]
    for key, value in [*groups, *pairs, *(pair for pair in given if pair not in groups)]:
        set_key(values, key, value)
    return values


def _setting(text: str) -> tuple[str, Any]:
    """The key and the value of a setting such as `training.epochs=3`."""
    key, equals, value = text.partition("=")
    if not equals:
        raise InputError(f"'{text}' is not a setting: write it as key=value, for instance training.epochs=3")
    return key.strip(), _yaml(value, f"--set {text}")


def validated(kind: type[Config], values: dict[str, Any]) -> Config:
    """The config, or an error that names every wrong key and the nearest one that exists."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise InputError("; ".join(_complaint(kind, problem) for problem in error.errors())) from None


def _complaint(kind: type[BaseModel], problem: Any) -> str:
    """One problem of a validation, in words."""
    path = [str(part) for part in problem["loc"] if not str(part).startswith("function-")]
    key = ".".join(path)
    if problem["type"] != "extra_forbidden":
        value = problem.get("input")
        given = f" (given: {value!r})" if isinstance(value, int | float | str | bool) else ""
        return f"{key or 'config'}: {problem['msg'].removeprefix('Value error, ')}{given}"
    known = [place.rpartition(".") for place in places(kind)]  # the group, a dot, the last part of the key
    same = sorted(
        (group + dot + last for group, dot, last in known if last == path[-1] and not group.startswith("reading")),
        key=lambda place: place.count("."),
    )
    siblings = [last for group, _, last in known if group == ".".join(path[:-1])]
    hint = f"; did you mean '{same[0]}'?" if same else nearest(path[-1], siblings)
    return f"'{key}' is not a setting{hint}"


def _group(kind: type[BaseModel], name: str) -> type[BaseModel] | None:
    """The group of settings that a field is, if it is one."""
    annotation = kind.model_fields[name].annotation
    options = [annotation, *get_args(annotation)]
    return next((o for o in options if isinstance(o, type) and issubclass(o, BaseModel)), None)


_OPTIONAL = {"task", "reading"}  # groups that a run may be without


def listed(kind: type[BaseModel], start: BaseModel | None, before: str = "") -> list[dict[str, Any]]:
    """Every setting with its value in `start` (or its default), the words that are allowed, and its meaning."""
    settings = []
    for name, field in kind.model_fields.items():
        value = getattr(start, name) if start is not None else field.get_default(call_default_factory=True)
        if (group := _group(kind, name)) is not None:
            if value is not None or name not in _OPTIONAL:
                settings += listed(group, value, f"{before}{name}.")
            continue
        words = list(get_args(field.annotation)) if get_origin(field.annotation) is Literal else []
        plain = value if isinstance(value, int | float | str | list | tuple | None) else str(value)
        settings.append({"key": before + name, "value": plain, "words": words, "meaning": field.description or ""})
    return settings


def places(kind: type[BaseModel], before: str = "") -> list[str]:
    """The full names of all settings and groups, such as `training` and `training.epochs`."""
    result: list[str] = []
    for name in kind.model_fields:
        group = _group(kind, name)
        result += [before + name, *(places(group, f"{before}{name}.") if group else [])]
    return result
