"""The exponential gap: characters of input until a codebook is learned, with context and without, against depth."""

from __future__ import annotations

import math
from typing import Any

from openbook.figures.charts import Axis, Chart, Panel, Series, Table
from openbook.paper.experiment import Experiment, Rows, Scale, Unit
from openbook.paper.models import Models
from openbook.report.claims import Claim, judge, unmeasured
from openbook.theory.surrogate.censored import span

ARMS = {
    "vanilla": ("no context: descent, best learning rate", 1),
    "enhanced": ("context-enhanced: descent (Algorithm 5)", 0),
    "search": ("context-enhanced: search (Algorithm 2)", 2),
}
ORDER = 2.0  # an arm with context may grow like d to this power at most to count as polynomial with a small exponent


def units(scale: Scale) -> list[Unit]:
    if scale == "smoke":
        return [Unit({"chars": 2, "depth": 2, "seeds": 6, "budget": 8000, "seed": 0}, seconds=3.0)]
    if scale == "laptop":
        sizes = [(2, 5, 6, 100_000, 20.0), (3, 4, 6, 100_000, 18.0)]
    else:
        sizes = [(2, 6, 20, 1_000_000, 1200.0), (3, 5, 20, 1_000_000, 2400.0), (4, 5, 20, 1_000_000, 5400.0)]
    return [
        Unit({"chars": n, "depth": d, "seeds": seeds, "budget": budget, "seed": 0}, seconds)
        for n, d, seeds, budget, seconds in sizes
    ]


def run(config: dict[str, Any], models: Models) -> list[dict[str, Any]]:
    from openbook.theory.surrogate.gap import GapStudy, fits, measure

    study = GapStudy((config["chars"],), config["depth"], config["seeds"], config["budget"], config["seed"])
    rows = measure(study)
    return [{**rows[0], "fits": fits(rows)}, *rows[1:]]  # fitted here, so that drawing takes no time


def _whole(rows: Rows) -> list[dict[str, Any]]:
    """Rows as they were measured: JSON has no infinity, so a run that was stopped is kept as null."""
    keys = ("median", "low", "high", "censored_at")
    restored = []
    for row in rows:
        numbers = {key: math.inf if row[key] is None else row[key] for key in keys}
        characters = [math.inf if value is None else value for value in row["characters"]]
        restored.append({**row, **numbers, "characters": characters})
    return restored


def _fits(rows: Rows) -> list[dict[str, Any]]:
    ends = ("high", "power_high")
    return [
        {**fit, **{end: math.inf if fit[end] is None else fit[end] for end in ends}}
        for row in rows
        for fit in row.get("fits", ())
    ]


def draw(rows: Rows) -> list[Chart | Table]:
    if not rows:
        return []
    rows = _whole(rows)
    panels, said = [], []
    for chars in sorted({row["chars"] for row in rows}):
        series = []
        for arm, (label, colour) in ARMS.items():
            mine = sorted((r for r in rows if r["chars"] == chars and r["arm"] == arm), key=lambda r: r["depth"])
            mine = [row for row in mine if math.isfinite(row["median"])]
            spread = [(r["low"], r["high"] if math.isfinite(r["high"]) else r["censored_at"]) for r in mine]
            series.append(Series(label, [(row["depth"], row["median"]) for row in mine], colour, spread))
        panels.append(
            Panel(f"n = {chars} characters", Axis("depth d"), Axis("characters until learned", "log", "si"), series)
        )
    growths = _fits(rows)
    for fit in growths:
        if fit["arm"] == "vanilla":
            said.append(f"without context each level multiplies the input by {fit['growth']:.1f} at n = {fit['chars']}")
    cells = [
        [str(fit["chars"]), ARMS[fit["arm"]][0], f"{fit['growth']:.2f} ({span(fit['low'], fit['high'])})",
         f"{fit['power_of_d']:.2f} ({span(fit['power_low'], fit['power_high'])})"]
        for fit in growths
    ]  # fmt: skip
    return [
        Chart(
            "gap",
            "Characters of input until a codebook is learned",
            "; ".join(said) + "; with context it grows like a power of the depth.",
            panels,
            "Medians with 95 % intervals. Runs stopped by their budget count as more than the budget; no context is "
            "drawn up to the depth at which half of its runs still succeed.",
        ),
        Table(
            "gap-growth",
            "Growth from depth 2 on, stopped runs counted as such",
            ["n", "learner", "factor for each level (95 %)", "power of d (95 %)"],
            cells,
        ),
    ]


def claims(rows: Rows) -> list[Claim]:
    hard = "Without context the samples needed grow exponentially with depth, n^Ω(d)."
    rule_hard = (
        "at every n the factor for each level: its lower bound is above 1.5 and above both learners' with context"
    )
    easy = "With context they grow polynomially, like d log d for search."
    rule_easy = f"at every n the upper bound of the power of d is below {ORDER:g} for search and for descent"
    if not rows:
        return [unmeasured(hard, rule_hard, "nothing measured"), unmeasured(easy, rule_easy, "nothing measured")]
    found = {(fit["arm"], fit["chars"]): fit for fit in _fits(rows)}
    sizes = sorted({chars for _, chars in found})
    complete = [n for n in sizes if all((arm, n) in found and len(set(found[arm, n]["depths"])) > 1 for arm in ARMS)]
    if not complete or max(fit["depths"][1] for fit in found.values()) < 4:
        why = "no size at which every learner was measured at several depths"
        return [unmeasured(hard, rule_hard, why), unmeasured(easy, rule_easy, why)]
    grows = {
        f"n = {n}": f"times {fit['growth']:.1f} a level ({span(fit['low'], fit['high'], '.1f')})"
        for n in complete
        for fit in [found["vanilla", n]]
    }
    powers = {
        f"n = {n}": ", ".join(f"{arm} d^{found[arm, n]['power_of_d']:.2f}" for arm in ("enhanced", "search"))
        for n in complete
    }
    exponential = all(
        found["vanilla", n]["low"] > max(1.5, *(found[arm, n]["high"] for arm in ("enhanced", "search")))
        for n in complete
    )
    polynomial = all(found[arm, n]["power_high"] < ORDER for n in complete for arm in ("enhanced", "search"))
    return [judge(hard, exponential, grows, rule_hard), judge(easy, polynomial, powers, rule_easy)]


EXPERIMENT = Experiment(
    name="gap",
    title="The exponential gap, measured",
    paper="Sections 5.2 and 5.3; no figure",
    story="The paper proves that learning without the book takes a number of samples exponential in the depth, and "
    "with it a polynomial one. On tasks small enough that the hopeless way still works, both can be measured: the "
    "surrogate model learns random codebooks with the book in its context and without, and what is counted is the "
    "input it needed.",
    units=units,
    run=run,
    draw=draw,
    claims=claims,
    version=3,
)
