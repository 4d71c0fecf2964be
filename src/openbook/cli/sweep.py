"""`openbook sweep`: a grid of runs from one YAML file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from rich.markup import escape
from rich.table import Table

from openbook.base.console import emit_json, out, progress

EXIT_FAILED = 1  # some run failed; the table says which


def sweep(
    file: Path,
    *,
    out_folder: Annotated[Path, Parameter(name=["--out", "-o"])] = Path("runs/sweep"),
    executor: Literal["local", "slurm"] = "local",
    jobs: int = 1,
    option: Annotated[list[str], Parameter(negative="", consume_multiple=True)] = [],  # noqa: B006
    json: bool = False,
) -> int:
    """Carry out a grid of runs, and put their results into one table.

    The file names a config, settings over it, and a grid of values; every combination is a run in a folder of its own.
    What is finished is skipped, what was interrupted goes on where it was, and a failure is named and stops nothing.

        openbook sweep sweep.yaml --out runs/sweep --jobs 2

    Parameters
    ----------
    file
        YAML with `grid` (setting -> list of values), and if wanted `config` and `settings`.
    out_folder
        Folder of the sweep.
    executor
        local (processes on this machine) or slurm.
    jobs
        Runs at a time.
    option
        A setting for the cluster as key=value, for instance slurm_partition=gpu.
    json
        One JSON object on standard output.
    """
    from openbook.base.errors import InputError
    from openbook.comparison.sweep import SweepConfig, members, run_sweep
    from openbook.training.settings import read_yaml, validated

    if not file.is_file():
        raise InputError(f"{file}: no such file; a sweep is a YAML file with a `grid`")
    config = validated(SweepConfig, read_yaml(file))
    options: dict[str, Any] = {}
    for setting in option:
        key, equals, value = setting.partition("=")
        if not equals:
            raise InputError(f"'{setting}' is not a setting: write it as key=value")
        options[key] = int(value) if value.isdigit() else value
    with progress("runs", len(members(config, out_folder))) as advance:
        rows = run_sweep(config, out_folder, executor, jobs, options, lambda row: advance(1, note=row["name"]))
    failed = [row for row in rows if row["status"] != "done"]
    if json:
        emit_json({"sweep": str(out_folder), "rows": rows, "failed": len(failed)})
    else:
        _show(rows, list(config.grid))
    return EXIT_FAILED if failed else 0


def _show(rows: list[dict[str, Any]], keys: list[str]) -> None:
    headers = [key.rpartition(".")[2] for key in keys]
    table = Table(*headers, "status", "closed book", "open book", "seconds", box=None, header_style="bold")
    for row in rows:
        figures = [f"{row[name]:.3f}" if name in row else "" for name in ("closed_book", "open_book", "seconds")]
        table.add_row(*(escape(str(row[key])) for key in keys), row["status"], *figures)
    out.print(table)
    for row in rows:
        if "error" in row:
            out.print(f"{row['name']}: {row['error']}", style="red", markup=False)
