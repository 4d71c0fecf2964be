"""What a report comes to: a row for each measure, as cells of a table and as a chart, and the paper's own table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from openbook.audit.arms import ARMS, CONTROLS
from openbook.audit.attacks.completion import CONTEXTS, FILTERS
from openbook.figures.charts import Axis, Chart, Panel, Range, Ranges, Series, share

COLOURS = {"trained": 0, "before": 6, "without": 5, "decoy": 4, "positive": 1, "a guess": 7}
# Of completion and exposure, the variants that the verdict most often depends on.
SHOWN = ("greedy, no filter, in the book", "greedy, alphabet", "rank 1")


def summary_rows(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row for each measure: the trained model's values, the best control, the positive control, and every arm."""
    rows: dict[tuple[str, str, str], dict[str, Any]] = {}
    for row in report["attacks"]:
        key = row["name"], row["variant"], row["metric"]
        line = rows.setdefault(key, {"attack": row["name"], "control": None, "arms": {}})
        line["arms"][row["arm"]] = row
        if row["arm"] == "trained":
            line |= {name: value for name, value in row.items() if name not in ("name", "arm")}
        elif row["arm"] == "positive":
            line |= {"positive": row["rate"], "positive_caught": row["caught"]}
        elif row["arm"] in CONTROLS and (line["control"] is None or row["rate"] > line["control"]):
            line |= {"control": row["rate"], "control_arm": row["arm"]}
    return list(rows.values())


def completion_rows(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The paper's table for one audit: a row for each context, filter and arm.

    Rates of the last level and of those before it (of all secrets, where there is one level), greedy and sampled, each
    with both chance levels.
    """
    rows: dict[tuple[str, str, str], dict[str, Any]] = {}
    for row in report["attacks"]:
        if row["name"] != "completion":
            continue
        decoding, filter_, context = row["variant"].split(", ")
        levels = list(row["by_group"].values()) or [row["rate"]]
        before = levels[:-1]
        shared = {"arm": row["arm"], "context": context, "filter": filter_}
        shared |= {"chance": row["chance"], "elimination": row["elimination"], "published": False}
        rows.setdefault((context, filter_, row["arm"]), shared).update(
            {
                decoding: row["rate"],
                f"{decoding}_low": row["low"],
                f"{decoding}_high": row["high"],
                f"{decoding}_last": levels[-1],
                f"{decoding}_before": sum(before) / len(before) if before else None,
            }
        )
    order = [(context, filter_) for context in CONTEXTS for filter_ in FILTERS]
    return sorted(rows.values(), key=lambda row: order.index((row["context"], row["filter"])))


def shown_cells(report: Mapping[str, Any]) -> list[list[str]]:
    """The rows as cells: trained, its interval, the best control, the positive control, a guess; a star: caught."""
    cells, last = [], None
    for row in summary_rows(report):
        if row["attack"] != last:
            last = row["attack"]
            cells.append([last + (" (from the skill itself)" if row["kind"] == "behaviour" else "")])
        metric = "" if row["metric"] == "rate" else f", {row['metric'].split()[0]}"
        cells.append(
            [
                f" {row['variant']}{metric}",
                _starred(row["rate"], row["caught"]),
                f"{row['low']:.2f}-{row['high']:.2f}",
                "" if row["control"] is None else f"{row['control']:.3f}",
                _starred(row["positive"], row["positive_caught"]) if "positive" in row else "",
                f"{row['elimination']:.3f}",
            ]
        )
    return cells


def _starred(rate: float, caught: bool) -> str:
    return f"{rate:.3f}{'*' if caught else ' '}"


def chart_of(report: Mapping[str, Any]) -> Chart:
    """A panel for each attack: what it recovers of every arm, with intervals, beside what a guess scores."""
    rows = [row for row in summary_rows(report) if _is_shown(row)]
    budget = next((row["arms"] for row in rows if row["variant"].startswith("any token")), None)
    return Chart(
        "audit",
        f"Audit: {report['verdict']}",
        "Every attack on every arm: the share of the secrets that it recovers from the trained model and from the "
        "controls, beside what a guess scores.",
        [*map(_rates, rows), *([] if budget is None else [_budget(budget)])],
        "Bars: 95 % intervals by secret; marks: the share that is recovered. A guess rules out what it was shown.",
    )


def _is_shown(row: Mapping[str, Any]) -> bool:
    chosen = row["attack"] not in ("completion", "exposure") or row["variant"].startswith(SHOWN)
    return chosen and row["metric"] != "AUC" and row["rate"] is not None and row["rate"] == row["rate"]


def _rates(row: Mapping[str, Any]) -> Ranges:
    arms = [Range(arm, [(a["low"], a["high"])], a["rate"]) for arm, a in row["arms"].items()]
    title = f"{row['attack']}: {row['variant']}" + ("" if row["metric"] == "rate" else " (TPR)")
    guess = row["elimination"]
    return Ranges(title, share("share of the secrets"), [*arms, Range("a guess", [(guess, guess)], guess)])


def _budget(arms: Mapping[str, Any]) -> Panel:
    curves: dict[str, Any] = {arm: arms[arm]["curve"] for arm in ARMS if arm in arms}
    lines = {arm: list(zip(curve["samples"], curve["expected"], strict=True)) for arm, curve in curves.items()}
    trained = curves["trained"]
    lines["a guess"] = list(zip(trained["samples"], trained["chance"], strict=True))
    series = [Series(name, points, COLOURS[name]) for name, points in reversed(lines.items())]  # trained on top
    samples = Axis("samples for each secret", "log")
    return Panel("What a budget of samples finds", samples, share("found at least once"), series)
