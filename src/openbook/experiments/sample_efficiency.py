"""The main figure: accuracy with the book closed against the size of the dataset, under six curricula."""

from __future__ import annotations

import itertools
from typing import Any

from openbook.experiments.curricula import CURVES, PAPER_SAMPLES, llama, mean_by, student
from openbook.experiments.experiment import Claim, Experiment, Rows, Scale, Unit, judge, unmeasured
from openbook.experiments.figures import Axis, Chart, Level, Panel, Series, Table, share
from openbook.experiments.models import Models
from openbook.published import published
from openbook.records import Run

NAME = "sample-efficiency"
LEARNED = 0.9  # accuracy from which a codebook counts as learned
APART = 0.3  # intervals at least this far apart are a difference worth the word "necessary"
GUESS = 0.05  # as far from chance as this still counts as guessing
DEEP = 3  # levels from which results are held against the paper's five
TIE = 0.02  # closer than this is a tie
FACTOR = 10  # "requiring 10x less samples"


def configs(scale: Scale) -> list[Unit]:
    if scale == "paper":
        return [
            _unit(name, samples, 0, chars, llama(name, samples, chars))
            for chars, name, samples in itertools.product((8, 10), CURVES, PAPER_SAMPLES)
        ]
    if scale == "smoke":
        return [_unit(name, 32, 0, 3, student(scale, name, 32)) for name in ("anneal", "no-context")]
    if scale == "laptop":
        sizes_of = {"anneal": (1000, 2000, 4000), "fixed:0.2": (2000, 4000), "no-context": (1000, 4000)}
        grid = [(name, n, 0) for name in CURVES for n in sizes_of.get(name, (4000,))]
    else:
        sizes = (1000, 2000, 4000, 8000, 16_000, 32_000)
        grid = [(name, n, seed) for name, n, seed in itertools.product(CURVES, sizes, (0, 1, 2))]
    return [_unit(name, samples, seed, 8, student(scale, name, samples, seed)) for name, samples, seed in grid]


def _unit(name: str, samples: int, seed: int, chars: int, spec: dict[str, Any]) -> Unit:
    return Unit({"curve": name, "samples": samples, "seed": seed, "chars": chars, "learned": [spec]}, seconds=0.5)


def run(config: dict[str, Any], models: Models) -> list[dict[str, Any]]:
    """What the run of one curve and size wrote down: its exam with the book closed, and how it got there."""
    record = Run(models.place(config["learned"][0]))
    result, settings = record.read("result.json"), record.read("config.json")
    closed = next(row for row in result["exam"] if row["open"] == 0)
    seen = [line for line in record.metrics() if "closed_book" in line]
    return [
        {
            **{key: config[key] for key in ("curve", "samples", "seed", "chars")},
            "depth": settings["task"]["depth"],
            "accuracy": closed["accuracy"],
            "low": closed["low"],
            "high": closed["high"],
            "chance": closed["chance"],
            "exact_match": closed["exact_match"],
            "open_book": result["accuracy"]["open_book"],
            "seconds": result["seconds"],
            "steps": result["steps"],
            "curve_by_step": [{key: line[key] for key in ("step", "closed_book", "open_book")} for line in seen],
        }
    ]


def draw(rows: Rows, name: str = NAME) -> list[Chart | Table]:
    """A panel for each alphabet of ours with the published curves of the same alphabet behind, and how runs went."""
    if not rows:
        return []
    panels = [_panel(rows, chars) for chars in sorted({row["chars"] for row in rows})]
    charts: list[Chart | Table] = [
        Chart(
            name,
            "Accuracy with the book closed, by training samples",
            _alt(rows),
            panels,
            "Solid: this machine, mean of the seeds, with 95 % intervals clustered by string. Dashed and pale: "
            "published, Llama-3.2-3B on MLT(5, 8) or MLT(5, 10); another model, and a deeper task where ours has "
            "fewer levels, so compare the order of the curves and not their places.",
        )
    ]
    largest = max(row["samples"] for row in rows)
    runs = [row for row in rows if row["samples"] == largest and row["seed"] == 0 and row["curve_by_step"]]
    if runs:
        charts.append(_course(runs, largest, name))
    charts.append(_table(rows, name))
    return charts


def _panel(rows: Rows, chars: int) -> Panel:
    here = [row for row in rows if row["chars"] == chars]
    depth = here[0]["depth"]
    series = []
    for curve in CURVES.values():
        theirs = [
            (row["num_samples"], row["acc_no_context"])
            for row in published("sample_efficiency")
            if row["n"] == chars and row["curriculum"] == curve.published
        ]
        if theirs:
            series.append(Series(curve.label, sorted(theirs), curve.colour, published=True))
    for name, curve in CURVES.items():
        mine = [row for row in here if row["curve"] == name]
        if mine:
            low, high = mean_by(mine, "samples", "low"), mean_by(mine, "samples", "high")
            points = list(mean_by(mine, "samples").items())
            series.append(Series(curve.label, points, curve.colour, [(low[x], high[x]) for x, _ in points]))
    behind = f"; published: MLT(5, {chars})" if any(one.published for one in series) else ""
    return Panel(
        f"Ours: MLT({depth}, {chars}){behind}",
        Axis("training samples, one epoch", "log", "si"),
        share("accuracy, book closed"),
        series,
        [Level(1 / chars, "chance")],
    )


