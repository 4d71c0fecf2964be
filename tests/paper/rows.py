"""Rows as experiments leave them, made up: a world in which the paper's sentences are true, and its controls."""

from __future__ import annotations

from typing import Any

from openbook.paper.curricula import CURVES

GOOD = {
    "anneal": {1000: 0.2, 2000: 0.95, 4000: 1.0},
    "fixed:0.2": {1000: 0.15, 2000: 0.8, 4000: 0.97},
}


def efficiency(**changed: dict[int, float]) -> list[dict[str, Any]]:
    """The six curves of the main figure; `changed` gives a curve (by its name, `_` for `-`) other values."""
    values = {name: GOOD.get(name, {1000: 0.125, 4000: 0.13, 40_000: 0.14}) for name in CURVES}
    values |= {name.replace("_", "-").replace("fixed", "fixed:0.2"): found for name, found in changed.items()}
    return [
        {
            "curve": name,
            "samples": samples,
            "seed": 0,
            "chars": 8,
            "depth": 3,
            "accuracy": accuracy,
            "low": max(0, accuracy - 0.01),
            "high": min(1, accuracy + 0.01),
            "chance": 0.125,
            "exact_match": 0.0,
            "open_book": 1.0,
            "seconds": samples / 100,
            "cpu_seconds": samples / 125,
            "tokens": 150 * samples,
            "steps": 10,
            "curve_by_step": [],
        }
        for name, points in values.items()
        for samples, accuracy in points.items()
    ]


def rates(**changed: dict[float, float]) -> list[dict[str, Any]]:
    """The six curves with 40,000 samples at learning rates; `changed` as in `efficiency`, by rate."""
    values: dict[str, dict[float, float]] = {name: {0.006: 0.125, 0.012: 0.13, 0.024: 0.12} for name in CURVES}
    values |= {"anneal": {0.012: 0.99}}
    values |= {name.replace("_", "-").replace("fixed", "fixed:0.2"): found for name, found in changed.items()}
    return [
        {**row, "rate": rate, "last_loss": 4.16}
        for name, points in values.items()
        for rate, accuracy in points.items()
        for row in efficiency(**{name.replace("-", "_").replace("fixed:0.2", "fixed"): {40_000: accuracy}})
        if row["curve"] == name
    ]


def plain(times: int = 20, slow: float = 0.14) -> list[dict[str, Any]]:
    """Annealing with too few and with enough, plain fine-tuning with so many times that, and twice at another rate."""
    found = rates(anneal={0.006: 0.2, 0.012: 0.99}, no_context={0.01: slow, 0.02: 0.13})
    sizes = {("anneal", 0.006): 3000, ("anneal", 0.012): 4000}
    sizes |= {("no-context", 0.01): times * 4000, ("no-context", 0.02): 2 * times * 4000}
    way = [{"step": step, "closed_book": closed, "open_book": 1.0} for step, closed in ((5, 0.125), (10, 0.2))]
    return [
        {**row, "samples": sizes[key], "curve_by_step": way}
        for row in found
        if (key := (row["curve"], row["rate"])) in sizes
    ]


def brief(times: int = 20, slow: float = 0.14) -> list[dict[str, Any]]:
    """The same without unused rules, and a control that has them and would say something else."""
    control = [{**row, "samples": 10 * row["samples"], "accuracy": 0.2} for row in plain() if row["curve"] == "anneal"]
    return [*({**row, "others": 0.0} for row in plain(times, slow)), *({**row, "others": 0.25} for row in control)]


def passes(anneal: float = 0.99, no_context: float = 0.13) -> list[dict[str, Any]]:
    """Two sizes of annealing and one of plain fine-tuning."""
    found = efficiency(anneal={2000: anneal, 8000: anneal}, no_context={8000: no_context})
    return [{**row, "passes": 4, "last_loss": 0.02} for row in found if row["curve"] in ("anneal", "no-context")]


def reliance(fresh: float = 0.999, **changed: tuple[float, float]) -> list[dict[str, Any]]:
    ends = {"reader": (0.125, 0.999), "anneal": (0.99, 0.995), "no-context": (0.2, 0.2), **changed}
    found = [(name, "right", share, a) for name, ab in ends.items() for share, a in zip((0.0, 1.0), ab, strict=True)]
    return [
        {
            "model": name,
            "book": book,
            "open": share,
            "accuracy": a,
            "low": a,
            "high": a,
            "chance": 0.125,
            "depth": 3,
            "chars": 8,
        }
        for name, book, share, a in [*found, ("reader", "fresh", 1.0, fresh)]
    ]


