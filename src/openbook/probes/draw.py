"""The JSON of the probes, and charts and tables of that JSON alone.

`openbook probe` and `openbook reproduce` show the same ones.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from openbook.base.console import plain
from openbook.figures.charts import Axis, Chart, Heatmap, Number, Range, Ranges, Table

Json = dict[str, Any]

FIRST_LAYERS = ("first_layer", "first_large_layer")


def json_of(result: Any) -> Json:
    """The result of a probe as plain JSON: its fields, with lists for arrays and None for what is not a number."""
    return plain(asdict(result))


def stitch_chart(maps: Sequence[Json], labels: Sequence[str] | None = None, name: str = "stitching") -> Chart:
    """A heatmap for each section dropped, for every pair of models; `labels` say which trained model each map is of."""
    labels = [trained_label(result) for result in maps] if labels is None else labels
    sections = [(label, s) for label, result in zip(labels, maps, strict=True) for s in result["sections"]]
    layers = numbered(maps[0]["layers"])
    smallest = [f"{label}, {s['name']}: {windows_text(s['smallest_windows'])}" for label, s in sections]
    return Chart(
        name,
        f"{'; '.join(labels)}: accuracy with layers first to last from the trained model",
        f"Smallest windows that reach 90 %: {'; '.join(smallest)}.",
        [
            Heatmap(
                f"{f'{label}: ' if len(maps) > 1 else ''}{section['name']} missing",
                section["map"],
                "last layer",
                "first layer",
                layers,
                layers,
                outlined=[(first - 1, last - 1) for first, last in section["smallest_windows"]],
            )
            for label, section in sections
        ],
        "Every cell is a model stitched from two: these layers are the trained model's, the others the reader's. One "
        "section is missing from the book. Outlined: the smallest windows that reach 90 %.",
    )


def stitch_table(result: Json) -> Table:
    rows = [
        [
            section["name"],
            *_cells(section, ".3f", "reader", "trained", "all_layers"),
            windows_text(section["smallest_windows"]),
            "{:.3f} ({:.3f}–{:.3f})".format(*section["smallest_accuracy"]) if section["smallest_accuracy"] else "",
        ]
        for section in result["sections"]
    ]
    caption = (
        "{layers} layers; {layer_evaluations:,} layer evaluations for each input instead of "
        "{layer_evaluations_one_by_one:,}, in {layer_calls} calls; chance {chance:.3f}; {sections[0][samples]} "
        "examples"
    )
    header = ["dropped", "reader", "trained", "all layers", "smallest windows", "accuracy"]
    return Table("stitching-windows", trained_label(result), header, rows, caption.format(**result))


def _cells(row: Json, form: str, *keys: str) -> list[str]:
    """Numbers of a row as text; what is missing is a dash."""
    return ["–" if row[key] is None else format(row[key], form) for key in keys]


def trained_label(result: Json) -> str:
    """The trained model of a stitching map, with the number of examples it was trained on if that is known."""
    return f"{result['trained']}, {result['trained_on']:,} examples" if result["trained_on"] else result["trained"]


def windows_text(windows: Iterable[Sequence[int]]) -> str:
    return ", ".join(f"{first} to {last}" if first != last else f"{first}" for first, last in windows) or "none"


def numbered(last: int, first: int = 1) -> list[str]:
    """Names of layers, places or sections by their number."""
    return [str(number) for number in range(first, last + 1)]


def perturb_chart(result: Json, name: str = "perturbation-maps") -> Chart:
    """For each section the change with used rules changed, then with unused ones, as a share of its largest change."""
    panels = [
        _layers_over_places(
            f"{kind}, {section['name']}",
            [[value / max(section["largest"], 1e-12) for value in row] for row in section[key]],
            result["places"],
            marked=section["first_layer"] if key == "map" else None,
        )
        for key, kind in (("map", "Used rules changed"), ("control", "Unused rules changed"))
        for section in result["sections"]
    ]
    begins = ", ".join(f"{s['name']} from layer {s['first_large_layer']}" for s in result["sections"])
    many = "All shown rules" if result["rules"] == "all" else f"{result['rules']} rules"
    return Chart(
        name,
        f"The change at every layer and place, {result['samples']} strings",
        f"Large changes begin: {begins}; unused rules change a layer by at most {by_unused(result):.0%} of what used "
        "ones do.",
        panels,
        f"{many} of a section get other images: l2 norm of the change of a layer's output, as a share of the section's "
        "largest. Outlined: the first layer that differs from the control.",
    )


def perturb_table(result: Json) -> Table:
    strings = list(result["sections"][0]["first_large_layer_by_string"])
    rows = []
    for section in result["sections"]:
        layers = _cells({**section, **section["first_large_layer_by_string"]}, "", *FIRST_LAYERS, *strings)
        rows.append([section["name"], *layers, *_cells(section, ".2f", "largest", "largest_in_control")])
    caption = (
        "{layers} layers, {samples} examples, {rules} rules changed. First layer: differs from the control (max-T over "
        "all maps, {level:.0%}). Large: also a tenth of the largest change, at any string and at the places of each. "
        "Change, control: the largest l2 change by used and by unused rules."
    )
    header = ["changed", "first layer", "large", *strings, "change", "control"]
    return Table("perturbation-table", result["model"], header, rows, caption.format(**result))


def by_unused(result: Json) -> float:
    """The largest change by unused rules as a share of that by used ones, over the sections."""
    return max(section["largest_in_control"] / max(1e-12, section["largest"]) for section in result["sections"])


def intermediate_chart(result: Json) -> Chart:
    """For each string the accuracy of the linear probe, then of its control, then of the logit lens."""
    panels = [
        _layers_over_places(f"{kind}, {s['name']}", s[key], result["places"], first, s[marked] if marked else None)
        for key, kind, first, marked in (
            ("map", "Linear probe", 0, "first_layer"),
            ("control", "Probe fitted to other examples' labels", 0, ""),
            ("lens", "Logit lens", 1, "first_layer_by_lens"),
        )
        for s in result["sections"]
    ]
    known = ", ".join(f"{s['name']} from layer {s['first_layer']}" for s in result["sections"] if s["first_layer"])
    return Chart(
        "intermediate",
        f"{result['model']}: which strings can be read at every layer and place, book {result['open']:.0%} open",
        f"Read by a linear probe at their own places: {known or 'none'}.",
        panels,
        f"Accuracy of characters, chance {result['chance']:.3f}; fitted on {result['fitted_on']:,} examples, judged on "
        f"{result['judged_on']:,} others. Layer 0 is the embedding. Outlined: the first layer that knows the string at "
        f"its own places ({result['known']:.0%}).",
    )


def intermediate_table(result: Json) -> Table:
    own = [section for section in result["sections"] if section["own_places"] is not None]
    by_lens = [["    ", *(f"{share:.2f}" for share in section["own_places_by_lens"])] for section in own]
    rows = [
        [str(layer), *(f"{s['own_places'][layer]:.2f} | {lens[layer]}" for s, lens in zip(own, by_lens, strict=True))]
        for layer in range(result["layers"] + 1)
    ]
    firsts = [" | ".join(_cells(section, "", "first_layer", "first_layer_by_lens")) for section in own]
    best = max(section["largest_in_control"] for section in result["sections"])
    caption = (
        "book {open:.0%} open; fitted on {fitted_on:,}, judged on {judged_on:,}; chance {chance:.3f}, best control "
        "cell {best:.3f}; known: {known:.0%}"
    ).format(**result, best=best)
    title = f"{result['model']}: characters read at their own places, probe | lens"
    header = ["layer", *(section["name"] for section in own)]
    return Table("intermediate-table", title, header, [*rows, ["known from", *firsts]], caption)


def doubt_table(result: Json) -> Table:
    cells = ("{level}", "{rules:.1f}", "{right:.3f}", "{low:.3f} to {high:.3f}", "{entropy:.2f}", "{size:.3f}")
    caption = (
        "{samples} examples of {length} characters; {share:.0%} of the needed rules of one level missing; chance "
        "{chance:.3f}, full doubt {doubt:.2f}"
    )
    header = ["level", "missing", "points right", "95 % interval", "entropy", "gradient"]
    rows = [[cell.format(**level) for cell in cells] for level in result["levels"]]
    return Table("doubt-table", result["model"], header, rows, caption.format(**result))


def _layers_over_places(
    title: str, values: Sequence[Sequence[Number]], places: Sequence[Json], first: int = 1, marked: int | None = None
) -> Heatmap:
    """Layers over places, which are grouped by their string. The first layer is at the bottom, as in the paper."""
    last = first + len(values) - 1
    strings = [(f"s_{string}", len(list(group))) for string, group in itertools.groupby(p["string"] for p in places)]
    return Heatmap(
        title,
        values[::-1],
        "place (thoughts, then answer)",
        "layer",
        numbered(len(places)),
        numbered(last, first)[::-1],
        outlined=[] if marked is None else [(last - marked, place) for place in range(len(places))],
        groups=strings if len(strings) > 1 else (),
    )


def windows_chart(maps: Sequence[Json], reads: dict[str, int | None], published: Sequence[Json]) -> Chart:
    """Smallest windows over the depth of the model, a panel for each model; depth is a share, so that models compare.

    `reads` is the layer that begins to read each section, where it is known. `published` are rows of other models, with
    `model`, `section`, `layers`, `windows` and `reads`.
    """
    ours = [
        {"model": f"ours: {Path(result['trained']).name}", "section": section["name"], "layers": result["layers"]}
        | {"windows": section["smallest_windows"], "reads": reads.get(section["name"])}
        for result in maps
        for section in result["sections"]
    ]
    axis = Axis("depth", form="percent", low=0.0, high=1.0)
    panels = [
        Ranges(model, axis, [_range(row) for row in group], published=is_published)
        for rows, is_published in ((ours, False), (published, True))
        for model, group in itertools.groupby(rows, key=lambda row: row["model"])
    ]
    smallest = [f"{row['model']}, {row['section']}: {windows_text(row['windows'])}" for row in ours]
    return Chart(
        "stitching-windows",
        "Smallest windows of layers that hold each section",
        f"Windows that reach 90 %: {'; '.join(smallest)}.",
        panels,
        "Bars: windows of the smallest length that reaches 90 % with the section dropped. Marked: the layer that "
        "begins to read the section.",
    )


def _range(row: Json) -> Range:
    """Windows and reading layer of a section as shares of the depth."""
    layers, reads = row["layers"], row["reads"]
    stretches = [((first - 1) / layers, last / layers) for first, last in row["windows"]]
    return Range(row["section"], stretches, None if reads is None else (reads - 0.5) / layers)
