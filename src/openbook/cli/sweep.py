"""`openbook sweep`: a grid of runs from one YAML file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from rich.markup import escape

from openbook.base.console import emit_json, out, print_cells, progress
from openbook.base.errors import InputError

EXIT_FAILED = 1  # a run failed; the table names it


def sweep(
    file: Path,
    *,
    out_folder: Annotated[Path, Parameter(name=["--out", "-o"])] = Path("runs/sweep"),
    executor: Literal["local", "slurm"] = "local",
    jobs: int = 1,
    option: Annotated[list[str], Parameter(consume_multiple=True)] = [],  # noqa: B006
    json: bool = False,
) -> int:
    """Train one run for every combination of some settings, and put the results into one table.

    The file has a `grid` with the values to try, and can have a `config` and `settings` that all runs share. Every run
    has a folder of its own. Repeat the command to continue: finished runs are skipped, and interrupted runs go on
    where they stopped. A run that fails is named in the table and does not stop the others.

        openbook sweep sweep.yaml --out runs/sweep --jobs 2

    Parameters
    ----------
    file
        YAML file with `grid` (setting -> list of values), and optionally `config` and `settings`.
    out_folder
        Folder of the sweep.
    executor
        Where the runs are trained: local (this machine) or slurm (a cluster).
    jobs
        Number of runs at the same time.
    option
        Setting of the cluster as key=value, for instance slurm_partition=gpu.
    json
        Print one JSON object on standard output.
    """
    from openbook.comparison.sweep import SweepConfig, members, run_sweep
    from openbook.training.settings import read_yaml, validated

    if not file.is_file():
        raise InputError(f"{file}: no such file; a sweep is a YAML file with a `grid`")
    config = validated(SweepConfig, read_yaml(file))
    options = dict(_key_and_value(setting) for setting in option)
    with progress("runs", len(members(config, out_folder))) as advance:
        rows = run_sweep(config, out_folder, executor, jobs, options, lambda row: advance(1, note=row["name"]))
    failed = [row for row in rows if row["status"] != "done"]
    if json:
        emit_json({"sweep": str(out_folder), "rows": rows, "failed": len(failed)})
    else:
        _show(rows, list(config.grid))
    return EXIT_FAILED if failed else 0


def _key_and_value(setting: str) -> tuple[str, Any]:
    key, equals, value = setting.partition("=")
    if not equals:
        raise InputError(f"--option {setting}: write it as key=value")
    return key, int(value) if value.isdigit() else value


def _show(rows: list[dict[str, Any]], keys: list[str]) -> None:
    cells = []
    for row in rows:
        numbers = (f"{row[name]:.3f}" if name in row else "" for name in ("closed_book", "open_book", "seconds"))
        cells.append([*(escape(str(row[key])) for key in keys), row["status"], *numbers])
    headers = [key.rpartition(".")[2] for key in keys]
    print_cells([*headers, "status", "closed book", "open book", "seconds"], cells)
    for row in rows:
        if "error" in row:
            out.print(f"{row['name']}: {row['error']}", style="red", markup=False)