def selective(held: float, seen: float = 0.98) -> list[dict[str, Any]]:
    return [
        {
            "level": level,
            "samples": 4000,
            "seed": 0,
            "depth": 3,
            "chars": 8,
            "test": test,
            "open": share,
            "accuracy": 1.0 if share else accuracy,
            "low": accuracy,
            "high": accuracy,
            "chance": 0.125,
        }
        for level in (1, 2, 3)
        for test, accuracy in (("seen", seen), ("held out", held))
        for share in (0.0, 1.0)
    ]


def perturbed(layers: tuple[int, ...] = (1, 3, 5), control: float = 0.01) -> list[dict[str, Any]]:
    return [
        {
            "model": "student-3-8",
            "layers": 6,
            "rules": 10,
            "samples": 8,
            "level": 0.05,
            "places": [{"string": 2, "place": 1}, {"string": 3, "place": 1}],
            "sections": [
                {
                    "name": f"level {k + 1}",
                    "map": [[0.0, 1.0]] * 6,
                    "control": [[0.0, control]] * 6,
                    "first_layer": layer,
                    "first_large_layer": layer,
                    "first_large_layer_by_string": {"s_2": layer, "s_3": None},
                    "largest": 1.0,
                    "largest_in_control": control,
                }
                for k, layer in enumerate(layers)
            ],
        }
    ]


def stitched(
    windows: dict[str, list[list[list[int]]]], early: tuple[float, ...] = (0.5, 0.7, 0.95)
) -> list[dict[str, Any]]:
    """A model for each curve at 4,000 samples with these smallest windows, and one at 1,000 with these accuracies."""
    rows = []
    for curve, found in windows.items():
        for samples, shares in ((1000, early), (4000, (1.0, 1.0, 1.0))):
            sections = [
                {
                    "name": f"level {k + 1}",
                    "map": [[0.5] * 6] * 6,
                    "smallest_windows": found[k],
                    "reader": 0.2,
                    "trained": shares[k],
                    "all_layers": shares[k],
                }
                for k in range(3)
            ]
            reads = {"level 1": 2, "level 2": 4, "level 3": 6}
            rows.append(
                {"curve": curve, "samples": samples, "layers": 6, "sections": sections, "reads": reads, "chance": 0.125}
            )
    return rows


WINDOWS = [[[1, 2]], [[3, 4]], [[5, 6]]]


def asked(verdict: str) -> list[dict[str, Any]]:
    return [
        {
            "subject": "text",
            "curve": "anneal",
            "samples": 100,
            "arm": arm,
            "context": "in the book",
            "filter": "no filter",
            "greedy": rate,
            "greedy_last": rate,
            "greedy_before": None,
            "sampled_last": rate,
            "sampled_before": None,
            "chance": 1 / 36,
            "elimination": 0.11,
            "verdict": verdict,
            "closed": 0.99,
            "depth": 1,
            "chars": 6,
        }
        for arm, rate in (("trained", 0.03), ("positive", 0.97))
    ]


def lemmas(holds: bool = True) -> list[dict[str, Any]]:
    decay = [{"depth": d, "exact": 0.3 / d, "bound": 0.34 / d, "tasks": 3**d} for d in (1, 2, 3)]
    base = {"claim": "c", "method": "algebra", "measured": "m", "remark": "", "section": "The task"}
    return [
        {**base, "name": "bijection-count", "holds": True},
        {**base, "name": "correlation-pair", "holds": holds, "decay": decay},
    ]


def gap(vanilla: float = 6.0, enhanced: float = 1.0) -> list[dict[str, Any]]:
    """Characters needed, growing by a factor for each level without context and like d to a power with it."""
    rows: list[dict[str, Any]] = []
    for depth in range(1, 7):
        needed = {"vanilla": 100 * vanilla**depth, "enhanced": 1000 * depth**enhanced, "search": 900 * depth**1.1}
        for arm, value in needed.items():
            spread = [value * factor for factor in (0.8, 0.9, 1.0, 1.1, 1.2)]
            point = {"arm": arm, "chars": 2, "depth": depth, "median": value, "low": spread[0], "high": spread[-1]}
            rows.append({**point, "recovered": 5, "runs": 5, "censored_at": 1e9, "characters": spread})
    growth = {"vanilla": (vanilla, 9.0), "enhanced": (1.4, enhanced), "search": (1.4, 1.1)}
    rows[0]["fits"] = [
        {"arm": arm, "chars": 2, "depths": [2, 6], "growth": factor, "low": 0.9 * factor, "high": 1.1 * factor}
        | {"exponent_of_n": 1.0, "power_of_d": power, "power_low": power - 0.1, "power_high": power + 0.1}
        for arm, (factor, power) in growth.items()
    ]
    return rows


