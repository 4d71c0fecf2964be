"""What a check is: a claim of the paper, the way it is tested, what was measured and whether the claim stands.

A check is a function whose keyword arguments are the constants of the claim, so that

    correlation_pair.run()                               # 1/3, as the paper says: holds
    correlation_pair.run(probability=Fraction(1, 4))     # a broken constant: does not hold

are both possible; tests use the second form to see each check fail.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

Method = Literal["exhaustive", "exact counting", "Monte-Carlo with interval", "algebra"]
Z = 3.29  # 99.9 %: with some five sampled checks in a run, a false alarm is a matter of one run in two hundred


@dataclass(frozen=True)
class Outcome:
    """What a check found: the measured value (for machines), the same in words, the bound it is held against."""

    holds: bool
    value: Any
    measured: str
    bound: Any = None


@dataclass(frozen=True)
class Result:
    """One check after it ran."""

    check: Check
    outcome: Outcome
    seconds: float

    @property
    def holds(self) -> bool:
        return self.outcome.holds

    def to_json(self) -> dict[str, Any]:
        described = self.check.to_json()
        found = {
            "value": _json(self.outcome.value),
            "measured": self.outcome.measured,
            "bound": _json(self.outcome.bound),
            "holds": bool(self.outcome.holds),
            "seconds": round(self.seconds, 3),
        }
        return {**described, **found}


@dataclass(frozen=True)
class Check:
    """A named claim. `paper` is its label in the paper's source, or "beyond" for what the paper does not say."""

    name: str
    claim: str
    method: Method
    paper: str
    remark: str
    function: Callable[..., Outcome]

    def run(self, seed: int = 0, **constants: Any) -> Result:
        """Run with the paper's constants, or with others in their place; `seed` is for the checks that draw."""
        started = time.perf_counter()
        outcome = self.function(seed=seed, **constants)
        return Result(self, outcome, time.perf_counter() - started)

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "claim": self.claim,
            "method": self.method,
            "paper": self.paper,
            "remark": self.remark,
        }


def check(
    name: str, claim: str, method: Method, paper: str, remark: str = ""
) -> Callable[[Callable[..., Outcome]], Check]:
    """Make a check of a function `(*, seed, **constants) -> Outcome`."""

    def decorate(function: Callable[..., Outcome]) -> Check:
        return Check(name, claim, method, paper, remark, function)

    return decorate


def _json(value: Any) -> Any:
    """Exact fractions as numbers, everything else as it is."""
    if isinstance(value, Fraction):
        return float(value)
    if isinstance(value, dict):
        return {str(key): _json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_json(item) for item in value]
    return value


def ratio(value: Fraction) -> str:
    """A fraction as people write it."""
    return str(value.numerator) if value.denominator == 1 else f"{value.numerator}/{value.denominator}"
