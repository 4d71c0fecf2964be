"""The result of a learner: how much of the codebook its weights hold, against steps and characters seen."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from openbook.base.errors import InputError
from openbook.task import Codebook
from openbook.task.inputs import missing_rules
from openbook.task.translate import Chars
from openbook.theory.surrogate.model import Mask


@dataclass
class Trajectory:
    """One run of one learner on one fixed input string.

    `characters` counts what the paper's sample complexity counts: the total length of all inputs processed, repeats
    included, so forward passes times the length of the string.
    """

    algorithm: str
    depth: int
    chars: int
    length: int  # characters of the input string
    steps: int = 0  # updates of the weights
    forward_passes: int = 0
    recovered_by_layer: list[float] = field(default_factory=list)
    curve: list[dict[str, Any]] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)  # what only this learner measures

    @property
    def characters(self) -> int:
        return self.forward_passes * self.length

    @property
    def recovered(self) -> float:
        return float(np.mean(self.recovered_by_layer))

    @property
    def complete(self) -> bool:
        """Whether every rule of every layer is in the weights; False means that the budget ended the run early."""
        return min(self.recovered_by_layer) == 1.0

    def record(self, held_ik: Mask) -> None:
        """Add a point to the curve from the mask of rules held; a point of the same pass is replaced."""
        self.recovered_by_layer = held_ik.mean(1).tolist()
        if self.curve and self.curve[-1]["forward_passes"] == self.forward_passes:
            del self.curve[-1]
        counts = {"step": self.steps, "forward_passes": self.forward_passes, "characters": self.characters}
        self.curve.append({**counts, "recovered": self.recovered, "by_layer": self.recovered_by_layer})

    def full_at(self) -> list[int | None]:
        """For each layer, the step of the first recorded point from which it is fully recovered to the end."""
        held = np.array([point["by_layer"] for point in self.curve]) == 1.0
        steps = [point["step"] for point in self.curve]
        first = [len(held) - int(np.argmin(layer[::-1])) if not layer.all() else 0 for layer in held.T]
        return [steps[at] if at < len(steps) else None for at in first]

    def to_json(self) -> dict[str, Any]:
        names = ("algorithm", "depth", "chars", "length", "recovered", "recovered_by_layer", "complete")
        shown = {name: getattr(self, name) for name in (*names, "steps", "forward_passes", "characters", "curve")}
        return {**shown, "full_at": self.full_at(), **self.extra}


def check_coverable(codebook: Codebook, string: Chars) -> None:
    """Refuse an input whose translation leaves rules unused, since nothing about them can be learned from it."""
    missing = missing_rules(codebook, string)
    if missing.size:
        n = codebook.chars
        named = ", ".join(f"({rule // n}, {rule % n}) of level {layer + 1}" for layer, rule in missing[:3].tolist())
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise InputError(
            f"the input of {len(string)} characters is not coverable, its translation never uses the rules for "
            f"{named}{more}: use a longer input, another seed, or --input coverable"
        )
