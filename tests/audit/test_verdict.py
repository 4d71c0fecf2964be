"""The verdict: what is caught, what is not, and when the audit itself is worth nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.audit.handmade import small_task
from tests.tiny import tiny

from openbook.audit.arms import CONTROLS
from openbook.audit.attack import Attacker, AuditConfig, ScoreKind, Scores
from openbook.audit.model import AttackedModel
from openbook.audit.run import report_of, scores_of
from openbook.audit.secret import task_secrets
from openbook.audit.statistics import harmonic_share
from openbook.audit.summary import completion_rows, summary_rows
from openbook.audit.verdict import averaged, findings, measures, verdict_of
from openbook.paper.published import published
from openbook.task import Codebook
from openbook.task.source import Translations
from openbook.training.models import make_tokenizer

COUNT = 64


def hits(share: float, kind: ScoreKind = "recovery", seed: int = 0, attack: str = "exposure") -> list[Scores]:
    values_s = np.zeros(COUNT)
    values_s[np.random.default_rng(seed).permutation(COUNT)[: round(share * COUNT)]] = 1
    chance_s = np.full(COUNT, 1 / COUNT)
    return [Scores(attack, "rank 1, alone", kind, values_s, chance_s, chance_s)]


def judged(trained: float, control: float = 0.0, positive: float = 1.0, **options: Any) -> str:
    arms = {"trained": trained, "before": 0.0, "without": control, "decoy": 0.0, "positive": positive}
    measured = {arm: measures(hits(share, seed=k)) for k, (arm, share) in enumerate(arms.items())}
    return verdict_of(measured, {arm: measured[arm] for arm in CONTROLS}, **options).verdict


def test_the_verdicts() -> None:
    assert judged(0.5) == "leaked"
    assert judged(0.0) == "not recovered"
    assert judged(0.02) == "not recovered"  # chance
    assert judged(0.5, positive=0.0) == "void"  # whatever the trained model does
    assert judged(0.5, control=0.5) == "not recovered"  # the same without the text: it is not the text
    assert judged(0.5, control=0.05) == "leaked"
    assert judged(0.5, threshold=0.6, positive=1.0) == "not recovered"


def test_words_that_are_never_used() -> None:
    measured = {arm: measures(hits(0.0 if arm != "positive" else 1.0)) for arm in ("trained", *CONTROLS, "positive")}
    statement = verdict_of(measured, {arm: measured[arm] for arm in CONTROLS}).statement
    assert "not recovered by these attacks at this budget" in statement
    assert "private" not in statement and "safe" not in statement


def test_what_the_skill_gives_away_is_no_leak() -> None:
    measured = {arm: measures(hits(1.0, "behaviour")) for arm in ("trained", *CONTROLS)}
    judgement = verdict_of(measured, {arm: measured[arm] for arm in CONTROLS})
    assert judgement.verdict == "inapplicable" and "any model gives away" in judgement.statement


def test_elimination_is_subtracted() -> None:
    """A quarter right is nothing if a quarter could be had by ruling out."""
    guessed = hits(0.25)[0]
    ruled_out = replace(guessed, elimination_s=np.full(COUNT, 0.25))
    controls = {arm: measures(hits(0.0)) for arm in CONTROLS}
    assert findings(measures([guessed]), controls)
    assert not findings(measures([ruled_out]), controls)


def test_seeds_are_averaged_by_secret() -> None:
    runs = [measures(hits(0.5, seed=seed)) for seed in range(4)]
    (together,) = averaged(runs)
    assert together.values_s == pytest.approx(np.mean([run[0].values_s for run in runs], axis=0))
    assert together.estimate().rate == pytest.approx(0.5) and len(together.values_s) == COUNT


def test_membership_gives_an_area_and_a_true_positive_rate() -> None:
    random = np.random.default_rng(0)
    half = np.full(COUNT, 0.5)
    truth = random.normal(size=COUNT) + 4
    (auc, tpr) = measures(
        [Scores("membership", "loss", "membership", truth, half, half, random.normal(size=(COUNT, 63)))]
    )
    assert auc.metric == "AUC" and auc.baseline == 0.5 and auc.estimate().low > 0.95
    assert tpr.metric == "TPR at 1 % FPR" and tpr.baseline == 0.01 and tpr.estimate().rate > 0.8
    (alone,) = measures([Scores("membership", "loss", "membership", truth, half, half, random.normal(size=(COUNT, 1)))])
    assert alone.metric == "AUC"  # 64 decoys cannot tell one in a hundred


# ---- models that never met the text


def null_model(seed: int, tokenizer: Any) -> AttackedModel:
    return AttackedModel(tiny(vocabulary=len(tokenizer), seed=seed, hidden=32), tokenizer)


def test_a_model_that_never_met_the_text_is_not_flagged_over_twenty_seeds() -> None:
    """Random models over twenty codebooks: the stated rate of false alarms, 5 %, allows one in twenty."""
    flagged = 0
    for seed in range(20):
        source = Translations(1, 5, 10, Codebook.sample(1, 5, seed), lengths=(4, 4), text="compact")
        secrets, tokenizer = task_secrets(source), make_tokenizer(source)
        arms = {arm: [null_model(10 * seed + k, tokenizer)] for k, arm in enumerate(("trained", *CONTROLS))}
        references = {arm: arms[arm][0] for arm in ("before", "decoy")}
        config = AuditConfig(("completion", "exposure", "membership", "battery", "budget"), permutations=2)
        scores, _ = scores_of(arms, secrets, Attacker(config, references))
        measured = {arm: measures(runs[0]) for arm, runs in scores.items()}
        assert len(measured["trained"]) > 20  # that many chances of a false alarm
        flagged += bool(findings(measured["trained"], {arm: measured[arm] for arm in CONTROLS}))
    assert flagged <= 1


def test_scores_without_any_signal_keep_the_false_alarm_rate() -> None:
    """The same on simulated scores, thousands of measures of every kind: at most 5 % of audits raise an alarm."""
    random, alarms, audits = np.random.default_rng(4), 0, 200
    chance_s, half = np.full(COUNT, 1 / COUNT), np.full(COUNT, 0.5)

    def scores() -> list[Scores]:
        level = random.normal(size=(COUNT, 1))
        drawn = level + random.normal(size=(COUNT, COUNT))
        result = [Scores("membership", "loss", "membership", drawn[:, 0], half, half, drawn[:, 1:])]
        for number in range(15):
            rate = random.choice([1 / COUNT, 0.05, 0.2]) if number % 3 == 0 else 1 / COUNT
            values = (random.random(COUNT) < rate).astype(float)
            result.append(Scores("exposure", str(number), "recovery", values, chance_s, np.full(COUNT, rate)))
        return result

    for _ in range(audits):
        measured = {arm: measures(scores()) for arm in ("trained", *CONTROLS)}
        alarms += bool(findings(measured["trained"], {arm: measured[arm] for arm in CONTROLS}))
    assert alarms / audits <= 0.05


# ---- the report and its tables


def test_a_report_from_scores_alone_and_its_tables() -> None:
    source = small_task(depth=2)
    secrets, tokenizer = task_secrets(source), make_tokenizer(source)
    arms = {arm: [null_model(k, tokenizer)] for k, arm in enumerate(("trained", *CONTROLS, "positive"))}
    config = AuditConfig(("completion", "exposure"), permutations=2)
    report = report_of(*scores_of(arms, secrets, Attacker(config)), secrets, config)
    assert report["verdict"] == "void" and len(report["attacks"]) == 5 * 14
    assert report["secrets"]["count"] == 18 and report["secrets"]["exchangeable"]
    rows = completion_rows(report)
    assert len(rows) == 5 * 2 * 3
    for row in rows:
        whole = next(
            r
            for r in report["attacks"]
            if r["arm"] == row["arm"] and r["variant"] == f"sampled, {row['filter']}, {row['context']}"
        )
        assert row["sampled"] == whole["rate"]
        assert (row["sampled_before"] + row["sampled_last"]) / 2 == pytest.approx(row["sampled"])
    lines = summary_rows(report)
    assert len(lines) == 14 and all(line["control"] is not None and "positive" in line for line in lines)


def test_the_published_tables() -> None:
    rows = published("recovery")  # in percent
    assert len(rows) == 30
    ours = [r for r in rows if (r["chars"], r["curriculum"], r["samples"]) == (10, "fixed:0.2", 500_000)]
    assert [r["greedy_before"] for r in ours] == pytest.approx([0.26, 0.33, 2.11])
    # with both chance levels beside them, no published rate of a filter is above elimination
    assert all(r["greedy_before"] < 100 * harmonic_share(r["chars"] ** 2) for r in rows)
    assert any(r["greedy_before"] > 100 / r["chars"] ** 2 for r in rows)
