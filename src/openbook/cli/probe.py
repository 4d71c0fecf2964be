"""`openbook probe`: where a model reads the book, where it keeps it, and what it knows in between."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter
from rich.markup import escape
from rich.table import Table

from openbook.base.console import emit_json, err, out, progress
from openbook.base.errors import InputError

if TYPE_CHECKING:
    from openbook.training.config import TaskConfig

probe = App(
    name="probe", help="Where the model reads the book and where it keeps it: perturb, stitch, intermediate, doubt."
)

KNOWN_RULES = 3  # of short strings over few characters
Known = Literal["construction", "surrogate"]
Settings = Annotated[list[str], Parameter(negative="", consume_multiple=True)]


@probe.command
def stitch(
    reader: str | None = None,
    *trained: str,
    samples: int = 64,
    sections: Settings = [],  # noqa: B006
    data: Path | None = None,
    task: Settings = [],  # noqa: B006
    known: Known | None = None,
    depth: int | None = None,
    chars: int | None = None,
    memory: int = 256,
    seed: int | None = None,
    chart: Path | None = None,
    windows: Path | None = None,
    json: bool = False,
) -> None:
    """Which layers of a trained model hold each section of the book.

    Layers first..last are taken from the trained model and the rest from the ICL-capable one, for every window, with
    one section dropped from the context. The smallest window that reaches 90 % says where the section is kept.

        openbook probe stitch runs/reader runs/learned --chart stitch.png

    Parameters
    ----------
    reader
        The ICL-capable model: a run's folder, a reader that comes with openbook, or any checkpoint.
    trained
        Models trained from it, one or several; the examples come from their runs.
    samples
        Examples for each section.
    sections
        Names or numbers of sections to drop, one at a time; all of them by default.
    data
        JSONL file with other examples.
    task
        The task, for checkpoints that are not runs: depth=5 chars=8 text=released codebook=0.
    known
        Instead of checkpoints: a model whose truth is known, as a check of the probe.
    depth
        Levels of that model, 5 if not given.
    chars
        Characters of that model, 4 if not given.
    memory
        MiB of activations at once; windows that do not fit are taken in groups.
    seed
        Seed of the choice of shown rules; the run's by default.
    chart
        Save the maps as PNG, SVG or HTML.
    windows
        Save the smallest windows, beside the published ones of a 3B model, as PNG, SVG or HTML.
    json
        One JSON object on standard output.
    """
    from openbook.figures.theme import check_path, save
    from openbook.paper.published_maps import published_windows
    from openbook.probes.draw import stitch_chart, windows_chart
    from openbook.probes.known import known_stitch_map
    from openbook.probes.stitch import stitch_map
    from openbook.probes.subject import is_run

    for path in (chart, windows):
        check_path(path)
    shape = _known_shape(known, depth, chars)
    _check_subject(known, reader, sections=sections, task=task, data=data)
    if known is None and not trained:
        raise InputError("give the ICL-capable model and at least one that was trained from it")
    if known is not None:
        maps = [known_stitch_map(known, *shape, samples, seed=seed or 0)]
    else:
        assert reader is not None
        with progress("stitching", len(trained)) as advance:
            given = (samples, sections, data, _task(task), seed, memory, advance)
            maps = [stitch_map(reader, one, *given) for one in trained]
    found = [one.to_json() for one in maps]
    if chart is not None:
        save(stitch_chart(found), chart)
    if windows is not None:
        reads = _reading(reader) if reader and is_run(reader) and data is None and not task else {}
        save(windows_chart(window_rows(found, reads)), windows)
    if json:
        emit_json({**found[-1], "runs": found, "published_by_a_3b_model": published_windows()})
        return
    for one in found:
        _show_stitched(one)


def _reading(reader: str) -> dict[str, int | None]:
    """The layer at which the ICL-capable model begins to read each section; none where its rules cannot be changed."""
    from openbook.probes.perturb import perturb_map

    try:
        return {section.name: section.first_large_layer for section in perturb_map(reader, rules="all").sections}
    except InputError as error:
        err.print(f"where {reader} begins to read is not marked: {error}", style="dim", markup=False)
        return {}


def window_rows(found: list[dict[str, Any]], reads: dict[str, int | None]) -> list[dict[str, Any]]:
    """Rows of the windows chart: ours, then those of the published models."""
    from openbook.paper.published_maps import published_reading, published_windows

    marked = {row["section"]: row["marked"] for row in published_reading() if row["chars"] == 8}
    ours = [
        {
            "who": f"ours: {Path(one['trained']).name}",
            "section": section["name"],
            "layers": one["layers"],
            "windows": section["smallest_windows"],
            "reads": reads.get(section["name"]),
        }
        for one in found
        for section in one["sections"]
    ]
    theirs = [
        {**row, "who": f"3B: {row['curriculum']}, {row['samples']:,}", "reads": marked[row["section"]]}
        for row in published_windows()
    ]
    return ours + theirs


def _check_subject(known: str | None, model: str | None, **about_models: object) -> None:
    """Either a model or one whose truth is known, which has no options that are about models."""
    if (known is None) == (model is None):
        raise InputError("give a model, or --known with a model whose truth is known (not both)")
    for name, value in about_models.items():
        if known is not None and value:
            raise InputError(f"--{name} is about a model of yours: leave it out with --known")


def _known_shape(known: str | None, depth: int | None, chars: int | None) -> tuple[int, int]:
    """Levels and characters of a model whose truth is known; a model of the user's has its own."""
    if known is None and (depth is not None or chars is not None):
        raise InputError("--depth and --chars are of a model whose truth is known: leave them out without --known")
    return (5 if depth is None else depth), (4 if chars is None else chars)


