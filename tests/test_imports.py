"""A room imports only from rooms above it in the list of CONTRIBUTING.md, not even inside a function from one below."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import openbook

SOURCE = Path(openbook.__file__).parent
ROOMS = [  # a room imports only from rooms above it in this list
    "__init__",
    "base",
    "figures",
    "report",
    "book",
    "curriculum",
    "task",
    "theory",
    "training",
    "student",
    "probes",
    "audit",
    "comparison",
    "paper",
    "api",
    "cli",
    "__main__",
]
PLACE = {name: number for number, name in enumerate(ROOMS)}


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
                found.add((node.lineno, part if part in PLACE or _exists(part) else "__init__"))
    return found


def _exists(part: str) -> bool:
    return (SOURCE / part).is_dir() or (SOURCE / f"{part}.py").is_file()


def complaints(text: str, module: list[str], is_package: bool = False) -> list[str]:
    mine = part_of(module)
    if mine not in PLACE:
        return [f"{'.'.join(module)}: '{mine}' is no room: give it a place in tests/test_imports.py and in the design"]
    if mine == "__init__":  # it imports public names from everywhere, when they are used
        return []
    wrong = []
    for line, other in sorted(imported_parts(ast.parse(text), module, is_package)):
        if other not in PLACE:
            wrong.append(f"{'.'.join(module)}:{line} imports '{other}', which is no room")
        elif PLACE[other] > PLACE[mine]:
            wrong.append(f"{'.'.join(module)}:{line} imports '{other}', which is below '{mine}'")
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
        if part_of(module) == "__init__":
            continue
        edges |= {(part_of(module), other) for _, other in found if other not in ("__init__", part_of(module))}
    assert not {(a, b) for a, b in edges if (b, a) in edges}


@pytest.mark.parametrize(
    ("module", "text", "wrong"),
    [
        ("openbook.book.text", "from openbook.task import Codebook", "below 'book'"),
        ("openbook.task.text", "def f():\n    import openbook.training.train", "openbook.task.text:2"),
        ("openbook.task.text", "from openbook import training", "below 'task'"),
        ("openbook.task.text", "from .. import training", "below 'task'"),
        ("openbook.task.text", "from ..theory.model import x", "below 'task'"),
        ("openbook.task.text", "import importlib\nimportlib.import_module('openbook.cli')", "below 'task'"),
        ("openbook.theory.checks", "def f():\n    from openbook.training import exam", "below 'theory'"),
        ("openbook.base.errors", "from openbook.task import Codebook", "below 'base'"),
        ("openbook.utils", "x = 1", "is no room"),
        (
            "openbook.theory.checks",
            "from openbook.theory.surrogate import model\nfrom openbook import __version__",
            None,
        ),
        ("openbook.task.text", "from .alphabet import alphabets\nimport numpy", None),
    ],
)
def test_the_check_sees_what_it_should(module: str, text: str, wrong: str | None) -> None:
    found = complaints(text, module.split("."))
    assert (wrong in found[0]) if wrong else not found
