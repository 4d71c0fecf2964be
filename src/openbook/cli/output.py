"""How a command answers that has measured something: tables or one JSON object, and its chart in a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cyclopts import Parameter

from openbook.base.console import out
from openbook.figures import Chart, Table, check_path
from openbook.figures.terminal import numbers_of, present

# of rows of an exam, which a command shows beside what each row is of
RATES = {
    "accuracy": "{accuracy:.3f}",
    "95 % interval": "{low:.3f} to {high:.3f}",
    "chance": "{chance:.3f}",
    "exact match": "{exact_match:.3f}",
}


@Parameter(name="*")
@dataclass(frozen=True)
class Output:
    """Where the answer goes; a command's own docstring may say more of `output.chart` and `output.json`.

    Parameters
    ----------
    chart
        Save the figure as .png, .svg or .html.
    json
        Print one JSON object instead of tables.
    """

    chart: Path | None = None
    json: bool = False

    def __post_init__(self) -> None:
        check_path(self.chart)

    def present(self, data: dict[str, Any], figures: Sequence[Chart | Table], numbers: bool = False) -> None:
        """Save the first chart, and print `data` or every table; with `numbers` also those that the charts show."""
        shown = [*figures, *(numbers_of(figures) if numbers else [])]
        present(shown, data, self.chart, self.json)


OUTPUT = Output()


def show_retention(kept: Mapping[str, Any]) -> None:
    """Print what the model has lost of what it could do before."""
    before, after = kept["new_books"]
    prompts = "" if kept["prompts_kl"] is None else f", {kept['prompts_kl']:.3f} on your prompts"
    out.print(
        f"retained of {kept['start']}: other prose is {kept['perplexity_ratio']:.2f} times as perplexing, KL "
        f"{kept['text_kl']:.3f} nats a token{prompts}; new books are read at {after:.2f} (before: {before:.2f})",
        markup=False,
    )