def _task(settings: list[str]) -> TaskConfig | None:
    """The task that a plain checkpoint is probed on, from settings `key=value`."""
    from openbook.training.config import TaskConfig
    from openbook.training.settings import configured

    return configured(TaskConfig, None, settings, {}) if settings else None


def _show_stitched(one: dict[str, Any]) -> None:
    size = f", trained on {one['trained_on']:,} examples" if one["trained_on"] else ""
    table = Table(title=escape(f"{one['trained']}{size}"), title_justify="left", box=None, header_style="bold")
    for name in ("dropped", "reader", "trained", "all layers", "smallest windows", "accuracy"):
        table.add_column(name, justify="left" if name in ("dropped", "smallest windows") else "right")
    for section in one["sections"]:
        best = section["smallest_accuracy"]
        table.add_row(
            escape(section["name"]),
            f"{section['reader']:.3f}",
            f"{section['trained']:.3f}",
            f"{section['all_layers']:.3f}",
            ", ".join(f"{a}–{b}" if a != b else f"{a}" for a, b in section["smallest_windows"]) or "none",
            f"{best[0]:.3f} ({best[1]:.3f}–{best[2]:.3f})" if best else "",
        )
    out.print(table)
    out.print(
        f"{one['layers']} layers; {one['layer_evaluations']:,} layer evaluations for each input instead of "
        f"{one['layer_evaluations_one_by_one']:,}, in {one['layer_calls']} calls; chance {one['chance']:.3f}; "
        f"{one['sections'][0]['samples']} examples",
        style="dim",
    )