def dynamics(full: float = 1.0, vanilla: float = 0.0) -> list[dict[str, Any]]:
    return [
        {
            "algorithm": name,
            "depth": 2,
            "chars": 10,
            "recovered": share,
            "complete": share == 1.0,
            "steps": 1000,
            "chance": 0.01,
            "curve": [
                {"step": 0, "recovered": 0.0, "by_layer": [0.0, 0.0]},
                {"step": 1000, "recovered": share, "by_layer": [share] * 2},
            ],
        }
        for name, share in (("layerwise", 1.0), ("full", full), ("vanilla", vanilla))
    ]


def gradients(one: float = 0.3, many: float = 0.9, all_books: float = 0.1) -> list[dict[str, Any]]:
    def row(panel: str, rate: float, batch: int, books: int, value: float) -> dict[str, Any]:
        spread = {
            f"{name}_{edge}": value + shift
            for name in ("paper", "released")
            for edge, shift in (("low", -0.02), ("high", 0.02))
        }
        return {
            "panel": panel,
            "rate": rate,
            "batch": batch,
            "phrasebooks": books,
            "paper": value,
            "released": min(1.0, value + 0.4),
            "depth": 10,
            "chars": 10,
            "pairs": 1000,
            "chance": 0.01,
            **spread,
        }

    by_batch = [
        row("batch", 0.01, 1, 1, 0.99),
        row("batch", 0.5, 1, 1, one),
        row("batch", 0.01, 100, 1, 1.0),
        row("batch", 0.5, 100, 1, many),
    ]
    by_book = [
        row("phrasebooks", r, 10, k, v)
        for r, k, v in ((0.01, 1, 0.99), (0.5, 1, 0.6), (0.01, 10, 0.98), (0.5, 10, all_books))
    ]
    return by_batch + by_book


def construction(mismatches: int = 0, embedding: int = 214) -> list[dict[str, Any]]:
    lemma = {"embedding_size": 214, "attention_layers": 10}
    scale = {"scale": 10.0, "shift": 1e-3, "context": 1e-3, "output": {"full context": 1e-4}, "mismatches": 0}
    outside = {
        "strength": 0.5,
        "characters_as_context": 0.5,
        "characters_as_weights": 0.1,
        "characters_as_surrogate": 0.5,
        "deviation": 0.1,
    }
    mode = {"name": "full context", "strings": 10, "mismatches": mismatches, "deviation": 1e-4}
    return [
        {
            "depth": 5,
            "chars": 10,
            "strings": 10,
            "mismatches": mismatches,
            "deviation": 1e-4,
            "embedding_size": embedding,
            "attention_layers": 10,
            "lemma": lemma,
            "modes": [mode],
            "scales": [scale],
            "outside": [outside],
        }
    ]


def trained(layerwise: float = 0.99, closed: float = 0.9, control: float = 0.1) -> list[dict[str, Any]]:
    return [
        {
            "update": update,
            "rate": 0.01,
            "sequences": 100,
            "seed": 0,
            "depth": 2,
            "chars": 10,
            "recovered": recovered,
            "recovered_by_layer": [recovered] * 2,
            "closed_book": book,
            "chance": 0.1,
            "curve": [{"step": 1, "recovered_by_layer": [recovered] * 2}],
        }
        for update, recovered, book in (
            ("layerwise", layerwise, closed),
            ("full", 0.99, closed),
            ("control", 1.0, control),
        )
    ]


def built(**changed: float) -> list[dict[str, Any]]:
    ends = {"anneal": 1.0, "fixed:0.2": 0.99, "no-context": 0.12, "no-dropout": 0.13, "wrong-context": 0.12}
    ends |= {name.replace("_", "-"): value for name, value in changed.items()}
    return [
        {"curve": name, "samples": 1000, "seed": 0, "chars": 8, "depth": 5, "accuracy": a, "chance": 0.125}
        for name, a in ends.items()
    ]
