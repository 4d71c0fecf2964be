"""The sentences of the paper about its main figure, held against rows of it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from statistics import fmean

from openbook.paper.curricula import CURVES
from openbook.paper.drawing import grouped, largest, mean_by, where
from openbook.paper.experiment import Json, Rows
from openbook.paper.needed import ratio
from openbook.report.claims import Claim, judge, unmeasured

LEARNED = 0.9  # accuracy from which a codebook counts as learned
APART = 0.3  # intervals at least this far apart are a difference worth the word "necessary"
GUESS = 0.05  # as far from chance as this still counts as guessing
DEEP = 3  # levels from which results are held against the paper's five
TIE = 0.02  # closer than this is a tie
FACTOR = 10  # "requiring 10x less samples"
PATIENCE = 4  # times annealing's samples; published fixed dropout needs 2 (eight characters) or up to 3.3 times (ten)
LEARNING = ("anneal", "fixed:0.2")  # the curves that learn
NECESSARY = {
    "no-context": "Context-enhanced learning greatly improves sample efficiency over plain fine-tuning.",
    "wrong-context": "Ablations show the necessity of correct context.",
    "no-dropout": "Ablations show the necessity of proper dropout.",
    "no-icl": "Ablations show the necessity of sufficient ICL capability as a good initialization.",
}


def claims(rows: Rows) -> list[Claim]:
    """The main figure's caption and section 3.2, sentence by sentence, for each size of alphabet.

    Two levels (smoke) say nothing about them.
    """
    tasks = grouped((row for row in rows if row["depth"] >= DEEP), "chars")
    if len(tasks) < 2:
        return _claims(tasks[0][1] if tasks else [])
    return [
        replace(claim, claim=f"{claim.claim} ({chars} characters)") for chars, ours in tasks for claim in _claims(ours)
    ]


def _claims(rows: Rows) -> list[Claim]:
    return [_order(rows), fewer(rows), _perfect_without_context(rows), *necessary(rows), _overlap(rows)]


def necessary(rows: Rows, names: Iterable[str] | None = None) -> list[Claim]:
    """What annealing has and the others (or these of them) lack, by runs on one dataset of the same size."""
    return [_necessary(rows, name, NECESSARY[name]) for name in names or NECESSARY]


def _means(rows: Rows) -> dict[str, dict[int, float]]:
    """The mean accuracy of each curve that was run, by size."""
    curves = {name: mean_by(where(rows, curve=name), "samples") for name in CURVES}
    return {name: means for name, means in curves.items() if means}


def _pair(rows: Rows, name: str) -> tuple[Json, Json] | None:
    """The ends of annealing and of another curve at the largest size that both have."""
    means = _means(rows)
    both = means.get("anneal", {}).keys() & means.get(name, {}).keys()
    return (_at(rows, "anneal", max(both)), _at(rows, name, max(both))) if both else None


def _at(rows: Rows, name: str, size: int) -> Json:
    """The runs of a curve on a dataset: their mean and the outer bounds."""
    runs = where(rows, curve=name, samples=size)
    low, high = min(row["low"] for row in runs), max(row["high"] for row in runs)
    return {**runs[0], "accuracy": fmean(row["accuracy"] for row in runs), "low": low, "high": high}


def _reached_at(rows: Rows, name: str) -> int | None:
    """The size from which on a curve has learned: a smaller one that did so by luck of its seeds does not count."""
    reached = None
    for size, accuracy in mean_by(where(rows, curve=name), "samples").items():
        reached = (reached or size) if accuracy >= LEARNED else None
    return reached


def _order(rows: Rows) -> Claim:
    claim = "Annealing learns the fastest, followed by fixed dropout."
    threshold = (
        f"mean accuracy over the sizes both have: annealing at least fixed's less {TIE:.0%}, every other curve below "
        f"both; one of the two reaches {LEARNED:.0%}; unclear while fixed is within {GUESS:.0%} of chance"
    )
    means = _means(rows)
    others = [name for name in means if name not in LEARNING]
    if not set(LEARNING) <= set(means) or not others:
        return unmeasured(claim, threshold, "annealing, fixed dropout and one other are needed")
    beside = {name: _means_of_both(means[name], means["anneal"]) for name in means if name != "anneal"}
    numbers = {
        CURVES[name].label: f"{both[0]:.3f} (annealing {both[1]:.3f})" if both else "no size in common with annealing"
        for name, both in beside.items()
    }
    if all(_reached_at(rows, name) is None for name in LEARNING):
        return judge(claim, False, numbers, threshold)
    if not (both := beside["fixed:0.2"]):
        return unmeasured(claim, threshold, "annealing and fixed dropout have no size in common")
    fixed, annealing = both
    first, above_chance = annealing >= fixed - TIE, abs(fixed - rows[0]["chance"]) > GUESS
    pairs = [_means_of_both(means[name], means[better]) for name in others for better in LEARNING]
    last = all(pair[0] < pair[1] for pair in pairs if pair)
    return judge(claim, first and last, numbers, threshold, enough=above_chance or not first)


def _means_of_both(one: dict[int, float], other: dict[int, float]) -> tuple[float, float] | None:
    """The mean accuracies of two curves over the sizes that both have; None if they have none in common."""
    both = sorted(one.keys() & other.keys())
    return (fmean(one[size] for size in both), fmean(other[size] for size in both)) if both else None


def fewer(rows: Rows) -> Claim:
    """How many times as many samples plain fine-tuning needs, by the ends of runs."""
    claim = "Annealing requires 10x less samples than plain fine-tuning."
    threshold = (
        f"samples to {LEARNED:.0%}: on every seed plain fine-tuning needs at least {FACTOR} times annealing's, by the "
        "sizes that both had, and was there no sooner on the way of a longer run; fails if it needs fewer on every seed"
    )
    plain, annealing = where(rows, curve="no-context"), _reached_at(rows, "anneal")
    if annealing is None or not plain:
        return unmeasured(claim, threshold, f"annealing did not reach {LEARNED:.0%}, or there is no plain run")
    times = ratio(rows, "no-context", "anneal", LEARNED)
    seeds, learned = {row["seed"] for row in plain}, {row["seed"] for row in plain if row["accuracy"] >= LEARNED}
    numbers = {
        "annealing reaches it at": annealing,
        "plain fine-tuning": f"{len(learned)} of {len(seeds)} seeds, with at most {largest(plain)[0]['samples']:,}",
        "times as many": str(times),
    }
    early = min(first_passed(rows).values(), default=math.inf) < FACTOR * annealing
    holds = times.least is not None and times.least >= FACTOR and not early
    fails = times.most is not None and times.most <= FACTOR
    return judge(claim, holds, numbers, threshold, enough=holds or fails)


def first_passed(rows: Rows) -> dict[int, int]:
    """By seed, after how many samples plain fine-tuning first passed an exam, on the way of a run or at its end."""
    passed: dict[int, int] = {}
    for row in where(rows, curve="no-context"):
        way = [(point["step"] * row["samples"] // row["steps"], point["closed_book"]) for point in row["curve_by_step"]]
        for seen, accuracy in [*way, (row["samples"], row["accuracy"])]:
            if accuracy >= LEARNED:
                passed[row["seed"]] = min(seen, passed.get(row["seed"], seen))
    return dict(sorted(passed.items()))


def _perfect_without_context(rows: Rows) -> Claim:
    claim = "Models trained with 20 % dropout are right with 100 % dropped: rules are learned atomically."
    threshold = (
        f"fixed dropout reaches {LEARNED:.0%} with the book closed at its largest size; unclear if that is less than "
        f"{PATIENCE} times as many as annealing needs"
    )
    if not (sizes := _means(rows).get("fixed:0.2")):
        return unmeasured(claim, threshold, "no run with fixed dropout")
    best = _at(rows, "fixed:0.2", max(sizes))
    numbers = {"accuracy": round(best["accuracy"], 3), "samples": best["samples"], "chance": best["chance"]}
    learned, annealing = best["accuracy"] >= LEARNED, _reached_at(rows, "anneal")
    tried = annealing is not None and best["samples"] >= PATIENCE * annealing
    return judge(claim, learned, numbers, threshold, enough=learned or tried)


def _necessary(rows: Rows, name: str, claim: str) -> Claim:
    threshold = f"at the same size annealing's lowest bound is {APART:.0%} above the highest without it"
    if not (pair := _pair(rows, name)):
        return unmeasured(claim, threshold, f"no pair of runs with annealing and {name}")
    annealing, control = pair
    accuracies = {"annealing": round(annealing["accuracy"], 3), CURVES[name].label: round(control["accuracy"], 3)}
    numbers = {**accuracies, "samples": control["samples"], "chance": control["chance"]}
    return judge(claim, annealing["low"] - control["high"] >= APART, numbers, threshold)


def _overlap(rows: Rows) -> Claim:
    claim = "The other curves overlap around random guesses."
    threshold = f"every other curve is within {GUESS:.0%} of chance at the largest size it shares with annealing"
    pairs = {CURVES[name].label: _pair(rows, name) for name in CURVES if name not in LEARNING}
    ends = {label: pair[1]["accuracy"] for label, pair in pairs.items() if pair}
    if len(ends) < len(pairs):
        return unmeasured(claim, threshold, "not all six curves were run")
    chance = rows[0]["chance"]
    numbers = {label: round(accuracy, 3) for label, accuracy in ends.items()}
    holds = all(abs(accuracy - chance) <= GUESS for accuracy in ends.values())
    return judge(claim, holds, {**numbers, "chance": chance}, threshold)