def _course(runs: list[dict[str, Any]], samples: int, name: str) -> Chart:
    def series(key: str) -> list[Series]:
        return [
            Series(
                CURVES[row["curve"]].label,
                [(point["step"] / row["steps"], point[key]) for point in row["curve_by_step"]],
                CURVES[row["curve"]].colour,
            )
            for row in runs
        ]

    chance = [Level(runs[0]["chance"], "chance")]
    panels = [
        Panel(title, Axis("share of training", form="percent", low=0, high=1), share("accuracy"), series(key), chance)
        for title, key in (("Book closed", "closed_book"), ("Book open", "open_book"))
    ]
    return Chart(
        f"{name}-course",
        f"How the runs on {samples:,} samples went",
        "Accuracy of each curriculum during training, with the book closed and open.",
        panels,
        "Examined a few times during training on strings that training never sees.",
    )


def _table(rows: Rows, name: str) -> Table:
    sizes = sorted({row["samples"] for row in rows})
    cells = []
    for key, curve in CURVES.items():
        mine = mean_by([row for row in rows if row["curve"] == key], "samples")
        if mine:
            cells.append([curve.label, *(f"{mine[n]:.1%}" if n in mine else "" for n in sizes)])
    title = "The same in numbers: accuracy with the book closed"
    return Table(f"{name}-table", title, ["curriculum", *(f"{n:,} samples" for n in sizes)], cells)


def _alt(rows: Rows) -> str:
    largest = max(row["samples"] for row in rows)
    ends = {
        name: mean_by([r for r in rows if r["curve"] == name and r["samples"] == largest], "curve") for name in CURVES
    }
    said = [f"{CURVES[name].label} {found[name]:.0%}" for name, found in ends.items() if found]
    return f"Accuracy with the book closed after {largest:,} samples: {', '.join(said)}."


def claims(rows: Rows) -> list[Claim]:
    """The main figure's caption and section 3.2, sentence by sentence. Two levels (smoke) say nothing about them."""
    rows = [row for row in rows if row["depth"] >= DEEP]
    reached = {name: _reaches(rows, name) for name in CURVES}
    return [
        _order(rows, reached),
        _fewer(rows, reached),
        _perfect_without_context(rows),
        *(_necessary(rows, name, sentence) for name, sentence in NECESSARY.items()),
        _overlap(rows),
    ]


NECESSARY = {
    "no-context": "Context-enhanced learning greatly improves sample efficiency over plain fine-tuning.",
    "wrong-context": "Ablations show the necessity of correct context.",
    "no-dropout": "Ablations show the necessity of proper dropout.",
    "no-icl": "Ablations show the necessity of sufficient ICL capability as a good initialization.",
}


def _at_largest(rows: Rows, name: str) -> dict[str, Any] | None:
    """The run on the largest dataset that this curve and annealing have in common, averaged over seeds."""
    common = _sizes(rows, name) & _sizes(rows, "anneal")
    if not common:
        return None
    mine = [row for row in rows if row["curve"] == name and row["samples"] == max(common)]
    return {"samples": max(common)} | {
        k: sum(r[k] for r in mine) / len(mine) for k in ("accuracy", "low", "high", "chance")
    }


def _reaches(rows: Rows, name: str) -> int | None:
    found = mean_by([row for row in rows if row["curve"] == name], "samples")
    return next((n for n, accuracy in found.items() if accuracy >= LEARNED), None)


def _order(rows: Rows, reached: dict[str, int | None]) -> Claim:
    claim = "Annealing learns the fastest, followed by fixed dropout."
    threshold = (
        f"mean accuracy over the sizes both have: annealing at least fixed's less {TIE:.0%}, every other curve below "
        f"both; one of the two reaches {LEARNED:.0%}"
    )
    names = [name for name in CURVES if any(row["curve"] == name for row in rows)]
    others = [name for name in names if name not in ("anneal", "fixed:0.2")]
    if not {"anneal", "fixed:0.2"} <= set(names) or not others:
        return unmeasured(claim, threshold, "annealing, fixed dropout and one other are needed")
    numbers = {CURVES[name].label: round(_mean(rows, name, _sizes(rows, name)), 3) for name in names}
    if reached["anneal"] is None and reached["fixed:0.2"] is None:
        return judge(claim, False, numbers, threshold)
    both = _sizes(rows, "anneal") & _sizes(rows, "fixed:0.2")
    first = _mean(rows, "anneal", both) >= _mean(rows, "fixed:0.2", both) - TIE
    last = all(
        _mean(rows, name, shared) < _mean(rows, better, shared)
        for name in others
        for better in ("anneal", "fixed:0.2")
        if (shared := _sizes(rows, name) & _sizes(rows, better))
    )
    return judge(claim, first and last, numbers, threshold)


