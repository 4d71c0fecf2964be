"""How fast the task is made, on one core: samples per second against the plain-Python oracle in the same run.

`one codebook` and `fresh codebook` include the inputs, all intermediate strings and the rules used; `jsonl` is the
finished bytes of records in the released code's text format, under one codebook.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial

from _rows import Row, cpu_seconds, main
from openbook.task import Codebook, random_inputs, translate, translate_batch
from openbook.task.dataset import DatasetSpec, record
from openbook.task.encoder import CHUNK, RecordEncoder
from openbook.task.formats import ReleasedFormat
from openbook.task.phrasebook import sample_tables

DEPTH = 5
LENGTHS = (20, 40)
BATCH = 2048  # samples at once: arrays that stay in the cache
SLOW = 64  # samples for the oracle
GOALS = {"one codebook": 400_000, "fresh codebook": 20_000, "jsonl": 15_000}


def oracle(chars: int, codebook: Codebook | None) -> None:
    """Inputs, levels and used rules of a few samples, one after another."""
    for i in range(SLOW):
        book = codebook or Codebook.sample(DEPTH, chars, seed=1, index=i)
        inputs, lengths = random_inputs(chars, 1, LENGTHS, start=i)
        for level in translate(book, inputs[0, : lengths[0]].tolist()):
            set(level.bigrams)


def one_codebook(chars: int, codebook: Codebook) -> None:
    translate_batch(codebook, *random_inputs(chars, BATCH, LENGTHS)).used()


def fresh_codebooks(chars: int) -> None:
    tables = sample_tables(DEPTH, chars, 1, 0, CHUNK)
    translate_batch(tables, *random_inputs(chars, CHUNK, LENGTHS), chars).used()


def oracle_lines(spec: DatasetSpec) -> None:
    for i in range(SLOW):
        json.dumps(record(spec, i), ensure_ascii=False).encode()


def measure() -> Iterator[Row]:
    for chars in (8, 10):
        codebook = Codebook.sample(DEPTH, chars)
        spec = DatasetSpec(ReleasedFormat(DEPTH, chars), CHUNK, codebook, lengths=LENGTHS)
        contests = {
            "one codebook": (BATCH, partial(one_codebook, chars, codebook), partial(oracle, chars, codebook)),
            "fresh codebook": (CHUNK, partial(fresh_codebooks, chars), partial(oracle, chars, None)),
            "jsonl": (CHUNK, partial(RecordEncoder(spec).lines, 0, CHUNK), partial(oracle_lines, spec)),
        }
        for name, (count, fast, slow) in contests.items():
            yield Row(
                name,
                value=count / cpu_seconds(fast),
                unit="samples/s",
                baseline=SLOW / cpu_seconds(slow),
                goal=GOALS[name],
                extra={"chars": chars, "depth": DEPTH, "lengths": LENGTHS},
                at=f"n={chars}",
            )


if __name__ == "__main__":
    main("The task, d=5, strings of 20 to 40 characters, CPU time of one core", measure)
