"""Every figure and table of the paper as an experiment, in the paper's order.

A module is imported when its experiment is first looked up. A plugin adds an experiment of its own:

    EXPERIMENTS.register("dice")(Experiment("dice", ...))
"""

from __future__ import annotations

from collections.abc import Sequence

from openbook.base.registry import Registry
from openbook.paper.experiment import Experiment

_PLACES = {
    "translation": "translation:EXPERIMENT",
    "sample-efficiency": "sample_efficiency:THREE_LEVELS",
    "five-levels": "sample_efficiency:FIVE_LEVELS",
    "five-levels-ten": "sample_efficiency:FIVE_LEVELS_TEN",
    "context-reliance": "reliance:THREE_LEVELS",
    "context-reliance-five-levels": "reliance:FIVE_LEVELS",
    "selective-internalisation": "selective:THREE_LEVELS",
    "selective-five-levels": "selective:FIVE_LEVELS",
    "perturbation": "perturbation:EXPERIMENT",
    "stitching": "stitching:EXPERIMENT",
    "recovery": "recovery:EXPERIMENT",
    "lemmas": "lemmas:EXPERIMENT",
    "gap": "gap:EXPERIMENT",
    "surrogate-dynamics": "dynamics:EXPERIMENT",
    "gradient-accuracy": "gradients:EXPERIMENT",
    "construction": "construction:EXPERIMENT",
    "trainability": "trainability:EXPERIMENT",
    "construction-efficiency": "built_efficiency:EXPERIMENT",
}
EXPERIMENTS: Registry[Experiment] = Registry(
    "experiment", lazy={name: f"openbook.paper.{place}" for name, place in _PLACES.items()}
)


def select(names: Sequence[str] = ()) -> list[Experiment]:
    """The experiments of these names in the paper's order; all of them when no name is given."""
    chosen = {name: EXPERIMENTS[name] for name in names or EXPERIMENTS}
    return [chosen[name] for name in EXPERIMENTS if name in chosen]
