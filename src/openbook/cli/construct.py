"""`openbook construct`: the transformer written by hand, verified, trained, and as the model of the main figure."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter
from rich.table import Table

from openbook.base.console import emit_json, out, progress
from openbook.base.errors import InputError
from openbook.figures.theme import check_path, save
from openbook.task.phrasebook import Codebook
from openbook.theory.construction import efficiency as study
from openbook.theory.construction.training import Recipe, Run
from openbook.theory.construction.training import train as run_recipe
from openbook.theory.construction.transformer import SCALE
from openbook.theory.construction.verify import Verification
from openbook.theory.construction.verify import verify as run_verification

construct = App(name="construct", help="The transformer written by hand: verify, train, efficiency.")

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
    chart: Path | None = None,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Hold the construction against the oracle, its lemma, and its limits.

    Random codebooks, each shown in full, stored in full, and divided rule by rule between context and weights. Ends
    with exit code 1 if one string is translated wrongly or one size is not the lemma's.

    Example: `openbook construct verify --depth 5 --chars 10 --json`

    Parameters
    ----------
    depth:
        Levels of translation.
    chars:
        Characters of each alphabet.
    strings:
        How many strings at least, over all codebooks and divisions; 2 to 40 characters each.
    codebooks:
        How many random codebooks.
    scale:
        N of the two products.
    seed:
        Determines codebooks, divisions and strings.
    chart:
        Save the deviation against N as .png, .svg or .html.
    json:
        One JSON object instead of tables.
    """
    check_path(chart)
    with progress(f"strings of MLT({depth}, {chars})", strings) as advance:
        result = run_verification(depth, chars, scale, strings, codebooks, seed, advance)
    if chart:
        from openbook.theory.construction.draw import deviations

        save(deviations(result), chart)
    if json:
        emit_json(result.to_json())
    else:
        _show_verification(result)
    return 0 if result.holds else FAILED


def _show_verification(result: Verification) -> None:
    table = Table(title=f"MLT({result.depth}, {result.chars}), N = {result.scale:g}", title_justify="left")
    for column in ("rules are in", "strings", "mismatches", "largest deviation"):
        table.add_column(column, justify="left" if column == "rules are in" else "right")
    for mode in result.modes:
        table.add_row(mode.name, f"{mode.strings:,}", str(mode.mismatches), f"{mode.deviation:.1e}")
    out.print(table)
    table = Table(title="Sizes against the lemma", title_justify="left")
    for column in ("", "module", "lemma"):
        table.add_column(column, justify="right" if column else "left")
    for name, value in result.lemma.items():
        found = result.counts[name]
        short = [str(sorted(set(v), reverse=True) if isinstance(v, list) else v) for v in (found, value)]
        table.add_row(name.replace("_", " "), *short)
    out.print(table)
    table = Table(title="Largest deviation from the surrogate against N", title_justify="left")
    for column in ("N", "shift", "context", *(f"out, {mode.name}" for mode in result.modes)):
        table.add_column(column, justify="right")
    for row in result.scales:
        table.add_row(f"{row.scale:g}", *(f"{v:.0e}" for v in (row.shift, row.context, *row.output.values())))
    out.print(table)
    table = Table(title="Outside the conditions: C holds one codebook, W another", title_justify="left")
    for column in ("strength of W", "as surrogate", "as C", "as W", "deviation"):
        table.add_column(column, justify="right")
    for case in result.outside:
        shares = (case.characters_as_surrogate, case.characters_as_context, case.characters_as_weights)
        table.add_row(f"{case.strength:g}", *(f"{share:.0%}" for share in shares), f"{case.deviation:.2f}")
    out.print(table)
    out.print(f"[{'green' if result.holds else 'red'}]{'holds' if result.holds else 'FAILS'}[/]")


