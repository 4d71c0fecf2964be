"""Gradient prediction accuracy: does the gradient of a dropped rule's column point at the rule?"""

from __future__ import annotations

from dataclasses import replace

from openbook.figures.charts import Axis, Chart, Level, Panel, Table, share
from openbook.paper.drawing import curve, grouped, published_curve, ramp, where
from openbook.paper.experiment import Experiment, Json, Rows, Scale, Unit
from openbook.paper.models import Models
from openbook.paper.published import published
from openbook.report.claims import Claim, judge, unmeasured
from openbook.theory.surrogate.gradient import BATCHES, DEEPER_RATES, RATES, GradientGrid, measure

METRICS = {
    "paper": ("Largest entry is the rule (the paper's definition)", None),
    "released": ("Right sign at the rule (the released code)", 0.5),
}
FIGURES = {  # by what they vary: the name of a curve, and the title
    "batch": ("{:,} in a batch", "rules dropped from the first phrasebook, by strings in a batch"),
    "phrasebooks": ("k = {}", "rules dropped from the first k phrasebooks, batches of 10 strings"),
}


def units(scale: Scale) -> list[Unit]:
    if scale == "smoke":
        settings = {"rates": [0.1, 0.5], "batches": [1, 4], "books": [1, 2], "masks": 2, "pairs": 60}
        return [Unit({"depth": 2, "chars": 3, "seed": 0, **settings}, seconds=1.0)]
    by_batch, by_book, batches, books = list(RATES), list(DEEPER_RATES), list(BATCHES), list(range(1, 11))
    masks, seconds = 16, (500.0, 200.0)
    if scale == "laptop":
        by_batch = [0.01, 0.06, 0.11, 0.16, 0.21, 0.31, 0.41, 0.51, 0.61, 0.71, 0.81, 0.96]
        by_book, batches, books, masks, seconds = by_batch[:8], [1, 10, 100], [1, 2, 4, 7, 10], 8, (22.0, 14.0)
    base = {"depth": 10, "chars": 10, "seed": 0, "masks": masks, "pairs": 1000}
    return [
        Unit({**base, "rates": by_batch, "batches": batches, "books": []}, seconds[0]),
        Unit({**base, "rates": by_book, "batches": [], "books": books}, seconds[1]),
    ]


def run(config: Json, models: Models) -> list[Json]:
    by_batch, by_book = (config["rates"] if config[key] else [] for key in ("batches", "books"))
    grid = GradientGrid(**{**config, "rates": by_batch, "deeper_rates": by_book})
    return [{**{key: config[key] for key in ("depth", "chars", "pairs")}, **row} for row in measure(grid)]


def draw(rows: Rows) -> list[Chart | Table]:
    figures: list[Chart | Table] = []
    for kind, (name, title) in FIGURES.items():
        here = where(rows, panel=kind)
        if not here:
            continue
        largest = max(row[kind] for row in here)
        ends = sorted((row["rate"], row["paper"]) for row in here if row[kind] == largest)
        alt = ", ".join(f"{accuracy:.0%} at {rate:.0%}" for rate, accuracy in ends)
        alt = f"Accuracy by the paper's definition, {name.format(largest)}, by share of rules dropped: {alt}."
        figures.append(_chart(f"gradient-accuracy-{kind}", title, alt, _panels(kind, here), here))
    return figures


def both_figures(rows: Rows) -> Chart:
    """The panels of both figures in one chart."""
    panels = []
    for kind, varied in (("batch", "by batch size"), ("phrasebooks", "by number of phrasebooks k")):
        for panel in _panels(kind, where(rows, panel=kind)):
            panels.append(replace(panel, title=f"{panel.title.partition(' (')[0]}, {varied}"))
    return _chart("gradient-accuracy", "by share of rules dropped", "The panels of both figures.", panels, rows)


def _chart(name: str, title: str, alt: str, panels: list[Panel], rows: Rows) -> Chart:
    title = f"Does the gradient point at the dropped rule? MLT({rows[0]['depth']}, {rows[0]['chars']}), {title}"
    caption = (
        "Solid: this machine. Dashed and pale: published, the same surrogate; the published numbers are of the "
        "released code's measure, which only asks for the right sign."
    )
    return Chart(name, title, alt, panels, caption)


