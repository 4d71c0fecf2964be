"""The worked translation as steps to click through: string, shift, look-up, result, level by level."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

COLOURS = 6


def steps_of(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Steps of the first worked example; none if there is none."""
    if not rows:
        return []
    row = rows[0]
    levels = row["levels"]
    steps = [
        {
            "title": "The string",
            "words": f"{len(levels[0]['string'])} characters of the first alphabet. The book has "
            f"{row['rules_in_the_book']} rules; this string needs {row['rules_needed']} of them.",
            "lines": [_line("string", _pairs(levels[0]["string"]))],
        }
    ]
    for level in levels:
        number, shifted = level["level"], level["shifted"]
        last = len(shifted) // 2 - 1
        moved = _pairs(shifted)
        moved[last] = {**moved[last], "moved": [1]}
        coloured = [{**pair, "colour": k % COLOURS} for k, pair in enumerate(_pairs(shifted))]
        looked = [
            {"symbols": [*rule["left"], "→", *rule["right"]], "colour": k % COLOURS, "moved": []}
            for k, rule in enumerate(level["rules"])
        ]
        result = [{**pair, "colour": k % COLOURS} for k, pair in enumerate(_pairs(level["result"]))]
        steps += [
            {
                "title": f"Level {number}: shift",
                "words": "Every character moves one place to the left; the first wraps around to the end.",
                "lines": [_line("before", _pairs(level["string"])), _line("shifted", moved)],
            },
            {
                "title": f"Level {number}: look up the pairs",
                "words": f"Phrasebook {number} has a rule for every pair. These are the ones needed here: the pages "
                "that the curriculum may take away.",
                "lines": [_line("pairs", coloured), _line("rules", looked)],
            },
            {
                "title": f"Level {number}: the result",
                "words": f"The string in language {number + 1}."
                + (" It is the input of the next level." if number < len(levels) else " It is the answer."),
                "lines": [_line("result", result)],
            },
        ]
    places = ", ".join(map(str, row["depends_on"]))
    steps.append(
        {
            "title": "What the model is asked",
            "words": f"It sees the string and, as long as the book is open, the rules; it must write the answer. In "
            f"between it may think silently. The first character of the answer depends on input characters {places}.",
            "lines": [_line("input", _pairs(levels[0]["string"])), _line("answer", _pairs(levels[-1]["result"]))],
        }
    )
    return steps


def _pairs(symbols: Sequence[str]) -> list[dict[str, Any]]:
    return [{"symbols": list(symbols[k : k + 2]), "colour": None, "moved": []} for k in range(0, len(symbols), 2)]


def _line(name: str, pairs: list[dict[str, Any]]) -> dict[str, Any]:
    spoken = ", ".join(" ".join(pair["symbols"]).replace("→", "becomes") for pair in pairs)
    return {"alt": f"{name}: {spoken}", "pairs": pairs}
