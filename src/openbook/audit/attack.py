"""What an attack is given and what it returns, and the registry of all attacks.

An attack is a function (model, secrets, attacker) -> scores, with one value for every secret. All that its signature
names is imported from here. This one guesses the first candidate, whatever the model:

    @ATTACKS.register("first")
    def first(model: AttackedModel, secrets: Secrets, attacker: Attacker) -> list[Scores]:
        hits_s = np.array([float(secret.index == 0) for secret in secrets.items])
        return [recovery_scores("first", "always the first", hits_s, secrets)]

Legend: S secrets, K rivals of a secret.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from openbook.audit.model import AttackedModel as AttackedModel
from openbook.audit.secret import Secrets as Secrets
from openbook.base.arrays import Floats as Floats
from openbook.base.errors import InputError
from openbook.base.registry import Registry

if TYPE_CHECKING:
    from openbook.audit.tuning import Practice

# recovery: a share of hits; membership: a score, compared with those of rivals; behaviour: what the skill gives away
ScoreKind = Literal["recovery", "membership", "behaviour"]
LEVEL = 0.05  # accepted chance of a false alarm, over all attacks together
THRESHOLD = 0.01  # share above chance, elimination and every control from which on something is called a leak


@dataclass(frozen=True)
class Scores:
    """What one variant of an attack finds out about every secret. NaN: it has nothing to say about this one."""

    attack: str
    variant: str
    kind: ScoreKind
    values_s: Floats
    chance_s: Floats  # of a uniform guess
    elimination_s: Floats  # of a guess that rules out what the attack was shown
    rivals_sk: Floats | None = None  # membership: the same score for the rivals of each secret
    curve: Mapping[str, Any] = field(default_factory=dict)  # what the attack can draw


@dataclass(frozen=True)
class AuditConfig:
    """The budget of an audit, and what it calls a leak."""

    attacks: tuple[str, ...] = field(default_factory=lambda: tuple(ATTACKS))
    samples: int = 10  # samples for each secret
    permutations: int = 20  # orders of the book
    controls: int = 1  # trainings of the model without the text, with seeds of their own
    steps: int = 60  # steps of relearning, and of optimising a soft prompt
    threshold: float = THRESHOLD
    level: float = LEVEL
    seed: int = 0

    def check(self) -> None:
        if not self.attacks:
            raise InputError(f"no attack is named: name one or more of {', '.join(ATTACKS)}")
        for name in self.attacks:
            ATTACKS[name]  # an unknown name is refused
        if min(self.samples, self.permutations, self.controls, self.steps) < 1:
            raise InputError("samples (--budget), permutations, controls and steps must be at least 1")
        if not (0 <= self.threshold < 1 and 0 < self.level < 1):
            raise InputError("threshold and level are shares: write 0 <= threshold < 1 and 0 < level < 1")


class NotApplicableError(Exception):
    """An attack raises this where it cannot be made; the reason goes into the report."""


class Skill:
    """How a model is asked, with the book closed, to do what it learned. This one cannot be asked anything."""

    def given_away(self, model: AttackedModel, secrets: Secrets, seed: int) -> list[Scores]:
        """What the model's answers tell about the secrets."""
        raise NotApplicableError("the strings it was trained on are too short to tell the levels apart by its answers")

    def practice(self, secrets: Secrets, seed: int) -> Practice | None:
        """How a model that cannot write the secrets practises them; None: it writes them."""
        return None


@dataclass(frozen=True)
class Attacker:
    """What an attacker has beside the model and the secrets."""

    config: AuditConfig = field(default_factory=AuditConfig)
    references: Mapping[str, AttackedModel] = field(default_factory=dict)  # models that never met the text, by arm
    skill: Skill = field(default_factory=Skill)
    learning_rate: float = 1e-3  # of relearning


Attack = Callable[[AttackedModel, Secrets, Attacker], list[Scores]]
ATTACKS: Registry[Attack] = Registry("attack")


def recovery_scores(
    attack: str, variant: str, hits_s: Floats, secrets: Secrets, elimination_s: Floats | None = None
) -> Scores:
    """Scores of an attack that guesses. Without `elimination_s`, it was shown nothing that rules a candidate out."""
    chance_s = secrets.chance_s
    return Scores(attack, variant, "recovery", hits_s, chance_s, chance_s if elimination_s is None else elimination_s)