@construct.command
def train(
    *,
    depth: int = 5,
    chars: int = 10,
    update: Literal["both", "layerwise", "full"] = "both",
    rates: Annotated[list[float], Parameter(negative="", consume_multiple=True)] = list(RATES),  # noqa: B006
    sequences: int = 51_200,
    length: int = 20,
    seed: int = 0,
    shrink: Annotated[bool, Parameter(negative="")] = False,
    each_string: Annotated[bool, Parameter(negative="")] = False,
    control: Annotated[bool, Parameter(negative="")] = False,
    chart: Path | None = None,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """The paper's trainability experiment: learn a codebook while one rule at a time is hidden.

    Adam, batches of 32, warm-up and cosine, one random column of the context masked at each step.

    Example: `openbook construct train --update full --rates 0.01`

    Parameters
    ----------
    depth:
        Levels of translation.
    chars:
        Characters of each alphabet.
    update:
        Update the masked level alone, all levels, or run both.
    rates:
        Peak learning rates, one run for each.
    sequences:
        Training strings of a run.
    length:
        Characters of a string.
    seed:
        Determines codebook, strings and masks.
    shrink:
        Apply the ℓ1 penalty after Adam's step, not through its gradient.
    each_string:
        Mask a column of its own from each string, not one from all strings of a step.
    control:
        Also train all levels with nothing masked: what is recovered then was not learned from hiding.
    chart:
        Save the columns recovered as .png, .svg or .html.
    json:
        One JSON object instead of a table.
    """
    check_path(chart)
    if not rates:
        raise InputError("no peak rate: give --rates at least one number, or leave it out")
    updates = ("layerwise", "full") if update == "both" else (update,)
    recipes = [
        Recipe(u, rate, sequences, length, seed=seed, shrink=shrink, each_string=each_string)  # type: ignore[arg-type]
        for u in updates
        for rate in rates
    ]
    if control:
        recipes += [Recipe("full", rate, sequences, length, seed=seed, shrink=shrink, masked=False) for rate in rates]
    for recipe in recipes:
        recipe.check()
    codebook = Codebook.sample(depth, chars, seed)
    with progress(f"steps on MLT({depth}, {chars})", sum(recipe.steps for recipe in recipes)) as advance:
        runs = [run_recipe(codebook, recipe, advance) for recipe in recipes]
    if chart:
        from openbook.theory.construction.draw import recovery

        save(recovery(runs), chart)
    if json:
        best = max((run for run in runs if run.recipe.masked), key=lambda run: run.recovered)
        emit_json({"recovered": best.recovered, "runs": [run.to_json() for run in runs]})
    else:
        _show_runs(runs)


def _show_runs(runs: list[Run]) -> None:
    first = runs[0]
    title = f"Columns recovered, MLT({first.depth}, {first.chars}), {first.recipe.sequences:,} strings"
    table = Table(title=title, title_justify="left")
    table.add_column("update")
    levels = [f"W{level + 1}" for level in range(first.depth)]
    for column in ("peak rate", "recovered", *levels, "hidden", "of these", "closed book"):
        table.add_column(column, justify="right")
    for run in runs:
        shares = [f"{share:.0%}" for share in run.recovered_by_layer]
        table.add_row(
            run.recipe.name,
            f"{run.recipe.rate:g}",
            f"{run.recovered:.1%}",
            *shares,
            f"{run.hidden:.1%}",
            f"{run.recovered_of_hidden:.1%}" if run.hidden else "",
            f"{run.closed_book:.1%}",
        )
    out.print(table)
    out.print("hidden: columns masked at least once, and of these the share recovered")
    out.print(f"closed book: characters right with an empty context on new strings; a guess is {1 / first.chars:.0%}")


@construct.command
def efficiency(
    *,
    scale: study.Scale = "laptop",
    chars: Annotated[list[int], Parameter(negative="", consume_multiple=True)] = [],  # noqa: B006
    samples: Annotated[list[int], Parameter(negative="", consume_multiple=True)] = [],  # noqa: B006
    seeds: int | None = None,
    curricula: Annotated[list[str], Parameter(negative="", consume_multiple=True)] = [],  # noqa: B006
    processes: int | None = None,
    chart: Path | None = None,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """The main figure at the paper's task size: accuracy with an empty context against samples.

    Five curricula on MLT(5, 8) and MLT(5, 10), three seeds (one at the largest size of the laptop's scale). The
    hand-built transformer reads any codebook in its context from the start, so there is no pre-training. Published
    curves of a 3B model are drawn behind.

    Example: `openbook construct efficiency --chart efficiency.png`

    In a minute: `openbook construct efficiency --chars 8 --samples 1000 3000 10000 --seeds 1`

    Parameters
    ----------
    scale:
        smoke (seconds, a toy task), laptop (minutes) or overnight (up to a million samples).
    chars:
        Characters of each alphabet, instead of the scale's 8 and 10.
    samples:
        Sizes of the datasets, instead of the scale's.
    seeds:
        Codebooks and trainings for each point.
    curricula:
        Which curves; all five if not given.
    processes:
        Runs at the same time; as many as there are cores if not given.
    chart:
        Save the figure as .png, .svg or .html.
    json:
        One JSON object instead of a table.
    """
    check_path(chart)
    grid = study.jobs(scale, chars, samples, seeds, curricula)
    with progress("training samples", sum(job.samples for job in grid)) as advance:
        points = study.figure(grid, processes, advance)
    if chart:
        from openbook.theory.construction.draw import efficiency as draw

        save(draw(points), chart)
    if json:
        emit_json(study.to_json(scale, points))
    else:
        _show_points(points)


def _show_points(points: list[study.Point]) -> None:
    samples = sorted({point.samples for point in points})
    for chars in sorted({point.chars for point in points}):
        title = f"Accuracy with an empty context, {chars} characters; a guess is {1 / chars:.1%}"
        table = Table(title=title, title_justify="left")
        table.add_column("curriculum")
        for size in samples:
            table.add_column(f"{size:,}", justify="right")
        for name in study.CURRICULA:
            found = [
                [p.accuracy for p in points if (p.chars, p.curriculum, p.samples) == (chars, name, size)]
                for size in samples
            ]
            if any(found):
                table.add_row(name, *(f"{sum(f) / len(f):.1%}" if f else "" for f in found))
        out.print(table)
