"""The table of lemmas: every claim of the paper's theory, checked by machine."""

from __future__ import annotations

import itertools
from typing import Any

from openbook.figures.charts import Axis, Chart, Panel, Series, Table
from openbook.paper.experiment import Experiment, Rows, Scale, Unit
from openbook.paper.models import Models
from openbook.report.claims import Claim, judge, unmeasured

SLOW = ("decay-deep", "gradient-without-context")  # most of the time of all checks, so done by themselves
SMOKE = ("bijection-count", "correlation-pair", "icl-capability")


def units(scale: Scale) -> list[Unit]:
    from openbook.theory.lemmas import CHECKS

    if scale == "smoke":
        return [Unit({"checks": list(SMOKE), "seed": 0}, seconds=2.0)]
    quick = [check.name for check in CHECKS if check.name not in SLOW]
    return [Unit({"checks": names, "seed": 0}, seconds) for names, seconds in ((quick, 8.0), (list(SLOW), 17.0))]


def run(config: dict[str, Any], models: Models) -> list[dict[str, Any]]:
    from openbook.theory.lemmas import SECTIONS
    from openbook.theory.lemmas import run as check
    from openbook.theory.lemmas.decay import exact_decay, paper_bound

    section = {one.name: name for name, checks in SECTIONS.items() for one in checks}
    rows = [
        {**result.to_json(), "section": section[result.check.name]}
        for result in check(config["checks"], config["seed"])
    ]
    if "correlation-pair" in config["checks"]:
        exact = [
            {"depth": depth, "exact": float(chance), "tasks": parities, "bound": float(paper_bound(depth))}
            for depth, (chance, parities) in enumerate(exact_decay(), 1)
        ]
        rows = [{**row, "decay": exact} if row["name"] == "correlation-pair" else row for row in rows]
    return rows


def draw(rows: Rows) -> list[Chart | Table]:
    if not rows:
        return []
    from openbook.theory.lemmas import CHECKS

    place = {check.name: number for number, check in enumerate(CHECKS)}
    ordered = sorted(rows, key=lambda row: place.get(row["name"], len(place)))
    cells = [
        [
            row["section"],
            row["name"],
            row["claim"] + (f" ({row['remark']})" if row["remark"] else ""),
            row["measured"],
            row["method"],
        ]
        for row in ordered
    ]
    table = Table(
        "lemmas",
        f"{sum(row['holds'] for row in rows)} of {len(rows)} statements hold",
        ["part", "check", "claim (and our remark)", "measured", "method"],
        cells,
        "Where the paper slips, the corrected statement is checked and the remark says what was wrong.",
        ["holds" if row["holds"] else "fails" for row in ordered],
    )
    decay = next((row["decay"] for row in rows if "decay" in row), None)
    return [*([_decay(decay)] if decay else []), table]


def _decay(decay: list[dict[str, Any]]) -> Chart:
    depth = Axis("depth d")
    chance = [
        Series("exact (counted)", [(row["depth"], row["exact"]) for row in decay], 0),
        Series("the paper's bound", [(row["depth"], row["bound"]) for row in decay], 1),
    ]
    tasks = [Series("exact (counted)", [(row["depth"], row["tasks"]) for row in decay], 0)]
    last = decay[-1]
    return Chart(
        "lower-bound",
        "Two characters: why the task is hard without the book",
        f"The chance that two random codebooks correlate falls with depth, to {last['exact']:.4f} at depth "
        f"{last['depth']}, where the paper's bound is {last['bound']:.4f}; {last['tasks']:,} tasks are then pairwise "
        "uncorrelated.",
        [
            Panel("Two random tasks correlate", depth, Axis("probability", "log"), chance),
            Panel("Pairwise uncorrelated tasks", depth, Axis("number of tasks", "log", "si"), tasks),
        ],
        "MLT(d, 2). Every output character is a parity of input bits, so both are counted exactly.",
    )


def claims(rows: Rows) -> list[Claim]:
    claim = "The lemmas and theorems of the paper, as corrected, hold."
    threshold = (
        "every check holds: exactly where it is exhaustive or algebra, within 99.9 % intervals where it is sampled"
    )
    if not rows:
        return [unmeasured(claim, threshold, "no check was run")]
    broken = [row["name"] for row in rows if not row["holds"]]
    numbers = {"hold": len(rows) - len(broken), "of": len(rows), **({"failed": ", ".join(broken)} if broken else {})}
    found = [judge(claim, not broken, numbers, threshold)]
    decay = next((row["decay"] for row in rows if "decay" in row), None)
    return [*found, *(_decay_claims(rows, decay) if decay else [])]


def _decay_claims(rows: Rows, decay: list[dict[str, Any]]) -> list[Claim]:
    """The lower bound's lemma as printed, and what the theorem needs of it."""
    last = decay[-1]
    counted = {f"exact at d = {last['depth']}": last["exact"], "bound there": last["bound"]}
    bound = "Random tasks of MLT(d, 2) correlate with probability at most (1/3)(7/9)^(d-1), for every d."
    rule = "counted at small depths, and the proved rate of decay is at most 7/9 (else it fails at large ones)"
    rate = next((row for row in rows if row["name"] == "decay-rate"), None)
    within = all(row["exact"] <= row["bound"] + 1e-12 for row in decay)
    proved = rate is not None and rate["holds"]  # that the rate is 19/24, which is more than 7/9
    holds = None if within and not proved else False
    numbers = {**counted, **({"rate of decay": rate["measured"]} if rate else {})}
    falls = "The probability that two random tasks correlate falls exponentially with depth."
    ratios = [b["exact"] / a["exact"] for a, b in itertools.pairwise(decay)]
    steepest = {"largest ratio of successive depths": max(ratios), "depths counted": len(decay)}
    return [
        judge(falls, max(ratios) < 0.8, steepest, "every ratio of successive depths is below 0.8"),
        judge(bound, holds, numbers, rule),
    ]


EXPERIMENT = Experiment(
    name="lemmas",
    title="The theory, statement by statement",
    paper="Sections 5.2 and 5.3, appendices E to H",
    story="Without the book, learning a codebook from inputs and outputs takes a number of samples exponential in the "
    "depth; with it, polynomial. Every lemma on the way is checked by machine: exhaustively where there are few "
    "cases, by exact counting or algebra where there are many, by sampling with an interval where nothing else goes.",
    units=units,
    run=run,
    draw=draw,
    claims=claims,
)
