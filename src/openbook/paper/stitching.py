"""Stitching: in which layers a trained model keeps each phrasebook, by curriculum and size of the dataset."""

from __future__ import annotations

import itertools
from typing import Any

from openbook.figures.charts import Axis, Chart, Heatmap, Panel, Series, Table, share
from openbook.paper.curricula import CURVES, llama, student
from openbook.paper.experiment import Experiment, Rows, Scale, Unit
from openbook.paper.models import Models
from openbook.paper.published import published
from openbook.report.claims import Claim, judge, unmeasured

REACHED = 0.9
NEAR = 1  # layers by which the end of storing and the start of reading may differ
NAMES = ("anneal", "fixed:0.2")


def units(scale: Scale) -> list[Unit]:
    if scale == "smoke":
        return []  # a student that cannot read cannot be stitched with
    if scale == "paper":
        sizes = {
            "anneal": (10_000, 25_000, 50_000, 100_000, 250_000),
            "fixed:0.2": (25_000, 50_000, 100_000, 250_000, 500_000),
        }
        grid = [(name, n, llama(name, n, 8)) for name in NAMES for n in sizes[name]]
        return [
            Unit({"curve": name, "samples": n, "exam": 20, "learned": [spec], "readers": [spec.reader]}, 7200.0)
            for name, n, spec in grid
        ]
    sizes_of = (1000, 2000, 4000) if scale == "laptop" else (1000, 2000, 4000, 8000, 16_000, 32_000)
    exam = 40 if scale == "laptop" else 256
    return [
        Unit(
            {
                "curve": name,
                "samples": n,
                "exam": exam,
                "learned": [student(scale, name, n)],
                "readers": ["student-3-8"],
            },
            seconds=0.2 * exam,
        )
        for name, n in itertools.product(NAMES, sizes_of)
        if (name, n) != ("fixed:0.2", 1000)  # nothing is learned that early
    ]


def run(config: dict[str, Any], models: Models) -> list[dict[str, Any]]:
    """The maps of a pair of models, and from which layer on the reader looks each phrasebook up."""
    from openbook.paper.models import unmet_task
    from openbook.probes.perturb import perturb_map
    from openbook.probes.stitch import stitch_map

    reader = models.reader(config["readers"][0])
    reads = perturb_map(reader, 10, 12, task=unmet_task(reader)).to_json()["sections"]
    found = stitch_map(reader, models.place(config["learned"][0]), config["exam"]).to_json()
    about = {"curve": config["curve"], "samples": config["samples"], "reader": config["readers"][0]}
    return [{**found, **about, "trained": "", "reads": {s["name"]: s["first_large_layer"] for s in reads}}]


def draw(rows: Rows) -> list[Chart | Table]:
    if not rows:
        return []
    charts: list[Chart | Table] = []
    for name in NAMES:
        mine = [row for row in rows if row["curve"] == name]
        if mine:
            charts.append(_maps(max(mine, key=lambda row: row["samples"])))
    charts.append(_published())
    charts.append(_by_size(rows))
    charts.append(_table(rows))
    return charts


def _maps(row: dict[str, Any]) -> Chart:
    layers = [str(k + 1) for k in range(row["layers"])]
    maps = [
        Heatmap(f"{section['name']} missing", section["map"], "last layer", "first layer", layers, layers)
        for section in row["sections"]
    ]
    said = ", ".join(f"{s['name']}: {_windows(s['smallest_windows'])}" for s in row["sections"])
    label = CURVES[row["curve"]].label
    return Chart(
        f"stitching-{row['curve'].partition(':')[0]}",
        f"{label}, {row['samples']:,} samples: accuracy with layers first to last from the trained model",
        f"Smallest windows that reach 90 %: {said}.",
        maps,
        "Every cell is a model stitched from two: these layers are the trained model's, the others the reader's. One "
        "phrasebook is missing from the book.",
    )


def _published() -> Chart:
    lines = published("stitching")
    depth = max(line["last"] for line in lines)
    layers = [str(k + 1) for k in range(depth)]
    maps = []
    for book in sorted({line["phrasebook"] for line in lines}):
        values: list[list[float | None]] = [[None] * depth for _ in range(depth)]
        for line in lines:
            if line["phrasebook"] == book:
                values[line["first"] - 1][line["last"] - 1] = line["accuracy"]
        maps.append(
            Heatmap(
                f"level {book} missing (published)", values, "last layer", "first layer", layers, layers, published=True
            )
        )
    return Chart(
        "stitching-published",
        "Published, not ours: Llama-3.2-3B, MLT(5, 8), annealing on 100,000 samples",
        "Each phrasebook can be localised in a few layers, later ones in later layers.",
        maps,
        "From the result files of the paper's repository.",
    )