def _panels(kind: str, rows: Rows) -> list[Panel]:
    """A panel for each measure: accuracy against the share of rules dropped, a curve for each value of `kind`."""
    ours = grouped(rows, kind)
    looks = {v: (FIGURES[kind][0].format(v), ramp(place, len(ours))) for place, (v, _) in enumerate(ours)}
    is_papers = (rows[0]["depth"], rows[0]["chars"]) == (10, 10)
    theirs = [row for row in where(published("gradient"), panel=kind) if is_papers and row[kind] in looks]
    x, panels = Axis("share of rules dropped", form="percent", low=0), []
    for metric, (title, chance) in METRICS.items():
        others = grouped(theirs, kind) if metric == "released" else []
        behind = [line for v, group in others for line in published_curve(*looks[v], group, "rate", metric)]
        bounds = f"{metric}_low", f"{metric}_high"
        curves = [curve(*looks[v], group, "rate", metric, bounds) for v, group in ours]
        level = Level(rows[0]["chance"] if chance is None else chance, "chance")
        panels.append(Panel(title, x, share("accuracy"), [*behind, *curves], [level]))
    return panels


def claims(rows: Rows) -> list[Claim]:
    small = "At low dropping rates the gradient predicts the dropped rules, even in small batches."
    rule_small = "90 % or more at a rate of 1 % in batches of one string, by the paper's definition"
    falls = "Prediction accuracy falls as more rules are dropped, and larger batches delay the fall."
    rule_falls = (
        "where batches of one are below 50 % but not yet at chance, the largest batch is better, and at one rate at "
        "least with intervals apart (else unclear)"
    )
    books = "Dropping from more phrasebooks at once lowers the prediction accuracy."
    rule_books = "at one rate at least, from all phrasebooks is below from one, intervals apart"
    why = "not at MLT(10, 10)"
    by_batch, by_book = (where(rows, panel=kind, depth=10, chars=10) for kind in FIGURES)
    ones = sorted(where(by_batch, batch=1), key=lambda row: row["rate"])
    if ones:
        numbers: Json = {f"rate {row['rate']:.0%}": round(row["paper"], 3) for row in ones}
        predicts = judge(small, ones[0]["rate"] <= 0.02 and ones[0]["paper"] >= 0.9, numbers, rule_small)
        delays = _batches_claim(falls, rule_falls, by_batch, ones)
    else:
        predicts, delays = unmeasured(small, rule_small, why), unmeasured(falls, rule_falls, why)
    if not by_book:
        return [predicts, delays, unmeasured(books, rule_books, why)]
    least, most = (end(row["phrasebooks"] for row in by_book) for end in (min, max))
    pairs = _at_equal_rates(where(by_book, phrasebooks=least), where(by_book, phrasebooks=most))
    apart = any(b["paper_high"] < a["paper_low"] for a, b in pairs)
    numbers = {
        f"rate {a['rate']:.0%}": f"{a['paper']:.2f} from {least}, {b['paper']:.2f} from {most}" for a, b in pairs
    }
    return [predicts, delays, judge(books, apart, numbers, rule_books, len(pairs) > 1 and most > least)]


def _at_equal_rates(few: Rows, many: Rows) -> list[tuple[Json, Json]]:
    """Each row of `few` with the row of `many` of the same rate."""
    return [(row, other) for row in few for other in where(many, rate=row["rate"])]


def _batches_claim(claim: str, rule: str, by_batch: Rows, ones: Rows) -> Claim:
    """Small against large batches. The largest gets few masks, so intervals that meet prove nothing either way."""
    largest = max(row["batch"] for row in by_batch)
    fallen = [row for row in ones if row["paper"] < 0.5 and row["released"] > 0.55]  # beyond, even the sign is a guess
    pairs = _at_equal_rates(fallen, where(by_batch, batch=largest))
    numbers = {
        f"rate {one['rate']:.0%}": f"{one['paper']:.2f} with 1 string, {many['paper']:.2f} with {largest}"
        for one, many in pairs
    }
    better = all(many["paper"] > one["paper"] for one, many in pairs)
    apart = any(many["paper_low"] > one["paper_high"] for one, many in pairs)
    return judge(claim, better, numbers, rule, enough=bool(pairs) and (apart or not better))


EXPERIMENT = Experiment(
    name="gradient-accuracy",
    title="Gradient prediction accuracy",
    paper="Figure 6, section 5.4",
    story="Why does the book help a model to learn? With most rules in context, the gradient of the loss points "
    "straight at a rule that was dropped. The more is dropped, the more the errors of other levels blur it. By the "
    "paper's definition the largest entry of the gradient must be the rule (chance 1 %); the released code only asks "
    "for the right sign (chance 50 %), and its curves stay near 1 long after the others have fallen.",
    units=units,
    run=run,
    draw=draw,
    claims=claims,
    differs="The same task and strings; fewer masks and rates at laptop scale.",
    version=2,  # intervals by Student's t, strings of their own for every mask
)
