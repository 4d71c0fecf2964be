"""Learning to read: how a student becomes ICL-capable from nothing.

One block of two layers learns to look up one level, then the same block is looped over more and more levels, and in the
end its loops are untied into 2d layers: an ordinary Llama. After pass i the slots of level i must know s_{i+1} (deep
supervision), and after the first of its two layers they must know the shifted bigram that is to be looked up. Every
example has a random codebook of its own, so nothing can be remembered. Half of the examples have pages missing, so that
the reader learns to know what it does not know: a rule that is not there leaves all right sides open, and what follows
from each of them. Only then does the loss of an answer say what the missing rule must have been, level by level, which
is what context-enhanced learning lives on afterwards.

Where rules are text, a word on the right of a rule must know the left side after the first layer, and the answer must
be more likely than all other words. There is no loss on the words of the book: with it the second level was still at
chance after 380 steps, without it it was learned after 270. Perhaps a block that must predict what follows a rule
cannot pass the rule on.
"""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from openbook.student.course import Course, ReadingBatch, Stage, stages
from openbook.student.model import StudentForCausalLM
from openbook.student.vocabulary import Geometry, StudentConfig, student_config
from openbook.training.config import ReadingConfig, TaskConfig
from openbook.training.optimizers import muon_adamw


class Passes(NamedTuple):
    """What a student knows after each layer."""

    known: list[Tensor]  # character logits after each pass of the two-layer block, [B, L, unit, n]
    looked_up: list[Tensor]  # after its first layer those of the bigram that is looked up, [B, L, 2, n]
    states: list[Tensor]  # hidden states after the first layer and after the last, [B, T, D]


def passes(model: StudentForCausalLM, batch: ReadingBatch) -> Passes:
    """Run the layers one after another, and read after each what its slots know."""
    inner, head = model.model, model.lm_head
    where = Geometry(batch.ids, model.config)
    hidden = inner.embed_tokens(batch.ids)
    rotary = inner.rotary_emb(hidden, position_ids=where.positions)
    mask = where.mask(hidden.dtype)
    rows = torch.arange(len(batch.ids))[:, None]
    logits: list[Tensor] = []
    states: list[Tensor] = []
    for number in range(2 * batch.slots.shape[1]):
        level, second = divmod(number, 2)
        hidden = inner.layers[number](hidden, attention_mask=mask, position_embeddings=rotary, alone=where.alone)
        logits.append(head.characters(inner.norm(hidden[rows, batch.slots[:, level]]), 2 * second))
        states.append(hidden)
    return Passes(logits[1::2], logits[::2], [states[0], states[-1]])


def writing_loss(model: StudentForCausalLM, batch: ReadingBatch, states: list[Tensor]) -> Tensor:
    """Where rules are text: the loss of the left side after the first layer, and of the answer among all words."""
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
    """The same function with 2d separate layers: an ordinary Llama. `spare` units of each MLP have no effect yet."""
    config = copy.deepcopy(model.config)
    config.intermediate_size += spare
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(spare)
        apart = StudentForCausalLM(config)
    weights = apart.state_dict()
    for name, used in model.state_dict().items():
        weights[name][tuple(slice(size) for size in used.shape)].copy_(used)
    return apart


def accuracy(known: list[Tensor], batch: ReadingBatch, words: slice = slice(None)) -> list[float]:
    """Share of the right characters at each level, in examples without missing pages."""
    wanted = batch.wanted[batch.complete][:, :, words]
    right = [k[batch.complete][:, words].argmax(-1) == wanted[:, i] for i, k in enumerate(known)]
    return [float(level.float().mean()) for level in right]


