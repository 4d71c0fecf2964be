"""Learning to read: how a student becomes ICL-capable from nothing.

One block of two layers learns to look up one level, then the same block is looped over more and more levels, and in the
end its loops are untied into 2d layers: an ordinary Llama. After pass i the slots of level i must know s_{i+1} (deep
supervision), and after the first of its two layers they must know the shifted bigram that is to be looked up. Every
example has a fresh codebook, so nothing can be remembered. Half of the examples have pages missing, so that the reader
learns to know what it does not know: a rule that is not there leaves all right sides open, and what follows from each
of them. Only then does the loss of an answer say what the missing rule must have been, level by level, which is what
context-enhanced learning lives on afterwards.

Where rules are text, a word on the right of a rule must know the left side after the first layer, and the answer is
told from all other words. There is no loss on the words of the book: with it the second level was still at chance after
380 steps, without it it was learned after 270. Perhaps a block that must tell what follows a rule cannot pass it on.

The stages (levels, share of unused rules, lengths) are passed when accuracy does; nothing is tuned by hand for a size.

The wrap-around is one bigram of a string, and from the second level on there are several first bigrams it could begin
with. A reader can tell them apart by level or, for the few lengths it has seen, by distance; the latter is a trap that
one of four courses on five levels did not get out of. So where errors of many levels add up, the last bigram counts for
more (`ends`), two levels are learned at all lengths, and a stage is not passed before it is right.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from openbook.book.shelf import Bank
from openbook.book.translations import Translations
from openbook.curriculum import Curriculum, Plan
from openbook.randomness import keyed_words
from openbook.schedule import Schedule
from openbook.training.batches import Collator, PositionDataset
from openbook.training.config import ReadingConfig
from openbook.training.encode import Encoder
from openbook.training.models import make_tokenizer
from openbook.training.optimizers import muon_adamw
from openbook.training.student import StudentForCausalLM
from openbook.training.student_words import Geometry, StudentConfig, student_config

EMPTY = 0.1  # of the examples with pages missing: those with whole sections, or all of the book, missing
MANY = 2**40  # codebooks to draw from; a run sees each of them at most once


@dataclass(frozen=True)
class Stage:
    """So many levels, this share of unused rules, strings of these lengths; pages missing or not; and what the last
    bigram of a string weighs beside the mean of all."""

    levels: int
    others: float
    lengths: tuple[int, int]
    missing: bool = False
    ends: float = 0.0


def stages(depth: int, lengths: tuple[int, int], config: ReadingConfig) -> list[Stage]:
    """The course for a depth: one level without and with distraction, then 2, 3, all of them, then the full lengths."""
    short = (8, max(16, min(20, lengths[1])))
    grown = sorted({k for k in (2, 3) if k < depth} | ({depth} if depth > 1 else set()))
    ends = config.ends if config.ends is not None else 0.5 if depth > 3 else 0.0
    every = (short[0], max(short[1], lengths[1]))
    return [
        Stage(1, 0.0, short, ends=ends),
        *(Stage(k, config.others, every if k == 2 and ends else short, missing=True, ends=ends) for k in (1, *grown)),
        Stage(depth, config.others, lengths, missing=True, ends=ends),
    ]


@dataclass(frozen=True)
class ReadingBatch:
    """Tokens, where the slots of each level are, and the characters they must know."""

    ids: Tensor  # [B, T]
    slots: Tensor  # [B, k, L] places in the sequence
    wanted: Tensor  # [B, k, L, unit] characters of the word of s_{i+1} that belongs there
    shifted: Tensor  # [B, k, L, 2] characters of the bigram that is looked up for it
    complete: Tensor  # [B]: no page is missing
    output: Tensor  # [B]: the first word of the alphabet that the last level writes


class Course:
    """Batches of the reading course for MLT(depth, chars): step -> batch, a pure function of the seed."""

    def __init__(self, depth: int, chars: int, seed: int, most_missing: float = 1.0, text: str = "composite") -> None:
        self.depth, self.chars, self.seed, self.most_missing, self.text = depth, chars, seed, most_missing, text
        self.tokenizer = make_tokenizer(Translations(depth, chars, 1, text=text))
        self._encoders: dict[tuple[int, tuple[int, int]], tuple[Translations, Encoder]] = {}
        self._collator = Collator(self.tokenizer.pad_token_id, 2**30)

    def _source(self, levels: int, length: int) -> tuple[Translations, Encoder]:
        key = (levels, (length, length))
        if key not in self._encoders:
            source = Translations(levels, self.chars, MANY, None, (length, length), self.seed, self.text, bank=Bank())
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
            rows += self._rows(stage, length, numbers[whole:], self.most_missing)
        first_level = (drawn[2:] % np.uint64(self.depth - stage.levels + 1)).astype(np.int64)
        return self._packed(stage.levels, length, numbers, rows, first_level, whole)

    def _rows(self, stage: Stage, length: int, numbers: np.ndarray, most: float) -> list[np.ndarray]:
        """Token rows: <BOOK>, the shown rules, the given string; at most this share of the pages missing.

        How many are missing is uniform between none and that share, but now and then it is a whole section or the whole
        book: the drop rate rises with progress and the positions are spread evenly over it.
        """
        source, encoder = self._source(stage.levels, length)
        rates = ((0.0, 0.0), (1 - EMPTY, most), (1 - EMPTY, 1.0), (1.0, 1.0)) if most else ((0.0, 0.0),)
        curriculum = Curriculum(candidates="needed", others=stage.others, drop=Schedule(rates), spread="coin")
        plan = Plan(source, curriculum, seed=self.seed)
        spread = (numbers * 0x9E3779B97F) % MANY if most else numbers  # multiplication by an odd number: no repeats
        items = PositionDataset(plan, encoder).__getitems__(spread.tolist())
        return [item.ids for item in items]

    def _packed(
        self, levels: int, length: int, numbers: np.ndarray, rows: list[np.ndarray], first: np.ndarray, whole: int
    ) -> ReadingBatch:
        config = student_config(self.depth, self.chars, text=self.text)
        size, unit, pad, think = config.alphabet, config.unit, config.first_special, config.special("<THINK>")
        shape = (len(rows), levels, length // unit, unit)
        slots = levels * shape[2]
        heads = [row[: len(row) - slots - 1] for row in rows]  # without thoughts and answer
        longest = max(map(len, heads)) + slots
        ids = np.full((len(rows), longest), pad, np.int64)
        starts = np.array([len(head) for head in heads])
        for b, head in enumerate(heads):
            is_rule = (head >= config.first_rule) & (not config.writes)
            words = (head + first[b] * size) % pad  # those of the output have the first numbers
            ids[b, : len(head)] = np.where(head < pad, words, head + first[b] * is_rule * size * size)
            ids[b, len(head) : len(head) + slots] = think
        spread = (numbers[whole:] * 0x9E3779B97F) % MANY
        examples = np.concatenate([numbers[:whole], spread])
        translation, _ = self._source(levels, length)[0].translations(examples)
        strings = translation.strings[:, :, :length].astype(np.int64)
        shifted = np.roll(strings[:, :-1], -1, axis=-1).reshape(len(rows), levels, length // 2, 2)
        places = starts[:, None] + np.arange(slots)
        return ReadingBatch(
            ids=torch.from_numpy(ids),
            slots=torch.from_numpy(places.reshape(shape[:3])),
            wanted=torch.from_numpy(strings[:, 1:].reshape(shape)),
            shifted=torch.from_numpy(shifted.repeat(2 // unit, axis=2)),
            complete=torch.arange(len(rows)) < whole,
            output=torch.from_numpy((first + levels + 1) % (self.depth + 1) * size),
        )


class Passes(NamedTuple):
    """What is known after the layers of the course."""

    known: list[Tensor]  # character logits after each pass of the two-layer block, [B, L, unit, n]
    looked_up: list[Tensor]  # after its first layer those of the bigram that is looked up, [B, L, 2, n]
    states: list[Tensor]  # hidden states after the first layer and after the last, [B, T, D]


def passes(model: StudentForCausalLM, batch: ReadingBatch) -> Passes:
    """The layers one after another, with what their slots know."""
    inner, head = model.model, model.lm_head
    where = Geometry(batch.ids, model.config)
    hidden = inner.embed_tokens(batch.ids)
    rotary = inner.rotary_emb(hidden, position_ids=where.positions)
    mask = where.mask(hidden.dtype)
    rows = torch.arange(len(batch.ids))[:, None]
    known: list[Tensor] = []
    looked_up: list[Tensor] = []
    states: list[Tensor] = []
    for level in range(batch.slots.shape[1]):
        slots = batch.slots[:, level]
        for number, role, results in ((0, 0, looked_up), (1, 2, known)):
            layer = inner.layers[2 * level + number]
            hidden = layer(hidden, attention_mask=mask, position_embeddings=rotary, alone=where.alone)
            results.append(head.characters(inner.norm(hidden[rows, slots]), role))
            states.append(hidden)
    return Passes(known, looked_up, [states[0], states[-1]])


def writing_loss(model: StudentForCausalLM, batch: ReadingBatch, states: list[Tensor]) -> Tensor:
    """Where rules are text: a word on the right must know the left side early, and answers are told from all words."""
    norm, head, config = model.model.norm, model.lm_head, model.config
    where = Geometry(batch.ids, config)
    row, place = where.right.nonzero(as_tuple=True)
    halves = torch.arange(2 // config.unit) - 2 // config.unit
    left = config.characters(batch.ids[row[:, None], (place - where.half[row, place])[:, None] + halves])
    bound = head.characters(norm(states[0][row, place]), 0)
    binding = nn.functional.cross_entropy(bound.flatten(0, 1), left.flatten())
    slots = states[1][torch.arange(len(batch.ids))[:, None], batch.slots[:, -1]]
    words = batch.output[:, None] + config.words(batch.wanted[:, -1])
    answer = nn.functional.cross_entropy(head(norm(slots)).flatten(0, 1), words.flatten())
    return binding + answer


def looped(config: StudentConfig, seed: int) -> StudentForCausalLM:
    """A student whose levels share one block of two layers."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = StudentForCausalLM(config)
    block = list(model.model.layers[:2])
    model.model.layers = nn.ModuleList(block * config.depth)
    return model


