"""Pages of `docs/` that say `<!-- tested -->` are true: their files are written, their commands and Python are run.

A page is followed from top to bottom in an empty folder, as a reader would:

    ```jsonl facts.jsonl      a block with a file name is written to that file
    ```console                `$ openbook ...` is run; what follows is its output, where `...` stands for anything
    ```python                 is executed; the names of earlier blocks are still known

Output that starts with `openbook: ` is a complaint: the command must then fail with exit code 2. A block with any other
language is only shown. Other pages opt in with the same comment.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from openbook.audit.attack import ATTACKS
from openbook.base.registry import Registry
from openbook.cli import main
from openbook.curriculum import PRESETS
from openbook.paper import EXPERIMENTS
from openbook.task.formats import FORMATS
from openbook.training.families import FAMILIES

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs"
BLOCK = re.compile(r"^```(\w+)(?: ([\w./-]+))?\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
PAGES = sorted(page.name for page in FOLDER.glob("*.md") if "<!-- tested -->" in page.read_text(encoding="utf-8"))
ALL_PAGES = sorted([*ROOT.glob("*.md"), *FOLDER.glob("*.md")])


def commands(block: str) -> list[tuple[list[str], str]]:
    """The commands of a console block, each with the output shown below it."""
    found = []
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        lines = part.splitlines()
        command = lines.pop(0)
        while command.endswith("\\"):
            command = command[:-1] + lines.pop(0)
        found.append((shlex.split(command), "\n".join(lines).strip()))
    return found


def says(shown: str, spoken: str) -> bool:
    """Whether the output is as shown, blanks aside; `...` in it stands for anything."""
    words = [re.escape(word) if word != "..." else ".*?" for word in shown.split()]
    return re.fullmatch(r"\s*".join(words), " ".join(spoken.split()), re.DOTALL) is not None


def follow(text: str, capsys: pytest.CaptureFixture[str]) -> int:
    """Do what a page says, in the current folder; how many blocks were acted upon."""
    names: dict[str, object] = {"__name__": "page"}
    acted = 0
    for language, file, block in BLOCK.findall(text):
        acted += 1
        if file:
            Path(file).write_text(block, encoding="utf-8")
        elif language == "python":
            exec(compile(block, "page", "exec", dont_inherit=True), names)  # the reader would do the same
        elif language == "console":
            for (program, *arguments), shown in commands(block):
                assert program == "openbook", f"only openbook is run, not {program}"
                capsys.readouterr()
                code = main(arguments)
                output = capsys.readouterr()
                assert code == (2 if shown.startswith("openbook: ") else 0), (arguments, output.err)
                spoken = output.err if code else output.out
                assert not shown or says(shown, spoken), f"openbook {arguments} said:\n{spoken}"
        else:
            acted -= 1
    return acted


def test_there_are_pages_to_follow() -> None:
    assert {"own-data.md", "curricula.md"} <= set(PAGES)


@pytest.fixture
def registered() -> Iterator[None]:
    """What a page's plugins register is forgotten after it, as it is when a process ends."""
    registries: list[Registry[Any]] = [ATTACKS, EXPERIMENTS, FAMILIES, FORMATS, PRESETS]
    before = [set(registry) for registry in registries]
    yield
    for registry, names in zip(registries, before, strict=True):
        for name in set(registry) - names:
            registry.remove(name)


REAL = {"own-data.md", "real-model.md"}  # pages that use the pre-trained model


@pytest.mark.slow
@pytest.mark.parametrize("page", [pytest.param(p, marks=pytest.mark.real_model) if p in REAL else p for p in PAGES])
def test_a_page_is_true(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], registered: None
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("openbook.base.console.out._width", 80)
    assert follow((FOLDER / page).read_text(encoding="utf-8"), capsys) > 2


def anchors(text: str) -> set[str]:
    """What a page's headings are called in links: small letters, no punctuation, a dash for each blank."""
    headings = re.findall(r"^#+ (.+)$", FENCED.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def astray(page: Path) -> list[str]:
    """The links of a page, to files and to headings, that lead nowhere."""
    found = []
    for link in re.findall(r"\]\((?!http)([^)\s]+)\)", FENCED.sub("", page.read_text(encoding="utf-8"))):
        file, _, anchor = link.partition("#")
        target = page.parent / file if file else page
        if not target.exists() or (anchor and anchor not in anchors(target.read_text(encoding="utf-8"))):
            found.append(link)
    return found


@pytest.mark.parametrize("page", ALL_PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    assert astray(page) == []


@pytest.mark.parametrize("link", ["other.md", "#no-such-heading", "page.md#no-such-heading"])
def test_a_link_that_leads_nowhere_is_found_out(link: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# A heading, with `code`\n\n[there](#a-heading-with-code) [nowhere]({link})\n", encoding="utf-8")
    assert astray(page) == [link]


@pytest.mark.parametrize(
    "text",
    [
        "```console\n$ openbook translate --depth 0\n```\n",  # a command that fails
        "```console\n$ openbook --version\n99.9\n```\n",  # output that is not what is shown
        "```console\n$ openbook --version\nopenbook: no such thing\n```\n",  # a complaint that does not come
        "```python\nassert 1 == 2\n```\n",
    ],
)
def test_a_page_that_is_not_true_is_found_out(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(AssertionError):
        follow(text, capsys)


def test_dots_stand_for_anything() -> None:
    assert says("closed ... 0.100\n... done", "closed 0.93  0.100\n 3 s, done")
    assert not says("closed ... 0.100", "open 0.93 0.100")
    assert not says("closed", "closed 1")
