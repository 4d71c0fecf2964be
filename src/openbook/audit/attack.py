"""The one interface of all attacks: (model, secrets) -> scores, one value for every secret."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np

from openbook.audit.secret import Secrets
from openbook.audit.statistics import Floats
from openbook.audit.subject import Subject

# recovery: a share of hits; membership: a score, with those of the decoys; behaviour: what the skill itself gives away
Kind = Literal["recovery", "membership", "behaviour"]


@dataclass(frozen=True)
class Scores:
    """What one variant of an attack found out about every secret. NaN: it has nothing to say about this one."""

    attack: str
    variant: str
    kind: Kind
    values_s: Floats
    chance_s: Floats  # of a uniform guess
    elimination_s: Floats  # of a guess that rules out what the attack was shown
    decoys_sk: Floats | None = None  # membership: the same score for decoys
    curve: dict[str, list[float]] = field(default_factory=dict)  # what the attack can draw

    @property
    def name(self) -> str:
        return f"{self.attack}: {self.variant}"


class Attack(Protocol):
    """An attack with its budget; `name` is what `--attacks` calls it."""

    @property
    def name(self) -> str: ...

    def __call__(self, model: Subject, secrets: Secrets) -> list[Scores]: ...


def recovery(
    attack: str, variant: str, hits_s: Floats, secrets: Secrets, elimination_s: Floats | None = None
) -> Scores:
    """Scores of an attack that guesses: nothing was ruled out unless said."""
    chance_s = secrets.chance_s
    return Scores(attack, variant, "recovery", hits_s, chance_s, chance_s if elimination_s is None else elimination_s)


def top_share(total_n: Floats, truth: int) -> float:
    """1 if the truth is the likeliest candidate, shared evenly among candidates that are equally likely."""
    best = total_n >= total_n.max()
    return float(best[truth]) / int(best.sum())


def expected_rank(total_n: Floats, truth: int) -> float:
    """Rank of the truth, 1 is best; among equals the middle."""
    own = total_n[truth]
    return 1 + float((total_n > own).sum()) + (float((total_n == own).sum()) - 1) / 2


def by_group(values_s: Floats, secrets: Secrets) -> dict[str, float]:
    """Mean for each group (level, section)."""
    return {group: float(np.nanmean(values_s[secrets.group_s == k])) for k, group in enumerate(secrets.groups)}
