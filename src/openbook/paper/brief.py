"""Five levels from fewer samples: a book of nothing but what an example needs.

The paper's annealing shows a quarter of the rules that an example does not need beside those that it does. Here they
are left out (`student-brief`). Everything starts from the reader that comes with the package, so that anyone can make
the same again. Plain fine-tuning has ten times as many, from this reader too, at the rate and warm-up with which it was
furthest after as many in `plain`. A control has the same schedule and the unused rules: does the book save samples, or
when it closes?
"""

from __future__ import annotations

from typing import Any

from openbook.figures.charts import Chart, Table
from openbook.paper import efficiency_claims, plain, sample_efficiency
from openbook.paper.experiment import Experiment, Rows, Scale, Unit
from openbook.paper.five_levels import ALL_WEIGHTS, CHARS, DEPTH, SEEDS, WARMED, WARMUP, unit
from openbook.paper.models import Models
from openbook.report.claims import Claim

NAME = "five-levels-brief"
ENOUGH = 12_800  # of annealing: what `student-brief` has
SIZES = (10_000, ENOUGH, 16_000)
PLAIN = 10 * ENOUGH
USUAL = 0.25  # share of the unused rules that the paper's annealing shows
NOTE = (
    "Annealing has a schedule of our own, which closes one phrasebook after another, and a book of needed rules alone. "
    "All weights of plain fine-tuning are free."
)


def configs(scale: Scale) -> list[Unit]:
    """At overnight scale only, as all that is about five levels."""
    if scale != "overnight":
        return []
    warmed = {**ALL_WEIGHTS, WARMUP: WARMED / PLAIN}
    return [
        *(annealing(size, seed) for size in SIZES for seed in range(SEEDS)),
        *(annealing(ENOUGH, seed, {"curriculum.others": USUAL}) for seed in range(SEEDS)),
        *(unit("no-context", PLAIN, CHARS, seed, **warmed) for seed in range(SEEDS)),
    ]


def annealing(samples: int, seed: int, settings: dict[str, Any] | None = None) -> Unit:
    spec = {
        "reader": f"student-{DEPTH}-{CHARS}",
        "base": "student-brief",
        "settings": {"samples": samples, "seed": seed, "task.codebook": seed, **(settings or {})},
    }
    return sample_efficiency.unit("anneal", samples, seed, CHARS, spec)


def run(config: dict[str, Any], models: Models) -> list[dict[str, Any]]:
    """What the figure has of a run, its rate, and how much of what an example does not need its book had."""
    others = models.config(config["learned"][0]).curriculum.others
    return [{**row, "others": others} for row in plain.run(config, models)]


def brief(rows: Rows) -> list[dict[str, Any]]:
    """All but the control."""
    return [row for row in rows if not row["others"]]


def draw(rows: Rows) -> list[Chart | Table]:
    if not rows:
        return []
    ordered = sorted(
        (row for row in rows if row["curve"] == "anneal"), key=lambda row: (row["samples"], row["others"], row["seed"])
    )
    cells = [
        [f"{row['samples']:,}", f"{row['others']:.0%}", str(row["seed"]), f"{row['accuracy']:.1%}",
         f"{row['low']:.1%} to {row['high']:.1%}", f"{row['open_book']:.1%}", f"{row['tokens'] / row['samples']:.0f}"]
        for row in ordered
    ]  # fmt: skip
    header = ["samples", "unused rules shown", "seed", "book closed", "95 %", "book open", "tokens a sample"]
    return [
        *sample_efficiency.draw(brief(rows), NAME, NOTE),
        Table(f"{NAME}-control", "Annealing by the same schedule, without unused rules and with them", header, cells),
    ]


def claims(rows: Rows) -> list[Claim]:
    """The factor alone: what else the figure says is judged where all curves are."""
    return [efficiency_claims.fewer(brief(rows))]


EXPERIMENT = Experiment(
    name=NAME,
    title="Five levels, a book without unused rules",
    paper="Figure 2, section 3.2",
    story="Rules that an example does not need make its book longer, and what is missing harder to tell. Are fewer "
    "samples enough without them?",
    configs=configs,
    run=run,
    draw=draw,
    claims=claims,
    differs="The paper's annealing shows a quarter of the unused rules, and hides rules of all phrasebooks in half of "
    "the examples, from the start. Plain fine-tuning has one rate and one warm-up here, those with which it was "
    "furthest after as many samples in the search of `five-levels-plain`.",
)
