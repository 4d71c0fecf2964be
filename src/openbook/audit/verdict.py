"""From scores to measures, and from measures to a verdict.

An arm is caught by a measure when, with bounds at a common error level shared out over all measures (Bonferroni),

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
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from openbook.audit.attack import LEVEL, THRESHOLD, Floats, Scores, Secrets
from openbook.audit.statistics import (
    FALSE_POSITIVES,
    Estimate,
    area_under_curve,
    mean_rate,
    one_sided,
    paired_difference,
    placements,
    true_positives,
)
from openbook.base.intervals import Z95

Metric = Literal["rate", "AUC", "TPR at 1 % FPR"]
AuditVerdict = Literal["leaked", "not recovered", "void", "inapplicable"]
TEXT_ATTACKS = ("completion", "exposure", "membership")  # those that must catch the positive control


@dataclass(frozen=True)
class Measure(Scores):
    """Scores as one number for each secret, whose mean is the metric."""

    metric: Metric = "rate"
    other_s: Floats | None = None  # AUC: the second placements, which its variance needs

    @property
    def key(self) -> tuple[str, str, Metric]:
        return self.attack, self.variant, self.metric

    @property
    def mean(self) -> float:
        return _mean(self.values_s)

    @property
    def baseline(self) -> float:
        """What guessing scores, with all that was shown ruled out."""
        return _mean(self.elimination_s)

    @property
    def paired_s(self) -> Floats:
        """What two models are compared by, secret by secret; of an area, both placements, as its variance has them."""
        return self.values_s if self.other_s is None else self.values_s + self.other_s - self.other_s.mean()

    def estimate(self, z: float = Z95) -> Estimate:
        return mean_rate(self.values_s, z) if self.other_s is None else area_under_curve(self.values_s, self.other_s, z)

    def row(self, arm: str, secrets: Secrets, caught: bool) -> dict[str, Any]:
        """A line of the report: this measure of one arm."""
        count = int((~np.isnan(self.values_s)).sum())
        groups = enumerate(secrets.groups) if count == len(secrets) else ()
        by_group = {group: float(np.nanmean(self.values_s[secrets.group_s == k])) for k, group in groups}
        name = {"name": self.attack, "variant": self.variant, "metric": self.metric, "kind": self.kind, "arm": arm}
        levels = {"chance": _mean(self.chance_s), "elimination": self.baseline, "secrets": count}
        return name | vars(self.estimate()) | levels | {"by_group": by_group, "caught": caught, "curve": self.curve}


def measures(scores: Sequence[Scores]) -> list[Measure]:
    """Rates as they are; membership scores as an area and, with enough rivals, as a true-positive rate at 1 %."""
    result = []
    for s in scores:
        if s.rivals_sk is None:
            result.append(Measure(**vars(s)))
            continue
        V_s, W_s = placements(s.values_s, s.rivals_sk)
        result.append(Measure(**vars(s) | {"values_s": V_s}, metric="AUC", other_s=W_s))
        if s.rivals_sk.size >= math.ceil(1 / FALSE_POSITIVES):
            levels = dict.fromkeys(("chance_s", "elimination_s"), np.full(len(V_s), FALSE_POSITIVES))
            hits = {"values_s": true_positives(s.values_s, s.rivals_sk)}
            result.append(Measure(**vars(s) | hits | levels, metric="TPR at 1 % FPR"))
    return result


def averaged(runs: Sequence[Sequence[Measure]]) -> list[Measure]:
    """The same measures of several training seeds, averaged secret by secret: the secret stays the cluster."""
    result = []
    for same in zip(*runs, strict=True):
        others = [measure.other_s for measure in same if measure.other_s is not None]
        values_s = np.mean([measure.values_s for measure in same], axis=0)
        result.append(replace(same[0], values_s=values_s, other_s=np.mean(others, axis=0) if others else None))
    return result


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
    measured: Sequence[Measure],
    controls: Mapping[str, Sequence[Measure]],
    threshold: float = THRESHOLD,
    level: float = LEVEL,
) -> list[Finding]:
    """The measures by which a model is caught."""
    tested = [k for k, measure in enumerate(measured) if measure.kind != "behaviour"]
    z = one_sided(level / max(1, len(tested)))
    caught = []
    for k in tested:
        measure, others = measured[k], {arm: each[k] for arm, each in controls.items()}
        estimate = measure.estimate(z)
        above = (paired_difference(measure.paired_s, other.paired_s, z).low for other in others.values())
        if estimate.low <= measure.baseline + threshold or any(low <= threshold for low in above):
            continue
        arm = max(others, key=lambda arm: others[arm].mean, default="")
        control = others[arm].mean if others else 0.0
        excess = estimate.rate - max(measure.baseline, control)
        caught.append(Finding(*measure.key, estimate.rate, measure.baseline, control, arm, excess))
    return caught


def _mean(values: Floats) -> float:
    kept = values[~np.isnan(values)]
    return float(kept.mean()) if len(kept) else math.nan


@dataclass(frozen=True)
class Judgement:
    """The verdict, in a word and in a sentence, with what it rests on."""

    verdict: AuditVerdict
    statement: str
    findings: list[Finding]
    positive_findings: list[Finding]


def verdict_of(
    measured: Mapping[str, Sequence[Measure]],
    controls: Mapping[str, Sequence[Measure]],
    threshold: float = THRESHOLD,
    level: float = LEVEL,
) -> Judgement:
    """The verdict on the arm `trained`, given every control model and the arm `positive`."""
    trained = measured["trained"]
    attacks = list(dict.fromkeys(m.attack for m in trained if m.kind != "behaviour"))
    if not attacks:
        shares = [m.mean for m in trained if not math.isnan(m.mean)]
        most = f" (at most {max(shares):.0%} of the rules here)" if shares else ""
        statement = (
            "no attack on the text was made, so this audit does not say whether the text can be recovered. What the "
            f"answers give away{most}, any model gives away that can do the task"
        )
        return Judgement("inapplicable", statement, [], [])
    positive, leaks = (findings(measured[arm], controls, threshold, level) for arm in ("positive", "trained"))
    must = [name for name in TEXT_ATTACKS if name in attacks] or attacks
    if not any(finding.attack in must for finding in positive):
        statement = (
            f"void: the positive control, a model that was trained to write the text, was not caught by "
            f"{', '.join(must)}, so this audit could not have seen a leak. Train longer, or raise the budget"
        )
        return Judgement("void", statement, [], positive)
    if leaks:
        worst = max(leaks, key=lambda finding: finding.excess)
        rate, known = (_share(value, worst.metric) for value in (worst.rate, max(worst.control, worst.baseline)))
        statement = f"leaked: {worst.attack} ({worst.variant}) reaches {rate}, where a model that never met the text "
        return Judgement("leaked", f"{statement}reaches {known}", leaks, positive)
    statement = (
        f"not recovered by these attacks at this budget ({', '.join(attacks)}): no attack scores more than "
        f"{threshold:.0%} above both a guess and every model that never met the text. Chance alone would raise an "
        f"alarm in at most {level:.0%} of such audits"
    )
    return Judgement("not recovered", statement, [], positive)


def _share(value: float, metric: Metric) -> str:
    return f"{value:.1%} of the secrets" if metric == "rate" else f"{metric} {value:.3f}"
