"""Stitching: in which layers a trained model keeps each phrasebook, by curriculum and size of the dataset."""

from __future__ import annotations

import itertools

import numpy as np

from openbook.figures.charts import Axis, Chart, Heatmap, Panel, Table, share
from openbook.paper.curricula import CURVES, taught
from openbook.paper.drawing import Columns, curve, grouped, ramp, tabled, where
from openbook.paper.experiment import Experiment, Json, Rows, Scale, Unit
from openbook.paper.models import Models, unmet_task
from openbook.paper.published import published
from openbook.probes.draw import json_of, numbered, stitch_chart, windows_text
from openbook.report.claims import Claim, judge, unmeasured

REACHED = 0.9
NEAR = 1  # layers by which the end of storing and the start of reading may differ
NAMES = ("anneal", "fixed:0.2")
SIZES: dict[Scale, dict[str, tuple[int, ...]]] = {
    "smoke": {},  # a student that cannot read cannot be stitched with
    "laptop": {"anneal": (1000, 2000, 4000), "fixed:0.2": (2000, 4000)},
    "overnight": {
        "anneal": (1000, 2000, 4000, 8000, 16_000, 32_000),
        "fixed:0.2": (2000, 4000, 8000, 16_000, 32_000),
    },
    "paper": {
        "anneal": (10_000, 25_000, 50_000, 100_000, 250_000),
        "fixed:0.2": (25_000, 50_000, 100_000, 250_000, 500_000),
    },
}
EXAMS = {"smoke": (0, 0.0), "laptop": (40, 8.0), "overnight": (256, 51.2), "paper": (20, 7200.0)}  # strings, seconds
Windows = list[list[int]]


def units(scale: Scale) -> list[Unit]:
    exam, seconds = EXAMS[scale]
    units = []
    for name, samples in ((name, samples) for name, sizes in SIZES[scale].items() for samples in sizes):
        model = taught(scale, name, samples)
        config = {"curve": name, "samples": samples, "exam": exam, "learned": [model], "readers": [model.reader]}
        units.append(Unit(config, seconds))
    return units


def run(config: Json, models: Models) -> list[Json]:
    """The maps of a pair of models, and from which layer on the reader looks each phrasebook up."""
    from openbook.probes.perturb import perturb_map
    from openbook.probes.stitch import stitch_map
    from openbook.probes.subject import open_base, open_even, open_subject

    reader = models.reader(config["readers"][0])
    read = perturb_map(open_even(reader, task=unmet_task(reader)), 10, 12).sections
    trained = open_subject(models.place(config["learned"][0]))
    result = json_of(stitch_map(open_base(reader, trained), trained, config["exam"]))
    own = {"curve": config["curve"], "samples": config["samples"], "reader": config["readers"][0], "trained": ""}
    return [{**result, **own, "reads": {section.name: section.first_large_layer for section in read}}]


def draw(rows: Rows) -> list[Chart | Table]:
    """A map of the largest dataset of each curriculum, the published one, and what sizes and windows there are."""
    by_curve = {name: own for name in NAMES if (own := _of(rows, name))}
    maps = [
        stitch_chart([own[-1]], [f"{CURVES[name].label}, {own[-1]['samples']:,} samples"], f"stitching-{short}")
        for name, own in by_curve.items()
        if (short := name.partition(":")[0])
    ]
    sections = [{**row, **section} for own in by_curve.values() for row in own for section in row["sections"]]
    columns: Columns = {
        "curriculum": lambda section: CURVES[section["curve"]].label,
        "samples": "{samples:,}",
        "missing": "{name}",
        "reader alone": "{reader:.1%}",
        "trained alone": "{trained:.1%}",
        "smallest windows of layers": lambda section: windows_text(section["smallest_windows"]),
        "read from layer": lambda section: str(section["reads"].get(section["name"])),
    }
    table = tabled("stitching-table", "Smallest runs of layers that reach 90 %", sections, columns)
    return [*maps, _published(), _by_size(sections), table]


def _of(rows: Rows, name: str) -> list[Json]:
    """The rows of a curriculum by the size of the dataset."""
    return sorted(where(rows, curve=name), key=lambda row: row["samples"])


def _published() -> Chart:
    maps: list[Heatmap] = []
    for level, lines in grouped(published("stitching"), "phrasebook"):
        depth = max(line["last"] for line in lines)
        layers, values = numbered(depth), np.full((depth, depth), None)
        for line in lines:
            values[line["first"] - 1, line["last"] - 1] = line["accuracy"]
        title = f"level {level} missing (published)"
        maps.append(Heatmap(title, values.tolist(), "last layer", "first layer", layers, layers, published=True))
    return Chart(
        "stitching-published",
        "Published, not ours: Llama-3.2-3B, MLT(5, 8), annealing on 100,000 samples",
        "Each phrasebook can be localised in a few layers, later ones in later layers.",
        maps,
        "From the result files of the paper's repository.",
    )


