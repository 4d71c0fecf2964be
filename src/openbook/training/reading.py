"""Learning to read: how a student becomes ICL-capable from nothing.

One block of two layers learns to look up one level, then the same block is looped over more and more levels, and in the
end its loops are untied into 2d layers: an ordinary Llama. After pass i the slots of level i must know s_{i+1} (deep
supervision), and after the first of its two layers they must know the shifted bigram that is to be looked up. Every
example has a fresh codebook, so nothing can be remembered. In the last stage half of the examples have pages missing,
so that the reader learns what to do with a rule that is not there: pass on what it has, undisturbed.

The stages (levels, share of unused rules, lengths) are passed when accuracy does; nothing is tuned by hand for a size.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from openbook.book.shelf import Bank
from openbook.book.translations import Translations
from openbook.curriculum import Curriculum, Plan, Schedule
from openbook.errors import InputError
from openbook.randomness import keyed_words
from openbook.training.batches import Collator, PositionDataset
from openbook.training.encode import Encoder
from openbook.training.models import make_tokenizer
from openbook.training.optimizers import muon_adamw
from openbook.training.student import Geometry, StudentConfig, StudentForCausalLM, student_config

MANY = 2**40  # codebooks to draw from; a run sees each of them at most once


@dataclass(frozen=True)
class ReadingConfig:
    """Settings of the reading course; the defaults serve all sizes that were tried."""

    batch_size: int = 64
    matrix_lr: float = 0.02
    lr: float = 3e-3
    warmup: int = 20  # steps
    gate: float = 0.93  # running accuracy that ends a stage
    capable: float = 0.98  # accuracy on fresh codebooks below which a student is not called capable
    others: float = 0.25  # share of the unused rules that is shown
    missing: float = 0.5  # share of the examples of the last stage that have pages missing
    final_steps: int = 60  # over which the learning rate goes to zero
    width: int = 64
    heads: int = 2
    head: int = 32
    mlp: int = 128
    lag: bool = True  # each level half a bigram to the right of the one before
    most_steps: int = 6000
    window: int = 5  # steps over which accuracy is averaged


@dataclass(frozen=True)
class Stage:
    """So many levels, this share of unused rules, strings of these lengths; pages missing or not."""

    levels: int
    others: float
    lengths: tuple[int, int]
    missing: bool = False


def stages(depth: int, lengths: tuple[int, int], config: ReadingConfig) -> list[Stage]:
    """The course for a depth: one level without and with distraction, then 2, 3, all of them, then the full lengths."""
    short = (8, max(16, min(20, lengths[1])))
    grown = sorted({k for k in (2, 3) if k < depth} | ({depth} if depth > 1 else set()))
    return [
        Stage(1, 0.0, short),
        Stage(1, config.others, short),
        *(Stage(k, config.others, short) for k in grown),
        Stage(depth, config.others, lengths, missing=True),
    ]


@dataclass(frozen=True)
class ReadingBatch:
    """Tokens, where the slots of each level are, and the characters they must know."""

    ids: Tensor  # [B, T]
    slots: Tensor  # [B, k, P] places in the sequence
    wanted: Tensor  # [B, k, P, 2] characters of s_{i+1}
    shifted: Tensor  # [B, k, P, 2] characters of the bigram that is looked up
    complete: Tensor  # [B]: no page is missing


class Course:
    """Batches of the reading course for MLT(depth, chars): step -> batch, a pure function of the seed."""

    def __init__(self, depth: int, chars: int, seed: int) -> None:
        self.depth, self.chars, self.seed = depth, chars, seed
        self.tokenizer = make_tokenizer(Translations(depth, chars, 1, text="composite"))
        self._encoders: dict[tuple[int, tuple[int, int]], tuple[Translations, Encoder]] = {}
        self._collator = Collator(self.tokenizer.pad_token_id, 2**30)

    def _source(self, levels: int, length: int) -> tuple[Translations, Encoder]:
        key = (levels, (length, length))
        if key not in self._encoders:
            source = Translations(levels, self.chars, MANY, None, (length, length), self.seed, "composite", bank=Bank())
            self._encoders[key] = source, Encoder(self.tokenizer, source.bank, chat=False)
        return self._encoders[key]

    def batch(self, stage: Stage, step: int, size: int, missing: float) -> ReadingBatch:
        """The batch of a step: strings of one length, each with its own codebook and its own first level."""
        drawn = keyed_words(self.seed, "reading").words(step, 2 + size)
        shortest, longest = stage.lengths
        length = shortest + 2 * int(drawn[0] % np.uint64((longest - shortest) // 2 + 1))
        whole = size - int(missing * size) if stage.missing else size
        numbers = step * size + np.arange(size, dtype=np.int64)
        rows = self._rows(stage, length, numbers[:whole], 0.0)
        if whole < size:
            rows += self._rows(stage, length, numbers[whole:], 1.0)
        first_level = (drawn[2:] % np.uint64(self.depth - stage.levels + 1)).astype(np.int64)
        return self._packed(stage.levels, length, numbers, rows, first_level, whole)

    def _rows(self, stage: Stage, length: int, numbers: np.ndarray, most: float) -> list[np.ndarray]:
        """Token rows: <BOOK>, the shown rules, the given string; at most this share of the pages missing.

        How many are missing is uniform between none and all: the drop rate rises with progress and the positions are
        spread evenly over it.
        """
        source, encoder = self._source(stage.levels, length)
        curriculum = Curriculum(
            candidates="needed", others=stage.others, drop=Schedule(((0.0, 0.0), (1.0, most))), spread="coin"
        )
        plan = Plan(source, curriculum, seed=self.seed)
        spread = (numbers * 0x9E3779B97F) % MANY if most else numbers  # multiplication by an odd number: no repeats
        items = PositionDataset(plan, encoder).__getitems__(spread.tolist())
        return [item.ids for item in items]

    def _packed(
        self, levels: int, length: int, numbers: np.ndarray, rows: list[np.ndarray], first: np.ndarray, whole: int
    ) -> ReadingBatch:
        n, pairs, size = self.chars, length // 2, self.chars**2
        config = student_config(self.depth, n)
        pad = config.chars**2 * (config.depth + 1)
        think = pad + 3
        slots = levels * pairs
        heads = [row[: len(row) - slots - 1] for row in rows]  # without thoughts and answer
        longest = max(map(len, heads)) + slots
        ids = np.full((len(rows), longest), pad, np.int64)
        starts = np.array([len(head) for head in heads])
        for b, head in enumerate(heads):
            is_rule, is_given = head >= config.first_rule, (head >= size) & (head < size * (self.depth + 1))
            ids[b, : len(head)] = head + first[b] * (is_rule * size * size + is_given * size)
            ids[b, len(head) : len(head) + slots] = think
        spread = (numbers[whole:] * 0x9E3779B97F) % MANY
        examples = np.concatenate([numbers[:whole], spread])
        translation, _ = self._source(levels, length)[0].translations(examples)
        strings = translation.strings[:, :, :length].astype(np.int64)
        wanted = strings[:, 1:].reshape(len(rows), levels, pairs, 2)
        shifted = np.roll(strings[:, :-1], -1, axis=-1).reshape(len(rows), levels, pairs, 2)
        places = starts[:, None] + np.arange(slots)
        return ReadingBatch(
            ids=torch.from_numpy(ids),
            slots=torch.from_numpy(places.reshape(len(rows), levels, pairs)),
            wanted=torch.from_numpy(wanted),
            shifted=torch.from_numpy(shifted),
            complete=torch.arange(len(rows)) < whole,
        )


def passes(model: StudentForCausalLM, batch: ReadingBatch) -> tuple[list[Tensor], list[Tensor]]:
    """Character logits after each pass of the two-layer block, and after its first layer: [B, P, 2, n] each.

    Padding is on the right, so a causal mask is all that is needed and none is passed on.
    """
    inner, head = model.model, model.lm_head
    hidden = inner.embed_tokens(batch.ids)
    rotary = inner.rotary_emb(hidden, position_ids=Geometry(batch.ids, model.config).positions)
    rows = torch.arange(len(batch.ids))[:, None]
    known: list[Tensor] = []
    looked_up: list[Tensor] = []
    for level in range(batch.slots.shape[1]):
        slots = batch.slots[:, level]
        for number, role, results in ((0, 0, looked_up), (1, 2, known)):
            hidden = inner.layers[2 * level + number](hidden, position_embeddings=rotary)
            results.append(head.characters(inner.norm(hidden[rows, slots]), role))
    return known, looked_up


def looped(config: StudentConfig, seed: int) -> StudentForCausalLM:
    """A student whose levels share one block of two layers."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = StudentForCausalLM(config)
    block = list(model.model.layers[:2])
    model.model.layers = nn.ModuleList(block * config.depth)
    return model


