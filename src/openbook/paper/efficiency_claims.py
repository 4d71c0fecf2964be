"""The sentences of the paper about its main figure, held against rows of it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from openbook.paper.curricula import CURVES
from openbook.paper.drawing import grouped, mean_by, where
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


def _sizes(rows: Rows, name: str) -> set[int]:
    return {row["samples"] for row in where(rows, curve=name)}


def _shared(rows: Rows, name: str, other: str = "anneal") -> set[int]:
    """The sizes that two curves have in common."""
    return _sizes(rows, name) & _sizes(rows, other)


def _at_largest(rows: Rows, name: str, sizes: set[int]) -> Json | None:
    """The runs of a curve on the largest of these datasets: their mean and the outer bounds."""
    if not sizes:
        return None
    size = max(sizes)
    runs = where(rows, curve=name, samples=size)
    low, high = min(row["low"] for row in runs), max(row["high"] for row in runs)
    accuracy = mean_by(runs, "samples")[size]
    return {"samples": size, "accuracy": accuracy, "low": low, "high": high, "chance": runs[0]["chance"]}


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
    names = [name for name in CURVES if _sizes(rows, name)]
    others = [name for name in names if name not in LEARNING]
    if not set(LEARNING) <= set(names) or not others:
        return unmeasured(claim, threshold, "annealing, fixed dropout and one other are needed")
    numbers = {CURVES[name].label: _beside_annealing(rows, name) for name in names if name != "anneal"}
    if all(_reached_at(rows, name) is None for name in LEARNING):
        return judge(claim, False, numbers, threshold)
    both = _shared(rows, "fixed:0.2")
    if not both:
        return unmeasured(claim, threshold, "annealing and fixed dropout have no size in common")
    fixed = _mean(rows, "fixed:0.2", both)
    first, above_chance = _mean(rows, "anneal", both) >= fixed - TIE, abs(fixed - rows[0]["chance"]) > GUESS
    last = all(
        _mean(rows, name, shared) < _mean(rows, better, shared)
        for name in others
        for better in LEARNING
        if (shared := _shared(rows, name, better))
    )
    return judge(claim, first and last, numbers, threshold, enough=above_chance or not first)


def _mean(rows: Rows, name: str, sizes: set[int]) -> float:
    means = mean_by([row for row in where(rows, curve=name) if row["samples"] in sizes], "samples")
    return sum(means.values()) / len(means)


def _beside_annealing(rows: Rows, name: str) -> str:
    """Mean accuracy of a curve and of annealing over the sizes that both have."""
    if not (sizes := _shared(rows, name)):
        return "no size in common with annealing"
    return f"{_mean(rows, name, sizes):.3f} (annealing {_mean(rows, 'anneal', sizes):.3f})"


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
        "plain fine-tuning": f"{len(learned)} of {len(seeds)} seeds, with at most {max(_sizes(plain, 'no-context')):,}",
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
    best = _at_largest(rows, "fixed:0.2", _sizes(rows, "fixed:0.2"))
    if best is None:
        return unmeasured(claim, threshold, "no run with fixed dropout")
    numbers = {"accuracy": round(best["accuracy"], 3), "samples": best["samples"], "chance": best["chance"]}
    learned, annealing = best["accuracy"] >= LEARNED, _reached_at(rows, "anneal")
    tried = annealing is not None and best["samples"] >= PATIENCE * annealing
    return judge(claim, learned, numbers, threshold, enough=learned or tried)


def _necessary(rows: Rows, name: str, claim: str) -> Claim:
    threshold = f"at the same size annealing's lowest bound is {APART:.0%} above the highest without it"
    both = _shared(rows, name)
    control, annealing = _at_largest(rows, name, both), _at_largest(rows, "anneal", both)
    if control is None or annealing is None:
        return unmeasured(claim, threshold, f"no pair of runs with annealing and {name}")
    numbers = {
        "annealing": round(annealing["accuracy"], 3),
        CURVES[name].label: round(control["accuracy"], 3),
        "samples": control["samples"],
        "chance": control["chance"],
    }
    return judge(claim, annealing["low"] - control["high"] >= APART, numbers, threshold)


def _overlap(rows: Rows) -> Claim:
    claim = "The other curves overlap around random guesses."
    threshold = f"every other curve is within {GUESS:.0%} of chance at the largest size it shares with annealing"
    ends = {name: _at_largest(rows, name, _shared(rows, name)) for name in CURVES if name not in LEARNING}
    known = {name: end for name, end in ends.items() if end is not None}
    if len(known) < len(ends):
        return unmeasured(claim, threshold, "not all six curves were run")
    numbers = {CURVES[name].label: round(end["accuracy"], 3) for name, end in known.items()}
    chance = next(iter(known.values()))["chance"]
    holds = all(abs(end["accuracy"] - chance) <= GUESS for end in known.values())
    return judge(claim, holds, {**numbers, "chance": chance}, threshold)
