"""Every figure and table of the paper as an experiment, in the paper's order."""

from __future__ import annotations

from collections.abc import Sequence

from openbook.base.errors import InputError, nearest
from openbook.paper import (
    brief,
    built_efficiency,
    construction,
    dynamics,
    five_levels,
    gap,
    gradients,
    lemmas,
    passes,
    perturbation,
    plain,
    rates,
    recovery,
    reliance,
    sample_efficiency,
    selective,
    stitching,
    trainability,
    translation,
)
from openbook.paper.experiment import Experiment

EXPERIMENTS: tuple[Experiment, ...] = (
    translation.EXPERIMENT,
    sample_efficiency.EXPERIMENT,
    five_levels.EXPERIMENT,
    five_levels.LARGER,
    rates.THREE,
    rates.EXPERIMENT,
    rates.LARGER,
    plain.EXPERIMENT,
    brief.EXPERIMENT,
    passes.EXPERIMENT,
    reliance.EXPERIMENT,
    reliance.OF_TEN,
    selective.EXPERIMENT,
    selective.DEEP,
    perturbation.EXPERIMENT,
    stitching.EXPERIMENT,
    recovery.EXPERIMENT,
    lemmas.EXPERIMENT,
    gap.EXPERIMENT,
    dynamics.EXPERIMENT,
    gradients.EXPERIMENT,
    construction.EXPERIMENT,
    trainability.EXPERIMENT,
    built_efficiency.EXPERIMENT,
)


def select(names: Sequence[str] = ()) -> list[Experiment]:
    """The experiments of these names in the paper's order; all of them when no name is given."""
    known = {experiment.name: experiment for experiment in EXPERIMENTS}
    for name in names:
        if name not in known:
            raise InputError(
                f"there is no experiment '{name}'{nearest(name, known)} (`openbook reproduce --list` names them all)"
            )
    return [experiment for experiment in EXPERIMENTS if not names or experiment.name in names]
