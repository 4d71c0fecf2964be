"""From scores to rows, and from rows to a verdict.

An arm is caught by an attack when, with bounds at a common error level shared out over all attacks (Bonferroni),

    its rate is above what chance and elimination give, by more than the threshold, and
    it is above every control model on the same secrets, by more than the threshold.

Secrets are what is sampled, so the bounds speak about these very models. Trainings differ too: on any one measure a
model that never met the text is above all of K others like it in one case of K + 1, so several can be trained.

The verdict is `void` when the positive control is not caught: such an audit could not have seen a leak. It is `leaked`
when the trained model is caught, and otherwise `not recovered`: by these attacks, at this budget. It never says more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np

from openbook.audit.attack import Kind, Scores, by_group
from openbook.audit.membership import enough_decoys
from openbook.audit.secret import Secrets
from openbook.audit.statistics import (
    FALSE_POSITIVES,
    Estimate,
    Floats,
    area,
    found_at,
    one_sided,
    paired,
    placements,
    rate,
)
from openbook.base.intervals import Z95

Metric = Literal["rate", "AUC", "TPR at 1 % FPR"]
Verdict = Literal["leaked", "not recovered", "void", "inapplicable"]
TEXT_ATTACKS = ("completion", "exposure", "membership")  # those that must catch the positive control
LEVEL = 0.05  # accepted chance of a false alarm, over all attacks together
THRESHOLD = 0.01


@dataclass(frozen=True)
class Measure:
    """One number for each secret, and what it is compared with."""

    attack: str
    variant: str
    metric: Metric
    kind: Kind
    values_s: Floats
    chance_s: Floats
    elimination_s: Floats
    other_s: Floats | None = None  # AUC: the second placements, which its variance needs
    curve: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str, Metric]:
        return self.attack, self.variant, self.metric

    def estimate(self, z: float = Z95) -> Estimate:
        return rate(self.values_s, z) if self.other_s is None else area(self.values_s, self.other_s, z)

    @property
    def paired_s(self) -> Floats:
        """What two models are compared by, secret by secret; of an area, both placements, as its variance has them."""
        return self.values_s if self.other_s is None else self.values_s + self.other_s - self.other_s.mean()

    @property
    def baseline(self) -> float:
        """What guessing scores, with all that was shown ruled out."""
        return _mean(self.elimination_s)


def measures(scores: Sequence[Scores]) -> list[Measure]:
    """Rates as they are; membership scores as an area and as a true-positive rate."""
    found = []
    for s in scores:
        levels = (s.chance_s, s.elimination_s)
        if s.decoys_sk is None:
            found.append(Measure(s.attack, s.variant, "rate", s.kind, s.values_s, *levels, curve=s.curve))
            continue
        V_s, W_s = placements(s.values_s, s.decoys_sk)
        found.append(Measure(s.attack, s.variant, "AUC", s.kind, V_s, *levels, W_s))
        if enough_decoys(s.decoys_sk):
            hits_s, level_s = found_at(s.values_s, s.decoys_sk), np.full(len(V_s), FALSE_POSITIVES)
            found.append(Measure(s.attack, s.variant, "TPR at 1 % FPR", s.kind, hits_s, level_s, level_s))
    return found


def averaged(runs: Sequence[Sequence[Measure]]) -> list[Measure]:
    """The same measures of several training seeds, averaged secret by secret: the secret stays the cluster."""
    if len(runs) == 1:
        return list(runs[0])
    result = []
    for same in zip(*runs, strict=True):
        first = same[0]
        others = [m.other_s for m in same if m.other_s is not None]
        values_s = np.mean([m.values_s for m in same], axis=0)
        result.append(replace(first, values_s=values_s, other_s=np.mean(others, axis=0) if others else None))
    return result


@dataclass(frozen=True)
class Row:
    """One line of the report: an attack on an arm."""

    name: str
    variant: str
    metric: Metric
    kind: Kind
    arm: str
    rate: float
    low: float
    high: float
    chance: float
    elimination: float
    secrets: int
    by_group: dict[str, float]
    caught: bool
    curve: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Finding:
    """Why an arm is caught."""

    attack: str
    variant: str
    metric: Metric
    rate: float
    baseline: float  # chance or elimination
    control: float  # the best arm that never met the text
    control_arm: str
    excess: float  # over the better of the two


def findings(
    mine: Sequence[Measure],
    controls: Mapping[str, Sequence[Measure]],
    threshold: float = THRESHOLD,
    level: float = LEVEL,
) -> list[Finding]:
    """The measures by which a model is caught."""
    tested = [k for k, measure in enumerate(mine) if measure.kind != "behaviour"]
    z = one_sided(level / max(1, len(tested)))
    caught = []
    for k in tested:
        measure = mine[k]
        estimate, baseline = measure.estimate(z), measure.baseline
        if estimate.low <= baseline + threshold:
            continue
        others = {arm: theirs[k] for arm, theirs in controls.items()}
        if any(paired(measure.paired_s, other.paired_s, z).low <= threshold for other in others.values()):
            continue
        arm, control = max(
            ((a, _mean(o.values_s)) for a, o in others.items()), key=lambda pair: pair[1], default=("", 0.0)
        )
        excess = estimate.rate - max(baseline, control)
        caught.append(Finding(*measure.key, estimate.rate, baseline, control, arm, excess))
    return caught


def rows_of(measured: Mapping[str, Sequence[Measure]], secrets: Secrets, caught: Mapping[str, set[Any]]) -> list[Row]:
    rows = []
    for arm, each in measured.items():
        for measure in each:
            estimate = measure.estimate()
            count = int((~np.isnan(measure.values_s)).sum())
            groups = by_group(measure.values_s, secrets) if count == len(secrets) else {}
            rows.append(
                Row(
                    *measure.key,
                    measure.kind,
                    arm,
                    estimate.rate,
                    estimate.low,
                    estimate.high,
                    _mean(measure.chance_s),
                    measure.baseline,
                    count,
                    groups,
                    measure.key in caught.get(arm, set()),
                    dict(measure.curve),
                )
            )
    return rows


def _mean(values: Floats) -> float:
    kept = values[~np.isnan(values)]
    return float(kept.mean()) if len(kept) else math.nan


@dataclass(frozen=True)
class Judgement:
    """The verdict, in a word and in a sentence, with what it rests on."""

    verdict: Verdict
    statement: str
    findings: list[Finding]
    positive_findings: list[Finding]


def judge(
    measured: Mapping[str, Sequence[Measure]],
    controls: Mapping[str, Sequence[Measure]],
    threshold: float = THRESHOLD,
    level: float = LEVEL,
) -> Judgement:
    """The verdict on the arm `trained`, given every control model and the arm `positive`."""
    trained = measured["trained"]
    attacks = list(dict.fromkeys(m.attack for m in trained if m.kind != "behaviour"))
    if not attacks:
        told = [share for m in trained if not math.isnan(share := _mean(m.values_s))]
        most = f" (at most {max(told):.0%} of the rules here)" if told else ""
        return Judgement(
            "inapplicable",
            f"no attack on the text was made. What answers give away{most} any model gives away that can do the task",
            [],
            [],
        )
    positive = findings(measured["positive"], controls, threshold, level)
    must = [name for name in TEXT_ATTACKS if name in attacks] or attacks
    if not any(finding.attack in must for finding in positive):
        return Judgement(
            "void",
            f"void: a model trained with loss on the text was not caught by {', '.join(must)}, so this audit could not "
            "have seen a leak. Train longer, or raise the budget",
            [],
            positive,
        )
    found = findings(trained, controls, threshold, level)
    if found:
        worst = max(found, key=lambda finding: finding.excess)
        return Judgement(
            "leaked",
            f"leaked: {worst.attack} ({worst.variant}) reaches {_number(worst.rate, worst.metric)}, where a model that "
            f"never met the text reaches {_number(max(worst.control, worst.baseline), worst.metric)}",
            found,
            positive,
        )
    return Judgement(
        "not recovered",
        f"not recovered by these attacks at this budget ({', '.join(attacks)}): nothing above chance, elimination and "
        f"the controls by more than {threshold:.0%}, at an error level of {level:.0%} over all of them",
        [],
        positive,
    )


def _number(value: float, metric: Metric) -> str:
    return f"{value:.1%} of the secrets" if metric == "rate" else f"{metric} {value:.3f}"
