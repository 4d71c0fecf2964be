"""Imports point one way (DESIGN): what is below never knows of what is above, not even inside a function."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import openbook

SOURCE = Path(openbook.__file__).parent
LAYERS = [
    {"__init__", "errors", "randomness", "console", "charts", "records", "intervals", "published"},
    {"task"},
    {"book"},
    {"schedule", "curriculum"},
    {"training", "surrogate", "construction"},
    {"theory", "probes", "audit"},
    {"experiments"},
    {"report"},
    {"cli", "commands", "__main__"},
]
LAYER = {name: number for number, names in enumerate(LAYERS) for name in names}
FORBIDDEN = {("theory", "training")}


def part_of(module: list[str]) -> str:
    """`openbook.task.text` belongs to the part `task`; `openbook` itself to `__init__`."""
    return module[1] if len(module) > 1 else "__init__"


def imported_parts(tree: ast.AST, module: list[str], is_package: bool) -> set[tuple[int, str]]:
    """Every part of openbook that a file imports, anywhere in it, with the line."""
    found = set()
    for node in ast.walk(tree):
        names: list[list[str]] = []
        if isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = module[: len(module) - node.level + is_package] if node.level else []
            stem = base + (node.module.split(".") if node.module else [])
            names = [[*stem, alias.name] for alias in node.names] if len(stem) == 1 else [stem]
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in ("import_module", "__import__"):
                names = [str(node.args[0].value).split(".")]
        for name in names:
            if name[0] == "openbook":
                part = part_of(name)
                found.add((node.lineno, part if part in LAYER or _exists(part) else "__init__"))
    return found


def _exists(part: str) -> bool:
    return (SOURCE / part).is_dir() or (SOURCE / f"{part}.py").is_file()


def complaints(text: str, module: list[str], is_package: bool = False) -> list[str]:
    mine = part_of(module)
    if mine not in LAYER:
        return [f"{'.'.join(module)}: '{mine}' has no layer: give it one in tests/test_imports.py and in the design"]
    wrong = []
    for line, other in sorted(imported_parts(ast.parse(text), module, is_package)):
        if other not in LAYER:
            wrong.append(f"{'.'.join(module)}:{line} imports '{other}', which has no layer")
        elif LAYER[other] > LAYER[mine] or (mine, other) in FORBIDDEN:
            wrong.append(f"{'.'.join(module)}:{line} imports '{other}', which is above '{mine}'")
    return wrong


def test_imports_point_one_way() -> None:
    wrong = []
    for path in sorted(SOURCE.rglob("*.py")):
        relative = path.relative_to(SOURCE.parent).with_suffix("")
        is_package = relative.name == "__init__"
        module = list(relative.parts[:-1] if is_package else relative.parts)
        wrong += complaints(path.read_text(encoding="utf-8"), module, is_package)
    assert not wrong, "\n".join(wrong)


def test_no_two_parts_import_each_other() -> None:
    edges = set()
    for path in SOURCE.rglob("*.py"):
        relative = path.relative_to(SOURCE.parent).with_suffix("")
        is_package = relative.name == "__init__"
        module = list(relative.parts[:-1] if is_package else relative.parts)
        found = imported_parts(ast.parse(path.read_text(encoding="utf-8")), module, is_package)
        edges |= {(part_of(module), other) for _, other in found if other not in ("__init__", part_of(module))}
    assert not {(a, b) for a, b in edges if (b, a) in edges}


@pytest.mark.parametrize(
    ("module", "text", "wrong"),
    [
        ("openbook.task.text", "from openbook.book import Example", "above 'task'"),
        ("openbook.task.text", "def f():\n    import openbook.training.train", "openbook.task.text:2"),
        ("openbook.task.text", "from openbook import curriculum", "above 'task'"),
        ("openbook.task.text", "from .. import curriculum", "above 'task'"),
        ("openbook.task.text", "from ..surrogate.model import x", "above 'task'"),
        ("openbook.task.text", "import importlib\nimportlib.import_module('openbook.cli')", "above 'task'"),
        ("openbook.theory.checks", "def f():\n    from openbook.training import exam", "above 'theory'"),
        ("openbook.errors", "from openbook.task import Codebook", "above 'errors'"),
        ("openbook.utils", "x = 1", "has no layer"),
        ("openbook.theory.checks", "from openbook.surrogate import model\nfrom openbook import __version__", None),
        ("openbook.task.text", "from .alphabet import alphabets\nimport numpy", None),
    ],
)
def test_the_check_sees_what_it_should(module: str, text: str, wrong: str | None) -> None:
    found = complaints(text, module.split("."))
    assert (wrong in found[0]) if wrong else not found
