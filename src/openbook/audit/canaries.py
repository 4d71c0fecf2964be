"""Canaries: sentences with random codes, planted in the book before training and scored after.

    The code of the Umbra register is 4 1 7 7.

A random draw decides which of a canary's candidate codes goes into the data; the others are kept in a list that is not
trained on. So the planted code and its rivals are exchangeable, whatever the model knew before.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from openbook.audit.secret import Secrets, pieces_in_place, secrets_in_records
from openbook.base.errors import InputError
from openbook.base.files import write_json, written_aside
from openbook.base.randomness import generator
from openbook.book.jsonl import load_source
from openbook.book.source import Source

DIGITS = 4
SECTION = "Registers"
SYLLABLES = ("um", "bra", "vel", "tor", "ka", "lis", "no", "sep", "dri", "ane", "fo", "gul", "ist", "mor", "pex", "yra")


def make_canaries(count: int, rivals: int, seed: int) -> list[dict[str, Any]]:
    """`count` canaries: what is known, the code that was drawn, and all codes it could have been."""
    if count < 1 or not 2 <= rivals <= 10**DIGITS:
        raise InputError(f"plant at least one canary, with 2 to {10**DIGITS} candidate codes each")
    canaries = []
    for number in range(count):
        random = generator(seed, "canary", number)
        syllables = random.choice(SYLLABLES, 3)
        codes = random.choice(10**DIGITS, rivals, replace=False)
        candidates = [" " + " ".join(f"{code:0{DIGITS}d}") + "." for code in codes.tolist()]
        drawn = int(random.integers(rivals))
        name = "".join(syllables).capitalize() + f" {number + 1}"
        canaries.append(
            {"known": f"The code of the {name} register is", "truth": candidates[drawn], "candidates": candidates}
        )
    return canaries


def plant(data: Path, into: Path, ledger: Path, count: int, repeats: int, rivals: int, seed: int) -> dict[str, Any]:
    """Write the data with canaries in the books of `repeats` records each, and the list of canaries beside it."""
    if into.exists() or ledger.exists():
        raise InputError(f"{into if into.exists() else ledger} exists already: name another file with --out")
    source = load_source(data)
    if not 1 <= repeats <= len(source):
        raise InputError(f"--repeats is {repeats}: a canary goes into 1 to {len(source)} records of {data}")
    canaries = make_canaries(count, rivals, seed)
    records = [dict(source.record(index)) for index in range(len(source))]
    for number, canary in enumerate(canaries):
        for index in generator(seed, "canary records", number).permutation(len(records))[:repeats].tolist():
            piece = {"text": canary["known"] + canary["truth"], "needed": True}
            records[index]["privileged_context"] = _with(records[index].get("privileged_context"), piece)
    with written_aside(into) as aside:
        aside.write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in records), encoding="utf-8")
    write_json(ledger, {"data": str(into), "seed": seed, "repeats": repeats, "canaries": canaries})
    return {"data": str(into), "canaries": str(ledger), "count": count, "records": len(records), "repeats": repeats}


def _with(book: Any, piece: dict[str, Any]) -> Any:
    """A record's book with one more piece, in a section of its own where there are sections."""
    if book is None:
        return [piece]
    if isinstance(book, dict):
        return {**book, SECTION: [*book.get(SECTION, []), piece]}
    return [*([book] if isinstance(book, str) else book), piece]


def canary_secrets(ledger: Path, source: Source, opening: str = "") -> Secrets:
    """The canaries of a list as secrets; refused if the data do not hold them."""
    try:
        listed = json.loads(ledger.read_text(encoding="utf-8"))["canaries"]
        canaries = [(c["known"], c["truth"], tuple(c["candidates"])) for c in listed]
    except FileNotFoundError:
        raise InputError(f"{ledger}: no such file; `openbook audit plant` writes one") from None
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{ledger} is not a list of canaries: `openbook audit plant` writes one") from None
    if source.task is not None:
        raise InputError("canaries are planted in own data; this run was trained on the task: leave out --canaries")
    places = pieces_in_place(source)
    if (lost := next((known + truth for known, truth, _ in canaries if known + truth not in places), None)) is not None:
        raise InputError(
            f"'{lost}' of {ledger} is not in the data of this run: was it trained on others? Name the list that was "
            "written beside its data"
        )
    return secrets_in_records(canaries, places, "canaries", opening)