def _by_size(rows: Rows) -> Chart:
    names = [section["name"] for section in rows[0]["sections"]]
    panels = []
    for curve in NAMES:
        mine = sorted((row for row in rows if row["curve"] == curve), key=lambda row: row["samples"])
        series = [
            Series(
                f"{name} missing",
                [(row["samples"], row["sections"][k]["trained"]) for row in mine],
                100 + round(99 * k / max(1, len(names) - 1)),
            )
            for k, name in enumerate(names)
        ]
        if mine:
            panels.append(
                Panel(
                    CURVES[curve].label,
                    Axis("training samples", "log", "si"),
                    share("accuracy, all layers trained"),
                    series,
                )
            )
    return Chart(
        "stitching-sizes",
        "Which phrasebooks are internalised first",
        "Accuracy of the trained model with one phrasebook missing, by the size of the dataset.",
        panels,
    )


def _windows(windows: list[list[int]]) -> str:
    return ", ".join(f"{a} to {b}" if a != b else f"{a}" for a, b in windows) or "none"


def _table(rows: Rows) -> Table:
    cells = [
        [CURVES[row["curve"]].label, f"{row['samples']:,}", section["name"], f"{section['reader']:.1%}",
         f"{section['trained']:.1%}", _windows(section["smallest_windows"]), str(row["reads"].get(section["name"]))]
        for row in sorted(rows, key=lambda row: (NAMES.index(row["curve"]), row["samples"]))
        for section in row["sections"]
    ]  # fmt: skip
    header = [
        "curriculum",
        "samples",
        "missing",
        "reader alone",
        "trained alone",
        "smallest windows of layers",
        "read from layer",
    ]
    return Table("stitching-table", "Smallest runs of layers that reach 90 %", header, cells)


def claims(rows: Rows) -> list[Claim]:
    local = "Each phrasebook can be localised to a few mutually disjoint layers of the trained model."
    rule_local = (
        "annealing, largest size: each level has a window of at most half the layers that reaches 90 %, and windows "
        "that do not meet can be chosen"
    )
    match = "The layers that store a phrasebook end where the layers that read it begin."
    rule_match = (
        f"annealing, largest size: a smallest window of each level ends within {NEAR} layer of the first that reads it"
    )
    later = "Later phrasebooks are internalised with fewer samples than earlier ones."
    rule_later = "at some size the last level reaches 90 % and the first does not; nowhere the other way round"
    same = "Where a phrasebook is stored depends little on the curriculum."
    rule_same = (
        "largest size: for each level a smallest window of annealing overlaps one of fixed dropout; unclear where a "
        "window is more than half of the layers, since it overlaps almost anything"
    )
    annealed = sorted((row for row in rows if row["curve"] == "anneal"), key=lambda row: row["samples"])
    if not annealed:
        pairs = ((local, rule_local), (match, rule_match), (later, rule_later), (same, rule_same))
        return [unmeasured(claim, rule, "no annealed model was stitched") for claim, rule in pairs]
    last = annealed[-1]
    windows = {section["name"]: section["smallest_windows"] for section in last["sections"]}
    numbers = {name: _windows(found) for name, found in windows.items()}
    small = _all_small(windows, last["layers"])
    found = [
        judge(local, small and _disjoint(list(windows.values())), {**numbers, "layers": last["layers"]}, rule_local)
    ]
    reads = last["reads"]
    near = all(
        reads.get(name) is not None and any(abs(end - reads[name]) <= NEAR for _, end in wins)
        for name, wins in windows.items()
    )
    told = {name: f"kept in {_windows(wins)}, read from {reads.get(name)}" for name, wins in windows.items()}
    found.append(judge(match, near, told, rule_match))
    ends = [
        (row, row["sections"][0]["trained"] >= REACHED, row["sections"][-1]["trained"] >= REACHED) for row in annealed
    ]
    ahead, behind = any(z and not a for _, a, z in ends), any(a and not z for _, a, z in ends)
    shown = {
        f"{row['samples']:,} samples": ", ".join(f"{s['name']} {s['trained']:.2f}" for s in row["sections"])
        for row, _, _ in ends
    }
    found.append(judge(later, ahead and not behind, shown, rule_later, enough=ahead or behind))
    fixed = [row for row in rows if row["curve"] == "fixed:0.2"]
    if not fixed:
        return [*found, unmeasured(same, rule_same, "no model with fixed dropout was stitched")]
    other = {s["name"]: s["smallest_windows"] for s in max(fixed, key=lambda row: row["samples"])["sections"]}
    overlap = all(any(_meet(a, b) for a in windows[name] for b in other.get(name, [])) for name in windows)
    both = {name: f"annealing {_windows(windows[name])}, fixed {_windows(other.get(name, []))}" for name in windows}
    known = all(windows.values()) and all(other.values())
    apart = known and not overlap
    tellable = apart or (small and _all_small(other, last["layers"]))
    return [*found, judge(same, overlap, both, rule_same, enough=tellable)]


def _all_small(windows: dict[str, list[list[int]]], layers: int) -> bool:
    """Whether every section has a window, and that of at most half the layers."""
    return all(found and found[0][1] - found[0][0] + 1 <= layers / 2 for found in windows.values())


def _meet(a: list[int], b: list[int]) -> bool:
    return a[0] <= b[1] and b[0] <= a[1]


def _disjoint(choices: list[list[list[int]]]) -> bool:
    """Whether one window can be chosen for each level so that no two meet."""
    return any(
        not any(_meet(a, b) for a, b in itertools.combinations(chosen, 2)) for chosen in itertools.product(*choices)
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
