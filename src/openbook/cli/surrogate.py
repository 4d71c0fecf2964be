"""`openbook surrogate`: the paper's mathematical stand-in for a transformer, learning and measured."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import App, Parameter

from openbook.base.console import progress
from openbook.base.errors import InputError
from openbook.cli.output import OUTPUT, Output
from openbook.figures import Chart, Table
from openbook.paper import dynamics, gradients
from openbook.paper import gap as gap_figure
from openbook.task.alphabet import check_size
from openbook.task.phrasebook import Codebook
from openbook.theory.surrogate.descent import CASES
from openbook.theory.surrogate.gap import GapGrid
from openbook.theory.surrogate.gradient import GradientGrid, measure
from openbook.theory.surrogate.learn import Algorithm, InputKind, LearnerConfig
from openbook.theory.surrogate.learn import learn as run_learner
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
    input: InputKind = "coverable",
    pairs: int | None = None,
    delta: float | None = None,
    steps: int | None = None,
    rate: float | None = None,
    noise: float | None = None,
    output: Output = OUTPUT,
) -> None:
    """Learn a random codebook with one of the paper's algorithms, or with a control.

    search, descent (depth 2), layerwise and full are Algorithms 2 to 5: they drop one rule at a time from the
    context. The controls should fail: vanilla has no context, wrong has another codebook's.

    Example: `openbook surrogate learn --algorithm full --depth 10 --chars 10`

    Parameters
    ----------
    algorithm:
        The learner.
    depth:
        Levels of translation; layers of the surrogate.
    chars:
        Characters of each alphabet.
    seed:
        Determines codebook, input and initial weights.
    input:
        coverable: a random string that uses every rule. random: any random string, refused if it misses a rule that
        the learner needs.
    pairs:
        Bigrams of the input: 2n² log(nd/δ) for search and descent, 10n² for the others.
    delta:
        δ in the length of the input of search and descent, 0.05 if not given.
    steps:
        Maximum number of steps; if not given, each rule is dropped up to 20 times. A run that stops there is marked.
    rate:
        Learning rate of the soft model, 100 if not given.
    noise:
        Standard deviation of the initial weights; if not given, 0 for layerwise and full, 1/n for the controls.
    output.chart:
        Save the recovery of each layer as .png, .svg or .html.
    output.json:
        Print one JSON object instead of a table.
    """
    proven = algorithm in ("search", "descent")
    for option, value in (("--noise", noise), ("--steps", steps), ("--rate", rate)):
        if value is not None and proven:
            raise InputError(f"{option} is for the soft model's learners, not for {algorithm}: leave {option} out")
    if delta is not None and (pairs is not None or not proven):
        where = "--pairs is given" if pairs is not None else f"{algorithm} takes an input of 10n² bigrams"
        raise InputError(f"--delta sets the length of the input, but {where}: leave --delta out")
    given = {"pairs": pairs, "delta": delta, "steps": steps, "rate": rate, "noise": noise}
    given = {name: value for name, value in given.items() if value is not None}
    config = LearnerConfig(algorithm, input, seed=seed, **given)  # type: ignore[arg-type]
    config.check()
    codebook = Codebook.sample(depth, chars, seed)
    with progress(f"{algorithm}, MLT({depth}, {chars})", config.budget(codebook)) as advance:
        result = run_learner(config, codebook, advance)
    output.present(result.to_json(), _figures(result))


def _figures(result: Trajectory) -> list[Chart | Table]:
    """The recovery of each layer as a chart and as a table, and under the table what the learner used."""
    size, rules = f"MLT({result.depth}, {result.chars})", result.depth * result.chars**2
    ending = "all rules recovered" if result.complete else "stopped by its budget, NOT all rules recovered"
    ending += f": {result.recovered:.2%} of {rules:,} rules"
    lines = [
        ending,
        f"{result.steps:,} steps, {result.forward_passes:,} forward passes on one input of {result.length:,} "
        f"characters: {result.characters:,} characters seen",
    ]
    if result.algorithm == "search":
        bound, share = result.extra["bound"], result.extra["share_of_bound"]
        lines.append(f"the bound n⁴d is {bound:,} forward passes, of which {share:.1%} were used")
    elif result.algorithm == "descent":
        lemma = result.extra["lemma"]
        cases = ", ".join(f"{lemma[case]} with {case}" for case in CASES)
        lines.append(f"gradient against the lemma's closed form: largest difference {lemma['largest_difference']:g}")
        lines.append(f"cases of the lemma: {cases}")
    elif result.algorithm in CONTROLS:
        lines.append(f"a guess holds {result.extra['chance']:.2%} of the rules")
    elif result.extra["exact_steps"]:
        lines.append(f"{result.extra['exact_steps']:,} steps needed the exact pass instead of the light cone")
    cells = [
        [str(layer), f"{share:.1%}", "-" if step is None else f"{step:,}"]
        for layer, (share, step) in enumerate(zip(result.recovered_by_layer, result.full_at(), strict=True), 1)
    ]
    header = ["layer", "recovered", "complete from step"]
    return [
        dynamics.layers_chart([result.to_json()], f"{dynamics.NAMES[result.algorithm]}, {size}", ending),
        Table("surrogate-learn", f"{result.algorithm}, {size}", header, cells, "\n".join(lines)),
    ]


@surrogate.command
def gap(
    *,
    grid: Annotated[GapGrid, Parameter(name="*")] = GapGrid(),  # noqa: B008 - it is frozen
    output: Output = OUTPUT,
) -> None:
    """The exponential gap: input needed to learn a codebook, with and without context.

    Tuned descent without context (vanilla), context-enhanced descent and search run on a grid of sizes that is small
    enough for vanilla descent to succeed sometimes. The growth for each level is fitted, with stopped runs counted as
    such.

    Example: `openbook surrogate gap --chars 2 --chars 3 --depth 4 --budget 200000`

    Parameters
    ----------
    grid.chars:
        Alphabet sizes.
    grid.depth:
        Largest depth without context; with context it goes twice as deep.
    grid.seeds:
        Codebooks at each size, 6 or more.
    grid.budget:
        Characters after which a vanilla run is stopped, and marked.
    grid.seed:
        Determines codebooks, weights and strings.
    """
    grid.check()
    with progress("the gap", grid.total()) as advance:
        rows = gap_figure.measured(grid, advance)
    data: dict[str, Any] = {"seeds": grid.seeds, "budget": grid.budget, "seed": grid.seed}
    data["rows"] = [{key: value for key, value in row.items() if key != "fits"} for row in rows]
    data["fits"] = gap_figure.fits_of(rows)
    output.present(data, gap_figure.draw(rows), numbers=True)


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
    output: Output = OUTPUT,
) -> None:
    """Gradient prediction accuracy: does the gradient of a dropped rule point at the rule?

    Accuracy is measured over drop rate and batch size, and over drop rate and number of phrasebooks dropped from, by
    the paper's definition (the largest entry) and by the released code's (the right sign). The defaults are the
    paper's figure.

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
        Drop rates; if not given, 0.01 to 0.96 in steps of 0.05, and to 0.51 over phrasebooks.
    batches:
        Strings in a batch; if not given, 1, 2, 3, 10, 30, 100, 300 and 1000. The largest stands for the expected loss.
    books:
        From how many phrasebooks rules are dropped, in batches of 10; if not given, 1 to depth.
    masks:
        Random masks for each point, each with its own codebook; a quarter of them get the largest batch.
    seed:
        Determines codebooks, masks and strings.
    output.json:
        Print one JSON object instead of a table.
    """
    check_size(depth, chars)
    given = {"rates": rates, "deeper_rates": rates, "batches": batches}
    given = {name: value for name, value in given.items() if value}
    books = books or tuple(range(1, depth + 1))
    grid = GradientGrid(depth, chars, pairs, books=books, masks=masks, seed=seed, **given)  # type: ignore[arg-type]
    grid.check()
    with progress(f"gradients, MLT({depth}, {chars})", grid.total()) as advance:
        rows = measure(grid, advance)
    settings = {"depth": depth, "chars": chars, "pairs": pairs}
    figure = gradients.both_figures([{**settings, **row} for row in rows])
    output.present({**settings, "masks": masks, "seed": seed, "rows": rows}, [figure], numbers=True)
