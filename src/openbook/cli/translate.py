"""`openbook translate`: one translation, worked through level by level."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.table import Table
from rich.text import Text

from openbook.base.console import emit_json, out
from openbook.base.errors import InputError
from openbook.cli.task import choose_codebook
from openbook.task.alphabet import alphabets
from openbook.task.inputs import random_inputs
from openbook.task.phrasebook import Codebook
from openbook.task.translate import Level, check_string, dependencies, invert_batch
from openbook.task.translate import translate as work_through

COLOURS = ("cyan", "magenta", "yellow", "green", "blue", "red")
LABEL, CELL = 11, 13  # columns of a terminal: "  shifted  ", and "A B -> K L" with a gap


@dataclass(frozen=True)
class Worked:
    """One level in symbols: `before` -> shifted -> rules -> `after`."""

    number: int  # levels are numbered from 1, like the languages they translate from
    before: list[str]
    shifted: list[str]
    rules: list[str]
    after: list[str]

    def to_json(self) -> dict[str, Any]:
        bigrams = [list(pair) for pair in zip(self.shifted[0::2], self.shifted[1::2], strict=True)]
        return {
            "level": self.number,
            "string": self.before,
            "shifted": self.shifted,
            "bigrams": bigrams,
            "rules": self.rules,
            "result": self.after,
        }


def read_string(words: Sequence[str], alphabet: str) -> list[int]:
    """The characters of a string as typed, with or without blanks between its symbols."""
    symbols = "".join("".join(words).split())
    for place, symbol in enumerate(symbols, 1):
        if symbol not in alphabet:
            raise InputError(
                f"character {place} of the string is '{symbol}', which is not in its alphabet {' '.join(alphabet)}"
            )
    string = [alphabet.index(symbol) for symbol in symbols]
    check_string(string, len(alphabet))
    return string


def in_symbols(codebook: Codebook, levels: list[Level]) -> list[Worked]:
    """The oracle's levels, written with the symbols of the alphabets."""
    letters = codebook.alphabets()
    worked = []
    for i, level in enumerate(levels):
        source, target = letters[i], letters[i + 1]
        rules = [
            f"{source[a]} {source[b]} -> {target[c]} {target[d]}"
            for (a, b), (c, d) in zip(level.bigrams, level.images, strict=True)
        ]
        after = [target[char] for image in level.images for char in image]
        worked.append(
            Worked(i + 1, [source[c] for c in level.string], [source[c] for c in level.shifted], rules, after)
        )
    return worked


def translate(
    *string: str,
    depth: int | None = None,
    chars: int | None = None,
    length: int = 8,
    seed: int = 0,
    codebook: Path | None = None,
    invert: Annotated[bool, Parameter(negative="")] = False,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Work one translation through, level by level.

    At each level the string is shifted to the left by one, the first character wraps around, and each pair of
    characters is looked up in the phrasebook of that level.

    Example: `openbook translate --depth 2 --chars 8 --seed 0`

    Example: `openbook translate "A B C D" --depth 3`

    Parameters
    ----------
    string:
        What to translate, in symbols of the first alphabet (a random string if none is given). With `--invert`:
        what to take back, in symbols of the last one.
    depth:
        Levels of translation (2, or the codebook file's).
    chars:
        Characters of each alphabet (8, or the codebook file's).
    length:
        Length of the random string, an even number.
    seed:
        Determines the codebook and the random string.
    codebook:
        Take the codebook from this file (as `--json` prints it).
    invert:
        Go back from an output to its input.
    json:
        One JSON object instead of the worked example; strings are lists of symbols.
    """
    book = choose_codebook(codebook, 2 if depth is None and codebook is None else depth, chars, seed)
    letters = alphabets(book.depth, book.chars)
    if string:
        given = read_string(string, letters[-1] if invert else letters[0])
    else:
        given = random_inputs(book.chars, 1, (length, length), seed)[0][0].tolist()
    source = invert_batch(book, [given])[0].tolist() if invert else given
    worked = in_symbols(book, work_through(book, source))
    first, last = worked[0].before, worked[-1].after
    if json:
        shown = [level.to_json() for level in (reversed(worked) if invert else worked)]
        ends = {"input": last, "output": first} if invert else {"input": first, "output": last}
        emit_json({**ends, "inverted": invert, "levels": shown, "codebook": book.to_json()})
        return
    show(book, worked, invert)


def show(book: Codebook, worked: list[Worked], invert: bool) -> None:
    """The worked example on the terminal. A pair and its translation share a colour; an unshifted string has none."""
    first, last = " ".join(worked[0].before), " ".join(worked[-1].after)
    title = f"[bold]MLT({book.depth}, {book.chars})[/bold]"
    if invert:
        out.print(f"{title}, backwards: at each level read the rules from right to left, then shift to the right.")
        for level in reversed(worked):
            out.print(f"\n[bold]Level {level.number}[/bold], language {level.number + 1} back to {level.number}")
            _print_steps({"string": level.after, "rules": level.rules, "pairs": level.shifted, "shifted": level.before})
        out.print("\n[bold]output[/bold]     ", last, sep="")
        out.print("[bold]input[/bold]      ", first, sep="")
        return
    out.print(f"{title}: at each level shift to the left by one, then look up the pairs.")
    for level in worked:
        out.print(f"\n[bold]Level {level.number}[/bold], language {level.number} to {level.number + 1}")
        _print_steps({"string": level.before, "shifted": level.shifted, "rules": level.rules, "result": level.after})
    out.print("\n[bold]input[/bold]      ", first, sep="")
    out.print("[bold]output[/bold]     ", last, sep="")
    places = [str(place + 1) for place in dependencies(book.depth, 0, len(worked[0].before))]
    out.print(f"[dim]The first output character depends on input characters {', '.join(places)} alone.[/dim]")


def _print_steps(steps: dict[str, list[str]]) -> None:
    """The rows of a level in columns, one for each pair, as many side by side as the terminal holds."""
    pairs = len(steps["rules"])
    unshifted = "string" if "result" in steps else "shifted"
    across = max(1, (out.width - LABEL) // CELL)
    for begin in range(0, pairs, across):
        some = range(begin, min(begin + across, pairs))
        if begin:
            out.print()
        grid = Table.grid()
        for width in (LABEL, *(CELL for _ in some)):
            grid.add_column(width=width, no_wrap=True)
        for name, symbols in steps.items():
            cells = symbols if name == "rules" else [" ".join(symbols[2 * p : 2 * p + 2]) for p in range(pairs)]
            styles = ["" if name == unshifted else COLOURS[p % len(COLOURS)] for p in some]
            grid.add_row(f"  {name}", *(Text(cells[p], style) for p, style in zip(some, styles, strict=True)))
        out.print(grid)
