"""Canaries: planted by coin, found again, and exchangeable with what was left out."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from openbook.audit.canaries import canary_secrets, make_canaries, plant
from openbook.base.errors import InputError
from openbook.book import JsonlSource, ListSource

RECORDS = [
    {"prompt": "a?", "completion": " x", "privileged_context": {"S": ["one two three"]}},
    {"prompt": "b?", "completion": " y", "privileged_context": ["four five"]},
    {"prompt": "c?", "completion": " z", "privileged_context": "six seven", "note": 1},
    {"prompt": "d?", "completion": " w"},
]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    return path


def planted(data: Path, **options: int) -> tuple[Path, Path]:
    into, ledger = data.with_name("planted.jsonl"), data.with_name("planted.canaries.json")
    plant(data, into, ledger, **{"count": 10, "repeats": 2, "rivals": 20, "seed": 0} | options)
    return into, ledger


def test_each_canary_stands_in_as_many_books_as_asked(data: Path) -> None:
    into, ledger = planted(data)
    text = into.read_text()
    for canary in json.loads(ledger.read_text())["canaries"]:
        assert text.count(canary["known"] + canary["truth"]) == 2
        rivals = [c for c in canary["candidates"] if c != canary["truth"]]
        assert len(rivals) == 19 and not any(canary["known"] + rival in text for rival in rivals)
    for before, after in zip(RECORDS, map(json.loads, text.splitlines()), strict=True):
        assert {k: v for k, v in after.items() if k != "privileged_context"} == {
            k: v for k, v in before.items() if k != "privileged_context"
        }


def test_they_are_the_secrets_of_an_audit(data: Path) -> None:
    into, ledger = planted(data)
    secrets = canary_secrets(ledger, JsonlSource(into))
    assert len(secrets) == 10 and secrets.exchangeable and not secrets.bijective
    assert all(len(s.candidates) == 20 and s.text.endswith(".\n") for s in secrets.items)
    assert secrets.chance_s == pytest.approx(1 / 20)


def test_the_coin_is_fair() -> None:
    places = [c["candidates"].index(c["truth"]) for c in make_canaries(2000, 4, seed=1)]
    assert np.bincount(places, minlength=4) / 2000 == pytest.approx([0.25] * 4, abs=0.05)
    assert make_canaries(3, 5, 1) == make_canaries(3, 5, 1) != make_canaries(3, 5, 2)


def test_what_is_refused(data: Path) -> None:
    into, ledger = planted(data)
    with pytest.raises(InputError, match="exists already"):
        planted(data)
    with pytest.raises(InputError, match="1 to 4 records"):
        plant(data, data.with_name("x"), data.with_name("y"), 1, 5, 20, 0)
    with pytest.raises(InputError, match="at least one canary"):
        plant(data, data.with_name("x"), data.with_name("y"), 1, 1, 1, 0)
    with pytest.raises(InputError, match="not in the data of this run"):
        canary_secrets(ledger, ListSource(RECORDS))
    with pytest.raises(InputError, match="no such file"):
        canary_secrets(data.with_name("none.json"), JsonlSource(into))
    with pytest.raises(InputError, match="not a list of canaries"):
        canary_secrets(data, JsonlSource(into))
