"""The worked translation as steps to click through: string, shift, look-up, result, level by level."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

COLOURS = 6


def steps_of(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Steps of the first worked example; none if there is none."""
    if not rows:
        return []
    row = rows[0]
    levels = row["levels"]
    string, answer = levels[0]["string"], levels[-1]["result"]
    size = f"{len(string)} characters of the first alphabet. The book has {row['rules_in_the_book']} rules; "
    steps = [_step("The string", f"{size}this string needs {row['rules_needed']} of them.", string=_pairs(string))]
    for level in levels:
        title, shifted = f"Level {level['level']}", _pairs(level["shifted"])
        shifted[-1]["moved"] = [1]
        rules = _coloured({"symbols": [*rule["left"], "→", *rule["right"]], "moved": []} for rule in level["rules"])
        steps += [
            _step(
                f"{title}: shift",
                "Every character moves one place to the left; the first wraps around to the end.",
                before=_pairs(level["string"]),
                shifted=shifted,
            ),
            _step(
                f"{title}: look up the pairs",
                f"Phrasebook {level['level']} has a rule for every pair. These are the ones needed here: the pages "
                "that the curriculum may take away.",
                pairs=_coloured(_pairs(level["shifted"])),
                rules=rules,
            ),
            _step(
                f"{title}: the result",
                f"The string in language {level['level'] + 1}. "
                f"It is the {'answer' if level is levels[-1] else 'input of the next level'}.",
                result=_coloured(_pairs(level["result"])),
            ),
        ]
    places = ", ".join(map(str, row["depends_on"]))
    words = (
        "It sees the string and, as long as the book is open, the rules; it must write the answer. In between it may "
        f"think silently. The first character of the answer depends on input characters {places}."
    )
    return [*steps, _step("What the model is asked", words, input=_pairs(string), answer=_pairs(answer))]


def _step(title: str, words: str, **lines: list[dict[str, Any]]) -> dict[str, Any]:
    """A step with its lines of tiles, which are also told in words."""
    return {"title": title, "words": words, "lines": [_line(name, pairs) for name, pairs in lines.items()]}


def _line(name: str, pairs: list[dict[str, Any]]) -> dict[str, Any]:
    spoken = ", ".join(" ".join(pair["symbols"]).replace("→", "becomes") for pair in pairs)
    return {"alt": f"{name}: {spoken}", "pairs": pairs}


def _pairs(symbols: Sequence[str]) -> list[dict[str, Any]]:
    return [{"symbols": list(symbols[k : k + 2]), "colour": None, "moved": []} for k in range(0, len(symbols), 2)]


def _coloured(pairs: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**pair, "colour": k % COLOURS} for k, pair in enumerate(pairs)]