def _by_size(sections: Rows) -> Chart:
    x, y = Axis("training samples", "log", "si"), share("accuracy, all layers trained")
    panels = []
    for name in NAMES:
        by_level = grouped(where(sections, curve=name), "name")
        series = [
            curve(f"{level} missing", ramp(place, len(by_level)), own, y="trained", bounds=None)
            for place, (level, own) in enumerate(by_level)
        ]
        panels += [Panel(CURVES[name].label, x, y, series)] if series else []
    return Chart(
        "stitching-sizes",
        "Which phrasebooks are internalised first",
        "Accuracy of the trained model with one phrasebook missing, by the size of the dataset.",
        panels,
    )


LOCAL = (
    "Each phrasebook can be localised to a few mutually disjoint layers of the trained model.",
    "annealing, largest size: each level has a window of at most half the layers that reaches 90 %, and windows "
    "that do not meet can be chosen",
)
MATCH = (
    "The layers that store a phrasebook end where the layers that read it begin.",
    f"annealing, largest size: a smallest window of each level ends within {NEAR} layer of the first that reads it",
)
LATER = (
    "Later phrasebooks are internalised with fewer samples than earlier ones.",
    "at some size the last level reaches 90 % and the first does not; nowhere the other way round",
)
SAME = (
    "Where a phrasebook is stored depends little on the curriculum.",
    "largest size: for each level a smallest window of annealing overlaps one of fixed dropout; unclear where a window "
    "is more than half of the layers, since it overlaps almost anything",
)


def claims(rows: Rows) -> list[Claim]:
    annealed, fixed = (_of(rows, name) for name in NAMES)
    if not annealed:
        return [unmeasured(*claim, "no annealed model was stitched") for claim in (LOCAL, MATCH, LATER, SAME)]
    last = annealed[-1]
    return [_local(last), _match(last), _later(annealed), _same(last, fixed[-1] if fixed else None)]


def _windows(row: Json) -> dict[str, Windows]:
    return {section["name"]: section["smallest_windows"] for section in row["sections"]}


def _local(row: Json) -> Claim:
    windows, (claim, rule) = _windows(row), LOCAL
    numbers = {name: windows_text(choices) for name, choices in windows.items()}
    holds = _all_small(row) and _disjoint(list(windows.values()))
    return judge(claim, holds, {**numbers, "layers": row["layers"]}, rule)


def _match(row: Json) -> Claim:
    reads, (claim, rule) = row["reads"], MATCH
    numbers, near = {}, True
    for name, choices in _windows(row).items():
        numbers[name] = f"kept in {windows_text(choices)}, read from {reads.get(name)}"
        near &= reads.get(name) is not None and any(abs(end - reads[name]) <= NEAR for _, end in choices)
    return judge(claim, near, numbers, rule)


def _later(annealed: Rows) -> Claim:
    """Held to the sizes at which only one of the first and the last level is known."""
    claim, rule = LATER
    known = [[section["trained"] >= REACHED for section in row["sections"]] for row in annealed]
    ahead, behind = any(own[-1] and not own[0] for own in known), any(own[0] and not own[-1] for own in known)
    numbers = {
        f"{row['samples']:,} samples": ", ".join(f"{s['name']} {s['trained']:.2f}" for s in row["sections"])
        for row in annealed
    }
    return judge(claim, ahead and not behind, numbers, rule, enough=ahead or behind)


def _same(row: Json, other: Json | None) -> Claim:
    claim, rule = SAME
    if other is None:
        return unmeasured(claim, rule, "no model with fixed dropout was stitched")
    windows, others = _windows(row), _windows(other)
    numbers, overlap = {}, True
    for name, own in windows.items():
        theirs = others.get(name, [])
        numbers[name] = f"annealing {windows_text(own)}, fixed {windows_text(theirs)}"
        overlap &= any(_meet(a, b) for a in own for b in theirs)
    apart = all(windows.values()) and all(others.values()) and not overlap
    return judge(claim, overlap, numbers, rule, enough=apart or (_all_small(row) and _all_small(other)))


def _all_small(row: Json) -> bool:
    """Whether every section has a window, and that of at most half the layers."""
    return all(choices and choices[0][1] - choices[0][0] + 1 <= row["layers"] / 2 for choices in _windows(row).values())


def _meet(a: list[int], b: list[int]) -> bool:
    return a[0] <= b[1] and b[0] <= a[1]


def _disjoint(windows: list[Windows]) -> bool:
    """Whether one window can be chosen for each level so that no two meet."""
    return any(
        not any(_meet(a, b) for a, b in itertools.combinations(chosen, 2)) for chosen in itertools.product(*windows)
    )


EXPERIMENT = Experiment(
    name="stitching",
    title="Where the book is kept",
    paper="Figure 4, appendix C.2",
    story="After learning, the book is in the weights; where? Models are stitched together: some consecutive layers "
    "from the trained model, the others from the reader it started from. One phrasebook is missing from the "
    "context, so only the exchanged layers can know it. The smallest run of layers that brings the accuracy back tells "
    "where that phrasebook is kept.",
    units=units,
    run=run,
    draw=draw,
    claims=claims,
    differs="The paper stitches the 28 layers of Llama-3.2-3B; ours has six layers for three levels, so that a window "
    "of one layer is a sixth of the model.",
)
