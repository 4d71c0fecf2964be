"""`openbook translate`: one translation, worked through level by level."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from openbook.base.console import emit_json, out
from openbook.base.errors import InputError
from openbook.cli.task import choose_codebook
from openbook.task.inputs import random_inputs
from openbook.task.phrasebook import Codebook
from openbook.task.translate import Level, check_string, dependencies, invert_batch, output
from openbook.task.translate import translate as work_through

COLOURS = ("cyan", "magenta", "yellow", "green", "blue", "red")
LABEL, CELL = 11, 13  # columns of a terminal: "  shifted  ", and "A B -> K L" with a gap


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


def in_symbols(codebook: Codebook, levels: list[Level]) -> list[dict[str, Any]]:
    """The oracle's levels in symbols, as `--json` prints them: a string is shifted, cut into bigrams, and translated.

    Levels are numbered from 1, like the languages they translate from.
    """
    strings = codebook.in_symbols([*(level.string for level in levels), output(levels)])
    worked = []
    for number, (string, result) in enumerate(pairwise(strings), 1):
        shifted = string[1:] + string[:1]
        bigrams = _bigrams(shifted)
        rules = [f"{a} {b} -> {c} {d}" for (a, b), (c, d) in zip(bigrams, _bigrams(result), strict=True)]
        steps = {"string": string, "shifted": shifted, "bigrams": bigrams, "rules": rules, "result": result}
        worked.append({"level": number, **steps})
    return worked


def _bigrams(symbols: list[str]) -> list[list[str]]:
    return [symbols[place : place + 2] for place in range(0, len(symbols), 2)]


def translate(
    *string: str,
    depth: int | None = None,
    chars: int | None = None,
    length: int = 8,
    seed: int = 0,
    codebook: Path | None = None,
    invert: bool = False,
    json: bool = False,
) -> None:
    """Translate one string and show every step.

    A translation has several levels, each with a phrasebook of its own. At each level the string moves one place to
    the left and its first character goes to the end; then each pair of characters is replaced by the pair that the
    phrasebook has for it.

    Example: `openbook translate --depth 2 --chars 8 --seed 0`

    Example: `openbook translate "A B C D" --depth 3`

    Parameters
    ----------
    string:
        The string to translate, in symbols of the first alphabet (A, B, C, ...). By default it is random. With
        `--invert` it is an output, in symbols of the last alphabet.
    depth:
        Number of levels. By default 2, or that of the codebook file.
    chars:
        Number of characters in each alphabet. By default 8, or that of the codebook file.
    length:
        Length of the random string, an even number.
    seed:
        Seed of the codebook (the phrasebooks of all levels) and of the random string.
    codebook:
        File to read the codebook from: what `openbook translate --json` printed.
    invert:
        Start from an output and find the input that it came from.
    json:
        Print one JSON object, in which strings are lists of symbols.
    """
    book = choose_codebook(codebook, 2 if depth is codebook is None else depth, chars, seed)
    letters = book.alphabets()
    if string:
        given = read_string(string, letters[-1] if invert else letters[0])
    else:
        given = random_inputs(book.chars, 1, (length, length), seed)[0][0].tolist()
    worked = in_symbols(book, work_through(book, invert_batch(book, [given])[0].tolist() if invert else given))
    if not json:
        show(book, worked, invert)
        return
    first, last = worked[0]["string"], worked[-1]["result"]
    ends = {"input": last, "output": first} if invert else {"input": first, "output": last}
    levels = worked[::-1] if invert else worked
    emit_json({**ends, "inverted": invert, "levels": levels, "codebook": book.to_json()})


def show(book: Codebook, worked: list[dict[str, Any]], invert: bool) -> None:
    """The worked example on the terminal. A pair and its translation share a colour; an unshifted string has none."""
    if invert:
        how = ", backwards: at each level read the rules from right to left, then shift to the right."
        rows = {"string": "result", "rules": "rules", "pairs": "shifted", "shifted": "string"}
    else:
        how = ": at each level shift to the left by one, then look up the pairs."
        rows = {"string": "string", "shifted": "shifted", "rules": "rules", "result": "result"}
    out.print(f"[bold]MLT({book.depth}, {book.chars})[/bold]{how}")
    for level in worked[::-1] if invert else worked:
        number = level["level"]
        languages = f"{number + 1} back to {number}" if invert else f"{number} to {number + 1}"
        out.print(f"\n[bold]Level {number}[/bold], language {languages}")
        _print_steps({row: level[name] for row, name in rows.items()})
    out.print()
    ends = [("input", worked[0]["string"]), ("output", worked[-1]["result"])]
    for name, string in ends[::-1] if invert else ends:
        out.print(f"[bold]{name:<{LABEL}}[/bold]{' '.join(string)}")
    if not invert:
        places = ", ".join(str(place + 1) for place in dependencies(book.depth, 0, len(worked[0]["string"])))
        out.print(f"[dim]The first output character depends on input characters {places} alone.[/dim]")


def _print_steps(steps: dict[str, list[str]]) -> None:
    """The rows of a level in columns, one for each pair, as many side by side as the terminal holds."""
    pairs = len(steps["rules"])
    cells = {name: row if name == "rules" else [*map(" ".join, _bigrams(row))] for name, row in steps.items()}
    unshifted = "string" if "result" in steps else "shifted"
    across = max(1, (out.width - LABEL) // CELL)
    for begin in range(0, pairs, across):
        some = range(begin, min(begin + across, pairs))
        if begin:
            out.print()
        grid = Table.grid()
        for width in (LABEL, *(CELL for _ in some)):
            grid.add_column(width=width, no_wrap=True)
        for name, row in cells.items():
            styles = ["" if name == unshifted else COLOURS[p % len(COLOURS)] for p in some]
            grid.add_row(f"  {name}", *(Text(row[p], style) for p, style in zip(some, styles, strict=True)))
        out.print(grid)
