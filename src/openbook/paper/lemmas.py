"""The table of lemmas: every claim of the paper's theory, checked by machine."""

from __future__ import annotations

import itertools

from openbook.figures.charts import Chart, Table
from openbook.paper.drawing import Columns, tabled, where
from openbook.paper.experiment import Experiment, Json, Rows, Scale, Unit
from openbook.paper.models import Models
from openbook.report.claims import Claim, judge, unmeasured

SLOW = ("decay-deep", "gradient-without-context")  # most of the time of all checks, so done by themselves
CLAIM = "The lemmas and theorems of the paper, as corrected, hold."
RULE = "every check holds: exactly where it is exhaustive or algebra, within 99.9 % intervals where it is sampled"
SMOKE = ("bijection-count", "correlation-pair", "icl-capability")


def units(scale: Scale) -> list[Unit]:
    from openbook.theory.lemmas import CHECKS

    if scale == "smoke":
        return [Unit({"checks": list(SMOKE), "seed": 0}, seconds=2.0)]
    quick = [name for name in CHECKS if name not in SLOW]
    return [Unit({"checks": names, "seed": 0}, seconds) for names, seconds in ((quick, 8.0), (list(SLOW), 17.0))]


def run(config: Json, models: Models) -> list[Json]:
    from openbook.theory.lemmas import select
    from openbook.theory.lemmas.charts import decay_rows

    rows = [{**check.run(config["seed"]).to_json(), "section": check.section} for check in select(config["checks"])]
    return [{**row, "decay": decay_rows()} if row["name"] == "correlation-pair" else row for row in rows]


def _decay(rows: Rows) -> list[Json]:
    """What was counted at each depth; empty where it was not."""
    return next((row["decay"] for row in rows if "decay" in row), [])


def _claim_and_remark(row: Json) -> str:
    return f"{row['claim']} ({row['remark']})" if row["remark"] else row["claim"]


def draw(rows: Rows) -> list[Chart | Table]:
    from openbook.theory.lemmas import CHECKS
    from openbook.theory.lemmas.charts import lower_bound_chart

    place = {name: number for number, name in enumerate(CHECKS)}
    ordered = sorted(rows, key=lambda row: place.get(row["name"], len(place)))
    columns: Columns = {"part": "{section}", "check": "{name}", "claim (and our remark)": _claim_and_remark}
    table = tabled(
        "lemmas",
        f"{sum(row['holds'] for row in rows)} of {len(rows)} statements hold",
        ordered,
        {**columns, "measured": "{measured}", "method": "{method}"},
        "Where the paper slips, the corrected statement is checked and the remark says what was wrong.",
        ["holds" if row["holds"] else "fails" for row in ordered],
    )
    decay = _decay(rows)
    return [lower_bound_chart(decay), table] if decay else [table]


def claims(rows: Rows) -> list[Claim]:
    if not rows:
        return [unmeasured(CLAIM, RULE, "no check was run")]
    broken = [row["name"] for row in rows if not row["holds"]]
    numbers = {"hold": len(rows) - len(broken), "of": len(rows), **({"failed": ", ".join(broken)} if broken else {})}
    return [judge(CLAIM, not broken, numbers, RULE), *(_decay_claims(rows) if _decay(rows) else [])]


def _decay_claims(rows: Rows) -> list[Claim]:
    """The lower bound's lemma as printed, and what the theorem needs of it."""
    decay = _decay(rows)
    last = decay[-1]
    falls = "The probability that two random tasks correlate falls exponentially with depth."
    ratios = [after["exact"] / before["exact"] for before, after in itertools.pairwise(decay)]
    steepest = {"largest ratio of successive depths": max(ratios), "depths counted": len(decay)}
    bound = "Random tasks of MLT(d, 2) correlate with probability at most (1/3)(7/9)^(d-1), for every d."
    rule = "counted at small depths, and the proved rate of decay is at most 7/9 (else it fails at large ones)"
    rates = where(rows, name="decay-rate")
    numbers = {f"exact at d = {last['depth']}": last["exact"], "bound there": last["bound"]}
    if rates:
        numbers["rate of decay"] = rates[0]["measured"]
    within = all(row["exact"] <= row["bound"] + 1e-12 for row in decay)
    refuted = not within or any(row["holds"] for row in rates)  # proved: the rate is 19/24, which is more than 7/9
    return [
        judge(falls, max(ratios) < 0.8, steepest, "every ratio of successive depths is below 0.8"),
        judge(bound, False if refuted else None, numbers, rule),
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
