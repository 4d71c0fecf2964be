"""`openbook exam`: the context-reliance curve of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from openbook.base.console import emit_json, out, print_table, progress
from openbook.base.errors import InputError
from openbook.cli.output import RATES, show_retention
from openbook.figures import Chart, check_path, save

Shares = Annotated[list[float], Parameter(name="--open", negative="", consume_multiple=True)]


def exam(
    run: Path | None = None,
    *,
    data: Path | None = None,
    samples: int | None = None,
    lengths: tuple[int, int] | None = None,
    codebook: int | Literal["fresh"] | Path | None = None,
    open_: Shares = [0.0, 0.25, 0.5, 0.75, 1.0],  # noqa: B006 - cyclopts shows the default
    others: float | None = None,
    sections: bool = False,
    generate: bool = False,
    show: int = 0,
    endpoint: str | None = None,
    endpoint_model: str | None = None,
    timeout: float = 60,
    max_tokens: int | None = None,
    tasks: str | None = None,
    chart: Path | None = None,
    seed: int | None = None,
    json: bool = False,
) -> None:
    """Examine a run, or a model behind a server, with the book closed, half open, open, and wrong.

    Next-token accuracy on the answer, its interval (clustered by example) and its chance level, and exact match, for
    each share of the book that is open. The task is examined on strings drawn apart from those of training. For a
    pre-trained model it is also shown what the run has measured of its retention: what the model lost for the book.

        openbook exam runs/learn --chart reliance.png
        openbook exam runs/learn --sections
        openbook exam runs/learn --data held-out.jsonl --show 10
        openbook exam --endpoint http://localhost:8000/v1 --data held-out.jsonl

    Parameters
    ----------
    run
        Folder that `openbook learn` or `openbook prepare` left, or a reader that comes with openbook. With an endpoint
        it may be left out; the exam of the server then has the data that `--data` names.
    data
        JSONL file to examine on, instead of the run's own.
    samples
        Examples; as many as the run's config says by default.
    lengths
        Shortest and longest string of the task, to see how far beyond its training a model goes.
    codebook
        Another codebook of the task (a seed, a file, or fresh): does the model still read a book it does not know?
    open_
        Shares of the book to open.
    others
        Share of the pieces that an example does not need that are in its book as well; as the run's curriculum says
        by default.
    sections
        Also close one section at a time and leave the others open: which of them the model knows by heart.
    generate
        Also let the model write its completions greedily (slower), and compare what it wrote with the references:
        exact match in place, normalised match (SQuAD's: without case, punctuation and articles) and F1 on words.
    show
        Number of questions to print with their references and what the model wrote with the book closed; 0 must be
        among the shares. Implies --generate.
    endpoint
        Base URL of an OpenAI-compatible server (vLLM, llama.cpp, Ollama, ...) whose model is examined in place of the
        run's. Each question is asked with temperature 0; a key is taken from the environment variable OPENBOOK_API_KEY.
    endpoint_model
        Name of the model at the endpoint; may be left out if the server has one.
    timeout
        Seconds to wait for each answer of the endpoint.
    max_tokens
        Longest answer of the endpoint in tokens; by default as many as the longest completion has bytes, and at
        least 64.
    tasks
        Tasks of the lm-evaluation-harness for the run's model to do as well, with commas between them, such as
        hellaswag,arc_easy. Needs the extra lm-eval.
    chart
        Save the curve as PNG, SVG or HTML.
    seed
        Seed of the choice of open pieces.
    json
        One JSON object on standard output.
    """
    from openbook.api import Exam, Run, exam_endpoint

    check_path(chart)
    _check(run, open_, show, endpoint, {"--endpoint-model": endpoint_model, "--max-tokens": max_tokens})
    about: dict[str, Any] = {
        "shares": open_,
        "samples": samples,
        "seed": seed,
        "lengths": lengths,
        "codebook": str(codebook) if isinstance(codebook, Path) else codebook,
        "others": others,
        "bar": progress,
    }
    if endpoint is not None:
        if sections or tasks:
            raise InputError(f"{'--sections' if sections else '--tasks'} needs the model itself: leave out --endpoint")
        there: dict[str, Any] = {"model": endpoint_model, "timeout": timeout, "max_tokens": max_tokens}
        result: Exam[Any] = exam_endpoint(endpoint, data, run=run, **there, **about)
    else:
        assert run is not None
        names = [name.strip() for name in (tasks or "").split(",") if name.strip()]
        result = Run(run).exam(data, sections=sections, generate=generate or show > 0, tasks=names, **about)
    rows = [row.as_dict() for row in result.rows]
    by_section = [row.as_dict() for row in result.sections]
    written = [answer.as_dict() for answer in result.closed.written[:show]] if show else []
    if chart is not None:
        save(reliance_chart(rows), chart)
    if json:
        server = {"endpoint": result.endpoint, "model": result.model} if endpoint else {}
        extra = {"sections": by_section, "written": written, "tasks": list(result.tasks), "retention": result.retention}
        extra = {key: value for key, value in extra.items() if value}
        emit_json({"run": None if run is None else str(run), **server, "others": result.others, "rows": rows, **extra})
        return
    if endpoint is None:
        _show(rows)
    if rows[0]["f1"] is not None:
        _show_written(rows, "exact_match" if endpoint else "generated_match")
    if sections:
        _show_sections(by_section)
    if written:
        _show_answers(written)
    if result.tasks:
        _show_tasks(result.tasks)
    if result.retention:
        show_retention(result.retention)


def _check(run: Path | None, shares: list[float], show: int, endpoint: str | None, of_endpoint: dict[str, Any]) -> None:
    """Refuse options that do not go together."""
    if run is None and endpoint is None:
        raise InputError("nobody is examined: name a run, or a server with --endpoint")
    if endpoint is None and (given := [name for name, value in of_endpoint.items() if value is not None]):
        raise InputError(f"{given[0]} is about a server: name it with --endpoint")
    if show < 0 or (show and 0 not in shares):
        raise InputError("--show prints what is written with the book closed: give a number, and 0 among the --open")


def _show(rows: list[dict[str, Any]]) -> None:
    columns = {"book": "{book}", "open": "{open:.0%}", "pieces": "{pieces:.1f}", **RATES}
    print_table(rows, columns, f"{rows[0]['samples']} examples; intervals are clustered by example")


def _show_written(rows: list[dict[str, Any]], exact: str) -> None:
    columns = {
        "written": "{book}",
        "open": "{open:.0%}",
        "exact": f"{{{exact}:.3f}}",
        "normalised": "{normalised_match:.3f}",
        "95 % interval": "{normalised_low:.3f} to {normalised_high:.3f}",
        "F1": "{f1:.3f}",
        "95 % interval ": "{f1_low:.3f} to {f1_high:.3f}",
    }
    out.print()
    print_table(rows, columns, f"what the model writes by itself, of {rows[0]['samples']} examples")


def _show_answers(answers: list[dict[str, Any]]) -> None:
    columns = {"question, book closed": "{question}", "reference": "{reference}", "written": "{written}"}
    out.print()
    print_table(answers, columns)


def _show_tasks(rows: Sequence[Mapping[str, Any]]) -> None:
    def interval(row: Mapping[str, Any]) -> str:
        return "" if row["low"] is None else f"{row['low']:.3f} to {row['high']:.3f}"

    named = {name: f"{{{name}}}" for name in ("task", "metric", "filter")}
    out.print()
    print_table(rows, {**named, "value": "{value:.3f}", "95 % interval": interval})


def _show_sections(rows: list[dict[str, Any]]) -> None:
    out.print()
    columns = {"closed": "{section}", "pieces": "{pieces:.1f}", **RATES, "examples": "{samples}"}
    print_table(rows, columns, "one section closed, the others open")


def reliance_chart(rows: list[dict[str, Any]]) -> Chart:
    """Accuracy against the share of the book that is open, with the right book and with a wrong one.

    For a server, which shows no logits, it is F1 on the words of the answer.
    """
    from openbook.comparison.own_runs import reliance
    from openbook.comparison.records import ExamRow

    name = "Accuracy"
    if rows[0]["accuracy"] is None:
        name, measured = "F1", {"accuracy": "f1", "low": "f1_low", "high": "f1_high"}
        rows = [row | {key: row[own] for key, own in measured.items()} for row in rows]
    panel = reliance([ExamRow(**row) for row in rows], name)
    points = ", ".join(f"{y:.0%} at {x:.0%}" for x, y in panel.series[0].points)
    title = "How much the model leans on the book"
    return Chart("reliance", title, f"{name} by the share that is open: {points}.", [panel])
