"""`openbook probe`: where a model reads the book, where it keeps it, and what it knows in between."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter

from openbook.base.console import err, progress
from openbook.base.errors import InputError
from openbook.figures import check_path, save
from openbook.figures.terminal import present
from openbook.paper.published_maps import published_reading, published_window_rows, published_windows
from openbook.probes import draw

if TYPE_CHECKING:
    from openbook.probes.subject import Subject
    from openbook.training.config import TaskConfig

probe = App(
    name="probe",
    help="Where the model reads the book and where it keeps it: perturb, stitch, intermediate, doubt.",
    default_parameter=Parameter(consume_multiple=True),
)


@Parameter(name="*")
@dataclass(frozen=True)
class Examples:
    """What a model is probed on.

    Parameters
    ----------
    task
        The task, for a checkpoint that is not a run, for example depth=5 chars=8 text=released codebook=0.
    seed
        Seed of the choice of rules in the book. That of the run by default.
    """

    task: list[str] = field(default_factory=list)
    seed: int | None = None

    def opened(self, model: str, length: int | None) -> Subject:
        """The model with examples of one length."""
        from openbook.probes.subject import open_even

        return open_even(model, length, self.config, self.seed)

    @property
    def config(self) -> TaskConfig | None:
        from openbook.training.config import TaskConfig
        from openbook.training.settings import combined, validated

        return validated(TaskConfig, combined(None, self.task)) if self.task else None


@Parameter(name="*")
@dataclass(frozen=True)
class KnownModel:
    """A model whose layers are known by construction, to check a probe on.

    Parameters
    ----------
    known
        Probe a model whose truth is known instead of one of yours, as a check of the probe itself.
    depth
        Levels of the model of --known. 5 by default.
    chars
        Characters of an alphabet of the model of --known. 4 by default.
    """

    known: Literal["construction", "surrogate"] | None = None
    depth: int | None = None
    chars: int | None = None

    def shape(self, model: str | None, **options: object) -> tuple[int, int]:
        """Levels and characters. Options that describe the other kind of model are refused."""
        if (self.known is None) == (model is None):
            raise InputError("give a model, or --known with a model whose truth is known (not both)")
        for name, value in options.items():
            if self.known is not None and value:
                raise InputError(f"--{name} is about a model of yours: leave it out with --known")
        if self.known is None and (self.depth, self.chars) != (None, None):
            raise InputError("--depth and --chars describe the model of --known: leave them out without --known")
        return (5 if self.depth is None else self.depth), (4 if self.chars is None else self.chars)


EXAMPLES, KNOWN = Examples(), KnownModel()


@probe.command
def stitch(
    reader: str | None = None,
    *trained: str,
    samples: int = 64,
    sections: list[str] = [],  # noqa: B006
    data: Path | None = None,
    examples: Examples = EXAMPLES,
    known_model: KnownModel = KNOWN,
    memory: int = 256,
    windows: Path | None = None,
    chart: Path | None = None,
    json: bool = False,
) -> None:
    """Find the layers of a trained model that hold each section of the book.

    A section is taken out of the book, and some consecutive layers of the model that can read are replaced by those of
    the trained one. Every such window of layers is tried. The smallest window with which the model answers 90 % right
    is where the trained model keeps the section.

        openbook probe stitch runs/reader runs/learned --chart stitch.png

    Parameters
    ----------
    reader
        The model that can read: the folder of a run, the name of a reader that comes with openbook, or a checkpoint.
    trained
        One or several models that were trained from it. The examples are those of their runs.
    samples
        Examples for each section.
    sections
        Names or numbers of the sections to take out, one at a time. All by default.
    data
        JSONL file with other examples.
    memory
        MiB of activations at once. Windows that do not fit are taken in groups.
    windows
        Save the smallest windows beside the published ones of a 3B model, as a chart, PNG, SVG or HTML.
    chart
        Save the maps as a chart, PNG, SVG or HTML.
    json
        Print one JSON object on standard output instead of a table.
    """
    from openbook.probes import known, subject
    from openbook.probes.stitch import stitch_map

    check_path(chart)
    check_path(windows)
    shape = known_model.shape(reader, sections=sections, task=examples.task, data=data)
    results, reads = [], {}
    if known_model.known is not None:
        results = [draw.json_of(known.known_stitch_map(known_model.known, *shape, samples, seed=examples.seed or 0))]
    elif reader is None or not trained:
        raise InputError("give the ICL-capable model and at least one that was trained from it")
    else:
        with progress("stitching", len(trained)) as advance:
            for path in trained:
                learned = subject.open_subject(path, data, examples.config, examples.seed)
                pair = (subject.open_base(reader, learned), learned)
                results.append(draw.json_of(stitch_map(*pair, samples, sections, memory, advance)))
        if windows is not None and subject.is_run(reader) and data is None and not examples.task:
            reads = _reading(reader)
    if windows is not None:
        save(draw.windows_chart(results, reads, published_window_rows()), windows)
    everything = {**results[-1], "runs": results, "published_by_a_3b_model": published_windows()}
    present([draw.stitch_chart(results), *map(draw.stitch_table, results)], everything, chart, json)


def _reading(reader: str) -> dict[str, int | None]:
    """The layer at which a model begins to read each section; empty where its rules cannot be changed."""
    from openbook.probes.perturb import perturb_map
    from openbook.probes.subject import open_even

    try:
        sections = perturb_map(open_even(reader), rules="all").sections
    except InputError as error:
        err.print(f"where {reader} begins to read is not marked: {error}", style="dim", markup=False)
        return {}
    return {section.name: section.first_large_layer for section in sections}


@probe.command
def perturb(
    model: str | None = None,
    *,
    rules: int | Literal["all"] | None = None,
    samples: int = 32,
    sections: list[str] = [],  # noqa: B006
    length: int | None = None,
    examples: Examples = EXAMPLES,
    known_model: KnownModel = KNOWN,
    chart: Path | None = None,
    json: bool = False,
) -> None:
    """Find the layers in which a model reads each section of the book.

    Some rules of a section that an example needs are changed, and the change of every layer's output is measured
    wherever the model thinks or answers. As a control, as many rules that the example does not need are changed.

        openbook probe perturb runs/reader --chart perturb.png

    Parameters
    ----------
    model
        The folder of a run, the name of a reader that comes with openbook, or a checkpoint.
    rules
        How many needed rules to change in each example, or all. 10 by default, 3 with --known.
    samples
        Examples. All sections of each are changed in turn.
    sections
        Names or numbers of the sections to change. All by default.
    length
        Characters of each string. The longest of the task by default, 20 with --known.
    chart
        Save the maps as a chart, PNG, SVG or HTML.
    json
        Print one JSON object on standard output instead of a table.
    """
    from openbook.probes import known
    from openbook.probes.perturb import RULES, perturb_map
    from openbook.probes.significance import LEAST

    check_path(chart)
    shape = known_model.shape(model, sections=sections, task=examples.task)
    if 0 < samples < LEAST:
        raise InputError(f"--samples is {samples}: with fewer than {LEAST} no change can be told from chance")
    if known_model.known is not None:
        count, size = known.RULES if rules is None else rules, 20 if length is None else length
        maps = known.known_perturb_map(known_model.known, *shape, count, samples, size, examples.seed or 0)
    else:
        subject = examples.opened(str(model), length)
        with progress("perturbing", samples) as advance:
            maps = perturb_map(subject, RULES if rules is None else rules, samples, sections, advance)
    result = draw.json_of(maps)
    everything = {**result, "published_by_a_3b_model": published_reading()}
    present([draw.perturb_chart(result), draw.perturb_table(result)], everything, chart, json)


@probe.command
def intermediate(
    model: str,
    *,
    samples: int = 1024,
    open_book: Annotated[float, Parameter(name="--open")] = 1.0,
    length: int | None = None,
    examples: Examples = EXAMPLES,
    chart: Path | None = None,
    json: bool = False,
) -> None:
    """Find which strings between input and answer can be read from each layer's output.

    Two ways of reading: a linear probe for the characters of every string at every layer and place (fitted on half of
    the examples and judged on the others, with a control), and the logit lens, which is the model's own norm and head.

        openbook probe intermediate runs/learned --open 0 --chart strings.png

    Parameters
    ----------
    model
        The folder of a run, the name of a reader that comes with openbook, or a checkpoint.
    samples
        Examples. The linear probe is fitted on half of them and judged on the other half.
    open_book
        Share of the book that is open, from 0 to 1.
    length
        Characters of each string. The longest of the task by default.
    chart
        Save the maps as a chart, PNG, SVG or HTML.
    json
        Print one JSON object on standard output instead of a table.
    """
    from openbook.probes.intermediate import intermediate_map

    check_path(chart)
    subject = examples.opened(model, length)
    with progress("reading", samples) as advance:
        result = draw.json_of(intermediate_map(subject, samples, open_book, advance))
    present([draw.intermediate_chart(result), draw.intermediate_table(result)], result, chart, json)


@probe.command
def doubt(
    model: str,
    *,
    samples: int = 128,
    share: float = 0.25,
    length: int | None = None,
    examples: Examples = EXAMPLES,
    json: bool = False,
) -> None:
    """Find what the answer would teach a student about rules that are missing.

    Some rules of one level are taken away. Reported is how often the gradient of the answer's loss points to the right
    character where a rule is missing, and how much the student doubts there (entropy of its guess; at most ln n for n
    characters). At the last level the gradient is nearly always right, since the answer itself is what is missing.
    An exam with the book open does not show this, but what is learned while the book closes starts from here.

        openbook probe doubt runs/reader

    Parameters
    ----------
    model
        The folder of a student's run, or its checkpoint. Best is one that can read and has learned nothing yet.
    samples
        Examples for each level.
    share
        Share of the rules that an example needs of a level to take away. At least one rule is taken.
    length
        Characters of each string. The longest of the task by default.
    json
        Print one JSON object on standard output instead of a table.
    """
    from openbook.probes.doubt import doubt_map

    subject = examples.opened(model, length)
    with progress("taking rules away", None) as advance:
        result = draw.json_of(doubt_map(subject, samples, share, advance))
    present([draw.doubt_table(result)], result, None, json)
