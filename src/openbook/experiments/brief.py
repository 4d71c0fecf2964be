"""Five levels from fewer samples: a book of nothing but what an example needs.

The paper's annealing shows a quarter of the rules that an example does not need beside those that it does. Here they
are left out (`student-brief`). Everything starts from the reader that comes with the package, so that anyone can make
the same again. Plain fine-tuning has ten times as many, from this reader too, at the rate and warm-up with which it was
furthest after as many in `plain`.
"""

from __future__ import annotations

import functools

from openbook.experiments import efficiency_claims, plain, sample_efficiency
from openbook.experiments.experiment import Claim, Experiment, Rows, Scale, Unit
from openbook.experiments.five_levels import ALL_WEIGHTS, CHARS, DEPTH, SEEDS, WARMED, WARMUP, unit

NAME = "five-levels-brief"
SIZES = (10_000, 12_800)  # of annealing: too few, and enough
PLAIN = 10 * SIZES[-1]
NOTE = (
    "Annealing has a schedule of our own, which closes one phrasebook after another, and a book of needed rules alone. "
    "All weights of plain fine-tuning are free."
)


def configs(scale: Scale) -> list[Unit]:
    """At overnight scale only, as all that is about five levels."""
    if scale != "overnight":
        return []
    warmed = {**ALL_WEIGHTS, WARMUP: WARMED / PLAIN}
    annealed = [annealing(size, seed) for size in SIZES for seed in range(SEEDS)]
    return [*annealed, *(unit("no-context", PLAIN, CHARS, seed, **warmed) for seed in range(SEEDS))]


def annealing(samples: int, seed: int) -> Unit:
    spec = {
        "reader": f"student-{DEPTH}-{CHARS}",
        "base": "student-brief",
        "settings": {"samples": samples, "seed": seed, "task.codebook": seed},
    }
    return sample_efficiency.unit("anneal", samples, seed, CHARS, spec)


def claims(rows: Rows) -> list[Claim]:
    """The factor alone: what else the figure says is judged where all curves are."""
    return [efficiency_claims.fewer(rows)]


EXPERIMENT = Experiment(
    name=NAME,
    title="Five levels, a book without unused rules",
    paper="Figure 2, section 3.2",
    story="Rules that an example does not need make its book longer, and what is missing harder to tell. Without them "
    "fewer samples are enough.",
    configs=configs,
    run=plain.run,
    draw=functools.partial(sample_efficiency.draw, name=NAME, note=NOTE),
    claims=claims,
    differs="The paper's annealing shows a quarter of the unused rules, and hides rules of all phrasebooks in half of "
    "the examples, from the start.",
)
