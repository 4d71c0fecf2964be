"""Rules of the house that no linter knows: what is private, what may be asked of whom, and how long a file is."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.tree import PAGE, SECTION, tree

import openbook

SOURCE = Path(openbook.__file__).parent
ROOT = Path(__file__).parents[1]
LONGEST = 600  # lines of a file
REPEATED = 15  # lines that may stand twice
KINDS = {  # classes whose kind only their own room may ask for
    "Translations": "task",
    "ListSource": "book",
    "JsonlSource": "book",
    "StudentForCausalLM": "student",
    "ReleasedFormat": "task",
    "CompactFormat": "task",
    "CompositeFormat": "task",
    "PairsFormat": "task",
}


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(SOURCE.rglob("*.py")):
        yield path.relative_to(SOURCE).parts[0].removesuffix(".py"), path


def private_imports(text: str, room: str | None) -> list[str]:
    """Private names that a file imports from another room; a test has no room."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("openbook."):
            other = (node.module or "").split(".")[1]
            found += [
                a.name for a in node.names if a.name.startswith("_") and a.name != "__version__" and other != room
            ]
    return found


def kind_questions(text: str, room: str) -> list[str]:
    """Where a file asks for the class of a source, a format or a model of another room."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
            names = {n.id for n in ast.walk(node.args[1]) if isinstance(n, ast.Name)}
            found += [f"line {node.lineno}: {name}" for name in names & set(KINDS) if KINDS[name] != room]
    return found


def test_private_names_stay_in_their_room() -> None:
    wrong = {str(path): names for room, path in modules() if (names := private_imports(path.read_text(), room))}
    for path in (*(ROOT / "tests").rglob("*.py"), *(ROOT / "benchmarks").glob("*.py")):
        if names := private_imports(path.read_text(), None):
            wrong[str(path)] = names
    assert wrong == {}


def test_nobody_asks_what_kind_of_source_or_model_it_is() -> None:
    assert {str(path): found for room, path in modules() if (found := kind_questions(path.read_text(), room))} == {}


def test_no_file_is_very_long() -> None:
    long = {str(path): count for _, path in modules() if (count := path.read_text().count("\n")) > LONGEST}
    assert long == {}


def repeated_runs(texts: dict[str, str]) -> list[tuple[str, str]]:
    """Pairs of places that share more than `REPEATED` lines of code to the letter."""
    seen: dict[tuple[str, ...], str] = {}
    pairs = []
    for name, text in texts.items():
        lines = [line.strip() for line in text.splitlines()]
        code = [line for line in lines if line and not line.startswith(("#", "import ", "from ", '"""', "@"))]
        code = [line for line in code if len(line) > 3]
        for start in range(len(code) - REPEATED):
            run = tuple(code[start : start + REPEATED + 1])
            if run in seen and seen[run] != name:
                pairs.append((seen[run], name))
            seen.setdefault(run, name)
    return pairs


def test_no_long_run_of_lines_stands_twice() -> None:
    assert repeated_runs({str(path): path.read_text() for _, path in modules()}) == []


def test_the_rules_see_what_they_should() -> None:
    assert private_imports("from openbook.task.text import _x, y", "book") == ["_x"]
    assert private_imports("from openbook.task.text import _x", "task") == []
    assert kind_questions("isinstance(s, Translations | ListSource)", "book") == ["line 1: Translations"]
    assert not kind_questions("isinstance(s, int)", "book")
    text = "\n".join(f"value_{k} = {k}" for k in range(REPEATED + 1))
    assert repeated_runs({"a": text, "b": text}) == [("a", "b")]
    assert repeated_runs({"a": text, "b": text.replace("value_3", "other")}) == []


@pytest.mark.parametrize("room", ["training", "book", "task", "curriculum"])
def test_rooms_of_any_model_do_not_name_the_student(room: str) -> None:
    """`training` knows families by a table of names; a message may say what a student is."""
    for path in (SOURCE / room).rglob("*.py"):
        assert "openbook.student." not in path.read_text().replace('"openbook.student.', '"')


def test_the_tree_in_contributing_is_that_of_the_package() -> None:
    found = SECTION.search(PAGE.read_text(encoding="utf-8"))
    assert found is not None and found.group() == tree(), "write it anew: python -m tests.tree"