def untied(model: StudentForCausalLM) -> StudentForCausalLM:
    """The same function with 2d layers of their own: an ordinary Llama."""
    apart = copy.deepcopy(model)
    apart.model.layers = nn.ModuleList(copy.deepcopy(layer) for layer in model.model.layers)
    for number, layer in enumerate(apart.model.layers):
        layer.self_attn.layer_idx = number
    return apart


def accuracy(known: list[Tensor], batch: ReadingBatch, only_complete: bool = True) -> list[float]:
    """Share of right characters at each level."""
    rows = batch.complete if only_complete else torch.ones_like(batch.complete)
    wanted = batch.wanted[rows]
    return [float((k[rows].argmax(-1) == wanted[:, i]).float().mean()) for i, k in enumerate(known)]


@dataclass
class Reader:
    """What the course leaves: the student, whether it can read, and how it went."""

    model: StudentForCausalLM
    tokenizer: Any
    capable: bool
    accuracy: float
    steps: int
    samples: int
    seconds: float
    log: list[dict[str, Any]]


def learn_to_read(
    depth: int,
    chars: int,
    lengths: tuple[int, int] = (20, 40),
    seed: int = 0,
    config: ReadingConfig | None = None,
    report: Callable[..., None] = lambda **_: None,
) -> Reader:
    """Take the course. `report` is told of every tenth step: stage, step, loss and accuracy at each level."""
    settings = config or ReadingConfig()
    course = Course(depth, chars, seed)
    shape = student_config(depth, chars, settings.width, settings.heads, settings.head, settings.mlp, lag=settings.lag)
    model = looped(shape, seed)
    optimizer = muon_adamw(model, settings.matrix_lr, settings.lr)
    peak = [group["lr"] for group in optimizer.param_groups]
    plan = stages(depth, lengths, settings)
    stage, step, samples, ending = 0, 0, 0, 0
    recent: list[float] = []
    log: list[dict[str, Any]] = []
    started = time.perf_counter()
    while step < settings.most_steps and ending < settings.final_steps:
        here = plan[stage]
        size = settings.batch_size if here.levels < 2 else settings.batch_size // 2
        batch = course.batch(here, step, size, settings.missing)
        known, looked_up = passes(model, batch)
        loss = _loss(known, batch.wanted) + _loss(looked_up, batch.shifted)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        rate = min(1.0, (step + 1) / settings.warmup) * (1.0 if here.levels < 3 else 0.5)
        if ending or (stage == len(plan) - 1 and _mean(recent, settings.window) > settings.gate + 0.03):
            ending += 1
            rate *= 1 - ending / settings.final_steps
        for group, top in zip(optimizer.param_groups, peak, strict=True):
            group["lr"] = top * rate
        optimizer.step()
        step, samples = step + 1, samples + size
        by_level = accuracy(known, batch)
        recent.append(by_level[-1])
        if step % 10 == 0 or ending == settings.final_steps:
            log.append({"step": step, "stage": stage + 1, "loss": float(loss.detach()), "accuracy": by_level})
            report(**log[-1], stages=len(plan), levels=here.levels)
        if stage < len(plan) - 1 and _mean(recent, settings.window) > settings.gate:
            stage, recent = stage + 1, []
    reader = untied(model)
    score = read_accuracy(reader, course, lengths, settings)
    seconds = time.perf_counter() - started
    capable = score >= settings.capable
    return Reader(reader, course.tokenizer, capable, score, step, samples, seconds, log)