@probe.command
def perturb(
    model: str | None = None,
    *,
    rules: int | Literal["all"] | None = None,
    samples: int = 32,
    sections: Settings = [],  # noqa: B006
    length: int | None = None,
    task: Settings = [],  # noqa: B006
    known: Known | None = None,
    depth: int | None = None,
    chars: int | None = None,
    seed: int | None = None,
    chart: Path | None = None,
    json: bool = False,
) -> None:
    """In which layers a model reads each section of the book.

    The images of some used rules of a section are changed, and the change of every layer's output is measured at every
    thinking and answer place. Control: as many rules that the example does not use.

        openbook probe perturb runs/reader --chart perturb.png

    Parameters
    ----------
    model
        A run's folder, a reader that comes with openbook, or any checkpoint.
    rules
        How many used rules to change in each example, or all; 10 by default, 3 with --known.
    samples
        Examples, each with all its sections changed in turn.
    sections
        Names or numbers of sections; all of them by default.
    length
        Characters of the strings; the task's longest by default.
    task
        The task, for a checkpoint that is not a run: depth=5 chars=8 text=released codebook=0.
    known
        Instead of a checkpoint: a model whose truth is known, as a check of the probe.
    depth
        Levels of that model, 5 if not given.
    chars
        Characters of that model, 4 if not given.
    seed
        Seed of the choice of rules; the run's by default.
    chart
        Save the maps as PNG, SVG or HTML.
    json
        One JSON object on standard output.
    """
    from openbook.figures.theme import check_path, save
    from openbook.paper.published_maps import published_reading
    from openbook.probes.draw import perturb_chart
    from openbook.probes.known import known_perturb_map
    from openbook.probes.perturb import RULES, perturb_map
    from openbook.probes.significance import LEAST

    check_path(chart)
    shape = _known_shape(known, depth, chars)
    _check_subject(known, model, sections=sections, task=task)
    if 0 < samples < LEAST:
        raise InputError(f"--samples is {samples}: with fewer than {LEAST} no change can be told from chance")
    if known is not None:
        count = KNOWN_RULES if rules is None else rules
        result = known_perturb_map(known, *shape, count, samples, 20 if length is None else length, seed or 0)
    else:
        assert model is not None
        with progress("perturbing", samples) as advance:
            result = perturb_map(
                model, RULES if rules is None else rules, samples, sections, length, _task(task), seed, advance
            )
    found = result.to_json()
    if chart is not None:
        save(perturb_chart(found), chart)
    if json:
        emit_json({**found, "published_by_a_3b_model": published_reading()})
        return
    _show_perturbed(found)


def _show_perturbed(found: dict[str, Any]) -> None:
    strings = list(found["sections"][0]["first_large_layer_by_string"])
    table = Table(title=escape(found["model"]), title_justify="left", box=None, header_style="bold")
    table.add_column("changed", no_wrap=True)
    for name in ("first layer", "large", *strings, "change", "control"):
        table.add_column(name, justify="right")
    for section in found["sections"]:
        layers = [section["first_layer"], section["first_large_layer"]]
        layers += [section["first_large_layer_by_string"][s] for s in strings]
        sizes = [section["largest"], section["largest_in_control"]]
        table.add_row(section["name"], *(str(v or "–") for v in layers), *(f"{v:.2f}" for v in sizes))
    out.print(table)
    many = "all" if found["rules"] == "all" else found["rules"]
    out.print(
        f"{found['layers']} layers, {found['samples']} examples, {many} rules changed. First layer: differs from the "
        f"control (max-T over all maps, {found['level']:.0%}). Large: also a tenth of the largest change, at any "
        "string and at the places of each. Change, control: the largest l2 change by used and by unused rules.",
        style="dim",
    )


@probe.command
def intermediate(
    model: str,
    *,
    samples: int = 1024,
    open_: Annotated[float, Parameter(name="--open")] = 1.0,
    length: int | None = None,
    task: Settings = [],  # noqa: B006
    seed: int | None = None,
    chart: Path | None = None,
    json: bool = False,
) -> None:
    """Which strings between input and answer a layer's output tells.

    A linear probe for the characters of every string at every layer and place (fitted on half of the examples, judged
    on the others, with a control), and the logit lens.

        openbook probe intermediate runs/learned --open 0 --chart strings.png

    Parameters
    ----------
    model
        A run's folder, a reader that comes with openbook, or any checkpoint.
    samples
        Examples; half of them are fitted, half judged.
    open_
        Share of the book that is open.
    length
        Characters of the strings; the task's longest by default.
    task
        The task, for a checkpoint that is not a run: depth=5 chars=8 text=released codebook=0.
    seed
        Seed of the choice of shown rules; the run's by default.
    chart
        Save the maps as PNG, SVG or HTML.
    json
        One JSON object on standard output.
    """
    from openbook.figures.theme import check_path, save
    from openbook.probes.draw import intermediate_chart
    from openbook.probes.intermediate import intermediate_map

    check_path(chart)
    with progress("reading", samples) as advance:
        found = intermediate_map(model, samples, open_, length, _task(task), seed, advance).to_json()
    if chart is not None:
        save(intermediate_chart(found), chart)
    if json:
        emit_json(found)
        return
    _show_strings(found)