class Lesson:
    """The course in progress. What a step does depends on the seed, the step and the counters alone."""

    def __init__(self, task: TaskConfig, seed: int, settings: ReadingConfig) -> None:
        self.task, self.settings = task, settings
        self.course = Course(task.depth, task.chars, seed, settings.most_missing, task.text)
        self.stages = stages(task.depth, task.lengths, settings)
        size = (settings.width, settings.heads, settings.head, settings.mlp)
        self.model = looped(student_config(task.depth, task.chars, *size, text=task.text, lag=settings.lag), seed)
        self.optimizer = muon_adamw(self.model, settings.matrix_lr, settings.lr)
        self._peaks = [group["lr"] for group in self.optimizer.param_groups]
        self._end = slice(-2 // self.model.config.unit, None)  # words of the last bigram, which the first one decides
        # Steps in which the rate falls to zero; more for more levels, which doubt has to pass through.
        self.final_steps = settings.final_steps * task.depth
        self.step = self.samples = self.stage = self.ending = 0
        self.recent: list[float] = []
        self.exams = 0  # number of exams that were failed

    def counters(self) -> dict[str, Any]:
        """What a checkpoint needs besides weights and optimiser."""
        return {name: getattr(self, name) for name in ("step", "samples", "stage", "ending", "recent", "exams")}

    def restore(self, counters: dict[str, Any]) -> None:
        """Go on from the counters of a checkpoint."""
        vars(self).update(counters)

    @property
    def finished(self) -> bool:
        """Whether the last stage has ended, or the course has lasted too long."""
        return self.step >= self.settings.most_steps or self.ending >= self.final_steps

    @property
    def _last(self) -> bool:
        """Whether this is the last stage."""
        return self.stage == len(self.stages) - 1

    def batch(self) -> ReadingBatch:
        """The examples of the next step: fewer where they are longer."""
        here = self.stages[self.stage]
        size = max(2, self.settings.batch_size // (1 if here.levels < 2 else 2 if not self._last else 4))
        return self.course.batch(here, self.step, size, self.settings.missing)

    def take_step(self) -> dict[str, Any]:
        """Take a step; returns the loss and the accuracy at each level, on examples without missing pages."""
        settings, here, batch = self.settings, self.stages[self.stage], self.batch()
        known, looked_up, states = passes(self.model, batch)
        loss = self.loss(known, batch.wanted) + self.loss(looked_up, batch.shifted)
        if self.model.config.writes:
            loss = loss + writing_loss(self.model, batch, states)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self._set_rates(here)
        self.optimizer.step()
        by_level = accuracy(known, batch)
        self.step, self.samples = self.step + 1, self.samples + len(batch.ids)
        score = by_level[-1]
        if here.ends and not self._last:
            score = min(score, accuracy(known, batch, self._end)[-1])
        self.recent = [*self.recent, score][-settings.last_window :]
        if not self._last and self.running_accuracy(settings.window) > settings.gate:
            self.stage, self.recent = self.stage + 1, []
        return {"loss": float(loss.detach()), "accuracy": by_level}

    def loss(self, logits: list[Tensor], wanted: Tensor) -> Tensor:
        """Cross-entropy of characters, in which those of the last bigram may count for more."""
        ends = self.stages[self.stage].ends
        mean = _cross_entropy(logits, wanted)
        if not ends:
            return mean
        last = _cross_entropy([x[:, self._end] for x in logits], wanted[:, :, self._end])
        return (mean + ends * last) / (1 + ends)

    def running_accuracy(self, window: int) -> float:
        """Mean accuracy of the last steps of this stage; zero while these are too few."""
        return float(np.mean(self.recent[-window:])) if len(self.recent) >= window else 0.0

    def _set_rates(self, here: Stage) -> None:
        """Set the learning rates: warm up, and halve from three levels on.

        Once the last stage is nearly mastered, the rate stays for half of the final steps and then falls to zero.
        """
        settings = self.settings
        rate = min(1.0, (self.step + 1) / settings.warmup) * (1.0 if here.levels < 3 else 0.5)
        if self.ending or (
            self._last and self.running_accuracy(settings.last_window) > settings.gate + settings.margin
        ):
            self.ending += 1
            rate *= min(1.0, 2 - 2 * self.ending / self.final_steps)
        for group, peak in zip(self.optimizer.param_groups, self._peaks, strict=True):
            group["lr"] = peak * rate

    def repeat_last_stage(self) -> None:
        """After a failed exam, go back to the full rate in the last stage until it is mastered again."""
        self.ending, self.recent = 0, []
        self.exams += 1

    def reader(self) -> StudentForCausalLM:
        """The student as it is now, with separate layers, and with weights of the precision that is saved."""
        apart = untied(self.model, self.settings.spare)
        for weight in apart.parameters():  # not buffers, which are never saved
            weight.data = weight.data.to(getattr(torch, self.settings.kept)).float()
        return apart


def _cross_entropy(logits: list[Tensor], wanted: Tensor) -> Tensor:
    """Cross-entropy of the characters at each level, averaged over levels."""
    n = logits[0].shape[-1]
    each = [nn.functional.cross_entropy(x.reshape(-1, n), wanted[:, i].reshape(-1)) for i, x in enumerate(logits)]
    return torch.stack(each).mean()
