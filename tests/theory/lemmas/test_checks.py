"""Every claim holds as stated, and none holds with a constant broken."""

from __future__ import annotations

import inspect
import math
import subprocess
import sys
from fractions import Fraction

import pytest

from openbook.base.errors import InputError
from openbook.theory.lemmas import CHECKS, select

SLOW = {"gradient-without-context", "decay-deep"}
METHODS = {"exhaustive", "exact counting", "Monte-Carlo with interval", "algebra"}
QUARTER, TENTH = Fraction(1, 4), Fraction(1, 10)

# One broken constant for each claim (or more than one): the check must then fail.
BROKEN = [
    ("bijection-count", {"formula": lambda n: math.factorial(n) ** 2}),
    ("invertibility", {"skipped": 1}),
    ("dependencies", {"per_level": 3}),
    ("shift-matters", {"characters": 4}),
    ("six-maps", {"maps": 5}),
    ("six-maps", {"mirror": 3}),
    ("affine", {"count": 23}),
    ("mirror-correlation", {"mirrors": 5}),
    ("correlation-six", {"probability": QUARTER}),
    ("correlation-pair", {"probability": QUARTER}),
    ("correlation-both", {"probability": QUARTER}),
    ("composition", {"probabilities": (QUARTER, Fraction(1, 9), Fraction(0))}),
    ("composition", {"probabilities": (Fraction(1, 3), TENTH, Fraction(0))}),
    ("composition", {"probabilities": (Fraction(1, 3), Fraction(1, 9), TENTH)}),
    ("uniformity", {"mean": QUARTER}),
    ("circular-invariance", {"step": 1}),
    ("circular-correlation", {"step": 1}),
    ("cross-correlation", {"factor": Fraction(49, 100)}),
    ("recurrence", {"ninth": TENTH}),
    ("recurrence", {"factor": Fraction(5, 9)}),
    ("correlation-decay", {"base": Fraction(3, 10)}),
    ("correlation-decay", {"factor": Fraction(5, 9)}),
    ("decay-rate", {"factor": Fraction(4, 5)}),
    ("decay-deep", {"depth": 60, "runs": 6, "particles": 2000}),
    ("correlation-sampled", {"probability": TENTH}),
    ("distinct-parities", {"counts": (3, 12, 39, 132, 441, 1495)}),
    ("local-lemma", {"p": lambda d: 1 - Fraction(1, 3) * Fraction(7, 9) ** (d - 1)}),
    ("sq-embedding", {"per_character": 2}),
    ("sq-explicit", {"exponent": 2}),
    ("sgd-signal", {"constant": 0.01}),
    ("shift-equivalence", {"by": 2}),
    ("translate-equivalence", {"transpose": True}),
    ("context-augmented", {"hard": False}),
    ("icl-capability", {"norm": 0.6}),
    ("icl-capability", {"norm": 0.4}),
    ("task-capability", {"wrong_columns": 1}),
    ("q-vectors", {"swapped": True}),
    ("q-identities", {"swapped": True}),
    ("level-uniqueness", {"solutions": 2}),
    ("column-uniqueness", {"solutions": 2}),
    ("search", {"passes_per_level": 1.0}),
    ("intermediate-distribution", {"strings": 2}),
    ("coupon-collector", {"scale": 0.9}),
    ("coverage", {"scale": 1.0}),
    ("gradient-first-layer", {"scale": 2}),
    ("gradient-second-layer", {"scale": 1}),
    ("descent", {"steps": (1, 1)}),
    ("descent", {"steps": (2, 0)}),
    ("sample-complexity", {"with_log_n": False}),
    ("gelu-product", {"constant": math.sqrt(2 / math.pi)}),
    ("gelu-product", {"order": 4.0}),
    ("elimination", {"extra": 0.0}),
    ("elimination-one-string", {"bigrams": 1.0}),
]


def check(name: str):
    return select([name])[0]


@pytest.mark.parametrize(
    "name", [pytest.param(c.name, marks=[pytest.mark.slow] if c.name in SLOW else []) for c in CHECKS]
)
def test_the_claim_holds(name: str) -> None:
    result = check(name).run()
    assert result.holds, result.outcome.measured
    assert result.check.method in METHODS
    described = result.to_json()
    assert all(described[key] is not None for key in ("name", "claim", "method", "value", "paper"))
    assert described["holds"] is True


@pytest.mark.parametrize("name, constants", BROKEN, ids=lambda value: value if isinstance(value, str) else "")
def test_a_broken_constant_is_noticed(name: str, constants: dict) -> None:
    assert not check(name).run(**constants).holds


@pytest.mark.slow
def test_the_gradient_learner_is_judged_by_its_depths() -> None:
    """Fewer steps hold too if less text is claimed; learning at depth 8 or failing at depth 1 does not."""
    run, short = check("gradient-without-context").run, {"steps": 200, "codebooks": 8}
    assert run(times=0, **short).holds
    assert not run(times=150, **short).holds
    assert not run(times=0, learns_to=8, **short).holds
    assert not run(times=0, fails_from=1, **short).holds


def test_every_check_can_be_broken() -> None:
    """A check whose constants no test breaks would be a check that cannot fail."""
    broken = {name for name, _ in BROKEN} | {"gradient-without-context"}
    with_constants = {c.name for c in CHECKS if set(inspect.signature(c.function).parameters) - {"seed"}}
    assert with_constants == broken == {c.name for c in CHECKS}


def test_names_are_unique_and_claims_are_sentences() -> None:
    assert len({c.name for c in CHECKS}) == len(CHECKS)
    for one in CHECKS:
        assert one.claim.endswith(".") and len(one.claim) < 130, one.name
        assert one.function.__doc__


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'composition'"):
        select(["compositon"])


def test_selection_keeps_the_order_of_the_paper() -> None:
    assert [c.name for c in select(["search", "six-maps"])] == ["six-maps", "search"]
    assert select() == list(CHECKS)


def test_published_numbers() -> None:
    """The exact probabilities and counts of NOTES.md."""
    decay = check("correlation-decay").run().outcome.value
    assert [round(float(p), 4) for p in decay[:6]] == [0.3333, 0.0926, 0.0448, 0.0252, 0.0153, 0.0097]
    assert check("distinct-parities").run().outcome.value[:6] == [3, 12, 39, 132, 441, 1494]


def test_theory_never_imports_training() -> None:
    code = (
        "import sys, openbook.theory; print([m for m in sys.modules if m.startswith(('openbook.training', 'torch'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