def _show_strings(found: dict[str, Any]) -> None:
    own = [section for section in found["sections"] if section["own_places"] is not None]
    title = escape(f"{found['model']}: characters read at their own places, probe | lens")
    table = Table(title=title, title_justify="left", box=None, header_style="bold")
    table.add_column("layer", justify="right")
    for section in own:
        table.add_column(section["name"], justify="right")
    for layer in range(found["layers"] + 1):
        cells = [
            f"{s['own_places'][layer]:.2f} | " + (f"{s['own_places_by_lens'][layer - 1]:.2f}" if layer else "    ")
            for s in own
        ]
        table.add_row(str(layer), *cells)
    firsts = [[s["first_layer"], s["first_layer_by_lens"]] for s in own]
    table.add_row("known from", *(" | ".join("–" if v is None else str(v) for v in pair) for pair in firsts))
    out.print(table)
    out.print(
        f"book {found['open']:.0%} open; fitted on {found['fitted_on']:,}, judged on {found['judged_on']:,}; chance "
        f"{found['chance']:.3f}, best control cell {max(s['largest_in_control'] for s in found['sections']):.3f}; "
        f"known: {found['known']:.0%}",
        style="dim",
    )


@probe.command
def doubt(
    model: str,
    *,
    samples: int = 128,
    share: float = 0.25,
    length: int | None = None,
    task: Settings = [],  # noqa: B006
    seed: int | None = None,
    json: bool = False,
) -> None:
    """What the answer would teach a student about rules that are missing.

    With some of the rules of one level missing: how often the gradient of the answer's loss points to the right
    character at a place whose rule is missing, and how much the student doubts there (entropy; ln n is all it can).
    At the last level it nearly always does, since there the answer itself is what is missing.
    An open-book exam does not see the difference, but what is learned with the book closing starts from here.

        openbook probe doubt runs/reader

    Parameters
    ----------
    model
        A student's run folder or checkpoint, best one that can read and has learned nothing yet.
    samples
        Examples for each level.
    share
        Share of the rules that an example needs of a level to take away; at least one is.
    length
        Characters of the strings; the task's longest by default.
    task
        The task, for a checkpoint that is not a run: depth=5 chars=8 text=composite codebook=0.
    seed
        Seed of the choice of rules, shown and missing; the run's by default.
    json
        One JSON object on standard output.
    """
    from openbook.probes.doubt import doubt_map

    with progress("taking rules away", None) as advance:
        found = doubt_map(model, samples, share, length, _task(task), seed, advance).to_json()
    if json:
        emit_json(found)
        return
    table = Table(title=escape(found["model"]), title_justify="left", box=None, header_style="bold")
    for header in ("level", "missing", "points right", "95 % interval", "entropy", "gradient"):
        table.add_column(header, justify="right")
    for row in found["levels"]:
        table.add_row(
            str(row["level"]),
            f"{row['rules']:.1f}",
            f"{row['right']:.3f}",
            f"{row['low']:.3f} to {row['high']:.3f}",
            f"{row['entropy']:.2f}",
            f"{row['size']:.3f}",
        )
    out.print(table)
    out.print(
        f"{found['samples']} examples of {found['length']} characters; {found['share']:.0%} of the needed rules of one "
        f"level missing; chance {found['chance']:.3f}, full doubt {found['doubt']:.2f}",
        style="dim",
    )
