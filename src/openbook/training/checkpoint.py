"""Checkpoints: everything a run needs to go on bit for bit, as safetensors and JSON. Nothing is ever unpickled.

    checkpoints/step-00000120/
        model.safetensors      weights
        optimizer.safetensors  moments of the optimiser, torch's generator state
        state.json             step, scheduler, parameter groups, counters of the log
        manifest.json          SHA-256 of the files above

A checkpoint is written into a folder beside its place, synced, hashed and renamed, so under its own name it is whole or
not there. A run goes on from the newest checkpoint whose hashes hold; damaged ones are passed over and reported.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from openbook.base.errors import InputError, MachineError
from openbook.base.files import file_hash, written_aside

KEPT = 2  # the newest checkpoint, and the one before it in case the newest is damaged
SPARE = 1.1  # free space that must be there, as a multiple of the size of a checkpoint
_RNG = "rng."


@dataclass(frozen=True)
class Checkpoint:
    """A whole checkpoint to go on from, and what was wrong with newer ones."""

    folder: Path
    step: int
    passed_over: list[str] = field(default_factory=list)


def save(
    folder: Path,
    step: int,
    model: Any,
    optimizer: Any,
    scheduler: Any,
    extra: dict[str, Any],
    generators: dict[str, torch.Tensor] | None = None,
    kept: int = KEPT,
    protected: int | None = None,
) -> Path:
    """Write the checkpoint of a step under `folder`, then remove all but the newest `kept` and the `protected` step.

    `generators` are the states of every process's generators, one row each; this process's own if not given.
    """
    weights = _weights(model)
    moments, plain = _split(optimizer.state_dict())
    if generators is None:
        generators = {name: state[None] for name, state in generator_states().items()}
    moments |= {_RNG + name: state.contiguous() for name, state in generators.items()}
    folder.mkdir(parents=True, exist_ok=True)
    _check_space(folder, sum(t.numel() * t.element_size() for t in [*weights.values(), *moments.values()]))
    target = folder / name_of(step)
    with written_aside(target) as aside:
        aside.mkdir()
        save_file(weights, aside / "model.safetensors")
        save_file(moments, aside / "optimizer.safetensors")
        rates = {} if scheduler is None else scheduler.state_dict()
        state = {"step": step, "optimizer": plain, "scheduler": rates, **extra}
        (aside / "state.json").write_text(json.dumps(state))
        hashes = {path.name: file_hash(path) for path in sorted(aside.iterdir())}
        (aside / "manifest.json").write_text(json.dumps(hashes))
    for old in sorted(_complete(folder))[:-kept]:
        if protected is None or old.name != name_of(protected):
            shutil.rmtree(old)
    return target


def name_of(step: int) -> str:
    """The name of a step's checkpoint."""
    return f"step-{step:08d}"


def generator_states() -> dict[str, torch.Tensor]:
    """The states of torch's generators in this process."""
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()
    return states


def _weights(model: Any) -> dict[str, torch.Tensor]:
    """The state dict with tied tensors kept once; loading ties them again."""
    first: dict[tuple[int, torch.Size], str] = {}
    state = model.state_dict()
    for name, tensor in state.items():
        first.setdefault((tensor.data_ptr(), tensor.shape), name)
    return {name: state[name].contiguous() for name in first.values()}


def _split(state: dict[str, Any]) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """An optimiser's state as tensors, and the rest of it as JSON."""
    tensors: dict[str, torch.Tensor] = {}
    rest: dict[str, dict[str, Any]] = {}
    for parameter, entries in state["state"].items():
        for name, value in entries.items():
            if isinstance(value, torch.Tensor):
                tensors[f"{parameter}.{name}"] = value.contiguous()
            else:
                rest.setdefault(str(parameter), {})[name] = value
    return tensors, {"groups": state["param_groups"], "rest": rest}


def _joined(tensors: dict[str, torch.Tensor], plain: dict[str, Any]) -> dict[str, Any]:
    """The inverse of `_split`."""
    state: dict[int, dict[str, Any]] = {}
    for key, tensor in tensors.items():
        if not key.startswith(_RNG):
            parameter, _, name = key.partition(".")
            state.setdefault(int(parameter), {})[name] = tensor
    for parameter, entries in plain["rest"].items():
        state.setdefault(int(parameter), {}).update(entries)
    return {"state": state, "param_groups": plain["groups"]}


