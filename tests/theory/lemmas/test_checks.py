"""Every claim holds as stated, and none holds with a constant broken."""

from __future__ import annotations

import inspect
import itertools
import math
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest

from openbook.base.errors import InputError
from openbook.theory.lemmas import CHECKS, select
from openbook.theory.lemmas.check import Check, Outcome, count_unequal, equation, section

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


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in CHECKS]
)
def test_the_claim_holds(name: str) -> None:
    result = CHECKS[name].run()
    assert result.holds, result.outcome.measured
    assert result.check.method in METHODS
    described = result.to_json()
    assert all(described[key] is not None for key in ("name", "claim", "method", "value", "paper"))
    assert described["holds"] is True


@pytest.mark.parametrize("name, constants", BROKEN, ids=lambda value: value if isinstance(value, str) else "")
def test_a_broken_constant_is_noticed(name: str, constants: dict) -> None:
    assert not CHECKS[name].run(**constants).holds


@pytest.mark.slow
def test_the_gradient_learner_is_judged_by_its_depths() -> None:
    """Fewer steps hold too if less text is claimed; learning at depth 8 or failing at depth 1 does not."""
    run, short = CHECKS["gradient-without-context"].run, {"steps": 200, "codebooks": 8}
    assert run(times=0, **short).holds
    assert not run(times=150, **short).holds
    assert not run(times=0, learns_to=8, **short).holds
    assert not run(times=0, fails_from=1, **short).holds


def test_every_check_can_be_broken() -> None:
    """A check whose constants no test breaks would be a check that cannot fail."""
    broken = {name for name, _ in BROKEN} | {"gradient-without-context"}
    with_constants = {
        name for name, check in CHECKS.items() if set(inspect.signature(check.function).parameters) - {"seed"}
    }
    assert with_constants == broken == set(CHECKS)


def test_claims_are_sentences_and_say_how_they_are_checked() -> None:
    for name, check in CHECKS.items():
        assert check.name == name
        assert check.claim.endswith(".") and len(check.claim) < 130, name
        assert check.how.endswith("."), name
        assert not check.remark.startswith("Remark") and check.remark[-1:] in ("", "."), name


def test_the_sections_are_those_of_the_paper_and_stand_together() -> None:
    sections = [title for title, _ in itertools.groupby(check.section for check in CHECKS.values())]
    assert sections == [
        "The task",
        "Two characters",
        "Hard without context",
        "The surrogate",
        "Easy with context",
        "The transformer",
        "Gradients and algebra",
    ]


def test_a_check_is_described_by_its_docstring() -> None:
    def one_is_one(*, seed: int, one: int = 1) -> Outcome:
        """One is
        one.

        By counting.

        Remark: The paper
        prints two.

        Twice.
        """
        return Outcome(one == 1, Fraction(one, 2), f"{one}", {3: (Fraction(1, 3),)})

    check = Check.from_docstring(one_is_one, "one", "Numbers", "exhaustive", "lem:one")
    assert (check.claim, check.how, check.remark) == ("One is one.", "By counting. Twice.", "The paper prints two.")
    assert not check.run(one=2).holds
    result = check.run().to_json()
    assert result.pop("seconds") >= 0
    assert result == {
        "name": "one",
        "claim": "One is one.",
        "method": "exhaustive",
        "paper": "lem:one",
        "remark": "The paper prints two.",
        "value": 0.5,
        "measured": "1",
        "bound": {"3": [1 / 3]},
        "holds": True,
    }


def test_a_name_is_given_to_one_check_only() -> None:
    with pytest.raises(InputError, match="already a check called 'search'"):
        section("The task")("search", "algebra", "")(lambda *, seed: Outcome(True, 0, ""))


@pytest.mark.parametrize("axes, unequal, total", [(0, 1, 12), (1, 1, 4), (2, 1, 2)])
def test_an_equation_counts_what_differs(axes: int, unequal: int, total: int) -> None:
    """One entry of two matrices [2, 3] differs: one entry of twelve, one row of four, one matrix of two."""

    def almost(case: int) -> np.ndarray:
        matrix = np.zeros((2, 3))
        matrix[1, 1] = case
        return matrix

    assert count_unequal([(0,), (1,)], almost, lambda _: np.zeros((2, 3)), axes) == (unequal, total)
    outcome = equation([(0,), (1,)], almost, lambda _: np.zeros((2, 3)), "{} of {}", axes)
    assert (outcome.holds, outcome.value, outcome.measured) == (False, unequal, f"{unequal} of {total}")
    assert equation([(0,)], almost, almost, "{} of {}", axes).holds


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'composition'"):
        select(["compositon"])


def test_selection_keeps_the_order_of_the_paper() -> None:
    assert [check.name for check in select(["search", "six-maps"])] == ["six-maps", "search"]
    assert select() == list(CHECKS.values())


def test_published_numbers() -> None:
    """The exact probabilities and counts of NOTES.md."""
    decay = CHECKS["correlation-decay"].run().outcome.value
    assert [round(float(p), 4) for p in decay[:6]] == [0.3333, 0.0926, 0.0448, 0.0252, 0.0153, 0.0097]
    assert CHECKS["distinct-parities"].run().outcome.value[:6] == [3, 12, 39, 132, 441, 1494]


def test_theory_never_imports_training() -> None:
    code = (
        "import sys, openbook.theory; print([m for m in sys.modules if m.startswith(('openbook.training', 'torch'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