def _sizes(rows: Rows, name: str) -> set[int]:
    return {row["samples"] for row in rows if row["curve"] == name}


def _mean(rows: Rows, name: str, sizes: set[int]) -> float:
    found = mean_by([row for row in rows if row["curve"] == name and row["samples"] in sizes], "samples")
    return sum(found.values()) / max(1, len(found))


def _fewer(rows: Rows, reached: dict[str, int | None]) -> Claim:
    claim = "Annealing requires 10x less samples than plain fine-tuning."
    threshold = (
        f"samples to {LEARNED:.0%}: plain fine-tuning needs at least {FACTOR} times annealing's; "
        "unclear if it was not tried that far"
    )
    plain = [row["samples"] for row in rows if row["curve"] == "no-context"]
    if reached["anneal"] is None or not plain:
        return unmeasured(claim, threshold, f"annealing did not reach {LEARNED:.0%}, or there is no plain run")
    needed = reached["no-context"]
    numbers = {"annealing reaches it at": reached["anneal"], "plain fine-tuning": needed or f"not by {max(plain):,}"}
    if needed is not None:
        return judge(claim, needed >= FACTOR * reached["anneal"], numbers, threshold)
    return judge(claim, True, numbers, threshold, enough=max(plain) >= FACTOR * reached["anneal"])


def _perfect_without_context(rows: Rows) -> Claim:
    claim = "Models trained with 20 % dropout are right with 100 % dropped: rules are learned atomically."
    threshold = f"fixed dropout reaches {LEARNED:.0%} with the book closed at its largest size"
    best = _at_largest(rows, "fixed:0.2")
    if best is None:
        return unmeasured(claim, threshold, "no run with fixed dropout")
    numbers = {"accuracy": round(best["accuracy"], 3), "samples": best["samples"], "chance": best["chance"]}
    return judge(claim, best["accuracy"] >= LEARNED, numbers, threshold)


def _necessary(rows: Rows, name: str, claim: str) -> Claim:
    threshold = f"at the same size annealing's lower bound is {APART:.0%} above the upper bound without it"
    control, enhanced = _at_largest(rows, name), _at_largest(rows, "anneal")
    if control is None or enhanced is None:
        return unmeasured(claim, threshold, f"no pair of runs with annealing and {name}")
    mine = [r for r in rows if r["curve"] == "anneal" and r["samples"] == control["samples"]]
    low = sum(row["low"] for row in mine) / len(mine)
    numbers = {
        "annealing": round(sum(r["accuracy"] for r in mine) / len(mine), 3),
        CURVES[name].label: round(control["accuracy"], 3),
        "samples": control["samples"],
        "chance": control["chance"],
    }
    return judge(claim, low - control["high"] >= APART, numbers, threshold)


def _overlap(rows: Rows) -> Claim:
    claim = "The other curves overlap around random guesses."
    threshold = f"every other curve ends within {GUESS:.0%} of chance"
    ends = {name: _at_largest(rows, name) for name in CURVES if name not in ("anneal", "fixed:0.2")}
    there = {name: found for name, found in ends.items() if found is not None}
    if len(there) < len(ends):
        return unmeasured(claim, threshold, "not all six curves were run")
    numbers = {CURVES[name].label: round(found["accuracy"], 3) for name, found in there.items()}
    chance = next(iter(there.values()))["chance"]
    holds = all(abs(found["accuracy"] - chance) <= GUESS for found in there.values())
    return judge(claim, holds, {**numbers, "chance": chance}, threshold)


EXPERIMENT = Experiment(
    name=NAME,
    title="Sample efficiency of six curricula",
    paper="Figure 2, section 3.2",
    story="Can a model learn a codebook faster with the book in its context, although no loss is computed on the book? "
    "Each dot is a model that was trained for one epoch on that many translations and then examined on new strings "
    "with the book closed. Annealing closes the book little by little; fixed dropout always hides a fifth of it. The "
    "other four each lack one thing: the book, its removal, its truth, or a model that can read it.",
    configs=configs,
    run=run,
    draw=draw,
    claims=claims,
    differs="The paper fine-tunes Llama-3.2-3B on five levels with 10,000 to 1,000,000 samples. Ours is a student of "
    "0.5 million weights on three levels with 1,000 to 4,000.",
)
