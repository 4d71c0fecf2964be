"""`openbook construct`: the transformer written by hand, verified, trained, and as the model of the main figure."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Literal

from cyclopts import App, Parameter

from openbook.base.console import out, progress
from openbook.base.errors import InputError
from openbook.cli.output import OUTPUT, Output
from openbook.paper import built_efficiency, construction, trainability
from openbook.paper.efficiency_charts import published_rows
from openbook.paper.experiment import Scale
from openbook.task.phrasebook import Codebook
from openbook.theory.construction.curricula import LENGTHS
from openbook.theory.construction.training import EXAM, Recipe, Update
from openbook.theory.construction.training import train as train_construction
from openbook.theory.construction.transformer import SCALE
from openbook.theory.construction.verify import verify as verify_construction

construct = App(
    name="construct",
    help="The transformer written by hand: verify, train, efficiency.",
    default_parameter=Parameter(consume_multiple=True),
)

RATES = (1e-2, 1e-3, 1e-4)  # the paper's peak learning rates
FAILED = 1  # exit code of a verification that found a mismatch


@construct.command
def verify(
    *,
    depth: int = 5,
    chars: int = 10,
    strings: int = 12_000,
    codebooks: int = 2000,
    scale: float = SCALE,
    seed: int = 0,
    output: Output = OUTPUT,
) -> int:
    """Compare the construction with the oracle and with its lemma, and measure where it stops being exact.

    Random codebooks are shown in full, stored in full, and divided rule by rule between context and weights. The exit
    code is 1 if one string is translated wrongly or one size is not the lemma's.

    Example: `openbook construct verify --depth 5 --chars 10 --json`

    Parameters
    ----------
    depth:
        Levels of translation.
    chars:
        Characters of each alphabet.
    strings:
        Minimum number of strings over all codebooks and divisions; each has 2 to 40 characters.
    codebooks:
        Number of random codebooks.
    scale:
        The scale N of the two products in each level.
    seed:
        Determines codebooks, divisions and strings.
    output.chart:
        Save the deviation against N as .png, .svg or .html.
    """
    with progress(f"strings of MLT({depth}, {chars})", strings) as advance:
        result = verify_construction(depth, chars, strings, codebooks, seed, scale, advance)
    output.present(result, construction.draw([result]), numbers=True)
    if not output.json:
        out.print("[green]holds[/]" if result["holds"] else "[red]FAILS[/]")
    return 0 if result["holds"] else FAILED


@construct.command
def train(
    *,
    depth: int = 5,
    chars: int = 10,
    update: Literal["both", "layerwise", "full"] = "both",
    rates: list[float] = list(RATES),  # noqa: B006
    sequences: int = 51_200,
    length: int = 20,
    seed: int = 0,
    shrink: bool = False,
    each_string: bool = False,
    control: bool = False,
    output: Output = OUTPUT,
) -> None:
    """The paper's trainability experiment: learn a codebook while one rule at a time is hidden.

    Training uses Adam with warm-up and a cosine schedule, in batches of 32 strings. At each step one random column of
    the context is hidden.

    Example: `openbook construct train --update full --rates 0.01`

    Parameters
    ----------
    depth:
        Levels of translation.
    chars:
        Characters of each alphabet.
    update:
        Update only the level with the hidden column, update all levels, or run both.
    rates:
        Peak learning rates; each one is a run of its own.
    sequences:
        Training strings of a run.
    length:
        Characters of a string.
    seed:
        Determines codebook, strings and hidden columns.
    shrink:
        Apply the ℓ1 penalty after Adam's step, not through its gradient.
    each_string:
        Hide a different column from each string, not one column from all strings of a step.
    control:
        Also train all levels with nothing hidden: what is recovered then was not learned from hiding.
    output.chart:
        Save the columns recovered as .png, .svg or .html.
    output.json:
        Print one JSON object instead of a table.
    """
    if not rates:
        raise InputError("no peak rate: give --rates at least one number, or leave it out")
    shared = Recipe(sequences=sequences, length=length, seed=seed, shrink=shrink)
    updates: Sequence[Update] = ("layerwise", "full") if update == "both" else (update,)
    hiding = [replace(shared, update=each, each_string=each_string) for each in updates]
    kinds = [*hiding, replace(shared, masked=False)] if control else hiding
    recipes = [replace(kind, rate=rate) for kind in kinds for rate in rates]
    for recipe in recipes:
        recipe.check()
    codebook = Codebook.sample(depth, chars, seed)
    with progress(f"steps on MLT({depth}, {chars})", sum(recipe.steps for recipe in recipes)) as advance:
        runs = [train_construction(codebook, recipe, advance).to_json() for recipe in recipes]
    best = max(run["recovered"] for run in runs if run["masked"])
    output.present({"recovered": best, "runs": runs}, trainability.draw(runs))


@construct.command
def efficiency(
    *,
    scale: Scale = "laptop",
    chars: list[int] = [],  # noqa: B006
    samples: list[int] = [],  # noqa: B006
    seeds: int | None = None,
    curricula: list[str] = [],  # noqa: B006
    processes: int | None = None,
    output: Output = OUTPUT,
) -> None:
    """The main figure at the paper's task size: accuracy with an empty context against samples.

    The hand-built transformer reads any codebook in its context from the start, so there is no pre-training. The
    scales are those of `openbook reproduce construction-efficiency`. Published curves of a 3B model are drawn behind.

    Example: `openbook construct efficiency --chart efficiency.png`

    With both alphabets of the paper: `openbook construct efficiency --chars 8 10 --samples 1000 3000 10000 --seeds 3`

    Parameters
    ----------
    scale:
        smoke (seconds, a toy task), laptop (half a minute), overnight or paper (up to a million samples).
    chars:
        Characters of each alphabet, instead of the scale's.
    samples:
        Sizes of the datasets, instead of the scale's.
    seeds:
        Codebooks and trainings for each point, instead of the scale's.
    curricula:
        Curricula to train under; all five if not given.
    processes:
        Trainings that run at the same time; as many as there are cores if not given.
    output.json:
        Print one JSON object instead of a table.
    """
    units = built_efficiency.grid(scale, chars, samples, seeds, curricula)
    workers = os.cpu_count() or 1 if processes is None else processes
    with progress("training samples", sum(unit.config["samples"] for unit in units)) as advance:
        rows = built_efficiency.measure(units, workers, advance)
    data = {
        "scale": scale,
        "recipe": asdict(Recipe()),
        "exam_strings": EXAM,
        "lengths": LENGTHS,
        "rows": [{"curriculum": row["curve"], **{k: v for k, v in row.items() if k != "curve"}} for row in rows],
        "published_by_a_3b_model": published_rows(built_efficiency.NAMES),
    }
    output.present(data, built_efficiency.draw(rows), numbers=True)