def _check_space(folder: Path, size: int) -> None:
    """Refuse to write a checkpoint of this many bytes where there is no room for it."""
    free = shutil.disk_usage(folder).free
    if free < size * SPARE:
        raise MachineError(
            f"no room for a checkpoint in {folder}: it takes {size / 2**20:.1f} MiB, {free / 2**20:.1f} MiB are free. "
            "The one before it is intact; make room and go on with --resume"
        )


def _complete(folder: Path) -> Iterator[Path]:
    """The checkpoints in a folder that were written to their end; what is in them may be damaged since."""
    return (path for path in folder.glob("step-*") if path.is_dir() and path.name.removeprefix("step-").isdigit())


def unfinished(folder: Path) -> list[str]:
    """Checkpoints that a process was still writing when it was killed. They are never used."""
    return sorted(path.name for path in folder.glob(".step-*.writing"))


def at(path: Path) -> Checkpoint:
    """The checkpoint in a folder; a damaged one is refused."""
    if (problem := _damage(path)) is not None:
        raise InputError(f"{path} is not a whole checkpoint: {problem}")
    return Checkpoint(path, int(path.name.removeprefix("step-")))


def newest(folder: Path) -> Checkpoint | None:
    """The newest checkpoint that is whole; None if there are no checkpoints at all."""
    passed_over: list[str] = []
    for path in sorted(_complete(folder), reverse=True):
        if (problem := _damage(path)) is None:
            return Checkpoint(path, int(path.name.removeprefix("step-")), passed_over)
        passed_over.append(f"{path.name}: {problem}")
    if passed_over:
        raise InputError(f"no checkpoint in {folder} is whole: {'; '.join(passed_over)}")
    return None


def _damage(path: Path) -> str | None:
    """What is wrong with a checkpoint, if anything is."""
    try:
        hashes = json.loads((path / "manifest.json").read_text())
        for name, expected in hashes.items():
            if file_hash(path / name) != expected:
                return f"{name} is damaged (its hash differs)"
    except (OSError, ValueError, AttributeError) as error:
        return f"unreadable ({error})"
    missing = {"model.safetensors", "optimizer.safetensors", "state.json"} - set(hashes)
    return f"{', '.join(sorted(missing))} missing" if missing else None


def read_state(start: Checkpoint) -> dict[str, Any]:
    """The step, the scheduler, the counters and whatever else is not a tensor."""
    return json.loads((start.folder / "state.json").read_text())


def check_fits(start: Checkpoint, model: Any) -> None:
    """Refuse a checkpoint of a model with other weights or other shapes of them."""
    own = {name: list(tensor.shape) for name, tensor in _weights(model).items()}
    with safe_open(start.folder / "model.safetensors", "pt") as file:
        saved = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118 - not a dictionary
    for name in [*saved, *own]:
        there, here = saved.get(name, "not there"), own.get(name, "not there")
        if there != here:
            raise InputError(
                f"{start.folder} is of another model: {name} was {there} and is {here}; go on with the model that the "
                "run began with"
            )


def load_weights(start: Checkpoint, model: Any) -> None:
    """Put the checkpoint's weights into the model; tied weights follow."""
    check_fits(start, model)
    model.load_state_dict(load_file(start.folder / "model.safetensors"), strict=False)  # tied weights are saved once


def load_optimizer(start: Checkpoint, optimizer: Any, scheduler: Any = None) -> None:
    """Put the checkpoint's moments into the optimiser and, if there is a scheduler, its state into that."""
    state = read_state(start)
    optimizer.load_state_dict(_joined(load_file(start.folder / "optimizer.safetensors"), state["optimizer"]))
    if scheduler is not None:
        scheduler.load_state_dict(state["scheduler"])


def processes_of(start: Checkpoint) -> int:
    """How many processes trained together when the checkpoint was written."""
    with safe_open(start.folder / "optimizer.safetensors", "pt") as file:
        return file.get_slice(f"{_RNG}cpu").get_shape()[0]


def load_generators(start: Checkpoint, process: int = 0) -> None:
    """Restore the random generators of a process; one that was not there then gets the state of another."""
    with safe_open(start.folder / "optimizer.safetensors", "pt") as file:
        for name in file.keys():  # noqa: SIM118 - not a dictionary
            if name.startswith(_RNG):
                states = file.get_tensor(name)
                state = states[process % len(states)].clone()
                torch.set_rng_state(state) if name == f"{_RNG}cpu" else torch.cuda.set_rng_state(state)
