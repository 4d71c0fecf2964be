"""The paper's tables for our models, beside the published ones: curricula × sample sizes × filters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from openbook.audit.completion import FILTERS

CONTEXTS = ("in the book", "alone")


def completion_rows(report: Mapping[str, Any], **labels: Any) -> list[dict[str, Any]]:
    """The paper's table for one audit: a row for each arm, context and filter.

    Rates of the last level and of those before it (all rules, for one level), greedy and sampled, each with both chance
    levels; `labels` (curriculum, samples, ...) are put into every row.
    """
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    for row in report["attacks"]:
        if row["name"] != "completion":
            continue
        how, filter_, context = row["variant"].split(", ")
        line = found.setdefault(
            (row["arm"], context, filter_),
            {
                **labels,
                "arm": row["arm"],
                "context": context,
                "filter": filter_,
                "chance": row["chance"],
                "elimination": row["elimination"],
                "published": False,
            },
        )
        levels = list(row["by_group"].values())
        line[how], line[f"{how}_low"], line[f"{how}_high"] = row["rate"], row["low"], row["high"]
        line[f"{how}_last"] = levels[-1] if levels else row["rate"]
        line[f"{how}_before"] = sum(levels[:-1]) / len(levels[:-1]) if len(levels) > 1 else None
    order = {(c, f): k for k, (c, f) in enumerate((c, f) for c in CONTEXTS for f in FILTERS)}
    return sorted(found.values(), key=lambda line: order[line["context"], line["filter"]])


def summary_rows(
    report: Mapping[str, Any], controls: Sequence[str] = ("before", "without", "decoy")
) -> list[dict[str, Any]]:
    """One line for each measure of an audit: the trained model, the best control, the positive control, chance."""
    lines: dict[tuple[str, str, str], dict[str, Any]] = {}
    for row in report["attacks"]:
        key = (row["name"], row["variant"], row["metric"])
        line = lines.setdefault(
            key, {"attack": key[0], "variant": key[1], "metric": key[2], "kind": row["kind"], "control": None}
        )
        if row["arm"] == "trained":
            line |= {k: row[k] for k in ("rate", "low", "high", "chance", "elimination", "secrets", "caught")}
        elif row["arm"] == "positive":
            line |= {"positive": row["rate"], "positive_caught": row["caught"]}
        elif row["arm"] in controls and (line["control"] is None or row["rate"] > line["control"]):
            line |= {"control": row["rate"], "control_arm": row["arm"]}
    return list(lines.values())