def _loss(logits: list[Tensor], wanted: Tensor) -> Tensor:
    """Cross-entropy of characters, averaged over levels."""
    n = logits[0].shape[-1]
    each = [nn.functional.cross_entropy(x.reshape(-1, n), wanted[:, i].reshape(-1)) for i, x in enumerate(logits)]
    return torch.stack(each).mean()


def _mean(values: list[float], window: int) -> float:
    return float(np.mean(values[-window:])) if len(values) >= window else 0.0


@torch.no_grad()
def read_accuracy(
    model: StudentForCausalLM, course: Course, lengths: tuple[int, int], config: ReadingConfig, batches: int = 8
) -> float:
    """Silent accuracy on fresh codebooks that the course never used, full context with unused rules among them."""
    stage = Stage(course.depth, config.others, lengths)
    results = []
    for number in range(batches):
        batch = course.batch(stage, 2**30 + number, 64, 0.0)
        known, _ = passes(model, batch)
        results.append(accuracy(known, batch)[-1])
    return float(np.mean(results))


def check_capable(reader: Reader, config: ReadingConfig) -> None:
    """Refuse to pass off as a reader what cannot read."""
    if not reader.capable:
        raise InputError(
            f"after {reader.steps} steps the student reads with accuracy {reader.accuracy:.3f}, below "
            f"{config.capable}: it is not ICL-capable. Try another seed, or more steps"
        )
