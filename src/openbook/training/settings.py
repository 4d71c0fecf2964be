"""How a config is put together: a shipped or written YAML file, `key=value` settings over it, flags over those.

What is wrong with it is said by the key that is wrong, with the nearest one that exists.
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

_DECIDED = {"preset"}.union(*map(preset, PRESETS))  # settings of a curriculum that its preset decides


def shipped() -> list[str]:
    """Names of the configs that come with the package."""
    return sorted(p.name.removesuffix(".yaml") for p in _folder().iterdir() if p.name.endswith(".yaml"))


def _folder() -> Any:
    return resources.files("openbook") / "configs"


def read_yaml(name: Path | str) -> dict[str, Any]:
    """A config file by path, or a shipped one by name."""
    path = Path(name)
    if path.is_file():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise InputError(f"{name}: not UTF-8 text, so not a config") from None
    elif str(name) in shipped():
        text = (_folder() / f"{name}.yaml").read_text(encoding="utf-8")
    else:
        raise InputError(
            f"there is no config '{name}': give a file, or one of {', '.join(shipped())}{nearest(str(name), shipped())}"
        )
    data = _yaml(text, str(name))
    if not isinstance(data, dict):
        raise InputError(f"{name}: a config is a list of `key: value` lines")
    return data


def _yaml(text: str, where: str) -> Any:
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:  # a date that does not exist is a ValueError
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        raise InputError(f"{where}{line}: not YAML: {getattr(error, 'problem', None) or error}") from None


def set_key(values: dict[str, Any], key: str, value: Any) -> None:
    """Set a dotted key: `training.learning_rate` goes into the object `training`."""
    *path, last = key.split(".")
    for part in path:
        inner = values.get(part)
        if isinstance(inner, str):  # of which one setting is changed
            inner = named(part, inner)
        if not isinstance(inner, dict | None):
            raise InputError(f"'{key}' cannot be set: '{part}' is {inner!r}, not a group of settings")
        values[part] = values = dict(inner or {})
    values[last] = value


def named(group: str, name: str) -> dict[str, str]:
    """A group of settings that was given by a name: a model's path, or a curriculum's preset."""
    return {"path" if group == "model" else "preset": name}


def over(base: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """Settings over others, group by group; a curriculum by name takes the place of a whole group.

    Settings of a curriculum over one that has a name leave what they do not say as that has it.
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
    """Leave out of a curriculum what a preset decides, if one of the keys that are to be set names another preset."""
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

    A flag that names a whole group, as `--curriculum` does, lies below settings of that group.
    """
    pairs = [_setting(setting) for setting in settings]
    values = over(dict(base or {}), read_yaml(file) if file is not None else {})
    make_room(values, [key for key, _ in pairs])
    given = {key: value for key, value in (flags or {}).items() if value is not None}
    groups = {key for key in given if any(name.startswith(f"{key}.") for name, _ in pairs)}
    for key in groups:
        set_key(values, key, given[key])
    for key, value in [*pairs, *((key, value) for key, value in given.items() if key not in groups)]:
        set_key(values, key, value)
    return values


def _setting(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals:
        raise InputError(f"'{text}' is not a setting: write it as key=value, for instance training.epochs=3")
    return key.strip(), _yaml(value, f"--set {text}")


def validated(kind: type[Config], values: dict[str, Any]) -> Config:
    """The config, or an error that names the key and the nearest one that exists."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        lines = []
        for problem in error.errors():
            path = [str(part) for part in problem["loc"] if not str(part).startswith("function-")]
            key = ".".join(path)
            if problem["type"] == "extra_forbidden":
                elsewhere = [place for place in places(kind) if place.split(".")[-1] == path[-1]]
                elsewhere = [place for place in elsewhere if not place.startswith("reading.")]  # a course's own
                elsewhere.sort(key=lambda place: place.count("."))
                hint = f"; did you mean '{elsewhere[0]}'?" if elsewhere else nearest(path[-1], _keys(kind, path[:-1]))
                lines.append(f"'{key}' is not a setting{hint}")
            else:
                lines.append(f"{key or 'config'}: {problem['msg'].removeprefix('Value error, ')}" + _given(problem))
        raise InputError("; ".join(lines)) from None


def _given(problem: Any) -> str:
    return f" (given: {problem['input']!r})" if isinstance(problem.get("input"), int | float | str | bool) else ""


def _keys(kind: type[BaseModel], path: list[str]) -> list[str]:
    """The settings that exist at a place in the config."""
    for part in path:
        inner = _inner(kind, part)
        if inner is None:
            return []
        kind = inner
    return list(kind.model_fields)


def _inner(kind: type[BaseModel], part: str) -> type[BaseModel] | None:
    """The group of settings that a field is, if it is one."""
    annotation = kind.model_fields[part].annotation if part in kind.model_fields else None
    options = [annotation, *getattr(annotation, "__args__", ())]
    return next((o for o in options if isinstance(o, type) and issubclass(o, BaseModel)), None)


_EITHER = {"task", "reading"}  # groups that a run has or has not


def listed(kind: type[BaseModel], start: BaseModel | None, before: str = "") -> list[dict[str, Any]]:
    """Every setting with what it is in `start` (or by itself), the words that it may be, and what it means."""
    settings = []
    for name, field in kind.model_fields.items():
        default = getattr(start, name) if start is not None else field.get_default(call_default_factory=True)
        if (inner := _inner(kind, name)) is not None:
            if default is not None or name not in _EITHER:
                settings += listed(inner, default, f"{before}{name}.")
            continue
        words = list(get_args(field.annotation)) if get_origin(field.annotation) is Literal else []
        plain = default if isinstance(default, int | float | str | list | tuple | None) else str(default)
        told = {"key": before + name, "value": plain, "words": words, "meaning": field.description or ""}
        settings.append(told)
    return settings


def places(kind: type[BaseModel], before: str = "") -> list[str]:
    """All settings with their groups before them: `training.epochs`."""
    result: list[str] = []
    for name in kind.model_fields:
        inner = _inner(kind, name)
        result += [before + name] if inner is None else [before + name, *places(inner, f"{before}{name}.")]
    return result
