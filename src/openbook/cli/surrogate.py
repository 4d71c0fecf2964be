"""`openbook surrogate`: the paper's mathematical stand-in for a transformer, learning and measured."""

from __future__ import annotations

from math import isfinite
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter
from rich.table import Table

from openbook.base.console import emit_json, out, progress
from openbook.base.errors import InputError
from openbook.figures.theme import check_path, save
from openbook.task.alphabet import check_size
from openbook.task.phrasebook import Codebook
from openbook.theory.surrogate.descent import CASES
from openbook.theory.surrogate.learn import Algorithm, Plan, Source
from openbook.theory.surrogate.learn import learn as run_plan
from openbook.theory.surrogate.soft import CONTROLS
from openbook.theory.surrogate.trajectory import Trajectory

surrogate = App(name="surrogate", help="The surrogate model: learn a codebook, measure the gap and the gradients.")


@surrogate.command
def learn(
    *,
    algorithm: Algorithm = "full",
    depth: int = 5,
    chars: int = 10,
    seed: int = 0,
    input: Source = "coverable",
    pairs: int | None = None,
    delta: float | None = None,
    steps: int | None = None,
    rate: float | None = None,
    noise: float | None = None,
    chart: Path | None = None,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Learn a random codebook with one of the paper's algorithms, or a control.

    search, descent (depth 2), layerwise and full are Algorithms 2 to 5: they drop one rule at a time from the
    context. vanilla has no context and wrong another codebook's: they should fail.

    Example: `openbook surrogate learn --algorithm full --depth 10 --chars 10`

    Parameters
    ----------
    algorithm:
        Which learner.
    depth:
        Levels of translation; layers of the surrogate.
    chars:
        Characters of each alphabet.
    seed:
        Determines codebook, input and initial weights.
    input:
        A random string that uses every rule, or just a random one (refused if the learner needs more).
    pairs:
        Bigrams of the input: 2n² log(nd/δ) for search and descent, 10n² for the others.
    delta:
        δ of that length, 0.05 if not given.
    steps:
        Budget of steps; each rule is dropped 20 times if not given. A run that it ends is marked.
    rate:
        Learning rate of the soft model, 100 if not given.
    noise:
        Standard deviation of the initial weights: 0 for layerwise and full, 1/n for the controls.
    chart:
        Save recovery by layer as .png, .svg or .html.
    json:
        One JSON object instead of a table.
    """
    check_path(chart)
    if noise is not None and algorithm in ("search", "descent"):
        raise InputError(f"--noise belongs to the soft model's learners, not to {algorithm}: leave it out")
    if steps is not None and algorithm in ("search", "descent"):
        raise InputError(f"{algorithm} takes a fixed number of steps: leave --steps out")
    if rate is not None and algorithm in ("search", "descent"):
        raise InputError(f"{algorithm} has no learning rate: leave --rate out")
    if delta is not None and (pairs is not None or algorithm not in ("search", "descent")):
        where = "--pairs is given" if pairs is not None else f"{algorithm} takes an input of 10n² bigrams"
        raise InputError(f"--delta says how long the input is, but {where}: leave it out")
    delta, rate = Plan.delta if delta is None else delta, Plan.rate if rate is None else rate
    plan = Plan(algorithm, input, pairs, delta, steps, rate, noise, seed)
    plan.check()
    codebook = Codebook.sample(depth, chars, seed)
    with progress(f"{algorithm}, MLT({depth}, {chars})", plan.budget(codebook)) as advance:
        run = run_plan(plan, codebook, advance)
    if chart:
        from openbook.theory.surrogate.draw import recovery

        save(recovery(run), chart)
    if json:
        emit_json(run.to_json())
    else:
        _show(run)


@surrogate.command
def gap(
    *,
    chars: tuple[int, ...] = (2, 3, 4),
    depth: int = 5,
    seeds: int = 10,
    budget: int = 200_000,
    seed: int = 0,
    chart: Path | None = None,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """The exponential gap: input needed to learn a codebook, with and without context.

    Runs vanilla descent (tuned), context-enhanced descent and search on a grid of sizes small enough that vanilla
    descent sometimes succeeds, and fits the growth per level, counting stopped runs as such.

    Example: `openbook surrogate gap --chars 2 --chars 3 --depth 4 --budget 200000`

    Parameters
    ----------
    chars:
        Alphabet sizes.
    depth:
        Deepest vanilla run; with context it goes twice as deep.
    seeds:
        Codebooks at each size, 6 or more.
    budget:
        Characters after which a vanilla run is stopped, and marked.
    seed:
        Determines codebooks, weights and strings.
    chart:
        Save the figure as .png, .svg or .html.
    json:
        One JSON object instead of tables.
    """
    from openbook.theory.surrogate.censored import span
    from openbook.theory.surrogate.gap import GapStudy, fits, measure

    check_path(chart)
    study = GapStudy(chars, depth, seeds, budget, seed)
    study.check()
    with progress("the gap", study.total()) as advance:
        rows = measure(study, advance)
    found = fits(rows)
    if chart:
        from openbook.theory.surrogate.draw import gap as draw_gap

        save(draw_gap(study, rows, found), chart)
    if json:
        emit_json({"seeds": seeds, "budget": budget, "seed": seed, "rows": rows, "fits": found})
        return
    table = Table(title="characters of input until learned: median (95 % interval) runs done", title_justify="left")
    for name in ("n", "d", "no context", "context, descent", "context, search"):
        table.add_column(name, justify="right")
    by_point = {(row["chars"], row["depth"], row["arm"]): row for row in rows}
    for n, d in sorted({(row["chars"], row["depth"]) for row in rows}):
        arms = (by_point.get((n, d, arm)) for arm in ("vanilla", "enhanced", "search"))
        table.add_row(str(n), str(d), *("" if row is None else _needed(row) for row in arms))
    out.print(table)
    growth = Table(title="growth fitted from depth 2 on, stopped runs counted as such", title_justify="left")
    for name in ("n", "arm", "factor per level", "c of n^(c·d)", "p of d^p"):
        growth.add_column(name, justify="left" if name == "arm" else "right")
    for fit in found:
        growth.add_row(
            str(fit["chars"]),
            fit["arm"],
            f"{fit['growth']:.2f} ({span(fit['low'], fit['high'])})",
            f"{fit['exponent_of_n']:.2f}",
            f"{fit['power_of_d']:.2f} ({span(fit['power_low'], fit['power_high'])})",
        )
    out.print(growth)
    out.print("The theorems: n^Ω(d) without context; O(n⁶ d log(nd)) for search, that is p a little above 1.")


def _short(value: float) -> str:
    """Three digits are enough for a table: 950, 1.28k, 16.2k, 1.05M."""
    for unit, name in ((1e6, "M"), (1e3, "k")):
        if value >= unit:
            return f"{value / unit:.3g}{name}"
    return f"{value:.0f}"


def _needed(row: dict[str, Any]) -> str:
    beyond = f">{_short(row['censored_at'])}"
    median, low, high = (_short(row[key]) if isfinite(row[key]) else beyond for key in ("median", "low", "high"))
    return f"{median} ({low}-{high}) {row['recovered']}/{row['runs']}"


@surrogate.command
def gradient(
    *,
    depth: int = 10,
    chars: int = 10,
    pairs: int = 1000,
    rates: tuple[float, ...] | None = None,
    batches: tuple[int, ...] | None = None,
    books: tuple[int, ...] | None = None,
    masks: int = 16,
    seed: int = 0,
    chart: Path | None = None,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Gradient prediction accuracy: does a dropped rule's gradient point at it?

    Over drop rate and batch size, and over drop rate and number of phrasebooks dropped from; by the paper's
    definition (the largest entry) and by the released code's (the right sign). The defaults are the paper's figure.

    Example: `openbook surrogate gradient --depth 4 --batches 1 --batches 10 --masks 8`

    Parameters
    ----------
    depth:
        Levels of translation; layers of the surrogate.
    chars:
        Characters of each alphabet.
    pairs:
        Bigrams of each string.
    rates:
        Drop rates (0.01 to 0.96 by 0.05; to 0.51 over phrasebooks).
    batches:
        Strings in a batch (1, 2, 3, 10, 30, 100, 300, 1000). The largest stands for the expected loss.
    books:
        From how many phrasebooks rules are dropped, in batches of 10 (1 to depth).
    masks:
        Random masks for each point, each with its own codebook; a quarter of them get the largest batch.
    seed:
        Determines codebooks, masks and strings.
    chart:
        Save the figure as .png, .svg or .html.
    json:
        One JSON object instead of a table.
    """
    from openbook.theory.surrogate.gradient import BATCHES, DEEPER_RATES, RATES, Study, measure

    check_path(chart)
    check_size(depth, chars)
    study = Study(
        depth=depth,
        chars=chars,
        pairs=pairs,
        rates=rates or RATES,
        deeper_rates=rates or DEEPER_RATES,
        batches=batches or BATCHES,
        books=books or tuple(range(1, depth + 1)),
        masks=masks,
        seed=seed,
    )
    study.check()
    with progress(f"gradients, MLT({depth}, {chars})", study.total()) as advance:
        rows = measure(study, advance)
    if chart:
        from openbook.theory.surrogate.draw import gradient_accuracy

        save(gradient_accuracy(study, rows), chart)
    if json:
        emit_json({"depth": depth, "chars": chars, "pairs": pairs, "masks": masks, "seed": seed, "rows": rows})
        return
    for panel, key, title in (
        ("batch", "batch", "rules dropped from the first phrasebook, by batch size"),
        ("phrasebooks", "phrasebooks", "rules dropped from the first k phrasebooks, batches of 10, by k"),
    ):
        out.print(_accuracy_table(title, [row for row in rows if row["panel"] == panel], key))
    out.print(
        f"Each cell: the largest entry is the rule (chance {1 / chars**2:.2%}) / the gradient at the rule has the "
        "right sign, the released code's measure (chance 50%)."
    )


def _accuracy_table(title: str, rows: list[dict[str, Any]], key: str) -> Table:
    columns = sorted({row[key] for row in rows})
    table = Table(title=title, title_justify="left")
    table.add_column("drop rate", justify="right")
    for column in columns:
        table.add_column(f"{column:,}", justify="right")
    for rate in sorted({row["rate"] for row in rows}):
        cells = {row[key]: f"{row['paper']:.2f}/{row['released']:.2f}" for row in rows if row["rate"] == rate}
        table.add_row(f"{rate:.0%}", *(cells[column] for column in columns))
    return table


def _show(run: Trajectory) -> None:
    table = Table(title=f"{run.algorithm}, MLT({run.depth}, {run.chars})", title_justify="left")
    table.add_column("layer", justify="right")
    table.add_column("recovered", justify="right")
    table.add_column("complete from step", justify="right")
    for layer, (share, at) in enumerate(zip(run.recovered_by_layer, run.full_at(), strict=True), 1):
        table.add_row(str(layer), f"{share:.1%}", "-" if at is None else f"{at:,}")
    out.print(table)
    ending = "all rules recovered" if run.complete else "stopped by its budget, NOT all rules recovered"
    out.print(f"{ending}: {run.recovered:.2%} of {run.depth * run.chars**2:,} rules")
    out.print(
        f"{run.steps:,} steps, {run.forward_passes:,} forward passes on one input of {run.length:,} characters: "
        f"{run.characters:,} characters seen"
    )
    if run.algorithm == "search":
        out.print(
            f"the bound n⁴d is {run.extra['bound']:,} forward passes; used {run.extra['share_of_bound']:.1%} of it"
        )
    elif run.algorithm == "descent":
        lemma = run.extra["lemma"]
        cases = ", ".join(f"{lemma[case]} with {case}" for case in CASES)
        out.print(
            f"gradient against the lemma's closed form: largest difference {lemma['largest_difference']:g} ({cases})"
        )
    elif run.algorithm in CONTROLS:
        out.print(f"a guess holds {run.extra['chance']:.2%} of the rules")
    elif run.extra["exact_steps"]:
        out.print(f"{run.extra['exact_steps']:,} steps needed the exact pass instead of the light cone")
