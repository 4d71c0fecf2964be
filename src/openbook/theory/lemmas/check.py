"""What a check is: a claim of the paper, the way it is tested, what was measured and whether the claim holds.

A check is a function whose keyword arguments are the constants of its claim, so that

    correlation_pair.run()                               # 1/3, as the paper says: holds
    correlation_pair.run(probability=Fraction(1, 4))     # a wrong constant: does not hold

are both possible; tests use the second form to see each check fail. The docstring of the function is what readers of
`openbook theory` see. Its first paragraph is the claim, and a paragraph that begins with "Remark:" tells where the
paper slips; what stands between them tells how the claim is checked. One decorator registers the function:

    check = section("The task")

    @check("bijection-count", "exact counting", "lem:num_bijective")
    def bijection_count(*, seed: int, formula=...) -> Outcome:
"""

from __future__ import annotations

import inspect
import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from openbook.base.registry import Registry

Method = Literal["exhaustive", "exact counting", "Monte-Carlo with interval", "algebra"]
Z = 3.29  # 99.9 %: with some five sampled checks in a run, a false alarm is a matter of one run in two hundred


@dataclass(frozen=True)
class Outcome:
    """What a check measured: the value (for machines), the same in words, and the bound that it is compared with."""

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
        return bool(self.outcome.holds)

    def to_json(self) -> dict[str, Any]:
        return {
            **self.check.to_json(),
            "value": _plain(self.outcome.value),
            "measured": self.outcome.measured,
            "bound": _plain(self.outcome.bound),
            "holds": self.holds,
            "seconds": round(self.seconds, 3),
        }


@dataclass(frozen=True)
class Check:
    """A named claim. `paper` is its label in the paper's source, or "beyond" for what the paper does not say."""

    name: str
    section: str
    claim: str
    how: str
    remark: str
    method: Method
    paper: str
    function: Callable[..., Outcome]

    @classmethod
    def from_docstring(
        cls, function: Callable[..., Outcome], name: str, section: str, method: Method, paper: str
    ) -> Check:
        """A check whose claim, explanation and remark are the paragraphs of the function's docstring."""
        claim, *explained = (" ".join(part.split()) for part in (inspect.getdoc(function) or "").split("\n\n"))
        how = " ".join(part for part in explained if not part.startswith("Remark: "))
        remark = " ".join(part.removeprefix("Remark: ") for part in explained if part.startswith("Remark: "))
        return cls(name, section, claim, how, remark, method, paper, function)

    def run(self, seed: int = 0, **constants: Any) -> Result:
        """Run with the paper's constants, or with others in their place; `seed` is for the checks that draw."""
        started = time.perf_counter()
        outcome = self.function(seed=seed, **constants)
        return Result(self, outcome, time.perf_counter() - started)

    def to_json(self) -> dict[str, Any]:
        return {key: getattr(self, key) for key in ("name", "claim", "method", "paper", "remark")}


CHECKS: Registry[Check] = Registry("check")


def section(title: str) -> Callable[[str, Method, str], Callable[[Callable[..., Outcome]], Check]]:
    """The decorator `check(name, method, paper)` of one section: it registers `function(*, seed, **constants)`."""

    def check(name: str, method: Method, paper: str) -> Callable[[Callable[..., Outcome]], Check]:
        return lambda function: CHECKS.register(name)(Check.from_docstring(function, name, title, method, paper))

    return check


def count_unequal(
    cases: Iterable[tuple[Any, ...]], left: Callable[..., ArrayLike], right: Callable[..., ArrayLike], axes: int
) -> tuple[int, int]:
    """Compute both sides of an equation for each case: (the number of items that differ, the number of items).

    A case is a tuple of arguments; the last `axes` axes of what the two sides return make up one item.
    """
    unequal = total = 0
    for case in cases:
        one, other = np.asarray(left(*case)), np.asarray(right(*case))
        if one.shape != other.shape:
            raise ValueError(f"the two sides of an equation have shapes {one.shape} and {other.shape}")
        differs = (one != other).any(axis=tuple(range(-axes, 0)))
        unequal, total = unequal + int(differs.sum()), total + differs.size
    return unequal, total


def equation(
    cases: Iterable[tuple[Any, ...]],
    left: Callable[..., ArrayLike],
    right: Callable[..., ArrayLike],
    measured: str,
    axes: int = 2,
) -> Outcome:
    """The outcome of `left = right` in all cases. `measured` has a place for each number of `count_unequal`."""
    unequal, total = count_unequal(cases, left, right, axes)
    return Outcome(unequal == 0, unequal, measured.format(unequal, total), 0)


def _plain(value: Any) -> Any:
    """The value as JSON has it, with exact fractions as numbers."""
    return json.loads(json.dumps(value, default=float))