def untied(model: StudentForCausalLM, spare: int = 0) -> StudentForCausalLM:
    """The same function with 2d layers of their own: an ordinary Llama. `spare` units of each MLP write nothing yet."""
    config = copy.deepcopy(model.config)
    config.intermediate_size += spare
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(spare)
        apart = StudentForCausalLM(config)
    weights = model.state_dict()
    for name, weight in apart.state_dict().items():
        used = weights[name]
        weight[tuple(slice(size) for size in used.shape)].copy_(used)
    return apart


def accuracy(known: list[Tensor], batch: ReadingBatch, words: slice = slice(None)) -> list[float]:
    """Share of right characters at each level, in examples with all pages."""
    wanted = batch.wanted[batch.complete][:, :, words]
    right = [k[batch.complete][:, words].argmax(-1) == wanted[:, i] for i, k in enumerate(known)]
    return [float(level.float().mean()) for level in right]


class Lesson:
    """The course in progress. What a step does depends on the seed, the step and the counters alone."""

    def __init__(
        self,
        depth: int,
        chars: int,
        lengths: tuple[int, int],
        seed: int,
        settings: ReadingConfig,
        text: str = "composite",
    ) -> None:
        self.settings, self.lengths = settings, lengths
        self.course = Course(depth, chars, seed, settings.most_missing, text)
        self.stages = stages(depth, lengths, settings)
        size = (settings.width, settings.heads, settings.head, settings.mlp)
        self.model = looped(student_config(depth, chars, *size, text=text, lag=settings.lag), seed)
        self.optimizer = muon_adamw(self.model, settings.matrix_lr, settings.lr)
        self._peaks = [group["lr"] for group in self.optimizer.param_groups]
        self.step = self.samples = self.stage = self.ending = 0
        self.recent: list[float] = []

    def counters(self) -> dict[str, Any]:
        """What a checkpoint must hold besides weights and optimiser."""
        names = ("step", "samples", "stage", "ending", "recent")
        return {name: getattr(self, name) for name in names}

    def restore(self, counters: dict[str, Any]) -> None:
        for name, value in counters.items():
            setattr(self, name, value)

    @property
    def finished(self) -> bool:
        return self.step >= self.settings.most_steps or self.ending >= self.final_steps

    @property
    def final_steps(self) -> int:
        """Doubt takes longer the more levels it has to pass."""
        return self.settings.final_steps * self.stages[-1].levels

    @property
    def _last(self) -> bool:
        return self.stage == len(self.stages) - 1

    @property
    def levels(self) -> int:
        return self.stages[self.stage].levels

    def take_step(self) -> dict[str, Any]:
        """One step of training; returns the loss and the accuracy at each level, on examples with all pages."""
        settings, here = self.settings, self.stages[self.stage]
        size = max(2, settings.batch_size // (1 if here.levels < 2 else 2 if not self._last else 4))
        batch = self.course.batch(here, self.step, size, settings.missing)
        known, looked_up, states = passes(self.model, batch)
        loss = self._loss(known, batch.wanted) + self._loss(looked_up, batch.shifted)
        if self.model.config.writes:
            loss = loss + writing_loss(self.model, batch, states)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self._set_rates(here)
        self.optimizer.step()
        by_level = accuracy(known, batch)
        self.step, self.samples = self.step + 1, self.samples + size
        score = by_level[-1]
        if here.ends and not self._last:
            score = min(score, accuracy(known, batch, self._end)[-1])
        self.recent = [*self.recent, score][-settings.last_window :]
        if self.stage < len(self.stages) - 1 and self._running(settings.window) > settings.gate:
            self.stage, self.recent = self.stage + 1, []
        return {"loss": float(loss.detach()), "accuracy": by_level}

    @property
    def _end(self) -> slice:
        """The words of a string's last bigram, which has to look at the first."""
        return slice(-2 // self.model.config.unit, None)

    def _loss(self, logits: list[Tensor], wanted: Tensor) -> Tensor:
        """Cross-entropy of characters, averaged over levels."""
        ends = self.stages[self.stage].ends
        mean = _cross_entropy(logits, wanted)
        if not ends:
            return mean
        last = _cross_entropy([x[:, self._end] for x in logits], wanted[:, :, self._end])
        return (mean + ends * last) / (1 + ends)

    def _running(self, window: int) -> float:
        """Mean accuracy of the last steps of this stage; zero while there are too few of them."""
        return float(np.mean(self.recent[-window:])) if len(self.recent) >= window else 0.0

    def _set_rates(self, here: Stage) -> None:
        """Warm up, halve from three levels on; once the last stage is nearly mastered, stay for half of its end, then
        go to zero."""
        settings = self.settings
        rate = min(1.0, (self.step + 1) / settings.warmup) * (1.0 if here.levels < 3 else 0.5)
        if self.ending or (self._last and self._running(settings.last_window) > settings.gate + settings.margin):
            self.ending += 1
            rate *= min(1.0, 2 - 2 * self.ending / self.final_steps)
        for group, peak in zip(self.optimizer.param_groups, self._peaks, strict=True):
            group["lr"] = peak * rate

    def go_on(self) -> None:
        """The rate went to zero too early: back to the last stage at its full rate, until it is mastered again."""
        self.ending, self.recent = 0, []

    def reader(self) -> StudentForCausalLM:
        """The student as it is now, with layers of its own."""
        return untied(self.model, self.settings.spare)


def _cross_entropy(logits: list[Tensor], wanted: Tensor) -> Tensor:
    n = logits[0].shape[-1]
    each = [nn.functional.cross_entropy(x.reshape(-1, n), wanted[:, i].reshape(-1)) for i, x in enumerate(logits)]
    return torch.stack(each).mean()
