"""The paper's claims, checked by machine.

`CHECKS` names every check in the order of the paper: the task, two characters, the SQ dimension, the surrogate,
learning with context, the transformer's product, and what lies beyond the paper. Each takes the constants of its
claim as keyword arguments, so a claim can be broken on purpose. `run` runs them all or the ones asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from openbook.base.errors import InputError, nearest
from openbook.theory.lemmas.binary import (
    affine,
    composition,
    correlation_both,
    correlation_pair,
    correlation_six,
    mirror_correlation,
    six_maps,
)
from openbook.theory.lemmas.check import Check, Outcome, Result
from openbook.theory.lemmas.coverage import coupon_collector, coverage, intermediate_distribution, sample_complexity
from openbook.theory.lemmas.decay import (
    correlation_decay,
    correlation_sampled,
    distinct_parities,
    local_lemma,
    recurrence,
)
from openbook.theory.lemmas.general import sq_embedding, sq_explicit
from openbook.theory.lemmas.learnability import (
    elimination,
    elimination_one_string,
    gradient_without_context,
    sgd_signal,
)
from openbook.theory.lemmas.mappings import bijection_count, dependencies, invertibility, shift_matters
from openbook.theory.lemmas.particles import decay_deep
from openbook.theory.lemmas.positions import circular_correlation, circular_invariance, cross_correlation, uniformity
from openbook.theory.lemmas.product import gelu_product
from openbook.theory.lemmas.rate import decay_rate
from openbook.theory.lemmas.recovery import (
    column_uniqueness,
    descent,
    gradient_first_layer,
    gradient_second_layer,
    level_uniqueness,
    search,
)
from openbook.theory.lemmas.surrogate_lemmas import (
    context_augmented,
    icl_capability,
    q_identities,
    q_vectors,
    shift_equivalence,
    task_capability,
    translate_equivalence,
)

__all__ = ["CHECKS", "SECTIONS", "Check", "Outcome", "Result", "run", "select"]

SECTIONS: dict[str, tuple[Check, ...]] = {
    "The task": (bijection_count, invertibility, dependencies, shift_matters),
    "Two characters": (
        six_maps,
        affine,
        mirror_correlation,
        correlation_six,
        correlation_pair,
        correlation_both,
        composition,
        uniformity,
        circular_invariance,
        circular_correlation,
        cross_correlation,
    ),
    "Hard without context": (
        recurrence,
        correlation_decay,
        correlation_sampled,
        decay_rate,
        decay_deep,
        distinct_parities,
        local_lemma,
        sq_embedding,
        sq_explicit,
        sgd_signal,
    ),
    "The surrogate": (
        shift_equivalence,
        translate_equivalence,
        context_augmented,
        icl_capability,
        task_capability,
        q_vectors,
        q_identities,
    ),
    "Easy with context": (
        level_uniqueness,
        column_uniqueness,
        search,
        intermediate_distribution,
        coupon_collector,
        coverage,
        gradient_first_layer,
        gradient_second_layer,
        descent,
        sample_complexity,
    ),
    "The transformer": (gelu_product,),
    "Gradients and algebra": (gradient_without_context, elimination, elimination_one_string),
}
CHECKS: tuple[Check, ...] = tuple(one for section in SECTIONS.values() for one in section)


def select(names: Sequence[str] | None = None) -> list[Check]:
    """The checks of these names, in the paper's order; all of them when no name is given."""
    known = {one.name: one for one in CHECKS}
    if names is not None and not names:
        raise InputError("no check named: leave --only out for all, or name some (`openbook theory --list`)")
    for name in names or ():
        if name not in known:
            hint = nearest(name, known)
            raise InputError(f"there is no check '{name}'{hint} (`openbook theory --list` names them all)")
    return [one for one in CHECKS if not names or one.name in names]


def run(names: Sequence[str] | None = None, seed: int = 0) -> Iterator[Result]:
    """Run checks one after another, yielding each result as it is there."""
    for one in select(names):
        yield one.run(seed=seed)
