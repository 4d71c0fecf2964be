"""`openbook models`: the pre-trained models that openbook knows by name."""

from __future__ import annotations

from typing import Any

from openbook.base.console import emit_json, out, print_table


def models(*, fetch: str | None = None, remove: str | None = None, json: bool = False) -> None:
    """List the models that openbook knows by name and the GGUF files it has converted.

    A model is downloaded and converted when it is first used, or now with `--fetch`. Models are kept in the folder
    `models` of $OPENBOOK_CACHE, or of ~/.cache/openbook. Any other model goes by its folder, by the path of its GGUF
    file, or by its name on the Hugging Face hub, and readers that come with openbook by theirs.

        openbook models
        openbook models --fetch smollm2-135m

    Parameters
    ----------
    fetch
        Download and convert this model, or convert this GGUF file, if that has not been done.
    remove
        Remove the converted copy of this model.
    json
        Print one JSON object on standard output.
    """
    from openbook.training import store

    if fetch is not None:
        store.check_known(fetch)
        store.stored_folder(fetch)
    freed = store.removed(remove) if remove is not None else 0
    rows = store.listed()
    if json:
        emit_json({"models": rows})
        return
    columns: dict[str, Any] = {
        "model": "{name}",
        "size": _size,
        "licence": "{licence}",
        "from": "{source}",
        "where": "{path}",
    }
    shown = [row | {"licence": row["licence"] or "not stated", "path": row["path"] or "not here yet"} for row in rows]
    print_table(shown, columns)
    if remove is not None:
        out.print(f"{remove}: {freed / 1e6:,.0f} MB freed", style="dim", markup=False)


def _size(row: dict[str, Any]) -> str:
    return f"{row['bytes'] / 1e6:,.0f} MB" if row["ready"] else f"{row['download'] / 1e6:,.0f} MB to download"
