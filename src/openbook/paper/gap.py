"""The exponential gap: characters of input until a codebook is learned, with context and without, against depth."""

from __future__ import annotations

import math
from collections.abc import Callable

from openbook.base.console import plain
from openbook.figures.charts import Axis, Chart, Panel, Table
from openbook.paper.drawing import curve, grouped, tabled, where
from openbook.paper.experiment import Experiment, Json, Rows, Scale, Unit
from openbook.paper.models import Models
from openbook.report.claims import Claim, judge, unmeasured
from openbook.theory.surrogate.censored import span
from openbook.theory.surrogate.gap import GapGrid, fits, measure

ARMS = {
    "vanilla": ("no context: descent, best learning rate", 1),
    "enhanced": ("context-enhanced: descent (Algorithm 5)", 0),
    "search": ("context-enhanced: search (Algorithm 2)", 2),
}
WITH_CONTEXT = ("enhanced", "search")
ORDER = 2.0  # an arm with context may grow like d to this power at most to count as polynomial with a small exponent


def units(scale: Scale) -> list[Unit]:
    long = [(2, 6, 20, 1_000_000, 1200.0), (3, 5, 20, 1_000_000, 2400.0), (4, 5, 20, 1_000_000, 5400.0)]
    sizes = {
        "smoke": [(2, 2, 6, 8000, 3.0)],
        "laptop": [(2, 5, 6, 100_000, 20.0), (3, 4, 6, 100_000, 18.0)],
    }.get(scale, long)
    return [
        Unit({"chars": n, "depth": d, "seeds": seeds, "budget": budget, "seed": 0}, seconds)
        for n, d, seeds, budget, seconds in sizes
    ]


def run(config: Json, models: Models) -> list[Json]:
    return measured(GapGrid(**{**config, "chars": (config["chars"],)}))


def measured(grid: GapGrid, advance: Callable[..., object] = lambda *_: None) -> list[Json]:
    """The rows of a grid as JSON, where None stands for infinity; the first one also holds the fitted growths."""
    rows = measure(grid, advance)
    return plain([{**rows[0], "fits": fits(rows)}, *rows[1:]])


def fits_of(rows: Rows) -> list[Json]:
    """The fitted growths that rows of any number of units hold."""
    return [fit for row in rows for fit in row.get("fits", ())]


def draw(rows: Rows) -> list[Chart | Table]:
    x, y = Axis("depth d"), Axis("characters until learned", "log", "si")
    bounded = [{**row, "high": row["censored_at"] if row["high"] is None else row["high"]} for row in rows]
    panels = []
    for chars, ours in grouped(bounded, "chars"):
        finished = {arm: [row for row in where(ours, arm=arm) if row["median"] is not None] for arm in ARMS}
        curves = [curve(*look, finished[arm], "depth", "median") for arm, look in ARMS.items()]
        panels.append(Panel(f"n = {chars} characters", x, y, curves))
    stopped = sum(row["runs"] - row["recovered"] for row in rows)
    growths = fits_of(rows)
    steep = [
        f"without context each level multiplies the input by {fit['growth']:.1f} at n = {fit['chars']}"
        for fit in where(growths, arm="vanilla")
    ]
    return [
        Chart(
            "gap",
            "Characters of input until a codebook is learned",
            "; ".join(steep) + "; with context it grows like a power of the depth.",
            panels,
            f"Medians with 95 % intervals. Runs stopped by their budget ({stopped}) count as more than the budget; no "
            "context is drawn up to the depth at which half of its runs still succeed.",
        ),
        tabled(
            "gap-growth",
            "Growth from depth 2 on, stopped runs counted as such",
            growths,
            {
                "n": "{chars}",
                "learner": lambda fit: ARMS[fit["arm"]][0],
                "factor for each level (95 %)": lambda fit: _with_bounds(fit, "growth", "low", "high"),
                "c of n^(c·d)": "{exponent_of_n:.2f}",
                "power of d (95 %)": lambda fit: _with_bounds(fit, "power_of_d", "power_low", "power_high"),
            },
            "The theorems: n^Ω(d) without context; O(n⁶ d log(nd)) for search, a power of d a little above 1.",
        ),
    ]


def _with_bounds(fit: Json, value: str, low: str, high: str) -> str:
    return f"{fit[value]:.2f} ({span(fit[low], fit[high])})"


def claims(rows: Rows) -> list[Claim]:
    hard = "Without context the samples needed grow exponentially with depth, n^Ω(d)."
    rule_hard = (
        "at every n the factor for each level: its lower bound is above 1.5 and above both learners' with context"
    )
    easy = "With context they grow polynomially, like d log d for search."
    rule_easy = f"at every n the upper bound of the power of d is below {ORDER:g} for search and for descent"
    growths = fits_of(rows)
    several = [fit for fit in growths if len(set(fit["depths"])) > 1]
    by_size = {f"n = {n}": {fit["arm"]: fit for fit in own} for n, own in grouped(several, "chars")}
    complete = {n: own for n, own in by_size.items() if set(own) == set(ARMS)}
    if not complete or max(fit["depths"][1] for fit in growths) < 4:
        why = "no size at which every learner was measured at several depths" if rows else "nothing measured"
        return [unmeasured(hard, rule_hard, why), unmeasured(easy, rule_easy, why)]
    factors, powers, exponential, polynomial = {}, {}, True, True
    for n, own in complete.items():
        vanilla, helped = own["vanilla"], {arm: own[arm] for arm in WITH_CONTEXT}
        factors[n] = f"times {vanilla['growth']:.1f} a level ({span(vanilla['low'], vanilla['high'], '.1f')})"
        powers[n] = ", ".join(f"{arm} d^{fit['power_of_d']:.2f}" for arm, fit in helped.items())
        exponential &= vanilla["low"] > max(1.5, *(_bound(fit["high"]) for fit in helped.values()))
        polynomial &= all(_bound(fit["power_high"]) < ORDER for fit in helped.values())
    return [judge(hard, exponential, factors, rule_hard), judge(easy, polynomial, powers, rule_easy)]


def _bound(value: float | None) -> float:
    return math.inf if value is None else value


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
