"""What a report comes to, as rows: one for each measure, and the paper's table of completion."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from openbook.audit.arms import CONTROLS
from openbook.audit.attacks.completion import CONTEXTS, FILTERS


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
