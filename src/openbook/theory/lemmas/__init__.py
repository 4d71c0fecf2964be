"""The paper's claims, checked by machine.

`CHECKS` has every check by name, in the order of the paper: the task, two characters, the SQ dimension, the surrogate,
learning with context, the transformer's product, and what lies beyond the paper. Each takes the constants of its claim
as keyword arguments, so a claim can be broken on purpose: `CHECKS["search"].run(passes_per_level=1.0)`.
"""

from __future__ import annotations

from collections.abc import Sequence

from openbook.base.errors import InputError, nearest

# isort: off
# Each module registers its checks when it is imported, so this is the order of the paper.
from openbook.theory.lemmas import task_properties, two_characters  # noqa: F401
from openbook.theory.lemmas import correlation, rate, particles, sq_dimension  # noqa: F401
from openbook.theory.lemmas import equivalence, search, depth_two, gelu, learnability  # noqa: F401

# isort: on
from openbook.theory.lemmas.check import CHECKS, Check, Outcome, Result

__all__ = ["CHECKS", "Check", "Outcome", "Result", "select"]


def select(names: Sequence[str] | None = None) -> list[Check]:
    """The checks of these names, in the paper's order; all of them when no name is given."""
    if names is not None and not names:
        raise InputError("no check is named: leave --only out to run all, or name some (`openbook theory --list`)")
    for name in names or ():
        if name not in CHECKS:
            raise InputError(
                f"there is no check '{name}'{nearest(name, CHECKS)} (`openbook theory --list` lists them all)"
            )
    return [check for name, check in CHECKS.items() if not names or name in names]
