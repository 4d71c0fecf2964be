"""Tasks of the lm-evaluation-harness: what is handed over, and what is made of the results."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest
from tests.tiny import tiny, word_level

from openbook.base.errors import InputError
from openbook.training.harness import harness, task_rows

RESULTS = {
    "results": {
        "hellaswag": {
            "alias": "hellaswag",
            "acc,none": 0.5,
            "acc_stderr,none": 0.1,
            "acc_norm,none": 0.6,
            "acc_norm_stderr,none": "N/A",
        },
        "gsm8k": {"exact_match,strict-match": 0.25, "exact_match_stderr,strict-match": 0.05},
    },
    "n-samples": {"hellaswag": {"original": 100, "effective": 40}},
}


def fake(evaluate: Any) -> dict[str, ModuleType]:
    """The names of lm_eval that are used, in modules of the same names."""
    package, models, face = (ModuleType(name) for name in ("lm_eval", "lm_eval.models", "lm_eval.models.huggingface"))

    class HFLM:
        def __init__(self, pretrained: Any, tokenizer: Any, batch_size: int) -> None:
            self.given = (pretrained, tokenizer, batch_size)

    package.simple_evaluate = evaluate  # type: ignore[attr-defined]
    package.models, models.huggingface, face.HFLM = models, face, HFLM  # type: ignore[attr-defined]
    return {module.__name__: module for module in (package, models, face)}


def given(monkeypatch: pytest.MonkeyPatch, evaluate: Any) -> None:
    for name, module in fake(evaluate).items():
        monkeypatch.setitem(sys.modules, name, module)


def test_rows_have_values_and_intervals(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    model, tokenizer, seen = tiny(), word_level(), []

    def evaluate(model: Any, tasks: list[str], **_: Any) -> Any:
        seen.append((model.given, tasks))
        print("a table of its own")
        return RESULTS

    given(monkeypatch, evaluate)
    rows = task_rows(model, tokenizer, ("hellaswag", "gsm8k"), 16)
    assert seen == [((model, tokenizer, 16), ["hellaswag", "gsm8k"])]
    assert [(row["task"], row["metric"], row["filter"], row["value"], row["samples"]) for row in rows] == [
        ("hellaswag", "acc", "none", 0.5, 40),
        ("hellaswag", "acc_norm", "none", 0.6, 40),
        ("gsm8k", "exact_match", "strict-match", 0.25, None),
    ]
    assert (rows[0]["low"], rows[0]["high"]) == pytest.approx((0.304, 0.696), abs=1e-3)
    assert (rows[1]["low"], rows[1]["high"]) == (None, None)  # it has no standard error
    assert capsys.readouterr().out == ""  # which belongs to --json


def test_a_task_that_it_does_not_know_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def evaluate(**_: Any) -> Any:
        raise KeyError("hellaswg")

    given(monkeypatch, evaluate)
    with pytest.raises(InputError, match=r"lm-eval cannot set hellaswg: .*lists them"):
        task_rows(tiny(), word_level(), ["hellaswg"], 4)


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    with pytest.raises(InputError, match=r"pip install 'openbook\[lm-eval\]'"):
        harness()
