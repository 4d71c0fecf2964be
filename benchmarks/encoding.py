"""How fast examples become tokens, on one core: the full text of the released code, with the annealed curriculum.

`encode` is everything between a position of training and its tokens and labels: inputs, translation, needed rules, the
curriculum's choice, text and tokens. The baseline does it the obvious way: it writes each example out as text and
tokenises all of it. That both say the same, character by character, is checked before anything is timed. (The tokens
are the same too but for a colon or semicolon before a line break, which the whole text merges into one token.)
"""

from __future__ import annotations

import os

os.environ["TOKENIZERS_PARALLELISM"] = "false"

from collections.abc import Iterator
from functools import partial

import numpy as np

from _rows import Row, cpu_seconds, main
from _tokenizer import THINK, llama_like
from openbook.book.text import COMPLETION_KINDS, Kind
from openbook.book.text import THINK as FORMAT_THINK
from openbook.curriculum import SamplingPlan, curriculum_named
from openbook.task import Codebook
from openbook.task.source import Translations
from openbook.training.encode import Encoded, Encoder

DEPTH = 5
COUNT = 100_000
BATCH = 512  # positions at once: several optimiser steps, and arrays that stay in the cache
SLOW = 32  # examples for the obvious way
GOAL = 20_000
PROMPT_KINDS = set(Kind) - COMPLETION_KINDS


def sampled(total: int, count: int) -> np.ndarray:
    """Runs of 32 consecutive positions, spread evenly over training, as a loader would ask for them."""
    starts = np.linspace(0, total - 32, count // 32).astype(np.int64)
    return (starts[:, None] + np.arange(32)).reshape(-1)


def encode(plan: SamplingPlan, encoder: Encoder, positions: np.ndarray) -> Encoded:
    return encoder.encode(*plan.at(positions))


def encode_as_text(plan: SamplingPlan, encoder: Encoder, positions: np.ndarray) -> list[list[int]]:
    """The obvious way: example -> text -> chat turns -> tokens."""
    _, opened = plan.at(positions)
    texts = []
    for row, index in enumerate(plan.indices(positions).tolist()):
        rendered = plan.source.example(index).render(opened.numbers(row))
        prompt, completion = rendered.of(*PROMPT_KINDS), rendered.of(*COMPLETION_KINDS)
        completion = completion.replace(FORMAT_THINK, encoder.think)
        texts.append(encoder.frame.before + prompt + encoder.frame.between + completion + encoder.frame.end)
    return encoder.tokenizer(texts, add_special_tokens=False)["input_ids"]


def measure() -> Iterator[Row]:
    for chars in (8, 10):
        for name, codebook in (("one codebook", Codebook.sample(DEPTH, chars)), ("fresh codebook", None)):
            source = Translations(DEPTH, chars, COUNT, codebook)
            plan = SamplingPlan(source, curriculum_named("anneal"))
            encoder = Encoder(llama_like(source), source.bank, think=THINK)
            fast, slow = sampled(plan.total, BATCH), sampled(plan.total, SLOW)
            ours = encoder.tokenizer.batch_decode(encode(plan, encoder, slow).ids)
            if ours != encoder.tokenizer.batch_decode(encode_as_text(plan, encoder, slow)):
                raise AssertionError("the two ways give different texts")
            lengths = np.array([len(ids) for ids in encode(plan, encoder, fast).ids])
            yield Row(
                name,
                value=len(fast) / cpu_seconds(partial(encode, plan, encoder, fast)),
                unit="samples/s",
                baseline=len(slow) / cpu_seconds(partial(encode_as_text, plan, encoder, slow)),
                goal=GOAL,
                extra={"chars": chars, "depth": DEPTH, "tokens_per_example": float(lengths.mean())},
                at=f"n={chars}",
            )
        yield Row("length", float(lengths.mean()), "tokens/sample", at=f"n={chars}", extra={"chars": chars})


if __name__ == "__main__":
    main("Encoding, d=5, the released text with annealing, CPU time of one core", measure)
