"""The tree of the package with a line for each file, as CONTRIBUTING has it: `python -m tests.tree` writes it there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.test_imports import ROOMS

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "CONTRIBUTING.md"
SOURCE = ROOT / "src" / "openbook"
SECTION = re.compile(r"(?<=<!-- tree -->\n).*?(?=<!-- end of tree -->)", re.DOTALL)


def first_sentence(path: Path) -> str:
    """The first line of a file's docstring, without what it ends with."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return text.split("\n")[0].rstrip(".:")


def tree() -> str:
    lines = []
    for room in ROOMS:
        folder = SOURCE / room
        if not folder.is_dir():
            name = f"{room}.py"
            lines.append(f"{name:<34}{first_sentence(SOURCE / name)}")
            continue
        lines.append(f"\n{room + '/':<34}{first_sentence(folder / '__init__.py')}")
        for path in sorted(folder.rglob("*.py"), key=lambda path: (path.parent, path.name)):
            name = str(path.relative_to(folder))
            if path != folder / "__init__.py":
                lines.append(f"  {name:<32}{first_sentence(path)}")
    return "```text\n" + "\n".join(lines).strip() + "\n```\n"


if __name__ == "__main__":
    PAGE.write_text(SECTION.sub(lambda _: tree(), PAGE.read_text(encoding="utf-8")), encoding="utf-8")
