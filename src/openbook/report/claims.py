"""A sentence that was held against numbers: its verdict, the numbers, and the threshold they are held to."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

Verdict = Literal["holds", "fails", "unclear"]


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper after it was held against rows."""

    claim: str
    verdict: Verdict
    numbers: dict[str, Any]
    threshold: str
    experiment: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def numbers_in_words(self) -> str:
        """Its numbers in one line."""

        def short(value: Any) -> str:
            return f"{value:.4g}" if isinstance(value, float) else (f"{value:,}" if type(value) is int else str(value))

        return "; ".join(f"{name}: {short(value)}" for name, value in self.numbers.items())


def judge(claim: str, holds: bool | None, numbers: dict[str, Any], threshold: str, enough: bool = True) -> Claim:
    """A claim with its verdict: unclear where there is not enough evidence, or where `holds` is None."""
    verdict: Verdict = "unclear" if holds is None or not enough else ("holds" if holds else "fails")
    return Claim(claim, verdict, numbers, threshold)


def unmeasured(claim: str, threshold: str, why: str) -> Claim:
    """A claim for which nothing was measured."""
    return Claim(claim, "unclear", {"not measured": why}, threshold)
