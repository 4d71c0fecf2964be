"""Stitching: in which layers a trained model keeps each section of the book.

A model is stitched from two checkpoints: layers L_start..L_end from the trained one, all else from the ICL-capable one
it was trained from (the paper's "Definition of a stitched model"; its K, not its d, is the last layer). One section is
taken out of the book, so that only the replaced layers can know it. A stitched model that answers well shows that its
window holds the section; the smallest such window says where.

Legend: B inputs, R rows of one input (the base model and all windows), K layers, V words.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from openbook.base.arrays import Floats
from openbook.base.errors import InputError
from openbook.base.intervals import clustered
from openbook.book.source import Source
from openbook.probes.layers import decoder_layers
from openbook.probes.stitching import Cost, Stitcher, Window, naive_evaluations, one_stitched
from openbook.probes.subject import Advance, Subject, no_progress
from openbook.training.batches import Item
from openbook.training.exam import answer_tokens, chance_level
from openbook.training.models import examined
from openbook.training.targets import gathered

REACHED = 0.9  # accuracy at which a window is said to hold a section
MEMORY = 256  # MiB of activations at once
# Of logits, by which windows that advance together may differ from one that is run alone: a few steps of the type.
TOLERANCE = {torch.float32: 1e-3, torch.float16: 1e-2, torch.bfloat16: 5e-2}
NOT_ARCHITECTURE = {"_name_or_path", "transformers_version", "dtype", "torch_dtype", "use_cache", "architectures"}


@dataclass(frozen=True)
class SectionMap:
    """Every stitched model with one section dropped. Layers of windows count from 1."""

    name: str
    map: Floats  # [K, K], accuracy: row L_start, column L_end; NaN below the diagonal
    loss: Floats  # [K, K], mean cross-entropy of an answer token
    smallest_window: Window | None
    smallest_windows: list[Window]  # all of the smallest length, the best first
    smallest_accuracy: list[float] | None  # of the best one, with its interval
    all_layers: float  # accuracy with all layers replaced
    reader: float  # accuracy of the ICL-capable model itself
    trained: float  # accuracy of the trained model itself, embedding and head included
    samples: int


@dataclass(frozen=True)
class StitchMap:
    """The maps of all sections for one pair of models. Cost is that of one input with one section dropped."""

    reader: str
    trained: str
    trained_on: int | None
    layers: int
    changed_layers: list[int]  # in which the models differ, from 1
    chance: float
    layer_evaluations: int
    layer_evaluations_one_by_one: int
    layer_calls: int
    sections: list[SectionMap]
    reached: float = REACHED


def stitch_map(
    base: Subject,
    trained: Subject,
    samples: int = 64,
    sections: Sequence[str] | None = None,
    memory: int = MEMORY,
    advance: Advance = no_progress,
) -> StitchMap:
    """The maps of a trained model, on its own examples, and the ICL-capable one it was trained from."""
    check_compatible(base.model, trained.model)
    numbers = trained.section_numbers(sections)
    stitcher = Stitcher(decoder_layers(base.model), decoder_layers(trained.model))
    dropped = [(trained.sections[number], trained.dropped(number, samples)) for number in numbers]
    maps, cost = [], Cost()
    for name, rows in dropped:
        section, cost = _section(base.model, trained, stitcher, name, rows, memory)
        maps.append(section)
        advance(1 / len(dropped))
    chance = chance_level(trained.source, dropped[0][1], trained.encoder)
    return assembled((base.name, trained.name), trained.trained_on, stitcher, chance, cost, maps)


def assembled(
    names: tuple[str, str],
    trained_on: int | None,
    stitcher: Stitcher,
    chance: float,
    cost: Cost,
    maps: list[SectionMap],
) -> StitchMap:
    """All that is known of a pair of models."""
    changed = [layer + 1 for layer in stitcher.changed]
    costs = (cost.evaluations, naive_evaluations(stitcher.layers), cost.calls)
    return StitchMap(*names, trained_on, stitcher.layers, changed, chance, *costs, maps)


def check_compatible(base: Any, trained: Any) -> None:
    """Refuse two models that are not the same architecture at the same size, naming the first difference."""
    kinds = [type(model).__name__ for model in (base, trained)]
    if type(base) is not type(trained):
        raise InputError(f"{kinds[0]} and {kinds[1]} cannot be stitched: give two models of one architecture")
    shapes = [{name: tuple(t.shape) for name, t in model.state_dict().items()} for model in (base, trained)]
    configs = [model.config.get_text_config().to_dict() for model in (base, trained)]
    for what, parts in (("shape", shapes), ("config", configs)):
        for name in [*parts[0], *parts[1]]:
            values = [part.get(name, "absent") for part in parts]
            if values[0] != values[1] and name not in NOT_ARCHITECTURE and not name.endswith("token_id"):
                raise InputError(
                    f"the checkpoints differ in {what}: {name} is {values[0]} in one and {values[1]} in the other"
                )
    if base.dtype != trained.dtype:
        raise InputError(f"one checkpoint is in {base.dtype} and the other in {trained.dtype}: load both alike")


def _section(
    base: Any, trained: Subject, stitcher: Stitcher, name: str, rows: list[Item], memory: int
) -> tuple[SectionMap, Cost]:
    """All windows on the examples of one section."""
    rows = sorted(rows, key=lambda item: len(item.ids))
    scores: dict[Window | None, list[Floats]] = defaultdict(list)
    own_scores: list[Floats] = []
    cost = Cost()
    batch_size, most_rows = room(base, rows, stitcher, memory)
    with torch.inference_mode(), examined(base), examined(trained.model):
        for start in range(0, len(rows), batch_size):
            batch = trained.batch(rows[start : start + batch_size])
            cost = Cost()
            for starts in stitcher.groups(most_rows):
                logits, windows, spent = stitched_logits(base, stitcher, batch, starts)
                is_first = starts[0] == stitcher.changed[0]
                if start == 0 and is_first:
                    check_against_one(base, stitcher, batch, logits[1 + windows.index(_widest(stitcher))])
                cost += spent
                for window, score in zip([None, *windows], judge(logits, batch, trained.source), strict=True):
                    if window is not None or is_first:  # every group brings the base model's own row
                        scores[window].append(score)
            own_scores += list(judge(answer_logits(trained.model, batch)[None], batch, trained.source))
    by_window = {window: np.concatenate(parts, 1) for window, parts in scores.items()}
    return section_map(name, stitcher, by_window, np.concatenate(own_scores, 1)), cost


def _widest(stitcher: Stitcher) -> Window:
    return stitcher.changed[0], stitcher.changed[-1]


def room(model: Any, rows: Sequence[Item], stitcher: Stitcher, memory: int) -> tuple[int, int]:
    """How many inputs at once, and how many rows for each, fit into `memory` MiB of activations.

    A row holds its hidden states (twice, while they are joined), one layer's work on them, and logits of its answer.
    Where one input is too much, its windows are taken in groups.
    """
    shape = model.config.get_text_config()
    tokens = max(len(item.ids) for item in rows)
    answers = max(len(answer_tokens(item)) for item in rows)
    layer = 8 * shape.hidden_size + 3 * (getattr(shape, "intermediate_size", None) or 4 * shape.hidden_size)
    row = 4 * (tokens * layer + 2 * answers * shape.vocab_size)
    fit = max(1, memory * 2**20 // row)
    return max(1, fit // stitcher.rows(stitcher.changed)), fit


def stitched_logits(
    base: Any, stitcher: Stitcher, batch: dict[str, Tensor], starts: Sequence[int]
) -> tuple[Tensor, list[Window], Cost]:
    """Logits in front of every answer token, for the base model and every window of these starts: [R, answers, V]."""
    rows = stitcher.rows(starts)
    with stitcher.stitching(starts) as state:
        try:
            logits = answer_logits(base, batch, rows)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:  # something that goes with the states has a row for each input, as ALiBi's bias
            raise InputError(f"{type(base).__name__}: its windows cannot be run together ({error})") from None
    return logits.reshape(rows, -1, logits.shape[-1]), state.windows, state.cost


def answer_logits(model: Any, batch: dict[str, Tensor], rows: int = 1) -> Tensor:
    """Logits in front of every answer token of the batch, `rows` times over: [rows · answers, V]."""
    row, place = batch["answers"][:, 1:].nonzero(as_tuple=True)
    size, tokens = batch["input_ids"].shape
    index = (torch.arange(rows, device=row.device)[:, None] * size + row) * tokens + place
    with gathered(model, index.reshape(-1)):
        return model(input_ids=batch["input_ids"], use_cache=False).logits[0]


def check_against_one(base: Any, stitcher: Stitcher, batch: dict[str, Tensor], logits: Tensor) -> None:
    """Hold the widest window against the same model run alone, once for every map.

    An architecture that hands something from layer to layer beside the hidden states would fail here, not quietly.
    """
    with one_stitched(stitcher.base, stitcher.trained, _widest(stitcher)):
        alone = answer_logits(base, batch)
    within = TOLERANCE.get(base.dtype, 1e-3)
    if not torch.allclose(alone.float(), logits.float(), rtol=within, atol=within * float(alone.abs().max())):
        raise InputError(
            f"{type(base).__name__} hands on more than hidden states from layer to layer: its windows cannot be run "
            "together"
        )


def judge(logits: Tensor, batch: dict[str, Tensor], source: Source) -> Floats:
    """The share of right answer tokens and the loss of each example, for every row: [R, 2, B]."""
    answers = batch["answers"][:, 1:]
    targets = batch["input_ids"][:, 1:][answers].repeat(len(logits))
    parts = source.score(logits.argmax(-1).flatten().cpu().numpy(), targets.cpu().numpy())
    right = torch.from_numpy(parts.mean(-1)).reshape(logits.shape[:2])
    loss = functional.cross_entropy(logits.float().flatten(0, 1), targets, reduction="none").reshape(right.shape)
    owner = answers.nonzero(as_tuple=True)[0].cpu()
    share = functional.one_hot(owner, len(answers)).double().T.contiguous()  # [B, answer tokens]
    share /= share.sum(1, keepdim=True)
    return torch.stack([right @ share.T, loss.double().cpu() @ share.T], 1).numpy()


def section_map(name: str, stitcher: Stitcher, scores: dict[Window | None, Floats], own_scores: Floats) -> SectionMap:
    """The map of a section from accuracy and loss of every example [2, N], by window and of the trained model itself.

    A window is looked up by the one that gives the same model; None is the base model.
    """
    cells = np.full((4, stitcher.layers, stitcher.layers), np.nan)
    values = {window: (*clustered(score[0]), float(score[1].mean())) for window, score in scores.items()}
    for first, last in itertools.combinations_with_replacement(range(stitcher.layers), 2):
        cells[:, first, last] = values[stitcher.canonical((first, last))]
    accuracy, low, high, loss = cells
    smallest = smallest_windows(accuracy)
    best = [float(bound[smallest[0][0] - 1, smallest[0][1] - 1]) for bound in (accuracy, low, high) if smallest]
    return SectionMap(
        name=name,
        map=accuracy,
        loss=loss,
        smallest_window=smallest[0] if smallest else None,
        smallest_windows=smallest,
        smallest_accuracy=best or None,
        all_layers=float(accuracy[0, -1]),
        reader=values[None][0],
        trained=float(own_scores[0].mean()),
        samples=own_scores.shape[1],
    )


def smallest_windows(accuracy: Floats, reached: float = REACHED) -> list[Window]:
    """The shortest windows that reach an accuracy, all of that length, best first; layers from 1."""
    layers = len(accuracy)
    for length in range(layers):
        windows = [(s, s + length) for s in range(layers - length) if accuracy[s, s + length] >= reached]
        if windows:
            windows.sort(key=lambda window: -accuracy[window])
            return [(start + 1, end + 1) for start, end in windows]
    return []
