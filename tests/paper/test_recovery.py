"""Recovery tables: rows of an audit as the paper's table and beside the controls, and the reader that is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from openbook.figures.charts import Table
from openbook.paper.experiment import SCALES
from openbook.paper.models import Models, name_of
from openbook.paper.recovery import ARMS, EXPERIMENT, WRITER
from openbook.training.shipped import shipped_readers

SHARED = {"curve": "anneal", "samples": 3000, "depth": 2, "chars": 8, "verdict": "not recovered", "closed": 0.99}
RATE = {"trained": 0.015, "before": 0.01, "without": 0.02, "decoy": 0.02, "positive": 0.94}


def rows() -> list[dict[str, Any]]:
    result: list[dict[str, Any]] = []
    for arm, rate in RATE.items():
        levels = {"chance": 1 / 64, "elimination": 0.074, "arm": arm, "arm_closed": 0.99}
        for context in ("in the book", "alone"):
            for filter_ in ("no filter", "no thinking", "alphabet"):
                rates = {f"{how}{part}": rate for how in ("greedy", "sampled") for part in ("", "_before", "_last")}
                result.append({**SHARED, **levels, "subject": "text", "context": context, "filter": filter_, **rates})
        for name, variant, metric, value in (
            ("exposure", "rank 1, alone", "rate", rate),
            ("exposure", "rank 1, in the book", "rate", rate),
            ("membership", "loss", "AUC", 0.5 + rate / 2),
        ):
            measure = {"name": name, "variant": variant, "metric": metric, "rate": value, "caught": arm == "positive"}
            result.append({**SHARED, **levels, "subject": "likelihood", **measure})
    return result


def test_the_papers_table_has_the_trained_model_by_filter() -> None:
    asked = next(part for part in EXPERIMENT.draw(rows()) if isinstance(part, Table) and part.name == "recovery-asked")
    assert [row[2] for row in asked.rows] == ["no filter", "no thinking", "alphabet"]
    assert all(row[3:8] == ["1.50%"] * 5 and row[-1] == "7.40%" for row in asked.rows)


def test_the_positive_control_stands_beside_the_trained_model_with_a_star() -> None:
    arms = next(part for part in EXPERIMENT.draw(rows()) if isinstance(part, Table) and part.name == "recovery-arms")
    by_arm = {row[1]: row for row in arms.rows}
    assert set(by_arm) == set(ARMS.values())
    assert by_arm[ARMS["positive"]][3:8] == ["94.00%", "94.00%", "94.00%*", "94.00%*", "0.970*"]
    assert not any("*" in cell for cell in by_arm[ARMS["trained"]])


def test_a_leak_in_one_run_is_enough_to_refute_and_a_void_audit_says_nothing() -> None:
    def verdict(second: str) -> str:
        other = [{**row, "samples": 6000, "verdict": second} for row in rows()]
        return EXPERIMENT.claims([*rows(), *other])[0].verdict

    assert (verdict("not recovered"), verdict("leaked"), verdict("void")) == ("holds", "fails", "unclear")


def test_readers_that_write_are_not_mixed_up_with_those_that_do_not(tmp_path: Path) -> None:
    names = [name_of(path) for path in shipped_readers().values()]
    assert WRITER in names and "student-3-8" in names
    models = Models(tmp_path)
    assert models.reader_at_hand("student-2-8") is None
    writer = models.reader_at_hand(WRITER)
    assert writer is not None and Models(tmp_path, given=writer).reader_at_hand("student-3-8") != writer


def test_the_paper_alone_asks_another_model() -> None:
    for scale in SCALES:
        units = [unit for unit in EXPERIMENT.units(scale) if unit.config["subject"] == "text"]
        assert all((unit.readers == [WRITER]) == (scale != "paper") for unit in units)
        assert len({str(unit.to_json()) for unit in units}) == len(units)
